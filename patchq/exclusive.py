"""Locks between processes: one holds, the others wait or hear who does. The kernel drops a lock whose holder died.

It is an `flock` on a file that stays; the holder writes into it who he is. A room, a folder to build in, is locked
itself, and so is a file until it has its name, so that what the dead left is told from what the living are at.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import BinaryIO

from patchq.errors import Prevented

MOUNTS = Path("/proc/self/mountinfo")
_PAUSE = 0.05
_ROOM = r"\.new-([0-9a-f]{16}|pruned-.*)"
_TAKEN = frozenset({errno.EAGAIN, errno.EACCES})
_TEMPORARY = ("/tmp", "/var/tmp", "/usr/tmp")  # where `tempfile` looks after TMPDIR, TEMP and TMP
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
# Mount options with which a lock is known to this host alone: nfs(5), mount.lustre(8).
_ONLY_HERE = {
    "nfs": {"nolock", "local_lock=all", "local_lock=flock"},
    "nfs4": {"nolock", "local_lock=all", "local_lock=flock"},
    "lustre": {"localflock"},
}


@contextlib.contextmanager
def exclusive(path: Path, what: str, *, free: str, wait: float = 0) -> Iterator[None]:
    """Hold the lock on the file `path` for the block, waiting up to `wait` seconds for it.

    `what` says who holds it ("patchq apply"), `free` what is held then ("the work area"). Raises `Prevented` saying
    who holds it, since when and on which host, or that the file system's locks do not keep hosts apart; `OSError`
    where the file cannot be used.
    """
    _refuse_local_locks(path)
    deadline = time.monotonic() + wait
    while (held := _try(path)) is None:
        if time.monotonic() >= deadline:
            raise Prevented(f"{free} is in use: {_holder(path)}", where=str(path.parent), hint="--wait SECONDS waits")
        time.sleep(min(_PAUSE, max(0.0, deadline - time.monotonic())))
    try:
        _say(held, what)
        yield
    finally:
        os.close(held)


@contextlib.contextmanager
def room_in(parent: Path) -> Iterator[Path]:
    """A new folder in `parent` for the block, which goes with all that is left in it.

    Rooms that a killed process left are removed first: an owner holds a lock on its room, which the kernel drops with
    the process. Raises `OSError` where there can be none.
    """
    parent.mkdir(parents=True, exist_ok=True)
    with alone_in(parent) as is_alone:
        for left in _dead_rooms(parent) if is_alone else ():
            shutil.rmtree(left, ignore_errors=True)
    room = parent / f".new-{secrets.token_hex(8)}"
    with _removed_at_the_end(room):
        with alone_in(parent):
            room.mkdir()
            owner = _lock_folder(room, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield room
        finally:
            if owner is not None:
                os.close(owner)


def temporary() -> Path:
    """Where temporary files belong, by the rule of `tempfile`, but without the file that it writes there to see, which
    an interrupt leaves behind. Libraries that ask `tempfile` hear the same. Raises `Prevented` where there is none."""
    if tempfile.tempdir is None:
        asked = [given for name in ("TMPDIR", "TEMP", "TMP") if (given := os.environ.get(name))]
        usable = (one for one in (*asked, *_TEMPORARY, os.curdir) if _is_usable(one))
        tempfile.tempdir = next((str(Path(one).absolute()) for one in usable), None)
    if tempfile.tempdir is None:
        raise Prevented("no folder for temporary files can be written", hint="TMPDIR names one")
    return Path(os.fsdecode(tempfile.tempdir))


def _is_usable(folder: str) -> bool:
    return Path(folder).is_dir() and os.access(folder, os.W_OK | os.X_OK)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for the block that nothing else uses, where temporary files belong, and that goes."""
    folder = temporary() / f"patchq-{secrets.token_hex(8)}"
    with _removed_at_the_end(folder):
        folder.mkdir(mode=0o700)
        yield folder


def unnamed() -> BinaryIO:
    """A file to write and read that goes with its last descriptor. Its name, where the file system needs one, is gone
    already, and an interrupt leaves none."""
    with contextlib.suppress(OSError):  # overlayfs and NFS may not have it
        return os.fdopen(os.open(temporary(), os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600), "w+b")
    with scratch() as folder:
        return (folder / "unnamed").open("w+b")


@contextlib.contextmanager
def replacing(path: Path, mode: int) -> Iterator[BinaryIO]:
    """A file for the block to write, which then becomes `path` in one step, and with `mode`; an error leaves no trace.

    Its name until then is always the same, `.NAME.patchq-new`, and it is locked: what a killed process left under it
    is removed, and a living one is waited for. Raises `OSError`.
    """
    temporary = path.with_name(f".{path.name}.patchq-new")
    held = None
    try:
        held = _new_file(temporary)
        with os.fdopen(held, "wb", closefd=False) as stream:
            yield stream
            stream.flush()
            os.fchmod(held, mode)
            os.fsync(held)
        temporary.replace(path)
    except BaseException:
        if held is None:
            with contextlib.suppress(OSError):
                _remove_dead(temporary)
        elif _is_at(held, temporary):
            temporary.unlink()
        raise
    finally:
        if held is not None:
            os.close(held)


class Use:
    """That somebody uses what the file `path` stands for: as long as this object lives, or a child that has its
    `descriptor`. Where a user died and there is no other, `clear` is called first: what is half done was his.

    Each user adds a byte to the file, and takes it away again; one that is still there was left by the dead. Raises
    `OSError`.
    """

    def __init__(self, path: Path, clear: Callable[[], object]) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        weakref.finalize(self, _put_down, self.descriptor)
        if _is_ours(self.descriptor) and os.fstat(self.descriptor).st_size and not _local_locks(path.parent)[1]:
            clear()
            os.ftruncate(self.descriptor, 0)
        self.doubt()
        fcntl.flock(self.descriptor, fcntl.LOCK_SH)

    def doubt(self) -> None:
        """Something may have been left half done: whoever is next alone clears it."""
        os.write(self.descriptor, b".")


def _put_down(descriptor: int) -> None:
    with contextlib.suppress(OSError):
        if os.fstat(descriptor).st_size == 1 and _is_ours(descriptor):
            os.ftruncate(descriptor, 0)
    os.close(descriptor)


def _is_ours(descriptor: int) -> bool:
    """Whether nobody else has a lock on an open file, which can be told, and now cannot get one."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _TAKEN | _NO_LOCKS:
            raise
        return False
    return True


def _new_file(path: Path) -> int:
    """A descriptor of a file at `path` that was not there before, and that only we hold."""
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            if not _remove_dead(path):
                time.sleep(_PAUSE / 10)
            continue
        if _is_locked(descriptor) and _is_at(descriptor, path):
            return descriptor
        os.close(descriptor)  # somebody took it for a dead one's, between the two steps


def _remove_dead(path: Path) -> bool:
    """Remove the file at `path` if nobody holds it; whether the path is free now. Only a plain file can be ours."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return True
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        if is_dead := _is_locked(descriptor) and _is_at(descriptor, path):
            path.unlink()
        return is_dead
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    """Whether we have the lock on an open file now. Where the file system gives none, nobody is kept away."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        if error.errno not in _NO_LOCKS:
            raise
    return True


@contextlib.contextmanager
def _removed_at_the_end(folder: Path) -> Iterator[None]:
    """Whatever ends the block, from before the folder is made: also a ^C that comes while it is removed."""
    try:
        yield
    finally:
        try:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def dead_rooms(parent: Path) -> list[Path]:
    """The rooms in `parent` whose owners are dead; none where that cannot be told."""
    if not parent.is_dir():
        return []
    with alone_in(parent) as is_alone:
        return _dead_rooms(parent) if is_alone else []


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[bool]:
    """Alone in `folder` for the block; all such blocks are short. False where locks do not keep others away."""
    owner = _lock_folder(folder.resolve(), fcntl.LOCK_EX)
    try:
        yield owner is not None and not _local_locks(folder)[1]
    finally:
        if owner is not None:
            os.close(owner)


def _dead_rooms(parent: Path) -> list[Path]:
    found = []
    for room in sorted(parent.glob(".new-*")):
        if re.fullmatch(_ROOM, room.name):
            with contextlib.suppress(OSError):
                owner = _lock_folder(room, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if owner is not None:
                    os.close(owner)
                    found.append(room)
    return found


def _lock_folder(folder: Path, how: int) -> int | None:
    """Lock a folder and return the descriptor that holds the lock until it is closed; None where there are no locks."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, how)
    except BaseException as error:
        os.close(descriptor)
        if isinstance(error, OSError) and error.errno in _NO_LOCKS:
            return None
        raise
    return descriptor


def _try(path: Path) -> int | None:
    """A descriptor that holds the lock, or None where somebody else does."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(descriptor, path):
            return descriptor
    except OSError as error:
        if error.errno in _NO_LOCKS:
            os.close(descriptor)
            raise Prevented("the file system gives no locks", where=str(path.parent), hint="use a local disk") from None
        if error.errno not in _TAKEN:
            os.close(descriptor)
            raise
    os.close(descriptor)
    return None


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether the locked file is still the one at the path: somebody may have removed it meanwhile."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _say(descriptor: int, what: str) -> None:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    said = {"what": what, "pid": os.getpid(), "host": socket.gethostname(), "since": now}
    with contextlib.suppress(OSError):  # on a full disk the lock holds, too
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(said).encode(), 0)


def _holder(path: Path) -> str:
    """Who holds the lock. What a dead one left is no answer: the holder is about to write his."""
    for _ in range(10):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            said = json.loads(path.read_bytes()[:4096])
            if said["host"] != socket.gethostname() or _is_alive(int(said["pid"])):
                return f"{said['what']}, process {said['pid']} on {said['host']}, since {said['since']}"
        time.sleep(_PAUSE / 2)
    return "by another process, which does not say who it is"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _refuse_local_locks(path: Path) -> None:
    kind, found = _local_locks(path.parent)
    if found:
        what = f"lies on {kind}, mounted with {min(found)}: a lock there does not keep another host away"
        raise Prevented(what, where=str(path.parent), hint="use a local disk")


def _local_locks(folder: Path) -> tuple[str, set[str]]:
    """The file system type of a folder, and its mount options that keep locks on this host."""
    kind, options = _mount_of(os.path.realpath(folder))
    return kind, _ONLY_HERE.get(kind, set()) & options


def _mount_of(place: str) -> tuple[str, set[str]]:
    """The file system type and the options of the mount that a real path lies on (proc(5), mountinfo)."""
    best = -1
    found: tuple[str, set[str]] = ("", set())
    with contextlib.suppress(OSError, ValueError):
        for line in MOUNTS.read_text(errors="surrogateescape").splitlines():
            left, _, right = line.partition(" - ")
            point = left.split(" ")[4].replace("\\040", " ").replace("\\134", "\\")
            if len(point) >= best and (place == point or place.startswith(point.rstrip("/") + "/")):
                kind, _, more = right.split(" ", 2)
                best, found = len(point), (kind, {*left.split(" ")[5].split(","), *more.split(",")})
    return found
