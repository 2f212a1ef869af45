"""Work copies that somebody else could touch: no verb runs what was put into them, and `verify` says what was done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from faultkit import sampled
from toy import applied, make_queue
from world import patchq

PAYLOAD = "#!/bin/sh\ntouch {mark}\n"
VERBS = (
    ("status",), ("verify", "--target", "here"), ("env", "--target", "here", "--env", "train"),
    ("run", "--target", "here", "--env", "train", "--", "true"), ("apply", "--target", "here"),
    ("prune", "--target", "here"), ("revert", "--target", "here"),
)  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A queue that was applied for real."""
    folder = tmp_path_factory.mktemp("copies")
    applied(make_queue(folder))
    return folder


def _config(text: str) -> Callable[[Path, str], None]:
    def change(copy: Path, payload: str) -> None:
        with (copy / ".git/config").open("a") as stream:
            stream.write(text.format(payload=payload))

    return change


def _hook(copy: Path, payload: str) -> None:
    for name in ("post-checkout", "post-index-change", "pre-commit", "reference-transaction", "fsmonitor-watchman"):
        (copy / ".git/hooks").mkdir(exist_ok=True)
        shutil.copy(payload, copy / ".git/hooks" / name)


def _linked(copy: Path, payload: str) -> None:
    elsewhere = copy.parent.parent / "elsewhere"
    (copy / ".git").rename(elsewhere)
    with (elsewhere / "config").open("a") as stream:
        stream.write(f"[core]\n\tfsmonitor = {payload}\n")
    (copy / ".git").symlink_to(elsewhere)


def _gitfile(copy: Path, payload: str) -> None:
    _linked(copy, payload)
    place = (copy / ".git").resolve()
    (copy / ".git").unlink()
    (copy / ".git").write_text(f"gitdir: {place}\n")


def _file(path: str, text: str) -> Callable[[Path, str], None]:
    def change(copy: Path, payload: str) -> None:
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        (copy / path).write_text(text.format(payload=payload))

    return change


def _attributes(copy: Path, payload: str) -> None:
    (copy / ".git/info/attributes").write_text("* filter=x diff=x merge=x\n")
    settings = '[filter "x"]\n\tclean = {payload}\n\tsmudge = {payload}\n\tprocess = {payload}\n'
    _config(settings + '[diff "x"]\n\ttextconv = {payload}\n\tcommand = {payload}\n')(copy, payload)
    os.utime(copy / "toy/__init__.py")


def _fifo(copy: Path, payload: str) -> None:
    (copy / ".git/config").unlink()
    os.mkfifo(copy / ".git/config")


CHANGES: dict[str, Callable[[Path, str], None]] = {
    "fsmonitor": _config("[core]\n\tfsmonitor = {payload}\n"),
    "hooks path": _config("[core]\n\thooksPath = {payload}\n"),
    "ssh, pager, editor": _config("[core]\n\tsshCommand = {payload}\n\tpager = {payload}\n\teditor = {payload}\n"),
    "include": _config("[include]\n\tpath = {payload}\n"),
    "aliases": _config("[alias]\n\tstatus = !{payload}\n\tread-tree = !{payload}\n"),
    "worktree elsewhere": _config("[core]\n\tworktree = /\n"),
    "extension": _config("[extensions]\n\tworktreeConfig = true\n"),
    "credential helper": _config("[credential]\n\thelper = !{payload}\n"),
    "hooks": _hook,
    "filters": _attributes,
    "git is a link": _linked,
    "git is a file": _gitfile,
    "config of a work tree": _file(".git/config.worktree", "[core]\n\tfsmonitor = {payload}\n"),
    "common folder": _file(".git/commondir", "../../..\n"),
    "alternates": _file(".git/objects/info/alternates", "/nowhere\n"),
    "grafts": _file(".git/info/grafts", "0" * 40 + "\n"),
    "replace refs": _file(".git/refs/replace/" + "1" * 40, "2" * 40 + "\n"),
    "packed replace refs": _file(".git/packed-refs", "1" * 40 + " refs/replace/" + "2" * 40 + "\n"),
    "HEAD": _file(".git/HEAD", "ref: refs/heads/patchq\n"),
    "config is a FIFO": _fifo,
    "a repository inside": _file("toy/.git/config", "[core]\n\tfsmonitor = {payload}\n"),
    "a file that leads to one": _file("toy/.git", "gitdir: /nowhere\n"),
    "a module beside": _file("sitecustomize.py", "import os\nos.system('{payload}')\n"),
    "a package beside": _file("json/__init__.py", "import os\nos.system('{payload}')\n"),
    "a path file": _file("x.pth", "import os; os.system('{payload}')\n"),
}


@pytest.mark.fault
@pytest.mark.parametrize("name", sampled(CHANGES, 8))
def test_nothing_that_was_put_into_a_copy_runs(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(made)
    work, kept = made / "work", tmp_path / "kept"
    shutil.copytree(work, kept, symlinks=True)
    mark, payload = tmp_path / "ran", tmp_path / "payload"
    payload.write_text(PAYLOAD.format(mark=mark))
    payload.chmod(0o755)
    CHANGES[name]((work / "toy/current").resolve(), str(payload))
    answers = {verb[0]: patchq(*verb) for verb in VERBS}
    shutil.rmtree(work)
    kept.rename(work)
    assert not mark.exists()
    assert answers["verify"] == 1 and answers["run"] == 1 and set(answers.values()) <= {0, 1}, answers


def _to_a_link(copy: Path) -> None:
    copy.rename(copy.with_name("aside"))
    copy.symlink_to("aside")


def _to_a_file(copy: Path) -> None:
    shutil.rmtree(copy)
    copy.touch()


def _current_elsewhere(copy: Path) -> None:
    shutil.copytree(copy, copy.with_name("aside"), symlinks=True)
    (copy.parent / "current").unlink()
    (copy.parent / "current").symlink_to("aside")


def _current_a_folder(copy: Path) -> None:
    (copy.parent / "current").unlink()
    shutil.copytree(copy, copy.parent / "current", symlinks=True)


def _package_a_link(copy: Path) -> None:
    (copy / "toy").rename(copy / "aside")
    (copy / "toy").symlink_to("aside")


SWAPS = {"a link to the same": _to_a_link, "a file": _to_a_file, "nothing": shutil.rmtree, "a package that is a link":
         _package_a_link, "current elsewhere": _current_elsewhere, "current a folder": _current_a_folder}  # fmt: skip


@pytest.mark.fault
@pytest.mark.parametrize("name", SWAPS)
def test_what_stands_in_the_place_of_a_copy_is_not_launched(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Also where all the bytes are right: a link can be led elsewhere once it has been looked at."""
    monkeypatch.chdir(made)
    monkeypatch.setattr("patchq.process.become", lambda _: pytest.fail("it was launched"))
    work, kept = made / "work", tmp_path / "kept"
    shutil.copytree(work, kept, symlinks=True)
    SWAPS[name]((work / "toy/current").resolve())
    answers = {verb[0]: patchq(*verb) for verb in VERBS[1:2] + VERBS[3:4]}
    said = capsys.readouterr()
    shutil.rmtree(work)
    kept.rename(work)
    assert answers == {"verify": 1, "run": 1}, said
    assert str(work / "toy") in said.out + said.err
