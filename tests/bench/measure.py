"""Costs of processes and of work in this process, and ratios of them: interleaved, medians, CPU and wall."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from generated import clean_environment

_SET_CHILD_SUBREAPER = 36
LEAST = 7


@dataclass(frozen=True)
class Cost:
    """Seconds of CPU (user and system, of every process that took part) and of wall clock."""

    cpu: float
    wall: float


@dataclass(frozen=True)
class Job:
    """Something to measure: `prepare` is not counted, `work` is."""

    work: Callable[[], None]
    prepare: Callable[[], None] = field(default=lambda: None)

    def cost(self) -> Cost:
        self.prepare()
        before, began = _children(), time.perf_counter()
        self.work()
        wall = time.perf_counter() - began
        _reap()
        return Cost(_children() - before, wall)


@dataclass(frozen=True)
class Ratio:
    """Ours against theirs: the median over the pairs, and the least and the most seen."""

    cpu: float
    wall: float
    cpu_least: float
    cpu_most: float
    ours: Cost
    theirs: Cost
    pairs: int


def compare(ours: Job, theirs: Job, times: int = LEAST, warm: int = 1) -> Ratio:
    """Run both in turn, and take the ratio pair by pair, so that a machine whose speed drifts does not matter."""
    adopt_orphans()
    for _ in range(warm):
        ours.cost()
        theirs.cost()
    pairs = [(ours.cost(), theirs.cost()) for _ in range(times)]
    cpu = [a.cpu / b.cpu for a, b in pairs]
    return Ratio(
        statistics.median(cpu),
        statistics.median(a.wall / b.wall for a, b in pairs),
        min(cpu),
        max(cpu),
        *(Cost(statistics.median(c.cpu for c in side), statistics.median(c.wall for c in side))
          for side in zip(*pairs, strict=True)),
        times,
    )  # fmt: skip


def quotient(ratio: Ratio, share: float) -> Ratio:
    """The ratio for one of what ours does `share` times as much of."""
    cpu, wall, least, most = (value / share for value in (ratio.cpu, ratio.wall, ratio.cpu_least, ratio.cpu_most))
    return replace(ratio, cpu=cpu, wall=wall, cpu_least=least, cpu_most=most)


def forked(work: Callable[[], object]) -> Callable[[], None]:
    """`work` in a child of this process that has all its modules already; raises where it fails."""

    def run() -> None:
        child = os.fork()
        if not child:
            code = 1
            try:
                work()
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        assert status == 0, f"the work ended with {os.waitstatus_to_exitcode(status)}"

    return run


def command(
    argv: Sequence[str | Path], cwd: Path, *, codes: Sequence[int] = (0,), stdin: Path | None = None, **variables: str
) -> Callable[[], None]:
    """A whole process; fails where it does not end with one of `codes`."""

    def run() -> None:
        environment = clean_environment() | variables
        with Path(stdin or os.devnull).open("rb") as question:
            done = subprocess.run(argv, cwd=cwd, env=environment, stdin=question, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, check=False)  # fmt: skip
        assert done.returncode in codes, f"{argv} ended with {done.returncode}: {done.stdout[-2000:].decode()}"

    return run


def patchq(*words: str | Path, cwd: Path, codes: Sequence[int] = (0,), **variables: str) -> Callable[[], None]:
    """One whole verb, its start included."""
    return command((sys.executable, "-m", "patchq", *words), cwd, codes=codes, **variables)


_PEAK = """
import os, sys
child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)])
print(os.wait4(child, 0)[2].ru_maxrss)
"""


def peak_memory(argv: Sequence[str | Path], cwd: Path, **variables: str) -> int:
    """The most bytes that one process of a command held; a small process starts it, as the starter's own count."""
    asked = subprocess.run((sys.executable, "-S", "-c", _PEAK, *argv), cwd=cwd, env=clean_environment() | variables,
                           capture_output=True, check=True)  # fmt: skip
    return int(asked.stdout) * 1024


def adopt_orphans() -> None:
    """What a measured process leaves running becomes a child of this one, so that it is counted too."""
    ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, 1)


def _reap() -> None:
    """Wait for every orphan; one that would not end by itself is a fault of the bench."""
    signal.alarm(60)
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        return
    finally:
        signal.alarm(0)


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
