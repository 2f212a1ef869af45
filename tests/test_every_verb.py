"""Every verb on machines that are not as one expects: strange paths, clocks that jumped, no home, no git, no room, and
nothing to write to. Where that does not matter all goes as ever; else it is one clean line, exit 5, and nothing left.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import typer
from test_bad_machines import child, needs_mounts
from test_machine_killed import COPY, apart, left, training
from world import World, contents, git, header, write

from patchq.cli.app import app

OWN = ("--target", "own")
LOOSE = b"\n--- /dev/null\n+++ b/alpha/loose.py\n@@ -0,0 +1 @@\n+loose = True\n"
# In this order each of them says yes. {n} is another word each time, {last} the newest record.
SESSION: tuple[tuple[str, ...], ...] = (
    ("init", "--name", "mine", "fresh"), ("lock",), ("status",), ("check", *OWN), ("series", *OWN),
    ("show", "small-only"), ("files",), ("graph",), ("annotate", "alpha/core.py", *OWN),
    ("bundle", *OWN, "--out", "{n}"), ("export", *OWN, "--format", "git-am", "--out", "{n}"), ("apply", *OWN),
    ("install", *OWN), ("smoke", *OWN, "--from", "step", "--to", "step"), ("verify", *OWN), ("env", *OWN),
    ("run", *OWN, "--", "true"), ("record", "list", *OWN), ("record", "show", "{last}", *OWN),
    ("record", "diff", "{last}", "{last}", *OWN), ("record", "attach", "loose.patch", "--kind", "note", *OWN),
    ("record", "export", *OWN, "--out", "{n}"), ("edit", *OWN, "--out", "copy"), ("refresh", "copy"),
    ("new", "alpha/device/mine"), ("import", "loose.patch", "--upstream", "alpha", "--layer", "device"),
    ("drop", "deeper", "--yes"), ("rebase", "alpha", "--to", "next", "--source", "alpha=clone"), ("prune", *OWN),
    ("revert", *OWN),
)  # fmt: skip
VERBS = [words[0] for words in SESSION]
APPLIED, EDITED = VERBS.index("smoke"), VERBS.index("refresh")


def test_the_session_has_every_verb() -> None:
    """A new verb has to be put into it."""
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert set(verbs) == {words[0] for words in SESSION}


@dataclass
class Desk:
    """The folder below which all of a user's things are, and where patchq is called."""

    folder: Path
    before: str = ""
    env: dict[str, str] = field(default_factory=dict)

    def call(self, words: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        records = sorted(path.name for path in self.folder.glob("work/records/2*"))
        named = [word.format(n=f"out-{len(list(self.folder.iterdir()))}", last="".join(records[-1:])) for word in words]
        return child(*named, cwd=self.folder, before=self.before, **self.env)

    def go(self, session: tuple[tuple[str, ...], ...]) -> None:
        """Each says yes, in words without a warning from Python."""
        for words in session:
            done = self.call(words)
            assert done.returncode == 0 and "Warning" not in done.stderr, (words, done.stdout, done.stderr)
            assert not left(self.folder), words


def made(world: World, uses: str = COPY) -> Desk:
    """A queue with the target `own`, and beside it what is imported and moved to."""
    training(world, uses)
    folder = world.root.parent
    (folder / "loose.patch").write_bytes(header("Add a file") + LOOSE)
    shutil.copytree(world.alpha, folder / "clone", symlinks=True)
    write(folder / "clone", {"NEWS": "next\n"})
    git(folder / "clone", "add", "NEWS")
    git(folder / "clone", "commit", "-q", "-m", "next")
    git(folder / "clone", "tag", "next")
    (folder / "fresh").mkdir()
    return Desk(folder)


@pytest.mark.fault
def test_where_it_does_not_matter_all_goes_as_ever(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path with whatever a name may hold, no home, and a clock that was in 2099 until the apply was done."""
    with apart(world, tmp_path / "- all'of\"it 码 [b]x[/b] 🎯 $HOME" / "case", monkeypatch) as mine:
        desk = made(mine)
        desk.env["HOME"] = "/nowhere/at all"
        desk.go(SESSION[:APPLIED])
        since = '{"what": "patchq x", "pid": 1, "host": "h", "since": "2099-01-01T00:00:00Z"}'
        (desk.folder / "work/.lock").write_text(since)
        for path in desk.folder.rglob("*"):
            os.utime(path, (4_070_908_800, 4_070_908_800), follow_symlinks=False)
        desk.go(SESSION[APPLIED:])


# Where it does.


def no_git(desk: Desk) -> None:
    """All programs but git."""
    _programs(desk, without=("git",))


def old_git(desk: Desk) -> None:
    """A stand-in that says so: nothing else of it is asked."""
    _programs(desk, without=("git",))
    git = desk.folder.parent / "bin/git"
    git.write_text("#!/bin/sh\n[ $1 = --version ] || exit 99\necho git version 1.8.3\n")
    git.chmod(0o755)


def _programs(desk: Desk, without: tuple[str, ...]) -> None:
    folder = desk.folder.parent / "bin"
    folder.mkdir()
    for name in {path.name for place in os.get_exec_path() for path in Path(place).glob("*")} - {*without}:
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    desk.env["PATH"] = str(folder)


def no_room(desk: Desk) -> None:
    """No file may become larger than nothing, which needs no disk to be full (setrlimit(2), RLIMIT_FSIZE)."""
    desk.before = "ulimit -f 0"


def read_only(desk: Desk) -> None:
    """Queue, work area, store, environment and temporary files."""
    desk.before = f"mount --bind {desk.folder} {desk.folder} && mount -o remount,ro,bind {desk.folder}"


SICK = [no_git, old_git, no_room, pytest.param(read_only, marks=needs_mounts)]
# What needs neither git nor to write; and what may say yes all the same, because there is nothing left to do.
UNTOUCHED = {"status", "series", "show", "files", "record list", "record show", "record diff"}


@pytest.mark.fault
@pytest.mark.parametrize("condition", SICK)
def test_where_it_does_it_is_one_line(
    condition: Callable[[Desk], None], world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is half done by it either: once the machine is well again, the session goes on."""
    with apart(world, tmp_path / "case", monkeypatch) as mine:
        well = made(mine)
        well.go(tuple(words for words in SESSION[:EDITED] if words[0] in ("apply", "install", "edit")))
        sick = Desk(well.folder)
        condition(sick)
        queue = contents(mine.root)
        for words in SESSION:
            done = sick.call(words)
            name = " ".join(words[: 2 if words[0] == "record" else 1])
            assert done.returncode in ((0,) if name in UNTOUCHED else (0, 5)), (words, done.stdout, done.stderr)
            if done.returncode == 5:
                *_, said = done.stderr.splitlines()
                assert said.startswith("error: ") and len(said) > len("error: the machine said: "), (words, done.stderr)
                assert any(word in said for word in SAID[condition.__name__]), (words, said)
            assert not left(well.folder), (words, left(well.folder))
        if condition in (no_room, read_only):  # without git, what needs none is done
            assert contents(mine.root) == queue
            well.go((SESSION[VERBS.index("verify")], SESSION[VERBS.index("run")]))


SAID = {
    "no_git": ("git: ",),
    "old_git": ("is too old", "git does not answer"),
    "no_room": ("File too large", "exit status -25"),
    "read_only": ("Read-only file system",),
}
