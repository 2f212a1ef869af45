"""`verify` re-proves from contents what was applied: no cache is trusted, and what nothing imports is only listed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from world import World, git, patchq, step_of

from patchq.commands.apply import apply
from patchq.commands.install import undo_folder
from patchq.commands.ready import ready
from patchq.commands.verify import verify
from patchq.errors import Refused
from patchq.installed.undo import begin, put_back
from patchq.report import Report, State


@pytest.fixture(scope="module")
def made(world: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A queue of its own, applied for `blind`."""
    mine = world.copy(tmp_path_factory.mktemp("verify") / "own")
    assert apply(mine.place, "blind").exit_code == 4
    return mine


@pytest.fixture
def copy(made: World) -> Path:
    return (made.work / "alpha/current").resolve()


def copy_step(made: World) -> tuple[State, tuple[str, ...], Report]:
    report = verify(made.place, "blind")
    step = step_of(report, "work copy")
    return step.state, step.detail, report


def test_what_was_applied_is_there(made: World) -> None:
    state, _, report = copy_step(made)
    assert state is State.PASSED and report.exit_code == 4, "the interpreter is not there, and that is said"
    assert step_of(report, "lock").state is State.PASSED


def _same_size_and_time(copy: Path) -> None:
    path = copy / "alpha/core.py"
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(b"a = 3", b"a = 4"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _hidden_from_status(copy: Path) -> None:
    git(copy, "update-index", "--assume-unchanged", "alpha/core.py")
    (copy / "alpha/core.py").write_bytes(b"")


def _pyc_of_nothing(copy: Path) -> None:
    (copy / "alpha/ghost.pyc").write_bytes(b"")


DRIFTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "same size and time": (_same_size_and_time, "modified: alpha/core.py"),
    "hidden": (_hidden_from_status, "modified: alpha/core.py"),
    "gone": (lambda copy: (copy / "alpha/core.py").unlink(), "missing: alpha/core.py"),
    "a module more": (lambda copy: (copy / "alpha/more.py").touch(), "added: alpha/more.py"),
    "a package beside": (lambda copy: (copy / "torch.py").touch(), "added: torch.py"),
    "compiled": (_pyc_of_nothing, "added: alpha/ghost.pyc"),
    "x bit": (lambda copy: (copy / "alpha/core.py").chmod(0o755), "mode: alpha/core.py"),
    "link": (lambda copy: ((copy / "core").unlink(), (copy / "core").symlink_to("/etc/passwd")), "modified: core"),
    "file for a folder": (lambda copy: (shutil.rmtree(copy / "docs"), (copy / "docs").touch()), "type: docs"),
    "submodule": (lambda copy: (copy / "plug/plug/__init__.py").write_text(""), "modified: plug/plug/__init__.py"),
    "hook": (lambda copy: ((copy / ".git/hooks").mkdir(), (copy / ".git/hooks/x").touch()), "git: .git/hooks"),
    "configuration": (lambda copy: git(copy, "config", "core.fsmonitor", "x"), "git: .git/config"),
    "head": (lambda copy: git(copy, "checkout", "-q", "HEAD~1"), "git: .git/HEAD"),
}  # fmt: skip


@pytest.mark.parametrize("name", DRIFTS)
def test_each_drift_is_found_and_named(made: World, copy: Path, name: str, tmp_path: Path) -> None:
    kept = shutil.copytree(copy, tmp_path / "kept", symlinks=True)
    change, expected = DRIFTS[name]
    try:
        change(copy)
        state, detail, report = copy_step(made)
    finally:
        shutil.rmtree(copy)
        shutil.copytree(kept, copy, symlinks=True)
    assert state is State.FAILED and report.exit_code == 1
    assert any(row.startswith(expected) for row in detail), detail


def test_what_nothing_imports_is_listed_and_not_hashed(made: World, copy: Path) -> None:
    (copy / "outputs").mkdir()
    (copy / "outputs/log.txt").write_text("x")
    try:
        state, _, report = copy_step(made)
    finally:
        shutil.rmtree(copy / "outputs")
    assert state is State.PASSED and step_of(report, "untracked").detail == ("outputs/",)


def test_a_changed_queue_or_another_current_is_said(made: World, copy: Path) -> None:
    name = made.root / "variants/study.yaml"
    text = name.read_text()
    link = made.work / "alpha/current"
    link.unlink()
    name.write_text(text + "# x\n")
    try:
        report = verify(made.place, "blind")
    finally:
        name.write_text(text)
        link.symlink_to(copy.name)
    assert step_of(report, "variants/study.yaml").state is State.EDITED
    assert step_of(report, "current").state is State.WARNING and report.exit_code == 1


def test_verify_needs_an_apply_and_writes_a_record_and_nothing_else(made: World, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="nothing was applied for plain on this host"):
        verify(made.place, "plain")

    def everything() -> set[Path]:
        return {path for path in made.work.rglob("*") if "records" not in path.parts}

    before = everything()
    records = len(list((made.work / "records").iterdir()))
    assert patchq("verify", "--target", "blind", "--queue", made.root) == 4
    assert everything() == before
    assert len(list((made.work / "records").iterdir())) == records + 1


def test_an_install_that_was_cut_short_is_the_first_line(made: World, tmp_path: Path) -> None:
    """Half of its files may be new: nothing else that is wrong there matters more."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/torch.py").write_text("old")
    journal = undo_folder(made.place.area("blind"), "blind", "train") / "20260101T000000Z"
    begin(journal, "install of torch", [(tmp_path / "site", "torch.py")])
    (tmp_path / "site/torch.py").write_text("new")
    report = verify(made.place, "blind")
    assert report.exit_code == 1
    assert report.data["headline"] == (
        "install: into train was cut short: its files may be partly old and partly new"
        " → patchq install, apply or revert puts back what it was"
    )
    assert step_of(report, "install", "environment train").state is State.FAILED
    assert (tmp_path / "site/torch.py").read_text() == "new" and journal.is_dir(), "verify changes nothing"
    with pytest.raises(Refused, match="an install into train was cut short"):
        ready(made.place, "blind", "train")
    put_back(journal)
    assert verify(made.place, "blind").exit_code == 4


@pytest.mark.parametrize("verb", ["verify", "smoke", "run", "env", "install"])
def test_an_environment_that_is_not_declared_is_said_before_all_else(
    own: World, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where nothing was applied, there is no lock, and the work area's variable is not set."""
    text = (own.root / "targets/small.yaml").read_text()
    own.write({"targets/small.yaml": text.replace("${WORK:-work}", "${NOT_SET}"), "patchq.lock": None})
    assert patchq(verb, "--target", "small", "--env", "trian", "--queue", own.root) == 2
    said = capsys.readouterr().err
    assert "the target small has no environment 'trian' (did you mean 'train'?)" in said, said
