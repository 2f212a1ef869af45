"""A target's own command on a rung: run, held against its expectations, and its full output kept."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from patchq.errors import Invalid, PatchqError
from patchq.first_error import FirstError, first_error
from patchq.ladder.model import Command, RungName
from patchq.launch import Launch
from patchq.mask import mask, mask_variables
from patchq.process import Outcome, leashed
from patchq.report import State, Step

_SHOWN = 200


def run_command(command: Command, rung: RungName, launch: Launch, room: Path, log: Path) -> Step:
    """Run one command in the launch environment and judge it; both its streams go to `log`, in their order.

    Nothing that it has started outlives it.
    """
    inside = replace(launch, variables=tuple({**dict(launch.variables), **command.set}.items()))
    cwd = Path(command.cwd) if command.cwd else room
    if not cwd.is_dir():
        return Step(command.name, State.FAILED, "its working directory is not there", rung, hint=str(cwd))
    argv = inside.argv(["bash", "-c", 'exec "$@" 2>&1', "patchq", *command.run], check=True)
    try:
        with leashed(argv, cwd=cwd) as running:
            outcome = running.outcome(command.seconds)
    except PatchqError as error:
        return Step(command.name, State.FAILED, str(error.problems[0]), rung)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(outcome.stdout + outcome.stderr)
    return _judged(command, rung, inside, cwd, outcome, log)


def _judged(command: Command, rung: RungName, launch: Launch, cwd: Path, outcome: Outcome, log: Path) -> Step:
    output = (outcome.stdout + outcome.stderr).decode("utf-8", "replace")
    broken = list(unmet(command, outcome, output))
    data: dict[str, Any] = {
        "argv": [mask(word) for word in command.run],
        "cwd": str(cwd),
        "exit": outcome.code,
        "log": f"logs/{log.name}",
        "set": mask_variables(dict(launch.variables)),
    }
    if not broken:
        return Step(command.name, State.PASSED, _met(command), rung, data=data, seconds=outcome.seconds)
    found = first_error(output.splitlines())
    detail = [f"$ {shlex.join(data['argv'])}", *broken[1:], *shown_error(found)]
    data |= {"broken": broken, "first_error": None if found is None else error_facts(found)}
    hint = f"the full output is in the record: {data['log']}"
    return Step(command.name, State.FAILED, broken[0], rung, tuple(detail), hint, data, outcome.seconds)


def unmet(command: Command, outcome: Outcome, output: str) -> Iterator[str]:
    """Every expectation that does not hold, in words."""
    if outcome.timed_out:
        yield f"did not end within {command.seconds} s"
    elif outcome.code != command.exit:
        yield f"exit status {outcome.code}, {command.exit} was expected"
    for pattern in command.must:
        if not re.search(pattern, output, re.MULTILINE):
            yield f"its output lacks /{pattern}/"
    for pattern in command.must_not:
        if found := re.search(pattern, output, re.MULTILINE):
            line = output.count("\n", 0, found.start()) + 1
            yield f"its output has /{pattern}/ in line {line}"


def _met(command: Command) -> str:
    said = [f"exit status {command.exit}"]
    said += [f"/{pattern}/" for pattern in command.must]
    said += [f"no /{pattern}/" for pattern in command.must_not]
    return ", ".join(said)


def shown_error(found: FirstError | None) -> list[str]:
    """The first effective error for people: what, where in the log, and its last lines."""
    if found is None:
        return []
    place = f"line {found.line}" + (f", {found.process}" if found.process else "")
    rows = [f"first effective error ({place}): {found}"[:_SHOWN]]
    if found.led_to:
        rows.append(f"which led to {found.led_to}"[:_SHOWN])
    return rows + [row[:_SHOWN] for row in found.excerpt[-6:-1]]


def error_facts(found: FirstError) -> dict[str, Any]:
    """The first effective error as JSON types, with secrets masked."""
    return {
        "line": found.line,
        "kind": found.kind,
        "message": mask(found.message),
        "process": found.process,
        "excerpt": [mask(row) for row in found.excerpt],
        "led_to": mask(found.led_to),
    }


def variables_of(launch: Launch, *, cwd: Path, timeout: float = 60) -> Mapping[str, str]:
    """The environment that a command of `launch` really gets, as a child there sees it.

    Raises `Invalid` with what the shell said where it cannot be set up (a required variable, the profile).
    """
    with leashed(launch.argv(["env", "-0"], check=True), cwd=cwd) as running:
        outcome = running.outcome(timeout)
    if not outcome.ok:
        said = outcome.error_text.splitlines()[-1:] or [f"exit status {outcome.code}"]
        raise Invalid(f"the environment cannot be set up: {said[0].removeprefix('patchq: ')}", where=launch.title)
    pairs = (item.partition("=") for item in outcome.stdout.decode("utf-8", "surrogateescape").split("\0") if item)
    return {name: value for name, _, value in pairs}
