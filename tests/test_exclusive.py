"""Rooms, scratch folders and files that replace others: what the dead left goes, what the living or anybody else made
stays, ^C leaves nothing."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest
from faultkit import INTERRUPTED, KILLED, Fault, in_child

from patchq import exclusive
from patchq.document import write_atomic
from patchq.errors import Prevented
from patchq.exclusive import dead_rooms, replacing, room_in, scratch, temporary, unnamed


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the one for temporary files, too."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_of_rooms_only_those_of_the_dead_are_removed(place: Path) -> None:
    dead, others = place / f".new-{'a' * 16}", place / ".new-house"
    dead.mkdir()
    others.mkdir()
    with room_in(place) as living:
        assert not dead.exists()
        dead.mkdir()
        assert dead_rooms(place) == [dead]
        with room_in(place) as second:
            assert {*place.iterdir()} == {others, living, second}
    assert [*place.iterdir()] == [others]


@pytest.mark.parametrize(
    ("kind", "options"), [("nfs4", "rw,nolock"), ("lustre", "rw,localflock"), ("nfs", "rw,local_lock=flock")]
)
def test_where_another_host_may_be_alive_nobodys_room_is_removed(
    place: Path, kind: str, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mount is a stand-in: a table that says so."""
    table = place / "mountinfo"
    table.write_text(f"1 0 0:1 / {place.resolve()} {options} - {kind} host:/ rw\n")
    monkeypatch.setattr(exclusive, "MOUNTS", table)
    dead = place / f".new-{'a' * 16}"
    dead.mkdir()
    with room_in(place):
        assert dead.exists() and dead_rooms(place) == []


@pytest.mark.parametrize("make", [scratch, lambda: room_in(Path(tempfile.gettempdir()))])
@pytest.mark.parametrize("struck", ["mkdir", "rmtree"])
def test_an_interrupt_while_a_folder_comes_or_goes_leaves_nothing(
    place: Path, make: Callable[[], AbstractContextManager[Path]], struck: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python raises it between two of its instructions: after the folder was made, or with half of it gone."""
    real, module = (Path.mkdir, Path) if struck == "mkdir" else (shutil.rmtree, shutil)
    left = [KeyboardInterrupt]

    def interrupted(folder: Path, *rest: object, **options: object) -> None:
        is_first = folder != place and bool(left)
        if struck == "mkdir" or not is_first:
            real(folder, *rest, **options)  # type: ignore[arg-type]
        if is_first:
            raise left.pop()

    monkeypatch.setattr(module, struck, interrupted)
    with pytest.raises(KeyboardInterrupt), make() as folder:
        (folder / "file").touch()
    assert not left and not list(place.iterdir())


def test_the_place_of_temporary_files_is_found_and_nothing_written_there_to_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library's own way leaves a file there when it is interrupted; what it says is the same."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "not there"))
    monkeypatch.setenv("TEMP", str(tmp_path))
    assert in_child(tempfile.gettempdir, Fault(within=tmp_path)).operations
    assert in_child(temporary, Fault(within=tmp_path)).operations == 0
    expected = tempfile._get_default_tempdir()  # type: ignore[attr-defined]
    assert str(temporary()) == tempfile.gettempdir() == expected == str(tmp_path)


def test_without_a_place_for_temporary_files_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(Prevented, match="no folder for temporary files"), scratch():
        raise AssertionError


@pytest.mark.parametrize("flag", [os.O_TMPFILE, os.O_DIRECTORY])
def test_an_unnamed_file_has_no_name(place: Path, flag: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the file system knows of none: then the call says no."""
    monkeypatch.setattr(os, "O_TMPFILE", flag)
    with unnamed() as one, unnamed() as other:
        one.write(b"one")
        one.seek(0)
        assert (one.read(), other.read()) == (b"one", b"") and not list(place.iterdir())
    assert in_child(unnamed, replace(INTERRUPT, at=0, after=True)).code == INTERRUPTED
    assert not list(place.iterdir())


OLD, NEW = b"old", b"new" * 9999
LEFT = ".file.patchq-new"


def put(place: Path) -> Callable[[], None]:
    return lambda: write_atomic(place / "file", NEW)


INTERRUPT = Fault(signal=signal.SIGINT)


@pytest.mark.parametrize(
    ("fault", "code"),
    [(Fault(), KILLED), (Fault(error=5), 5), (INTERRUPT, INTERRUPTED), (replace(INTERRUPT, after=True), INTERRUPTED)],
)
def test_replacing_is_all_or_nothing_and_leaves_nothing_for_good(place: Path, fault: Fault, code: int) -> None:
    """A kill leaves at most one file, whose name is known and which goes with the next write; all else leaves none."""
    file = place / "file"
    count = in_child(put(place), Fault(within=place)).operations
    assert count >= 4
    left = 0
    for at in range(count):
        file.write_bytes(OLD)
        ended = in_child(put(place), replace(fault, at=at, within=place))
        assert ended.is_struck and ended.code == code and file.read_bytes() in (OLD, NEW)
        found = {path.name for path in place.iterdir()} - {"file"}
        assert found <= ({LEFT} if ended.code == KILLED else set())
        left += len(found)
        put(place)()
        assert [*place.iterdir()] == [file] and file.read_bytes() == NEW
    assert bool(left) == (fault == Fault()), "the kill really hit it on the way"


@pytest.mark.parametrize("kind", ["link", "folder", "fifo"])
def test_what_is_no_plain_file_is_nobodys_leftover(place: Path, kind: str) -> None:
    """No user's file is removed by guesswork: a plain file of this very name is patchq's, nothing else is."""
    left, others = place / LEFT, place / ".file.Xy12_abc"
    {"link": lambda: left.symlink_to("others"), "folder": left.mkdir, "fifo": lambda: os.mkfifo(left)}[kind]()
    others.touch()
    with pytest.raises(OSError, match=LEFT):
        put(place)()
    assert {path.name for path in place.iterdir()} == {LEFT, others.name}


def test_a_living_writer_is_waited_for(place: Path) -> None:
    child = os.fork()
    if not child:
        with replacing(place / "file", 0o600) as stream:
            stream.write(OLD)
            (place / "begun").touch()
            time.sleep(0.3)
        os._exit(0)
    while not (place / "begun").exists():
        time.sleep(0.01)
    put(place)()
    assert os.waitpid(child, 0)[1] == 0 and (place / "file").read_bytes() == NEW and not (place / LEFT).exists()


def test_of_many_writers_at_once_each_write_is_whole(place: Path) -> None:
    children = []
    for number in range(4):
        children.append(os.fork())
        if not children[-1]:
            code = 1
            try:
                for _ in range(30):
                    write_atomic(place / "file", b"%d" % number * 5000)
                code = 0
            finally:
                os._exit(code)
    ended = []
    while len(ended) < len(children):
        pid, status = os.waitpid(-1, os.WNOHANG)
        ended += [status] if pid else []
        if (place / "file").exists():
            data = (place / "file").read_bytes()
            assert len(data) == 5000 and len(set(data)) == 1
    assert ended == [0, 0, 0, 0] and [*place.iterdir()] == [place / "file"]
