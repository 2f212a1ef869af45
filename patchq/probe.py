"""Asking the training interpreter: it runs a small script of `probes/` and prints one JSON document."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchq.errors import Refused
from patchq.launch import Launch
from patchq.process import Outcome, Running, leashed

PROBES = Path(__file__).parent / "probes"


class ProbeFailed(Refused):
    """The interpreter did not answer: it is not there, hung, was killed, or printed something else."""


@dataclass(frozen=True)
class Asking:
    """A probe that was started and has not been heard yet."""

    probe: str
    python: Path
    running: Running
    timeout: float

    def answer(self) -> dict[str, Any]:
        """Wait for its document; raises `ProbeFailed` with the one reason why there is none."""
        return answer_of(self.running.outcome(self.timeout), self.probe, self.python, self.timeout)


@contextmanager
def asking(
    launch: Launch, probe: str, question: Mapping[str, Any], *, cwd: Path, timeout: float = 120
) -> Iterator[Asking]:
    """Start a probe in a launch environment; whatever it starts is gone when the block ends, however it ends.

    `question` goes in as JSON on stdin; `timeout` is in seconds.
    """
    argv = launch.argv([str(launch.python), "-s", "-B", str(PROBES / f"{probe}.py")])
    with leashed(argv, cwd=cwd, stdin=json.dumps(dict(question)).encode()) as running:
        yield Asking(probe, launch.python, running, timeout)


def ask(launch: Launch, probe: str, question: Mapping[str, Any], *, cwd: Path, timeout: float = 120) -> dict[str, Any]:
    """Run a probe to its end and return the answer, its JSON document. Raises `ProbeFailed`."""
    with asking(launch, probe, question, cwd=cwd, timeout=timeout) as started:
        return started.answer()


def answer_of(outcome: Outcome, probe: str, python: Path, timeout: float) -> dict[str, Any]:
    """The JSON document in a probe's output: its last line, whatever imports printed before it."""
    where = str(python)
    if outcome.timed_out:
        raise ProbeFailed(f"the probe {probe} gave no answer within {timeout:.0f} s", where=where,
                          hint="does a .pth file or sitecustomize hang at start-up?")  # fmt: skip
    if outcome.code < 0:
        raise ProbeFailed(f"the probe {probe} was killed by {signal.Signals(-outcome.code).name}", where=where,
                          hint=_last_line(outcome) or "out of memory, or a broken extension module?")  # fmt: skip
    try:
        answer = json.loads(outcome.text.strip().rpartition("\n")[2])
        if isinstance(answer, dict):
            return answer
    except ValueError:
        pass
    said = _last_line(outcome) or f"exit status {outcome.code}"
    raise ProbeFailed(f"the probe {probe} gave no answer: {said}", where=where)


def _last_line(outcome: Outcome) -> str:
    lines = (outcome.error_text or outcome.text.strip()).splitlines()
    return lines[-1][:300] if lines else ""
