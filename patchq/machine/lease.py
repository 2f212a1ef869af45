"""Leases: whoever trains from a work copy holds a lock that ends with it, however it ends.

The lock is an `flock` on a file of its own, through a descriptor that the run inherits over `exec` and passes on to
its children; the kernel drops it with the last of them. A file without a lock is a run that is over.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

from pydantic import Field

from patchq.document import Document, One, load_json, to_json
from patchq.errors import PatchqError, Prevented
from patchq.workarea import WorkArea

_NEW = ".new-"
_PAUSE = 0.2


class Lease(Document):
    """Who uses which work copies (`UPSTREAM/COMMIT`), for which target and environment, with which command."""

    schema_version: One = Field(default=1, alias="schema")
    target: str
    env: str
    copies: tuple[str, ...]
    command: str
    pid: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}: {self.command}"


def take(area: WorkArea, *, target: str, env: str, copies: Sequence[Path], command: str) -> int:
    """Take a lease for this process and what it becomes; returns the descriptor that holds it, which is inherited.

    To be called with the area's lock held, so that nobody removes a copy in between.
    """
    folder = _folder(area)
    folder.mkdir(parents=True, exist_ok=True)
    _remove_ended(folder)
    lease = Lease(
        target=target,
        env=env,
        copies=tuple(path.relative_to(area.root).as_posix() for path in copies),
        command=command,
        pid=os.getpid(),
        host=socket.gethostname(),
        since=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    room = folder / f"{_NEW}{secrets.token_hex(8)}"
    descriptor = os.open(room, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, to_json(lease.model_dump(by_alias=True, mode="json")))
        room.rename(folder / f"{os.getpid()}-{room.name.removeprefix(_NEW)}.json")
        os.set_inheritable(descriptor, True)
    except BaseException:
        room.unlink(missing_ok=True)
        os.close(descriptor)
        raise
    return descriptor


def leases(area: WorkArea) -> tuple[Lease, ...]:
    """The leases that are held now, oldest first."""
    found = [load_json(path, Lease) for path in _files(_folder(area)) if _is_held(path)]
    return tuple(sorted(found, key=lambda lease: (lease.since, lease.pid)))


def refuse_in_use(area: WorkArea, target: str, env: str | None = None) -> None:
    """Raise `Prevented` naming who uses the target (or just one environment of it)."""
    for lease in leases(area):
        if _uses(lease, target, env):
            raise Prevented(
                f"{target} {lease.env} is in use by {lease}",
                where=str(area.root),
                hint="wait for its end: --wait SECONDS",
            )


def await_end(area: WorkArea, target: str, env: str | None = None, *, wait: float) -> None:
    """Wait until nobody uses the target (or just one environment of it) any more, at most `wait` seconds."""
    deadline = time.monotonic() + wait
    while time.monotonic() < deadline and any(_uses(lease, target, env) for lease in leases(area)):
        time.sleep(min(_PAUSE, max(0.0, deadline - time.monotonic())))


def _uses(lease: Lease, target: str, env: str | None) -> bool:
    return lease.target == target and env in (None, lease.env)


def _folder(area: WorkArea) -> Path:
    return area.root / "leases"


def _files(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob("[!.]*.json"))


def _is_held(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _remove_ended(folder: Path) -> None:
    for path in [*_files(folder), *folder.glob(f"{_NEW}*")]:
        with suppress(OSError, PatchqError):
            if not _is_held(path):
                path.unlink()
