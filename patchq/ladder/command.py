"""A target's own command on a rung: run, held against its expectations, and its full output kept."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchq.errors import Invalid, PatchqError
from patchq.ladder.model import Command, RungName
from patchq.machine.launch import Launch
from patchq.mask import mask, mask_variables, mask_words
from patchq.process import Outcome, leashed
from patchq.report import State, Step

if TYPE_CHECKING:  # only what a command has written is searched for errors
    from patchq.evidence.first_error import FirstError

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
        "argv": mask_words(command.run),
        "cwd": str(cwd),
        "exit": outcome.code,
        "log": f"logs/{log.name}",
        "set": mask_variables(dict(launch.variables)),
    }
    if not broken:
        return Step(command.name, State.PASSED, _met(command), rung, data=data, seconds=outcome.seconds)
    from patchq.evidence.first_error import first_error

    found = first_error(output.splitlines())
    detail = [f"$ {shlex.join(data['argv'])}", *broken[1:], *shown_error(found)]
    data |= {"broken": broken, "first_error": None if found is None else found.facts()}
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
    rows = [f"first effective error ({place}): {found}"]
    if found.led_to:
        rows.append(f"which led to {found.led_to}")
    return [mask(row)[:_SHOWN] for row in (*rows, *found.excerpt[-6:-1])]


def variables_of(launch: Launch, *, cwd: Path, timeout: float = 60) -> Mapping[str, str]:
    """The environment that a command of `launch` really gets, as a child there sees it.

    Raises `Invalid` with what the shell said where it cannot be set up (a required variable, the profile).
    """
    shown = ["sh", "-c", r"printf '\0'; exec env -0"]  # whatever was printed before is none of them
    with leashed(launch.argv(shown, check=True), cwd=cwd) as running:
        outcome = running.outcome(timeout)
    _, mark, rest = outcome.stdout.partition(b"\0")
    if not outcome.ok or not mark:
        ended = f"no end within {timeout:.0f} s" if outcome.timed_out else f"exit status {outcome.code}, too early"
        said = outcome.error_text.splitlines()[-1:] or [ended]
        raise Invalid(f"the environment cannot be set up: {said[0].removeprefix('patchq: ')}", where=launch.title)
    pairs = (item.partition("=") for item in rest.decode("utf-8", "surrogateescape").split("\0") if item)
    return {name: value for name, _, value in pairs}
