"""Asking the training interpreter: it runs a small script of `probes/` and prints one JSON document."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchq.document import is_deep
from patchq.errors import Refused
from patchq.machine.answers import can_be, misfit
from patchq.machine.launch import Launch
from patchq.process import MAX_OUTPUT, Outcome, Running, leashed

PROBES = Path(__file__).parent.parent / "probes"
_OTHERS = "is that a Python? does a .pth file or sitecustomize print JSON?"
MAX_ANSWER = 16 << 20  # bytes: more is no answer, and unfolds to what no memory holds


class ProbeFailed(Refused):
    """The interpreter did not answer: it is not there, hung, was killed, or printed something else."""


@dataclass(frozen=True)
class Asking:
    """A probe that was started and has not been heard yet."""

    probe: str
    python: Path
    question: Mapping[str, Any]
    running: Running
    timeout: float

    def answer(self) -> dict[str, Any]:
        """Wait for its document; raises `ProbeFailed` with the one reason why there is none."""
        outcome = self.running.outcome(self.timeout)
        return answer_of(outcome, self.probe, self.python, self.timeout, self.question)


@contextmanager
def asking(
    launch: Launch, probe: str, question: Mapping[str, Any], *, cwd: Path, timeout: float = 120
) -> Iterator[Asking]:
    """Start a probe in a launch environment; whatever it starts is gone when the block ends, however it ends.

    `question` goes in as JSON on stdin; `timeout` is in seconds.
    """
    argv = launch.argv([str(launch.python), "-s", "-B", str(PROBES / f"{probe}.py")])
    with leashed(argv, cwd=cwd, stdin=json.dumps(dict(question)).encode()) as running:
        yield Asking(probe, launch.python, question, running, timeout)


def ask(launch: Launch, probe: str, question: Mapping[str, Any], *, cwd: Path, timeout: float = 120) -> dict[str, Any]:
    """Run a probe to its end and return the answer, its JSON document. Raises `ProbeFailed`."""
    with asking(launch, probe, question, cwd=cwd, timeout=timeout) as started:
        return started.answer()


def answer_of(
    outcome: Outcome, probe: str, python: Path, timeout: float, question: Mapping[str, Any] = {}
) -> dict[str, Any]:
    """The JSON document in a probe's output, whatever others printed around it. Raises `ProbeFailed`."""
    where = str(python)
    if outcome.timed_out:
        raise ProbeFailed(f"the probe {probe} gave no answer within {timeout:.0f} s", where=where,
                          hint="does a .pth file or sitecustomize hang at start-up?")  # fmt: skip
    if outcome.flooded:
        raise ProbeFailed(f"the probe {probe} gave no answer, but more than {MAX_OUTPUT >> 20} MB of output",
                          where=where, hint="what prints at start-up?")  # fmt: skip
    if outcome.code < 0:
        said = outcome.last_words if outcome.error_text or outcome.text.strip() else ""
        raise ProbeFailed(f"the probe {probe} was killed by {_signal(-outcome.code)}", where=where,
                          hint=said or "out of memory, or a broken extension module?")  # fmt: skip
    answers = documents_of(outcome, probe)
    if not answers:
        raise ProbeFailed(f"the probe {probe} gave no answer: {outcome.last_words}", where=where)
    if len(answers) > 1:
        raise ProbeFailed(f"the probe {probe} gave {len(answers)} answers that differ", where=where, hint=_OTHERS)
    if outcome.code:
        what = f"the probe {probe} answered, and then ended with exit status {outcome.code}"
        raise ProbeFailed(what, where=where, hint=outcome.error_text.splitlines()[-1:][0][:300] if outcome.error_text
                          else "is it a wrapper that fails at its end?")  # fmt: skip
    if wrong := misfit(probe, answers[0], question):
        what = f"the probe {probe} gave an answer of another shape: {wrong}"
        raise ProbeFailed(what[:300], where=where, hint=_OTHERS)
    return answers[0]


def documents_of(outcome: Outcome, probe: str) -> list[dict[str, Any]]:
    """Every line that is a JSON object and can be this probe's, each once."""
    found: list[dict[str, Any]] = []
    for line in outcome.stdout.splitlines():
        if line.startswith(b"{") and len(line) <= MAX_ANSWER:
            try:
                answer = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if can_be(probe, answer) and not is_deep(answer) and answer not in found:
                found.append(answer)
    return found


@contextmanager
def reading(probe: str, python: Path) -> Iterator[None]:
    """Around what reads an answer: it comes from a foreign interpreter, so another shape is `ProbeFailed`, no bug."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        what = f"the probe {probe} gave an answer of another shape: {type(error).__name__}: {error}"
        raise ProbeFailed(what[:300], where=str(python), hint=_OTHERS) from error


def _signal(number: int) -> str:
    """Its name; most of the real-time signals have none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
