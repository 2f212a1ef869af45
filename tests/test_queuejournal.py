"""Writing the queue: old or new, never a mixture, whatever kills it."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest
from faultkit import KILLED, Fault, in_child, points

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
    interrupt(root)
    (root / "v/series").write_bytes(b"neither\n")
    for act in (lambda: settle(root), lambda: write_queue(root, {"x": b""}), lambda: read_queue(root)):
        with pytest.raises(Refused, match="neither as before nor as after") as caught:
            act()
    assert "removing" in caught.value.problems[0].hint
    assert (root / "v/series").read_bytes() == b"neither\n"


def test_a_damaged_journal_is_not_written_out(root: Path) -> None:
    interrupt(root)
    journal = journal_folder(root) / "commit"
    journal.write_bytes(journal.read_bytes()[:-1])
    with pytest.raises(Refused, match="damaged"):
        settle(root)


def test_read_through_changes_nothing(root: Path) -> None:
    interrupt(root)
    before = on_disk(root)
    assert read_queue(root)[0] == NEW != before
    assert on_disk(root) == before
    assert settle(root)
    assert on_disk(root) == NEW


def interrupt(root: Path) -> None:
    """Leave a write of `CHANGES` committed and half written out."""
    assert in_child(lambda: write_queue(root, CHANGES), Fault(str(root / "v/series"))).code == KILLED


EVERY = pytest.mark.parametrize("most", [pytest.param(0, marks=pytest.mark.fault), 5])


@EVERY
def test_killed_at_each_file_operation(tmp_path: Path, most: int) -> None:
    """As patchq sees it old or new at every point; completed by the next call; nothing left behind."""
    seen = []
    whole = make(tmp_path / "whole")
    operations = in_child(lambda: write_queue(whole, CHANGES)).operations
    assert operations > 40
    for at in points(operations, most):
        root = make(tmp_path / f"{at}")
        assert in_child(lambda root=root: write_queue(root, CHANGES), Fault(at)).code == KILLED  # type: ignore[misc]
        files, problems = read_queue(root)
        assert not problems and files in (OLD, NEW)
        settle(root)
        assert on_disk(root) == files
        write_queue(root, CHANGES)
        assert on_disk(root) == NEW
        assert {path.name for path in journal_folder(root).iterdir()} == {"alone", "done"}
        seen.append(files == NEW)
    assert seen == sorted(seen) and seen[-1] and not seen[0]


@EVERY
def test_killed_again_while_rolling_forward(tmp_path: Path, most: int) -> None:
    interrupt(make(tmp_path / "whole"))
    operations = in_child(lambda: settle(tmp_path / "whole/series")).operations
    assert operations > 20
    for at in points(operations, most):
        root = make(tmp_path / f"{at}")
        interrupt(root)
        assert in_child(lambda root=root: settle(root), Fault(at)).code == KILLED  # type: ignore[misc]
        assert read_queue(root)[0] == NEW
        settle(root)
        assert on_disk(root) == NEW


@EVERY
def test_a_disk_that_says_no_is_named(tmp_path: Path, most: int) -> None:
    """Whatever operation fails, and all after it: the machine prevented it, old or new, and the next call completes."""
    whole = make(tmp_path / "whole")
    operations = in_child(lambda: write_queue(whole, CHANGES)).operations
    for at in points(operations, most):
        root = make(tmp_path / f"{at}")
        ended = in_child(lambda root=root: write_queue(root, CHANGES), Fault(at, errno.ENOSPC, lasting=True))  # type: ignore[misc]
        assert ended.code == Prevented.exit_code, at
        assert read_queue(root)[0] in (OLD, NEW)
        write_queue(root, CHANGES)
        assert on_disk(root) == NEW


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
