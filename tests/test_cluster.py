"""Which Ray clusters `run` asks: those that `ray.init` would join. Real ones are in upstream/test_cluster_by_run.py."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchq.audit import Subject
from patchq.commands.cluster import running_cluster
from patchq.machine.launch import Launch
from patchq.queue.target import Environment
from patchq.report import State

HERE = "127.0.0.1:9"  # where nothing answers, so that no actor is asked


@pytest.fixture
def raylet() -> Iterator[None]:
    """A process that looks like a node's: its program's name, and the address that it was given."""
    argv = ["/nowhere/raylet", "-S", "-E", "-c", "import time; time.sleep(60)", f"--gcs-address={HERE}"]
    child = subprocess.Popen(argv, executable=sys.executable, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 10
    while b"raylet" not in Path(f"/proc/{child.pid}/cmdline").read_bytes() and time.monotonic() < until:
        time.sleep(0.01)
    yield
    child.kill()
    child.wait()


def found(room: Path, **variables: str) -> dict[str, State]:
    """What is said of the addresses of this test; other clusters may run on the machine."""
    launch = Launch("t", Path(sys.executable), "", (), room, room)
    of = Subject("rl", Environment(python=sys.executable), launch, room)
    steps = running_cluster(of, {"RAY_TMPDIR": str(room), **variables})
    return {step.summary.partition(":9 ")[2]: step.state for step in steps if step.summary.startswith(HERE)}


GONE = {"does not answer: no cluster is joined": State.NOTE}
OTHER = {"runs on this host too: a program that says address='auto' may join it unproved": State.WARNING}


def note(room: Path, address: str) -> None:
    (room / "ray").mkdir()
    (room / "ray/ray_current_cluster").write_text(address)


def test_without_a_cluster_nothing_is_said(tmp_path: Path) -> None:
    assert found(tmp_path) == found(tmp_path, RAY_ADDRESS="auto") == {}


@pytest.mark.usefixtures("raylet")
def test_one_that_nobody_noted_is_named_and_under_auto_asked(tmp_path: Path) -> None:
    assert found(tmp_path) == OTHER
    assert found(tmp_path, RAY_ADDRESS="auto") == GONE
    assert found(tmp_path, RAY_ADDRESS="local") == {}
    assert found(tmp_path, RAY_ADDRESS=HERE) == GONE


@pytest.mark.usefixtures("raylet")
def test_the_noted_one_is_asked(tmp_path: Path) -> None:
    note(tmp_path, HERE)
    assert found(tmp_path) == GONE


def test_a_note_of_a_cluster_that_is_gone(tmp_path: Path) -> None:
    note(tmp_path, HERE)
    assert found(tmp_path) == GONE
