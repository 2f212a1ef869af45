"""A lease is held by whoever inherited it, and by nobody once the last of them is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patchq.errors import Prevented
from patchq.machine.lease import leases, refuse_in_use
from patchq.workarea import WorkArea

TAKE = """
import os, sys
from pathlib import Path
from patchq.machine.lease import take
from patchq.workarea import WorkArea
root = Path(sys.argv[1])
take(WorkArea(root), target="gpu", env="rl", copies=[root / "verl/abc"], command="train")
os.execvp("bash", ["bash", "-c", sys.argv[2]])
"""


def start(root: Path, script: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen([sys.executable, "-c", TAKE, str(root), script], stdout=subprocess.PIPE)
    assert child.stdout and child.stdout.readline() == b"begun\n"
    return child


def test_it_outlives_exec_and_ends_with_a_kill(tmp_path: Path) -> None:
    area = WorkArea(tmp_path)
    child = start(tmp_path, "echo begun; exec sleep 60")
    (lease,) = leases(area)
    assert (lease.pid, lease.target, lease.env, lease.copies) == (child.pid, "gpu", "rl", ("verl/abc",))
    assert str(lease).startswith(f"process {child.pid} on {os.uname().nodename}, since 20")
    with pytest.raises(Prevented, match=f"gpu rl is in use by process {child.pid}"):
        refuse_in_use(area, "gpu")
    refuse_in_use(area, "gpu", "sft")
    refuse_in_use(area, "ppu")
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert leases(area) == ()
    refuse_in_use(area, "gpu")


@pytest.mark.fault
def test_a_child_that_runs_on_keeps_it(tmp_path: Path) -> None:
    area = WorkArea(tmp_path)
    child = start(tmp_path, "(sleep 0.7) & echo begun")
    child.wait()
    assert len(leases(area)) == 1
    time.sleep(1)
    assert leases(area) == ()


@pytest.mark.fault
def test_what_has_ended_is_cleared_away(tmp_path: Path) -> None:
    start(tmp_path, "echo begun").wait()
    start(tmp_path, "echo begun").wait()
    second = start(tmp_path, "echo begun; exec sleep 60")
    third = start(tmp_path, "echo begun; exec sleep 60")
    assert len(list((tmp_path / "leases").iterdir())) == 2
    assert [lease.pid for lease in leases(WorkArea(tmp_path))] == sorted([second.pid, third.pid])
    for child in (second, third):
        child.kill()
        child.wait()
