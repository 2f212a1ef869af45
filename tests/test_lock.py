"""The lock: two machines agree on it, and nothing that it says can change in silence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from world import ALPHA, World, git, patchq, states, step_of

from patchq.commands.lock import lock
from patchq.document import sha256
from patchq.errors import DoesNotApply, Invalid, Prevented, Refused
from patchq.lock import LockedWheels, differences, load_lock, parse_lock
from patchq.queuejournal import LOCK_NAME
from patchq.report import State


def digests(world: World) -> dict[str, str]:
    files = (path for path in world.root.rglob("*") if path.is_file() and path.name != LOCK_NAME)
    return {path.relative_to(world.root).as_posix(): sha256(path.read_bytes()) for path in files}


def test_a_lock_says_what_every_selection_resolves_to(world: World) -> None:
    locked = load_lock(world.place.queue)
    assert locked.files == digests(world)
    deep = locked.selections["small+deep/alpha"]
    assert (deep.baseline, deep.base_commit) == ("git", world.base)
    assert deep.submodules == {"plug": git(world.alpha, "rev-parse", "main:plug")}
    assert [patch.name for patch in deep.patches][-1] == "alpha/research/deeper.patch"
    assert (deep.patches[-1].tree, deep.patches[-1].commit) == (deep.tree, deep.commit)
    assert deep.patches[0].sha256 == locked.files["alpha/device/rename-it.patch"]
    sdist, site = locked.selections["small/beta"], locked.selections["site/beta"]
    assert (sdist.base_tree, sdist.tree) == (site.base_tree, site.tree)
    assert sdist.files == {} and list(site.files) == ["beta/opt.py"]
    assert site.files["beta/opt.py"].before != site.files["beta/opt.py"].after
    assert set(locked.of("plain", None)) == {"alpha"}
    with pytest.raises(Refused, match="the lock has no selection for plain\\+none"):
        locked.of("plain", "none")


def test_it_is_the_same_bytes_elsewhere_and_reads_back(own: World) -> None:
    before = (own.root / LOCK_NAME).read_bytes()
    (own.root / LOCK_NAME).unlink()
    assert step_of(lock(own.place), "lock").state is State.PASSED
    assert (own.root / LOCK_NAME).read_bytes() == before
    assert parse_lock(before, "x").to_bytes() == before
    assert step_of(lock(own.place), "lock").state is State.UNCHANGED
    assert load_lock(own.place.queue).digest == sha256(before)


def test_what_changed_is_said_when_it_is_written_again(own: World) -> None:
    text = (own.root / "targets/plain.yaml").read_text()
    own.write({"targets/plain.yaml": text + "exclude: [alpha/device/rename-it]\n"})
    stale = list(differences(own.place.queue, load_lock(own.place.queue)))
    assert [(problem.where, problem.what) for problem in stale] == [("targets/plain.yaml", "differs from the lock")]
    check = lock(own.place, check=True)
    assert check.exit_code == 1
    assert states(check)["plain/alpha"] == states(check)["targets/plain.yaml"] == "edited"
    report = lock(own.place)
    assert report.exit_code == 0 and states(report)["plain/alpha"] == "note" and "small/alpha" not in states(report)
    assert lock(own.place, check=True).exit_code == 0


def test_new_and_missing_files_are_differences(own: World) -> None:
    own.write({"alpha/tests/more.py": "", "variants/study.yaml": None})
    found = {problem.where: problem.what for problem in differences(own.place.queue, load_lock(own.place.queue))}
    assert found == {"alpha/tests/more.py": "is new since the lock", "variants/study.yaml": "is gone since the lock"}


def test_check_writes_nothing_and_needs_a_lock(own: World) -> None:
    (own.root / LOCK_NAME).unlink()
    with pytest.raises(Refused, match="the queue has no lock"):
        lock(own.place, check=True)
    assert not (own.root / LOCK_NAME).exists()


def test_a_selection_that_does_not_apply_keeps_the_old_lock(own: World) -> None:
    before = (own.root / LOCK_NAME).read_bytes()
    name = "alpha/device/small-only.patch"
    own.write({name: (own.root / name).read_bytes().replace(b" def f2():", b" def g2():")})
    with pytest.raises(DoesNotApply) as caught:
        lock(own.place)
    said = str(caught.value)
    assert f"small: {name}: conflict" in said and "nothing was written (patchq check says why)" in said
    assert (own.root / LOCK_NAME).read_bytes() == before


def test_a_queue_with_lint_errors_or_broken_demands_is_not_locked(own: World) -> None:
    text = (own.root / "alpha/series").read_text()
    own.write({"alpha/series": text.replace("#+small", "#+smal")})
    with pytest.raises(Invalid, match="no target has the trait"):
        lock(own.place)
    own.write({"alpha/series": text.replace("research/deeper.patch        #+small", "research/deeper.patch")})
    with pytest.raises(Refused, match=r"requires alpha/device/small-only\.patch, which is not selected"):
        lock(own.place)
    name = "alpha/device/rename-it.patch"
    patch = (own.root / name).read_bytes()
    own.write({"alpha/series": text, name: patch.replace(b"Origin:", b"Forbid: alpha/core.py /return b/\nOrigin:")})
    with pytest.raises(Refused, match="forbids /return b/, found 8 times"):
        lock(own.place)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda data: data + b"\n", "is not in the form that patchq writes"),
        (lambda data: data.replace(b"  ", b"    "), "is not in the form that patchq writes"),
    ],
)
def test_a_lock_in_another_form_is_no_lock_and_is_written_anew(own: World, change: object, what: str) -> None:
    before = (own.root / LOCK_NAME).read_bytes()
    assert callable(change)
    own.write({LOCK_NAME: change(before)})
    with pytest.raises(Invalid, match=what):
        load_lock(own.place.queue)
    assert what in str([step.summary for step in lock(own.place, check=True).steps])
    assert lock(own.place).exit_code == 0
    assert (own.root / LOCK_NAME).read_bytes() == before


@pytest.mark.parametrize("data", [b"", b"<<<<<<< HEAD\n{}", b'{"schema": 9}', b"\xff", b"[" * 5000])
def test_a_lock_that_cannot_be_read_says_what_to_do(
    own: World, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    own.write({LOCK_NAME: data})
    for verb in (["lock"], ["lock", "--check"], ["apply", "--target", "blind"], ["check", "--target", "plain"]):
        assert patchq(*verb, "--queue", own.root) == 2
        assert "patchq.lock" in (shown := "".join(capsys.readouterr())) or "lock  malformed" in shown
    with pytest.raises(Invalid, match=r"put back the last good one \(git checkout\), or remove it"):
        lock(own.place)
    assert (own.root / LOCK_NAME).read_bytes() == data


def test_what_cannot_be_proved_here_stands_as_locked_and_says_so(
    own: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "empty"))
    baseline = own.root / "alpha/baseline.yaml"
    baseline.write_text(baseline.read_text().replace(str(own.alpha), "/nowhere/alpha"))
    own.write({"variants/deep.yaml": None, "variants/study.yaml": None, "alpha/series": "device/rename-it.patch\n"})
    for name in ("small-only", "all-kinds", "not-a-program"):
        (own.root / f"alpha/device/{name}.patch").unlink()
    shutil.rmtree(own.root / "alpha/research")
    with pytest.raises(Prevented, match="could not be had from /nowhere/alpha"):
        lock(own.place)


def test_unchanged_selections_stand_where_their_baseline_is_not_here(
    world: World, own: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`--check` does not call it proved."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "empty"))
    hidden = world.alpha.rename(world.alpha.with_name("hidden"))
    try:
        text = (own.root / "queue.yaml").read_text()
        own.write({"queue.yaml": f"{text}description: other\n"})
        report, check = lock(own.place), lock(own.place, check=True)
    finally:
        hidden.rename(world.alpha)
    assert report.exit_code == 0 and step_of(report, "baselines").state is State.NOTE
    assert check.exit_code == 4 and step_of(check, "baselines").state is State.NOT_RUN
    assert any(row.startswith("tiny/alpha: alpha: the baseline") for row in step_of(check, "baselines").detail)


def test_a_baseline_that_is_not_what_the_queue_says_is_refused(own: World) -> None:
    baseline = own.root / "alpha/baseline.yaml"
    text = baseline.read_text()
    baseline.write_text(text[: text.index("  submodules")])
    with pytest.raises(Refused, match=r"the baseline has the submodules \{'plug':"):
        lock(own.place)
    baseline.write_text(text.replace(own.base, "1" * 40))
    with pytest.raises(Prevented, match="it has no such commit"):
        lock(own.place)


def test_the_id_of_a_tree_or_a_tag_is_no_baseline(own: World, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(own.alpha), str(clone))
    git(clone, "tag", "-a", "-m", "v", "v1", own.base)
    baseline = own.root / "alpha/baseline.yaml"
    text = baseline.read_text().replace(str(own.alpha), str(clone))
    for identity, said in (
        (git(clone, "rev-parse", "main^{tree}"), "is a tree, not a commit"),
        (git(clone, "rev-parse", "v1"), rf"is a tag, not a commit \(the tag is of the commit {own.base}\)"),
    ):
        baseline.write_text(text.replace(own.base, identity))
        for _ in range(2):
            with pytest.raises(Refused, match=said):
                lock(own.place)


def test_wheels_that_are_asked_for_otherwise_make_a_lock_stale(own: World) -> None:
    locked = load_lock(own.place.queue)
    pins = LockedWheels(request=("x==1",), python="3.12", platform="manylinux_2_17_x86_64", pins=())
    own.write({LOCK_NAME: locked.model_copy(update={"wheels": {"small/train": pins}}).to_bytes()})
    report = lock(own.place, check=True)
    assert report.exit_code == 1 and states(report)["wheels small/train"] == "edited"


def test_a_lock_is_read_line_by_line_in_review(world: World) -> None:
    text = (world.root / LOCK_NAME).read_text()
    assert max(len(line) for line in text.splitlines()) < 400
    assert json.loads(text)["schema"] == 1
    assert ALPHA["alpha/__init__.py"].decode() not in text
