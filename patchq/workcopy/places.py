"""Where work copies stand below WORK/UPSTREAM, and the single steps by which they get there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path

from patchq.document import sync_folder, write_atomic
from patchq.errors import Prevented, Refused
from patchq.exclusive import alone_in, room_in
from patchq.workcopy.repository import alternates

_CURRENT = "current"
_FAILED = "failed"
_NEW = ".new-"


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """A room for the block to build in, beside `folder`; at the end it becomes `folder` by one rename."""
    with _named_errors(folder), room_in(folder.parent) as room:
        yield room
        room.rename(folder)
        sync_folder(folder.parent)


def move_current(upstream_folder: Path, commit: str) -> None:
    """Let `current` name the copy of `commit`, by one atomic step; raises `Prevented` if there is none."""
    if not (upstream_folder / commit).is_dir():
        raise Prevented("there is no such work copy", where=str(upstream_folder / commit))
    link = upstream_folder / f"{_NEW}{_CURRENT}"
    with _named_errors(upstream_folder / _CURRENT), alone_in(upstream_folder):
        link.unlink(missing_ok=True)
        link.symlink_to(commit)
        link.replace(upstream_folder / _CURRENT)
        sync_folder(upstream_folder)


def clear_current(upstream_folder: Path) -> None:
    """Let `current` name nothing, as before the first apply."""
    with _named_errors(upstream_folder / _CURRENT), alone_in(upstream_folder):
        (upstream_folder / _CURRENT).unlink(missing_ok=True)
        sync_folder(upstream_folder)


def current(upstream_folder: Path) -> str | None:
    """The commit whose work copy is `current`, or None; raises `Refused` if it is anything but our link."""
    link = upstream_folder / _CURRENT
    try:
        target = os.readlink(link)  # noqa: PTH115 - Path.readlink would drop a trailing slash
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refused("is not the link that patchq made", where=str(link)) from error
    if not re.fullmatch("[0-9a-f]{40}", target):
        raise Refused(f"points to {target!r}, which is no work copy of patchq", where=str(link))
    return target


def set_aside(folder: Path) -> Path:
    """Move a copy whose checks failed to `failed/<commit>-<UTC time>`, where git still works on it."""
    folder = folder.resolve()
    failed = folder.parent / _FAILED
    stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S.%fZ")
    place = failed / f"{folder.name}-{stamp}"
    with _named_errors(folder):
        stores = dict(_borrowed(folder))
        failed.mkdir(exist_ok=True)
        folder.rename(place)
        for git_dir, store in stores.items():
            text = os.fsencode(alternates(place / git_dir, store))
            write_atomic(place / git_dir / "objects/info/alternates", text)
        sync_folder(failed)
    return place


def _borrowed(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Each git directory of a copy, relative to it, with the store that it borrows from.

    Only where the list of alternates stands in the copy itself: checks have run there, and a link that they
    left must not be written through.
    """
    for listed in (folder / ".git").glob("**/objects/info/alternates"):
        if listed.resolve() == listed and listed.is_file():
            objects = listed.parent.parent
            store = (objects / os.fsdecode(listed.read_bytes()).rstrip("\n")).resolve().parent
            yield objects.parent.relative_to(folder), store


@contextmanager
def _named_errors(folder: Path) -> Iterator[None]:
    """Turn what the machine says no to into one line that names the folder."""
    try:
        yield
    except OSError as error:
        raise Prevented(f"cannot be made: {error.strerror or error}", where=str(folder)) from error
