"""The work area: where everything lies, and the lock that keeps two writers apart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patchq.errors import Prevented
from patchq.workarea import WorkArea

HOLD = """
import sys, time
from pathlib import Path
from patchq.workarea import WorkArea
with WorkArea(Path(sys.argv[1])).locked("apply"):
    print("held", flush=True)
    time.sleep(60)
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock."""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True, env=env)
    assert child.stdout and child.stdout.readline() == "held\n"
    return child


def test_the_second_hears_who_holds_it_and_a_dead_ones_lock_is_taken_over(tmp_path: Path) -> None:
    area = WorkArea(tmp_path / "work")
    child = holder(area.root)
    try:
        with pytest.raises(Prevented) as caught, area.locked("verify"):
            raise AssertionError
        said = str(caught.value)
        assert f"patchq apply, process {child.pid} on {os.uname().nodename}, since 20" in said
        assert str(area.root) in said
        started = time.monotonic()
        with pytest.raises(Prevented), area.locked("verify", wait=0.3):
            raise AssertionError
        assert 0.3 <= time.monotonic() - started < 5
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    assert json.loads((area.root / ".lock").read_text())["pid"] == child.pid, "what the dead one left"
    with area.locked("verify"):
        assert json.loads((area.root / ".lock").read_text())["what"] == "patchq verify"


def test_it_is_free_again_after_any_end(tmp_path: Path) -> None:
    area = WorkArea(tmp_path)
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), area.locked("apply"):
            raise error
    with area.locked("apply"):
        pass


@pytest.mark.parametrize("place", ["file", "/proc/nowhere", "/dev/null/x"])
def test_a_place_that_cannot_be_one_is_said_in_words(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(Prevented, match="the work area cannot be used") as caught,
        WorkArea(tmp_path / place).locked("apply"),
    ):
        raise AssertionError
    assert "the target's `work` says where it is" in str(caught.value)


def test_paths_are_below_the_root_and_made_by_nobody(tmp_path: Path) -> None:
    area = WorkArea(tmp_path / "w")
    paths = [
        area.store,
        area.records,
        area.journals,
        area.pycache,
        area.queues,
        area.authoring,
        area.copy("up", "1" * 40),
    ]
    assert all(path.is_relative_to(area.root) for path in paths) and len(set(paths)) == len(paths)
    assert area.queue("d") == area.queues / "d" and area.copy("up", "c").parent == area.upstream("up")
    assert not area.root.exists()
