"""The work area of a target: where everything lies, and the lock that keeps two writers apart."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from filelock import FileLock, Timeout

from patchq.document import write_atomic
from patchq.errors import Prevented

# A Unix socket path ends at 107 bytes, and Ray adds up to 68 to its temporary folder.
SOCKET_BYTES = 107
RAY_BYTES = 68


@dataclass(frozen=True)
class WorkArea:
    """Paths below `root` (on a local disk). Nothing is made until somebody writes."""

    root: Path

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def records(self) -> Path:
        return self.root / "records"

    @property
    def journals(self) -> Path:
        """Journals of changes to installed distributions."""
        return self.root / "journals"

    @property
    def pycache(self) -> Path:
        """`PYTHONPYCACHEPREFIX` of everything that is launched for this area."""
        return self.root / "pycache"

    def upstream(self, name: str) -> Path:
        """The folder of an upstream's work copies."""
        return self.root / name

    def copy(self, name: str, commit: str) -> Path:
        """The work copy of an upstream at a final commit."""
        return self.root / name / commit

    @property
    def queues(self) -> Path:
        """The queues that came in bundles."""
        return self.root / "queue"

    def queue(self, digest: str) -> Path:
        """The folder of the queue that came with the lock of this digest; `series/` is below it."""
        return self.queues / digest

    @property
    def authoring(self) -> Path:
        """The queue that is being changed on this host, `series/`, with its edit copies."""
        return self.root / "authoring"

    def ray_folder(self) -> Path:
        """A temporary folder for Ray that its socket names fit into: here, else below /tmp."""
        here = self.root / "r"
        if len(os.fsencode(here)) + RAY_BYTES <= SOCKET_BYTES:
            return here
        return Path(f"/tmp/pq{os.getuid()}")

    @contextlib.contextmanager
    def locked(self, verb: str, wait: float = 0) -> Iterator[None]:
        """Hold the area's lock for the block, waiting up to `wait` seconds.

        The kernel drops the lock of a process that dies. Raises `Prevented` saying who holds it, since when, where.
        """
        holder = self.root / ".lock.json"
        lock = FileLock(self.root / ".lock", timeout=wait)
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            held = lock.acquire()
        except Timeout:
            raise Prevented(f"the work area is in use: {_describe(holder)}", where=str(self.root)) from None
        except OSError as error:
            what = f"the work area cannot be used: {error.strerror or error}"
            raise Prevented(what, where=str(self.root), hint="the target's `work` says where it is") from error
        with held:
            write_atomic(holder, json.dumps(_holder(verb)).encode())
            try:
                yield
            finally:
                holder.unlink(missing_ok=True)


def _holder(verb: str) -> dict[str, str | int]:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    with contextlib.suppress(OSError, KeyError):
        return {
            "verb": verb,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": now,
            "user": getpass.getuser(),
        }
    return {"verb": verb, "pid": os.getpid(), "host": socket.gethostname(), "since": now}


def _describe(path: Path) -> str:
    try:
        held = json.loads(path.read_text())
        return f"patchq {held['verb']}, process {held['pid']} on {held['host']}, since {held['since']}"
    except (OSError, ValueError, KeyError):
        return "by another patchq"
