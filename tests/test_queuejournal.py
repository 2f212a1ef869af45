"""Writing the queue: old or new, never a mixture, whatever kills it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from patchq.errors import Invalid, Prevented, Refused
from patchq.queuejournal import journal_folder, read_queue, settle, write_queue

OLD = {"v/series": b"device/a.patch\n", "v/device/a.patch": b"old\n", "gone": b"x", "patchq.lock": b"{}\n"}
CHANGES: dict[str, bytes | None] = {
    "v/series": b"device/a.patch\ndevice/b.patch\n",
    "v/device/a.patch": b"new\n",
    "v/device/b.patch": b"\xff\0\n",
    "w/deep/er": b"",
    "gone": None,
    "patchq.lock": b'{"a": 1}\n',
}
NEW = {path: data for path, data in {**OLD, **CHANGES}.items() if data is not None}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make(tmp_path / "repo")


def make(folder: Path) -> Path:
    for path, data in OLD.items():
        place = folder / "series" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return folder / "series"


def on_disk(root: Path) -> dict[str, bytes]:
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_what_is_written_is_there(root: Path) -> None:
    (root / "v/series").chmod(0o664)
    assert sorted(write_queue(root, CHANGES)) == sorted(CHANGES)
    assert on_disk(root) == NEW == read_queue(root)[0]
    assert (root / "v/series").stat().st_mode & 0o777 == 0o664
    assert write_queue(root, CHANGES) == ()
    assert not settle(root)


def test_the_journal_is_where_git_says(tmp_path: Path) -> None:
    main = tmp_path / "main"
    run = {"check": True, "capture_output": True, "text": True}
    subprocess.run(["git", "init", "-q", str(main)], **run)
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "x"], cwd=main, **run)
    subprocess.run(["git", "worktree", "add", "-q", str(tmp_path / "linked")], cwd=main, **run)
    for folder in (main, tmp_path / "linked"):
        root = make(folder / "deep")
        told = subprocess.run(["git", "rev-parse", "--git-path", "patchq"], cwd=root, **run).stdout.strip()
        assert journal_folder(root).parent == (root / told).resolve()
    assert journal_folder(make(main)) != journal_folder(main / "deep/series")


def test_beside_the_queue_without_git(root: Path) -> None:
    write_queue(root, CHANGES)
    assert journal_folder(root).parent == root.parent / ".patchq"


@pytest.mark.parametrize("path", ["../x", "/x", "v/./x", "", "v//x"])
def test_nothing_outside_is_written(root: Path, path: str) -> None:
    with pytest.raises(Invalid, match="not a path below the queue"):
        write_queue(root, {path: b""})


def test_nothing_is_written_through_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (root / "w").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="through a link"):
        write_queue(root, CHANGES)
    assert on_disk(root) == OLD


def test_a_file_that_moved_on_meanwhile_is_not_overwritten(root: Path) -> None:
    from patchq.document import sha256

    seen = {path: sha256(data) for path, data in OLD.items()}
    (root / "v/device/a.patch").write_bytes(b"somebody else's\n")
    with pytest.raises(Refused, match="was changed while this ran"):
        write_queue(root, CHANGES, seen=seen)
    assert (root / "v/series").read_bytes() == OLD["v/series"]


def test_a_stranger_stops_everything(root: Path) -> None:
    assert in_child(lambda: write_queue(root, CHANGES), at_file(root, "v/series")) == -signal.SIGKILL
    (root / "v/series").write_bytes(b"neither\n")
    for act in (lambda: settle(root), lambda: write_queue(root, {"x": b""}), lambda: read_queue(root)):
        with pytest.raises(Refused, match="neither as before nor as after") as caught:
            act()
    assert "removing" in caught.value.problems[0].hint
    assert (root / "v/series").read_bytes() == b"neither\n"


def test_a_damaged_journal_is_not_written_out(root: Path) -> None:
    assert in_child(lambda: write_queue(root, CHANGES), at_file(root, "v/series")) == -signal.SIGKILL
    journal = journal_folder(root) / "commit"
    journal.write_bytes(journal.read_bytes()[:-1])
    with pytest.raises(Refused, match="damaged"):
        settle(root)


def test_read_through_changes_nothing(root: Path) -> None:
    assert in_child(lambda: write_queue(root, CHANGES), at_file(root, "v/series")) == -signal.SIGKILL
    before = on_disk(root)
    assert read_queue(root)[0] == NEW != before
    assert on_disk(root) == before
    assert settle(root)
    assert on_disk(root) == NEW


EVERY = pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.fault), 7])


@EVERY
def test_killed_at_each_file_operation(tmp_path: Path, step: int) -> None:
    """As patchq sees it old or new at every point; completed by the next call; nothing left behind."""
    seen = []
    for at in range(0, 400, step):
        root = make(tmp_path / f"{at}")
        ended = in_child(lambda root=root: write_queue(root, CHANGES), at)  # type: ignore[misc]
        files, problems = read_queue(root)
        assert not problems and files in (OLD, NEW)
        settle(root)
        assert on_disk(root) == files
        write_queue(root, CHANGES)
        assert on_disk(root) == NEW
        assert {path.name for path in journal_folder(root).iterdir()} == {"alone", "done"}
        seen.append(files == NEW)
        if ended == 0:
            break
    assert seen == sorted(seen) and 20 < step * len(seen) < 400


@EVERY
def test_killed_again_while_rolling_forward(tmp_path: Path, step: int) -> None:
    for at in range(0, 200, step):
        root = make(tmp_path / f"{at}")
        in_child(lambda root=root: write_queue(root, CHANGES), at_file(root, "v/series"))  # type: ignore[misc]
        ended = in_child(lambda root=root: settle(root), at)  # type: ignore[misc]
        assert read_queue(root)[0] == NEW
        settle(root)
        assert on_disk(root) == NEW
        if ended == 0:
            return
    raise AssertionError("never ended")


def test_a_read_only_queue_is_named(root: Path) -> None:
    if os.getuid() == 0:
        pytest.skip("root may write everywhere")
    (root / "v").chmod(0o555)
    try:
        with pytest.raises(Prevented, match="cannot be written"):
            write_queue(root, CHANGES)
    finally:
        (root / "v").chmod(0o755)
    assert read_queue(root)[0] == NEW


# --- the fault ----------------------------------------

EVENTS = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.truncate"})
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def at_file(root: Path, path: str) -> str:
    return str(root / path)


def in_child(work: Callable[[], object], at: int | str, within: Path = Path("/")) -> int:
    """The exit code of a child that does `work` and is killed before its `at`-th file operation below `within`, or
    before the rename that gives the file `at` its name."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            arm(at, f"{within}/".replace("//", "/"))
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def arm(at: int | str, within: str) -> None:
    count = 0

    def tick() -> None:
        nonlocal count
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    def audit(event: str, arguments: tuple[object, ...]) -> None:
        if event == "os.rename" and str(arguments[1]) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        is_written = event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING
        if (event in EVENTS or is_written) and str(arguments[0]).startswith(within):
            tick()

    def fsync(descriptor: int, real: Callable[[int], None] = os.fsync) -> None:
        tick()
        real(descriptor)

    os.fsync = fsync
    sys.addaudithook(audit)
