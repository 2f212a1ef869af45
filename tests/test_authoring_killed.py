"""Authoring verbs killed, interrupted or told no at each of their file operations: as patchq sees it the queue is old
or new, and the same words once more, or what the message says, end where an undisturbed call ends.

Counted are those outside the store, whose objects are what their names say or not there. `PATCHQ_EVERY=1` takes each of
them; else it is a sample.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from authoring import Room, commit, make_room, name, numbered, ten
from faultkit import EVERY, INTERRUPTED, Fault, in_child, points
from world import git_bytes as git
from world import patchq, write

from patchq.authoring.editcopy import is_copy
from patchq.queuejournal import read_queue
from patchq.rebase.session import Desk

SAMPLE = 0 if EVERY else 3
ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES)


@dataclass(frozen=True)
class Made:
    """A queue at `root`, the edit copy of it (if there is one), the user's data; all below one folder."""

    folder: Path
    root: Path
    copy: Path

    def moved(self, folder: Path) -> Made:
        """A copy of all of it at `folder`."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return Made(folder, folder / self.root.relative_to(self.folder), folder / self.copy.relative_to(self.folder))

    def run(self, words: Sequence[str]) -> int:
        """A command line in the edit copy, or beside the queue; the store is this copy's own."""
        os.environ["XDG_DATA_HOME"] = str(self.folder / "home/data")
        os.chdir(self.copy if self.copy.is_dir() else self.root.parent)
        return patchq(*words)

    @property
    def queue(self) -> dict[str, bytes]:
        """The queue's files as patchq sees them."""
        return read_queue(self.root)[0]

    def state(self) -> object:
        """All that a person sees: the queue, a rebase under way with its scratch copy, the edit copy."""
        desk = Desk(self.root, "up")
        session = desk.load()
        scratch = {path.name: path.read_bytes() for path in sorted(desk.copy.glob("pkg/*"))}
        return self.queue, session and session.model_dump(exclude={"written"}), scratch, seen(self.copy)


def seen(copy: Path) -> object:
    """The commits of an edit copy, what is not committed, and its files."""
    if not is_copy(copy):
        return None
    told = git(copy, "log", "--format=%s %T"), git(copy, "status", "--porcelain", "--untracked-files=all")
    return told, {path.name: path.read_bytes() for path in copy.iterdir() if path.is_file()}


# --- what is there before ----------------------------------------


def plain(folder: Path, patch: pytest.MonkeyPatch) -> Made:
    """A queue of ten patches, and loose patches beside it."""
    bench = ten(folder, patch)
    loose = bench.place.root.parent / "loose"
    write(loose, {"series": b"one.patch\ntwo.patch #+ppu\n", "one.patch": ADDED % (b"one", b"one"),
                  "two.patch": ADDED % (b"two", b"two")})  # fmt: skip
    return Made(folder, bench.root, bench.copy)


def sent_home(folder: Path, patch: pytest.MonkeyPatch) -> Made:
    """What was changed elsewhere since the lock, in one file beside the queue: a patch, a new one, the series."""
    made = plain(folder, patch)
    assert made.run(("lock",)) == 0
    there = made.moved(folder.with_name("there"))
    assert there.run(("import", "loose", "--upstream", "up", "--layer", "device")) == 0
    third = there.root / f"up/{name(3)}"
    third.write_bytes(third.read_bytes().replace(b"more 3", b"many 3"))
    out = made.root.parent / "changes.txt"
    assert there.run(("export", "--since", str(made.root), "--out", str(out))) == 0
    shutil.rmtree(there.folder)
    return made


ADDED = b"Description: Add a file\nAuthor: A <a@b.c>\n\n--- /dev/null\n+++ b/%s\n@@ -0,0 +1 @@\n+%s\n"


def edited(folder: Path, patch: pytest.MonkeyPatch) -> Made:
    """An edit copy with an uncommitted edit in the middle of ten, and a new commit."""
    bench = ten(folder, patch)
    bench.edit()
    (bench.copy / "new.txt").write_text("new\n")
    bench.git("add", ".")
    bench.git("commit", "-q", "-m", "New one\n\nPatchq-Layer: device")
    bench.change("app.py", "line 5.3 patched", "line 5.3 better")
    return Made(folder, bench.root, bench.copy)


def mixed(folder: Path, patch: pytest.MonkeyPatch) -> Made:
    """An edit copy with uncommitted changes in two files and a new one."""
    bench = ten(folder, patch)
    bench.edit()
    bench.change("app.py", "line 5.3 patched", "line 5.3 better")
    bench.change("README", "hello", "hi")
    (bench.copy / "new.txt").write_text("new\n")
    return Made(folder, bench.root, bench.copy)


def behind(folder: Path, patch: pytest.MonkeyPatch) -> Made:
    """An idle edit copy, behind a queue that was changed."""
    bench = ten(folder, patch)
    bench.edit()
    bench.write(f"up/{name(3)}", bench.read(f"up/{name(3)}").replace(b"more 3", b"many 3"))
    return Made(folder, bench.root, bench.copy)


def release(folder: Path, patch: pytest.MonkeyPatch) -> Room:
    """Four patches; on the release `v2.0` the first and the third conflict."""
    patch.setenv("XDG_DATA_HOME", str(folder / "home/data"))
    room = make_room(folder, {"pkg/__init__.py": b"", "pkg/a.py": numbered(60), "pkg/b.py": numbered(40)})
    a, b = {5: "ours"}, {30: "ours too"}
    room.fill(room.stack([
        ("device/a.patch", {"pkg/a.py": numbered(60, a)}),
        ("device/far.patch", {"pkg/a.py": numbered(60, {**a, 50: "far"})}),
        ("device/b.patch", {"pkg/b.py": numbered(40, b)}),
        ("device/end.patch", {"pkg/a.py": numbered(60, {**a, 50: "far", 58: "end"})}),
    ]))  # fmt: skip
    new = {"pkg/a.py": b"top\n" + numbered(60, {5: "theirs"}), "pkg/b.py": numbered(40, {30: "theirs too"})}
    commit(room.clone, new, "everything else")
    git(room.clone, "tag", "v2.0")
    return room


def resolve(copy: Path) -> None:
    """Take the patch's side of each conflict."""
    for path in copy.glob("pkg/*.py"):
        data = path.read_bytes()
        while b"<<<<<<<" in data:
            before, _, rest = data.partition(b"<<<<<<<")
            ours, _, after = rest.partition(b"=======\n")[2].partition(b">>>>>>>")
            data = before + ours + after.partition(b"\n")[2]
        path.write_bytes(data)


def stopped(*answers: str) -> Callable[[Path, pytest.MonkeyPatch], Made]:
    """A rebase that stopped, after these answers to earlier stops; the conflict at which it stands is resolved."""

    def prepare(folder: Path, patch: pytest.MonkeyPatch) -> Made:
        room = release(folder, patch)
        made = Made(folder, room.root, folder / "no copy")
        made.run(REBASE)
        for answer in answers:
            resolve(Desk(made.root, "up").copy)
            made.run(("rebase", "up", answer))
        resolve(Desk(made.root, "up").copy)
        return made

    return prepare


def moving(folder: Path, patch: pytest.MonkeyPatch) -> Made:
    return Made(folder, release(folder, patch).root, folder / "no copy")


def smooth(folder: Path, patch: pytest.MonkeyPatch) -> Made:
    """A series that moves without a stop."""
    made = moving(folder, patch)
    (made.root / "up/series").write_bytes(b"device/far.patch\n")
    for other in ("a", "b", "end"):
        (made.root / f"up/device/{other}.patch").unlink()
    return made


# --- the verbs ----------------------------------------

REBASE = ("rebase", "up", "--to", "v2.0")


@dataclass(frozen=True)
class Story:
    """What is there, the words that are killed, and the exit code that they have undisturbed."""

    prepare: Callable[[Path, pytest.MonkeyPatch], Made]
    words: tuple[str, ...]
    code: int = 0


STORIES = {
    "refresh": Story(edited, ("refresh", "--into", "change-5")),
    "new-take": Story(mixed, ("new", "device/mine", "--take", "new.txt", "--take", "app.py")),
    "new": Story(plain, ("new", "up/device/empty", "--guard", "+ppu")),
    "edit": Story(plain, ("edit", "--target", "ppu", "up")),
    "edit-again": Story(behind, ("edit", "--target", "ppu", "up")),
    "drop": Story(plain, ("drop", "change-3", "--yes")),
    "import": Story(plain, ("import", "loose", "--upstream", "up", "--layer", "device")),
    "import-what-is-new": Story(sent_home, ("import", "changes.txt")),
    "import-upstream": Story(plain, ("import", "{made}/clone", "--as-upstream", "other")),
    "rebase": Story(moving, REBASE, 3),
    "rebase-through": Story(smooth, REBASE),
    "continue-to-a-stop": Story(stopped(), ("rebase", "up", "--continue"), 3),
    "continue-to-the-end": Story(stopped("--continue"), ("rebase", "up", "--continue")),
    "skip-to-a-stop": Story(stopped(), ("rebase", "up", "--skip"), 3),
    "skip-to-the-end": Story(stopped("--continue"), ("rebase", "up", "--skip")),
    "abort": Story(stopped(), ("rebase", "up", "--abort")),
}


@pytest.mark.parametrize(
    "verb, most", [("refresh", 2), *(pytest.param(verb, SAMPLE, marks=pytest.mark.fault) for verb in STORIES)]
)
def test_killed_at_each_file_operation(
    verb: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _disturbed(verb, lambda count: [Fault(at) for at in points(count, most)], tmp_path, monkeypatch, capfd)


@pytest.mark.fault
@pytest.mark.parametrize("verb", STORIES)
def test_interrupted_and_told_no_at_each_file_operation(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kinds = [*(Fault(signal=signal.SIGINT, after=after) for after in (False, True)), *map(_no, ERRORS)]

    def faults(count: int) -> list[Fault]:
        if EVERY:
            return [replace(kind, at=at) for at in range(count) for kind in kinds]
        first = list(STORIES).index(verb)
        return [replace(kinds[number % len(kinds)], at=at) for number, at in enumerate(points(count, SAMPLE), first)]

    _disturbed(verb, faults, tmp_path, monkeypatch, capfd)


def _no(error: int) -> Fault:
    return Fault(error=error)


def _disturbed(
    verb: str,
    faults: Callable[[int], list[Fault]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    story = STORIES[verb]
    for variable in ("XDG_DATA_HOME", "PWD"):
        monkeypatch.setenv(variable, os.environ.get(variable, "/"))  # put back at the end
    monkeypatch.chdir(tmp_path)
    made = story.prepare(tmp_path / "made", monkeypatch)
    story = replace(story, words=tuple(word.format(made=made.folder) for word in story.words))
    whole = made.moved(tmp_path / "whole")
    undisturbed = in_child(lambda: whole.run(story.words), Fault(within=whole.root.parent))
    assert undisturbed.code == story.code, capfd.readouterr()
    old, new, after = made.queue, whole.queue, whole.state()
    for number, kind in enumerate(faults(undisturbed.operations)):
        mine = made.moved(tmp_path / f"{number}")
        fault = replace(kind, within=mine.root.parent)
        ended = in_child(lambda mine=mine: mine.run(story.words), fault)  # type: ignore[misc]
        assert ended.code in fault.codes(story.code, ended.is_struck), (fault, ended)
        assert ended.is_struck or not isinstance(fault.at, int) or fault.at >= ended.operations
        assert mine.queue in (old, new), fault
        assert ended.code != INTERRUPTED or not left(mine.folder), (fault, "an interrupt leaves nothing behind")
        finish(mine, story, after)
        assert mine.state() == after and not left(mine.folder), fault
        shutil.rmtree(mine.folder)


def left(folder: Path) -> list[str]:
    """What is no file or folder of its own but on the way to be one."""
    found = (*folder.rglob(".new-*"), *folder.rglob(".*.patchq-new"), *folder.rglob(".git/index.lock"))
    return sorted(str(path.relative_to(folder)) for path in found)


def finish(made: Made, story: Story, after: object) -> None:
    """What a person does who sees that a verb did not end: the same again, or what they are told.

    As patchq sees it all may be done already: the next verb brings the files up to that.
    """
    if made.state() == after and not left(made.folder):
        return
    session = Desk(made.root, "up").load()
    if story.words[0] == "rebase" and session and session.stopped is None:
        assert made.run(("rebase", "up", "--continue")) == story.code
        return
    made.run(story.words)
