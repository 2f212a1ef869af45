"""Asking the training interpreter: it runs a small script of `probes/` and prints one JSON document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from patchq.errors import Refused
from patchq.launch import Launch
from patchq.process import Outcome, run


class ProbeFailed(Refused):
    """The interpreter did not answer: it is not there, hung, was killed, or printed something else."""


def ask(launch: Launch, probe: str, question: Mapping[str, Any], *, cwd: Path, timeout: float = 120) -> dict[str, Any]:
    """Run a probe in a launch environment; `question` goes in as JSON on stdin, the answer is its JSON document.

    `timeout` is in seconds. Raises `ProbeFailed` with the one reason.
    """
    with resources.as_file(resources.files("patchq.probes").joinpath(f"{probe}.py")) as script:
        argv = launch.argv([str(launch.python), "-s", "-B", str(script)])
        outcome = run(argv, cwd=cwd, stdin=json.dumps(dict(question)).encode(), timeout=timeout)
    return answer_of(outcome, probe, launch.python)


def answer_of(outcome: Outcome, probe: str, python: Path) -> dict[str, Any]:
    """The JSON document in a probe's output: its last line, whatever imports printed before it."""
    if outcome.timed_out:
        raise ProbeFailed(f"the probe {probe} gave no answer in time", where=str(python))
    try:
        answer = json.loads(outcome.text.strip().rpartition("\n")[2])
        if isinstance(answer, dict):
            return answer
    except ValueError:
        pass
    said = (outcome.error_text or outcome.text.strip()).splitlines()[-1:] or [f"exit status {outcome.code}"]
    raise ProbeFailed(f"the probe {probe} gave no answer: {said[0][:300]}", where=str(python))
