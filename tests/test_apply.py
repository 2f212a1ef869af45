"""`apply`: into a new work copy, proved by the training interpreter, recorded; nothing current moves before that."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from world import World, git, patchq, states, step_of

from patchq.commands.apply import apply
from patchq.document import sha256
from patchq.errors import Invalid, Prevented, Refused
from patchq.evidence.record import list_records
from patchq.lock import load_lock
from patchq.report import Report, State
from patchq.workarea import WorkArea

TEST = "alpha/tests/test_name.py"


def commit_of(world: World, target: str, variant: str | None = None, upstream: str = "alpha") -> str:
    return load_lock(world.place.queue).of(target, variant)[upstream].commit


def current(world: World, upstream: str = "alpha") -> str | None:
    link = world.work / upstream / "current"
    return str(link.readlink()) if link.is_symlink() else None


def fails(world: World, code: int, target: str = "tiny") -> Report:
    """An apply that ends with this code, and leaves no current copy behind."""
    report = apply(world.place, target)
    assert report.exit_code == code, report.as_json()
    return report


def test_a_target_with_all_that_it_needs(own: World) -> None:
    """A git upstream and an sdist; compiled, located, imported, tested by an interpreter that has no pytest."""
    report = apply(own.place, "small")
    assert report.exit_code == 0, report.as_json()
    assert current(own) == commit_of(own, "small") and current(own, "beta") == commit_of(own, "small", upstream="beta")
    assert {step.state for step in report.steps if step.name == "test_name.py"} == {State.PASSED, State.EXCLUDED}
    copy = own.work / "alpha/current"
    assert step_of(report, "import alpha").summary == str(copy.resolve() / "alpha/__init__.py")
    assert (copy / "alpha/dos.py").read_bytes() == b"one = 1\r\ntwo = 22\r\nthree = 3\r\nfour = 4\r\nfive = 5\r\n"
    assert not list(copy.rglob("__pycache__")) and list((own.work / "pycache").rglob("core.*.pyc"))
    assert (own.work / "beta/current/beta/opt.py").read_text().endswith("return 2 * x\n")
    (record,) = list_records(own.work / "records")
    assert (record.verb, record.exit, record.lock) == ("apply", 0, load_lock(own.place.queue).digest)
    assert record.facts["git"] and record.facts["environments"]["train"]["version"].startswith("3.")
    assert record.facts["patches"]["alpha"]["commit"] == commit_of(own, "small")
    assert record.facts["origins"]["train"]["alpha"]["imported"]["alpha"]["file"].startswith(str(own.work))
    again = apply(own.place, "small")
    assert {step.state for step in again.steps} == {State.UNCHANGED}
    assert len(list_records(own.work / "records")) == 1
    assert patchq("verify", "--target", "small", "--queue", own.root) == 0


@pytest.mark.fault
def test_a_test_that_fails_keeps_the_copy_aside_and_current_as_it_was(own: World) -> None:
    assert apply(own.place, "blind").exit_code == 4
    before = current(own)
    own.write({TEST: "def test_it():\n    assert False, 'as it should'\n"}).locked()
    own.write({"targets/tiny.yaml": (own.root / "targets/tiny.yaml").read_text()})
    report = fails(own, 1)
    failed = step_of(report, "test_name.py")
    assert failed.state is State.FAILED and any("as it should" in row for row in failed.detail)
    assert current(own) == before
    kept = Path(step_of(report, "kept for inspection").summary)
    assert kept.parent == own.work / "alpha/failed" and kept.name.startswith(commit_of(own, "tiny"))
    assert git(kept, "rev-parse", "HEAD") == commit_of(own, "tiny")
    assert not (own.work / "alpha" / commit_of(own, "tiny")).exists()
    last = list_records(own.work / "records")[-1]
    assert (last.exit, last.target) == (1, "tiny")
    log = own.work / "records" / last.id / "logs/tests-alpha-train.txt"
    assert "as it should" in log.read_text()


@pytest.mark.fault
def test_code_that_does_not_compile_or_import_is_not_placed(own: World) -> None:
    name = "alpha/device/rename-it.patch"
    text = (own.root / name).read_bytes()
    own.write({name: text.replace(b'+NAME = "patched"', b"+NAME = (")})
    lines = [row for row in (own.root / name).read_text().splitlines(keepends=True) if not row.startswith("index")]
    own.write({name: "".join(lines)}).locked()
    report = fails(own, 1)
    assert states(report)["compile alpha"] == states(report)["import alpha"] == "failed"
    assert any("SyntaxError" in row for row in step_of(report, "compile alpha").detail)
    assert current(own) is None


@pytest.mark.fault
def test_what_is_not_run_is_said_and_the_copy_placed(own: World) -> None:
    target = (own.root / "targets/tiny.yaml").read_text()
    own.write({"targets/tiny.yaml": target.replace("without: [absent_module]", "without: []")}).locked()
    report = apply(own.place, "tiny")
    assert report.exit_code == 4
    assert {step.state for step in report.steps if step.name == "test_name.py"} == {State.PASSED, State.NOT_RUN}
    assert current(own) == commit_of(own, "tiny")
    blind = apply(own.place, "blind")
    assert blind.exit_code == 4 and states(blind)["interpreter train"] == "not run"
    assert list_records(own.work / "records")[-1].not_run()[0] == "interpreter train"


def test_a_stale_or_missing_lock_is_refused(own: World) -> None:
    own.write({"variants/study.yaml": "description: other\nresearch: [alpha/research/later]\n"})
    report = apply(own.place, "blind")
    assert report.exit_code == 1 and states(report) == {"variants/study.yaml": "edited"}
    (own.root / "patchq.lock").unlink()
    with pytest.raises(Refused, match="the queue has no lock"):
        apply(own.place, "blind")
    assert current(own) is None


@pytest.mark.parametrize("part", ["tree", "commit"])
def test_a_lock_that_names_other_results_is_not_followed(own: World, part: str) -> None:
    text = (own.root / "patchq.lock").read_text()
    wrong = load_lock(own.place.queue).selections["blind/alpha"].patches[1]
    own.write({"patchq.lock": text.replace(getattr(wrong, part), "1" * 40)})
    report = apply(own.place, "blind")
    assert report.exit_code == 1
    assert step_of(report, "commits").summary == "the patches give other commits than the lock names"
    assert not list((own.work / "alpha").glob("*"))


def test_another_baseline_than_the_locks_is_refused(own: World) -> None:
    text = (own.root / "patchq.lock").read_text()
    own.write({"patchq.lock": text.replace(load_lock(own.place.queue).selections["blind/alpha"].base_tree, "1" * 40)})
    report = apply(own.place, "blind")
    assert report.exit_code == 1 and "is not the baseline of the lock" in step_of(report, "baseline").summary


def test_a_copy_that_was_changed_is_not_taken_for_the_locked_one(own: World) -> None:
    apply(own.place, "blind")
    core = (own.work / "alpha/current").resolve() / "alpha/core.py"
    whole, stat = core.read_bytes(), core.stat()
    core.write_bytes(whole.replace(b"a = 3", b"a = 4"))
    os.utime(core, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    report = apply(own.place, "blind")
    assert report.exit_code == 1
    step = step_of(report, "work copy")
    assert step.state is State.FAILED and "modified: alpha/core.py" in step.detail
    assert core.read_bytes() != whole, "no copy that a process may import ever changes"


def test_variants_stand_side_by_side(own: World) -> None:
    apply(own.place, "blind")
    apply(own.place, "blind", "deep")
    assert current(own) == commit_of(own, "blind", "deep")
    assert (own.work / "alpha" / commit_of(own, "blind")).is_dir()
    with pytest.raises(Invalid, match="did you mean 'deep'"):
        apply(own.place, "blind", "depp")


def test_two_at_once_the_second_says_who_holds_it(own: World) -> None:
    with (
        WorkArea(own.work).locked("verify"),
        pytest.raises(Prevented, match=rf"in use: patchq verify, process {os.getpid()}"),
    ):
        apply(own.place, "blind")


@pytest.mark.fault
def test_an_installed_distribution_is_patched_in_place_and_taken_back(own: World, tmp_path: Path) -> None:
    site = tmp_path / "python"
    shutil.copytree(own.python.parent.parent, site, symlinks=True)
    (config := site / "pyvenv.cfg").write_text(config.read_text())
    target = (own.root / "targets/site.yaml").read_text()
    own.write({"targets/site.yaml": target.replace(str(own.python), str(site / "bin/python"))}).locked()
    file = next(site.glob("lib/python3*/site-packages/beta/opt.py"))
    plain = file.read_bytes()
    report = apply(own.place, "site")
    assert report.exit_code == 0, report.as_json()
    locked = load_lock(own.place.queue).selections["site/beta"].files["beta/opt.py"]
    assert (sha256(plain), sha256(file.read_bytes())) == (locked.before, locked.after)
    assert apply(own.place, "site").counts == {}
    file.write_bytes(plain)
    assert patchq("verify", "--target", "site", "--queue", own.root) == 1
    file.write_bytes(plain.replace(b"x", b"y"))
    assert patchq("apply", "--target", "site", "--queue", own.root) == 1
    assert file.read_bytes() == plain.replace(b"x", b"y")


@pytest.mark.fault
def test_protected_paths_are_proved_untouched(own: World, tmp_path: Path) -> None:
    vendor = tmp_path / "vendor"
    vendor.mkdir()
    (vendor / "x.py").write_text("x = 1\n")
    name = "targets/tiny.yaml"
    text = (own.root / name).read_text()
    extra = f'    protected_paths: ["{vendor}", "${{NO_VENDOR:-}}"]\n'
    own.write({name: text + extra, TEST: f"def test_it():\n    open('{vendor}/x.py', 'a').write('x = 2')\n"}).locked()
    report = fails(own, 1)
    assert step_of(report, str(vendor)).summary == "was changed"
    own.write({TEST: "def test_it():\n    pass\n"}).locked()
    report = apply(own.place, "tiny")
    assert step_of(report, str(vendor)).state is State.PASSED
    assert "nothing is proved" in step_of(report, "${NO_VENDOR:-}").summary


@pytest.mark.fault
def test_the_record_holds_no_secret_and_reads_as_plain_json(own: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_" + "a" * 30)
    own.write({TEST: "import os\n\ndef test_it():\n    print(os.environ['HF_TOKEN'])\n    assert 0\n"}).locked()
    fails(own, 1)
    (folder,) = (own.work / "records").glob("*-apply-*")
    everything = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert b"a" * 30 not in everything
    assert json.loads((folder / "record.json").read_bytes())["schema"] == 1
    assert subprocess.run(("sha256sum", "-c", "--quiet", "SHA256SUMS"), cwd=folder, check=False).returncode == 0
