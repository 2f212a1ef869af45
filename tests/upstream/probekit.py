"""Asking one probe of a real interpreter with torch or Ray, and spoiling what that interpreter finds."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from patchq.audit import Subject, surveying
from patchq.machine.launch import Launch
from patchq.process import leashed
from patchq.queue.target import Environment
from patchq.report import Step


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose name leaves room for Ray's sockets."""
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def subject(python: Path, room: Path, files: Mapping[str, str] = {}, **variables: str) -> Subject:
    """An environment of `python`, whose children find these files (path → text) first on their import path.

    They read the compiled files that lie in the environment: torch without them takes 20 s to import.
    """
    for path, text in {**files, "profile.sh": f"export PYTHONPATH={room}/spoilt\n"}.items():
        place = room / path if path == "profile.sh" else room / "spoilt" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    settings = tuple(sorted({"PYTHONPYCACHEPREFIX": "", **variables}.items()))
    launch = Launch("t", python, str(room / "profile.sh"), (), room / "pycache", room / "ray", settings)
    return Subject("rl", Environment(python=str(python), set=variables), launch, room)


def asked(of: Subject, probe: str, **settings: Any) -> list[Step]:
    """What the probe's answer is judged to be."""
    with surveying(of, (probe,), {probe: settings}) as survey:
        return list(survey.steps())


def only(of: Subject, probe: str, **settings: Any) -> Step:
    """Like `asked`, of a probe that gives one step."""
    (step,) = asked(of, probe, **settings)
    return step


RAY_START = ("start", "--head", "--block", "--port=0", "--include-dashboard=false", "--num-cpus=1",
             "--disable-usage-stats")  # fmt: skip


@contextmanager
def cluster(python: Path, room: Path, **variables: str) -> Iterator[str]:
    """A Ray cluster that somebody started by hand in `room`: its address. Nothing of it outlives the block.

    `ray stop` would end every cluster of this machine.
    """
    env = {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(Path.home()), "RAY_TMPDIR": str(room), **variables}
    forget_cluster(room)
    with leashed([str(python.parent / "ray"), *RAY_START], env=env, cwd=room):
        yield address_in(room)


def forget_cluster(room: Path) -> None:
    """Remove the note of a cluster in `room` that is over."""
    (room / "ray/ray_current_cluster").unlink(missing_ok=True)


def address_in(room: Path, seconds: float = 120) -> str:
    """Where the cluster in `room` listens, once it does."""
    note, until = room / "ray/ray_current_cluster", time.monotonic() + seconds
    while not (note.is_file() and note.read_text().strip()):
        assert time.monotonic() < until, f"no cluster came up in {room}"
        time.sleep(0.1)
    return note.read_text().strip()
