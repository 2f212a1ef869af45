"""`smoke`: climbs an environment's ladder on this machine and records what it found."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchq.commands.place import Place
from patchq.commands.ready import Ready, ready
from patchq.errors import Invalid, PatchqError
from patchq.ladder.climb import Climb, between
from patchq.ladder.command import variables_of
from patchq.ladder.model import Ladder, RungName, Settings
from patchq.mask import mask_variables
from patchq.probe import PROBES, ask
from patchq.proof import Prover, scratch
from patchq.record import Evidence, write_record
from patchq.report import Report, State, Step

PROBE_SECONDS = 900


def smoke(
    place: Place,
    target: str,
    env: str | None = None,
    variant: str | None = None,
    *,
    first: str | None = None,
    last: str | None = None,
    wait: float = 0,
) -> Report:
    """Climb from the rung `first` to `last` (None: the whole ladder) and stop at the first that fails.

    Raises `Invalid` for a rung that is none, and where a variable of the ladder is not set.
    """
    rungs = between(first, last)
    now = ready(place, target, env, variant)
    evidence = Evidence()
    evidence.facts["rungs"] = list(rungs)
    with now.area.locked("smoke", wait), scratch() as room:
        steps = tuple(climb(now, rungs, evidence, room))
        report = Report("smoke", steps, {"target": target, "env": now.env, "variant": now.variant})
        folder = write_record(now.area.records, report, evidence,
                              target=target, variant=now.variant, lock=now.lock.digest)  # fmt: skip
    return Report("smoke", steps, {**report.data, "record": str(folder)})


def climb(now: Ready, rungs: tuple[RungName, ...], evidence: Evidence, room: Path) -> Iterator[Step]:
    """The steps of some rungs; `evidence` gets the variables that children see, and the commands' full outputs."""
    try:
        evidence.facts["variables"] = mask_variables(variables_of(now.launch, cwd=room))
    except Invalid as error:
        yield Step("environment", State.FAILED, error.problems[0].what, rungs[0])
        return
    ladder = expanded(now, rungs)
    logs = room / "logs"
    yield from Climb(ladder, now.launch, Surveyor(now, evidence).steps, room / "rooms", logs).steps(rungs)
    for log in sorted(logs.glob("*")):
        evidence.logs[log.name] = log.read_bytes().decode("utf-8", "replace")
    shutil.rmtree(logs, ignore_errors=True)


def expanded(now: Ready, rungs: Iterable[RungName]) -> Ladder:
    """The environment's ladder with the variables of this host, on the rungs that are climbed."""
    ladder = now.environment.ladder

    def expand(text: str) -> str:
        return now.host.expand(text, now.where)

    return ladder.model_copy(update={name: ladder.rung(name).expanded(expand) for name in rungs})


@dataclass(frozen=True)
class Surveyor:
    """Asks the probes of one environment and turns their answers into steps; answers are kept as facts."""

    now: Ready
    evidence: Evidence

    def steps(self, probe: str, settings: Settings, rung: RungName) -> Iterable[Step]:
        """What a probe says, as steps; `not run` where it can't be asked."""
        if probe == "interpreter":
            prover = Prover(self.now.env, self.now.launch, frozenset(self.now.environment.without), self.evidence)
            return [_in_rung(prover.interpreter(self.now.environment.version), rung)]
        if not (PROBES / f"{probe}.py").is_file():
            return [Step(probe, State.NOT_RUN, "there is no such probe yet", rung)]
        try:
            with scratch() as room:
                answer = ask(self.now.launch, probe, settings, cwd=room, timeout=PROBE_SECONDS)
        except PatchqError as error:
            return [Step(probe, State.FAILED, error.problems[0].what, rung, hint=error.problems[0].hint)]
        self.evidence.facts.setdefault("probes", {})[probe] = answer
        return [_judged(probe, answer, rung)]


def _judged(probe: str, answer: Mapping[str, Any], rung: RungName) -> Step:
    """A probe that judges by itself says `state`, `summary`, `detail` and `hint`."""
    states = {state.value: state for state in State}
    state = states.get(str(answer.get("state")), State.NOTE)
    detail = tuple(map(str, answer.get("detail", ())))
    return Step(probe, state, str(answer.get("summary", "answered")), rung, detail, str(answer.get("hint", "")))


def _in_rung(step: Step, rung: RungName) -> Step:
    return Step(step.name, step.state, step.summary, rung, step.detail, step.hint, step.data)
