"""One file of an installed distribution: what is there, and another in its place, never through a link."""

from __future__ import annotations

import errno
import os
import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Literal

from patchq.document import sha256, sha256_file, sync_folder
from patchq.errors import Prevented

Link = Literal["", "hard", "symbolic"]
_NEVER = r"(?!)"


@contextmanager
def machine(what: str) -> Iterator[None]:
    """Turn what the operating system refuses into `Prevented`; also a decorator."""
    try:
        yield
    except OSError as error:
        where = str(error.filename or "")
        hint = "what was begun is completed by the next call"
        raise Prevented(f"{what}: {error.strerror or error}", where=where, hint=hint) from error


def found(root: Path, path: str) -> str | None:
    """What is at `path` below `root`: the SHA-256 of its bytes, None for nothing, else words in parentheses.

    A file that is itself a symbolic link counts by the bytes that an interpreter reads through it; one in a
    folder that is a link does not count, because a rename there would change another place.
    """
    for folder in reversed(PurePosixPath(path).parents[:-1]):
        if (root / folder).is_symlink():
            return f"(something behind the symbolic link {folder})"
        if not (root / folder).exists():
            return None
        if not (root / folder).is_dir():
            return f"({folder} is not a folder)"
    target = root / path
    if target.is_file():
        return sha256_file(target)
    return "(not a plain file)" if target.exists() or target.is_symlink() else None


def link_of(path: Path) -> Link:
    """How an existing file's bytes are shared with another name."""
    if path.is_symlink():
        return "symbolic"
    return "hard" if path.stat().st_nlink > 1 else ""


def settle_file(root: Path, path: str, data: bytes | None, mode: int) -> None:
    """Make `path` below `root` a file of its own with these bytes and mode, or (None) absent.

    Durable on return, and the same when repeated after a crash at any point. What interpreters compiled from
    it is removed, and with an absent file the folders that are empty then.
    """
    target = root / path
    temporary = target.with_name(f".patchq-{sha256(os.fsencode(target.name))[:16]}")
    temporary.unlink(missing_ok=True)
    if data is None:
        target.unlink(missing_ok=True)
    else:
        _make_folder(target.parent)
        _write_new(temporary, data, mode)
        temporary.replace(target)
    _drop_compiled(root, path)
    folder = target.parent
    while data is None and folder != root and _remove_if_empty(folder):
        folder = folder.parent
    sync_folder(folder)


def compiled_from(path: str) -> re.Pattern[str]:
    """Matches the paths of what interpreters compile from `path`: any tag and level, and the old form too."""
    folder, name = posixpath.split(path)
    if not name.endswith(".py"):
        return re.compile(_NEVER)
    cached = re.escape(posixpath.join(folder, "__pycache__", name[: -len(".py")]))
    return re.compile(rf"{cached}\.[^./]+(\.opt-[^./]+)?\.pyc|{re.escape(path)}c")


def _write_new(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fchmod(stream.fileno(), mode)
        os.fsync(stream.fileno())


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir()
        sync_folder(folder.parent)


def _drop_compiled(root: Path, path: str) -> None:
    pattern = compiled_from(path)
    cache = (root / path).parent / "__pycache__"
    is_own = cache.is_dir() and not cache.is_symlink()
    for candidate in [*(sorted(cache.iterdir()) if is_own else ()), root / f"{path}c"]:
        if pattern.fullmatch(candidate.relative_to(root).as_posix()):
            candidate.unlink(missing_ok=True)
    if is_own and not _remove_if_empty(cache):
        sync_folder(cache)


def _remove_if_empty(folder: Path) -> bool:
    """Whether `folder` is gone now; one that is not empty, or is a mount, stays."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
            return False
        raise
    return True
