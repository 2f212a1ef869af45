"""The work area of a target: where everything lies, and the lock that keeps two writers apart."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from patchq.document import write_atomic
from patchq.errors import Prevented
from patchq.exclusive import exclusive

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

        Raises `Prevented` saying who holds it, since when and on which host, or why there can be no lock.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            held = contextlib.ExitStack()
            held.enter_context(exclusive(self.root / ".lock", f"patchq {verb}", free="the work area", wait=wait))
        except OSError as error:
            what = f"the work area cannot be used: {error.strerror or error}"
            raise Prevented(what, where=str(self.root), hint="the target's `work` says where it is") from error
        with held:
            yield


def remember_area(target: str, area: WorkArea) -> None:
    """Note where a target was applied, so that later verbs find it from any folder."""
    known = {**known_areas(), target: str(area.root)}
    try:
        write_atomic(_state_file(), json.dumps(known, indent=2, sort_keys=True).encode() + b"\n")
    except (OSError, Prevented):
        return  # without a home there is nothing to remember in; --queue still works


def known_areas(*, certain: bool = False) -> dict[str, str]:
    """Target → the work area that it was last applied in on this host, as far as this user's patchq knows.

    Where that was written and cannot be read nothing is known; with `certain` that raises `Prevented`.
    """
    try:
        known = json.loads(_state_file().read_text())
        return {str(target): str(area) for target, area in known.items()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, AttributeError) as error:
        if certain:
            why = error.strerror if isinstance(error, OSError) else "it is damaged"
            hint = "it says where targets were applied, and so whose signatures count; remove it if none do"
            raise Prevented(f"cannot be read: {why}", where=str(_state_file()), hint=hint) from None
        return {}


def _state_file() -> Path:
    from platformdirs import user_state_path

    return user_state_path("patchq") / "areas.json"
