"""Several gloo ranks for real, through the probes and their rules: sums, groups, FSDP, shards; and each way they break.

No device is used: NCCL and the ranks of one host's devices are what these stand for.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from patchq.audit.subject import Subject
from patchq.audit.survey import AUDITS, surveying
from patchq.machine.launch import Launch
from patchq.machine.probe import PROBES
from patchq.queue.target import Environment
from patchq.report import State, Step

pytestmark = [pytest.mark.upstream, pytest.mark.skipif(os.cpu_count() == 1, reason="ranks need two CPUs")]


@pytest.fixture(scope="module")
def python(torch_python: Path) -> Path:
    return torch_python


def subject(python: Path, room: Path) -> Subject:
    launch = Launch("ranks", python, "", (), room / "pycache", room / "r", (("OMP_NUM_THREADS", "1"),))
    return Subject("train", Environment(python=str(python)), launch, room)


def ask(python: Path, room: Path, probe: str, **settings: Any) -> list[Step]:
    """The steps that a probe gives in a launch environment of its own."""
    with surveying(subject(python, room), [probe], {probe: settings}) as survey:
        return list(survey.steps())


def test_eight_ranks_in_two_groups(python: Path, tmp_path: Path) -> None:
    [step] = ask(python, tmp_path, "all_reduce", ranks=8, groups=4, timed_mib=4)
    assert step.state is State.PASSED, step.as_json()
    assert step.summary.startswith(
        "8 of 8 ranks got 1+…+8 = 36 over gloo; groups of 4 theirs; 1 MiB of random bf16 off by"
    )
    assert step.detail[0].startswith("4 MiB in ")


def rank_of(pids: list[int], number: int) -> int | None:
    """The process of rank `number` below this test."""
    for pid in pids:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if len(words) > 4 and words[3].endswith(b"/rank.py") and words[4] == str(number).encode():
            return pid
    return None


def struck(python: Path, room: Path, strike: int, **question: Any) -> list[Step]:
    """The steps of four ranks of which number 2 is sent a signal while they start."""
    child = subprocess.Popen([python, "-s", "-B", PROBES / "ranks.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             text=True, env={"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"})  # fmt: skip
    assert child.stdin and child.stdout
    child.stdin.write(json.dumps({"work": "all_reduce", "ranks": 4, "mib": 1, **question}))
    child.stdin.close()
    until, found = time.monotonic() + 60, None
    while found is None and time.monotonic() < until:
        found = rank_of([int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()], 2)
    assert found
    os.kill(found, strike)
    answer = json.loads(child.stdout.read().strip().rpartition("\n")[2])
    assert child.wait() == 0
    audit = AUDITS["all_reduce"]
    return list(audit.steps(subject(python, room), audit.settings(), answer))


def test_a_rank_that_is_killed_is_named_at_once(python: Path, tmp_path: Path) -> None:
    begun = time.monotonic()
    [step] = struck(python, tmp_path, signal.SIGKILL)
    assert step.state is State.FAILED
    assert "; rank 2: killed by SIGKILL; it got as far as: its start" in step.summary
    assert time.monotonic() - begun < 60


def test_a_rank_that_hangs_ends_the_probe_in_its_time(python: Path, tmp_path: Path) -> None:
    [step] = struck(python, tmp_path, signal.SIGSTOP, seconds=25)
    assert step.state is State.FAILED
    assert "; rank 2: did not end in time; it got as far as: its start" in step.summary


def test_a_step_is_sharded_saved_and_resumed(python: Path, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    steps = ask(python, tmp_path, "fsdp", ranks=2, folder=str(folder))
    assert {step.name: step.state for step in steps} == {"fsdp": State.PASSED, "resume": State.PASSED}, steps
    [step] = ask(python, tmp_path, "checkpoint", folder=str(folder / "global_step_1"), ranks=2, step=1)
    assert step.state is State.PASSED, step.as_json()
    again = ask(python, tmp_path, "fsdp", ranks=2, folder=str(folder))
    assert [step.state for step in again] == [State.PASSED, State.PASSED], again
    (folder / ".made-by-patchq").unlink()
    [step] = ask(python, tmp_path, "fsdp", ranks=2, folder=str(folder))
    assert step.state is State.NOT_RUN and "holds something else" in step.summary


def probe_module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"probe_{name}", PROBES / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


FORGET = """\
import sys, torch
state = torch.load(sys.argv[1], weights_only=True)
torch.save({name: {key: value * 0 for key, value in one.items()} for name, one in state.items()}, sys.argv[1])
"""


def test_lost_optimizer_state_is_another_run(python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks save, somebody zeroes what AdamW remembers of rank 1, two fresh ranks go on."""
    ranks = probe_module("ranks")
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.chdir(tmp_path)
    question = {"work": "fsdp", "folder": str(tmp_path)}
    saved = ranks.spread(question, 2, "gloo", "cpu")
    optim = tmp_path / "global_step_1/actor/optim_world_size_2_rank_1.pt"
    subprocess.run([python, "-c", FORGET, optim], check=True)
    resumed = ranks.spread({**question, "resume": True}, 2, "gloo", "cpu")
    answer = {"world": 2, "backend": "gloo", "ranks": saved, "resumed": resumed}
    audit = AUDITS["fsdp"]
    steps = list(audit.steps(subject(python, tmp_path), audit.settings(), answer))
    assert len(steps) == 2, [step.as_json() for step in steps]
    [good, bad] = steps
    assert (good.state, bad.state) == (State.PASSED, State.FAILED)
    assert "at step 3" in bad.summary and "without a stop" in bad.summary


ABORTS = (
    "import atexit, os, sys\nif any(word.endswith('/rank.py') for word in sys.orig_argv): atexit.register(os.abort)\n"
)


def test_what_happens_at_the_end_of_python_is_no_ranks_failure(python: Path, tmp_path: Path) -> None:
    """Threads of gloo that let go of a tensor while Python ends abort the process, now and then."""
    (tmp_path / "sitecustomize.py").write_text(ABORTS)
    env = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", "PYTHONPATH": str(tmp_path)}
    question = json.dumps({"work": "all_reduce", "ranks": 2, "mib": 1})
    done = subprocess.run([python, "-s", "-B", PROBES / "ranks.py"], input=question,
                          text=True, capture_output=True, cwd=tmp_path, env=env)  # fmt: skip
    answer = json.loads(done.stdout.strip().rpartition("\n")[2])
    audit = AUDITS["all_reduce"]
    [step] = audit.steps(subject(python, tmp_path), audit.settings(), answer)
    assert step.state is State.PASSED, step.as_json()
    assert not list(tmp_path.glob(".patchq-ranks-*"))


@pytest.fixture(scope="module")
def eight(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight ranks' shards."""
    folder = tmp_path_factory.mktemp("eight") / "shards"
    steps = ask(python, folder.parent, "fsdp", ranks=8, folder=str(folder))
    assert [step.state for step in steps] == [State.PASSED, State.PASSED], [step.as_json() for step in steps]
    return folder / "global_step_1"


def removed(path: Path) -> str:
    path.unlink()
    return "no optim shard of rank 5 of 8"


def truncated(path: Path) -> str:
    path.write_bytes(path.read_bytes()[:-200])
    return f"{path} is cut off"


def duplicated(path: Path) -> str:
    """As a copy between checkpoints of different worlds leaves it."""
    shutil.copy(path, path.with_name("optim_world_size_4_rank_1.pt"))
    return "shards of several world sizes: 4, 8"


def repeated(path: Path) -> str:
    """One rank's shard under the name of another."""
    shutil.copy(path.with_name("optim_world_size_8_rank_4.pt"), path)
    return f"{path} holds the same as optim_world_size_8_rank_4.pt"


@pytest.mark.parametrize("harm", [removed, truncated, duplicated, repeated])
def test_of_eight_shards_one_that_is_wrong_is_named(
    python: Path, eight: Path, tmp_path: Path, harm: Callable[[Path], str]
) -> None:
    folder = Path(shutil.copytree(eight, tmp_path / "global_step_1"))
    [step] = ask(python, tmp_path, "checkpoint", folder=str(folder), step=1)
    assert step.state is State.PASSED
    said = harm(folder / "actor/optim_world_size_8_rank_5.pt")
    [step] = ask(python, tmp_path, "checkpoint", folder=str(folder), step=1)
    assert step.state is State.FAILED and said in step.summary
