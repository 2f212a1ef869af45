"""Climbing: rung after rung until the first that fails; what comes after it is not run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from patchq.errors import Invalid
from patchq.ladder.command import run_command
from patchq.ladder.model import NEED_SETTINGS, RUNGS, Command, Ladder, RungName, Settings
from patchq.machine.launch import Launch
from patchq.report import State, Step, worst

# Asks a probe and judges its answer: its name, the target's settings for it, the rung.
Survey = Callable[[str, Settings, RungName], Iterable[Step]]


@dataclass(frozen=True)
class Climb:
    """One climb of an environment's ladder, whose texts are expanded for this host.

    Commands run in folders of their own below `room`; their full outputs go to `logs`.
    """

    ladder: Ladder
    launch: Launch
    survey: Survey
    room: Path
    logs: Path

    def steps(self, rungs: Sequence[RungName]) -> Iterator[Step]:
        """The steps of the rungs, in order; `rungs` comes from `between`."""
        stopped = ""
        for name in rungs:
            if stopped:
                yield Step(name, State.NOT_RUN, stopped, name, required=name in self.ladder.required)
                continue
            codes = []
            for step in self._rung(name):
                codes.append(step.code)
                yield step
            if worst(codes):
                stopped = f"the rung {name} {'was not climbed' if worst(codes) == 4 else 'failed'}"

    def _rung(self, name: RungName) -> Iterator[Step]:
        """Probes first; commands only where all of them passed, because they take longer and say less."""
        is_required = name in self.ladder.required
        codes = []
        for probe in self.ladder.probes(name):
            for step in self._probe(probe, name):
                marked = replace(step, required=is_required)
                codes.append(marked.code)
                yield marked
        for command in self.ladder.rung(name).commands:
            if worst(codes):
                yield Step(command.name, State.NOT_RUN, "something before it failed", name, required=is_required)
                continue
            for step in self._command(name, command):
                codes.append(step.code)
                yield step

    def _probe(self, probe: str, name: RungName) -> Iterable[Step]:
        settings = self.ladder.rung(name).ask.get(probe, {})
        if probe in NEED_SETTINGS and not settings:
            return (Step(probe, State.EXCLUDED, "the target names nothing to ask it about", name),)
        return self.survey(probe, settings, name)

    def _command(self, rung: RungName, command: Command) -> Iterator[Step]:
        name = f"{rung}-{command.name}"
        room, log = self.room / name, self.logs / f"{name}.txt"
        room.mkdir(parents=True)
        step = run_command(command, rung, self.launch, room, log)
        yield step
        if command.gates is not None and log.exists():
            settings: Settings = {**command.gates, "log": str(log), "exit": step.data["exit"]}
            for gate in self.survey("step_log", settings, rung):
                yield replace(gate, hint=gate.hint.replace(str(log), f"logs/{log.name}"))


def between(first: str | None, last: str | None) -> tuple[RungName, ...]:
    """The rungs from `first` to `last`, both included (None: the end of the ladder on that side).

    Raises `Invalid` for a name that is no rung, and for two in the wrong order.
    """
    bottom, top = _position(first, 0), _position(last, len(RUNGS) - 1)
    if bottom > top:
        raise Invalid(f"the rung {first} comes after {last}", hint=f"in order: {', '.join(RUNGS)}")
    return RUNGS[bottom : top + 1]


def _position(name: str | None, default: int) -> int:
    if name is None:
        return default
    if name not in RUNGS:
        raise Invalid(f"there is no rung {name!r}", hint=f"in order: {', '.join(RUNGS)}")
    return [*RUNGS].index(name)
