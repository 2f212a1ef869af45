"""The allocator probe in real child processes: five combinations of two variable names, and what a launcher makes of
them. No device is to be had: a stand-in for torch reads the names as the versions of torch do; the real one was asked
on a GPU, whose record is in docs/records."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from patchq.audit import Subject, surveying
from patchq.machine.launch import Launch
from patchq.queue.target import Environment
from patchq.report import State, Step

OLD, NEW = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
SAFE = "backend:native,expandable_segments:False,max_split_size_mb:512"
TORCH = f"""\
import os, types

__version__ = "{{version}}"
old, new = os.environ.get("{OLD}"), os.environ.get("{NEW}")
options = dict(part.split(":") for part in ({{reads}} or "").split(",") if part)
settings = {{{{
    "expandable_segments": options.get("expandable_segments") == "True",
    "max_split_size": int(options.get("max_split_size_mb", 1 << 40)) << 20,
}}}}
memory = types.SimpleNamespace(_snapshot=lambda: {{{{"allocator_settings": settings}}}})
cuda = types.SimpleNamespace(is_available=lambda: True, device_count=lambda: 1, memory=memory)


def zeros(size, device):
    return [0] * size
"""
# How versions of torch read the two names (measured for 2.11 on a GPU; pytorch#183387 for 2.9).
READS = {"2.9.1": "old", "2.11.0": "old or new", "2.13.0": "new or old"}
NONE, SPLIT = "expandable_segments False, split size none", "expandable_segments False, split size 512 MiB"
EXPANDABLE = "expandable_segments True, split size none"
FIVE = {  # the answers to old, new, both, both the other way round, and the safe setting by the new name
    "2.9.1": (EXPANDABLE, NONE, EXPANDABLE, NONE, NONE),
    "2.11.0": (EXPANDABLE, EXPANDABLE, EXPANDABLE, NONE, SPLIT),
    "2.13.0": (EXPANDABLE, EXPANDABLE, SPLIT, EXPANDABLE, SPLIT),
}
# As LLaMA-Factory's launcher does.
OVERWRITES = f"""\
import os, sys
os.environ["{OLD}"] = "expandable_segments:True"
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def asked(room: Path, version: str, launcher: tuple[str, ...] = (), **variables: str) -> Step:
    """What the probe says where torch is a stand-in for this version."""
    (room / "stand-in/torch").mkdir(parents=True)
    (room / "stand-in/torch/__init__.py").write_text(TORCH.format(version=version, reads=READS[version]))
    launch = Launch("t", Path(sys.executable), "", (room / "stand-in",), room / "pycache", room / "r",
                    tuple(variables.items()))  # fmt: skip
    subject = Subject("rl", Environment(python=sys.executable, set=variables), launch, room)
    with surveying(subject, ("allocator",), {"allocator": {"launcher": list(launcher)}}) as survey:
        (step,) = survey.steps()
    return step


@pytest.mark.fault
@pytest.mark.parametrize("version", READS)
def test_five_combinations_and_the_one_in_force(version: str, tmp_path: Path) -> None:
    step = asked(tmp_path, version, **{OLD: SAFE, NEW: SAFE})
    assert step.state is State.PASSED, step
    assert step.summary == f"torch {version} uses {SPLIT}"
    assert tuple(row.partition(": expandable")[2] for row in step.detail) == tuple(
        text.removeprefix("expandable") for text in FIVE[version]
    )
    assert [row.count("PYTORCH_") for row in step.detail] == [1, 1, 2, 2, 1]


@pytest.mark.fault
def test_a_name_that_this_torch_does_not_read(tmp_path: Path) -> None:
    step = asked(tmp_path, "2.9.1", **{NEW: SAFE})
    assert step.state is State.FAILED, step
    assert step.summary.endswith(f"and 536870912 is demanded; the child sees {NEW}={SAFE}")
    assert "which name this torch reads" in step.hint and len(step.detail) == 5


@pytest.mark.fault
def test_a_launcher_that_overwrites_it(tmp_path: Path) -> None:
    (tmp_path / "launcher.py").write_text(OVERWRITES)
    step = asked(tmp_path, "2.11.0", (sys.executable, str(tmp_path / "launcher.py")), **{NEW: SAFE})
    assert step.state is State.FAILED, step
    assert step.summary.startswith("expandable_segments is True and False is demanded")
    assert f"the child sees {OLD}=expandable_segments:True, {NEW}={SAFE}" in step.summary


@pytest.mark.fault
def test_a_launcher_that_fails(tmp_path: Path) -> None:
    step = asked(tmp_path, "2.11.0", (sys.executable, "-c", "raise SystemExit('no ranks')"))
    assert (step.state, step.summary) == (State.FAILED, "no ranks"), step
