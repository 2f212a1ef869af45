"""`smoke`: climbs an environment's ladder on this machine and records what it found."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from patchq.audit import AUDITS, Subject, surveying
from patchq.commands.place import Place
from patchq.commands.ready import Ready, ready
from patchq.errors import Invalid
from patchq.evidence.record import Evidence, write_record
from patchq.exclusive import scratch
from patchq.ladder.climb import Climb, between
from patchq.ladder.command import variables_of
from patchq.ladder.model import Ladder, RungName, Settings
from patchq.mask import mask_variables
from patchq.report import Report, State, Step


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
    evidence = Evidence()
    evidence.facts |= {"rungs": list(rungs), "audit": {}}
    area = ready(place, target, env, variant).area
    with area.locked("smoke", wait), scratch() as room:
        now = ready(place, target, env, variant)
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
    subject = now.subject(evidence, start=(Path.cwd(),))
    yield from Climb(ladder, now.launch, Surveyor(subject).steps, room / "rooms", logs).steps(rungs)
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
    """Asks the probes of one environment and puts what they say under the rung that asked."""

    subject: Subject

    def steps(self, probe: str, settings: Settings, rung: RungName) -> Iterator[Step]:
        """What a probe says, as steps; `not run` where this patchq has no such probe."""
        if probe not in AUDITS:
            yield Step(probe, State.NOT_RUN, "patchq has no such probe yet", rung)
            return
        with surveying(self.subject, (probe,), {probe: settings}) as survey:
            for step in survey.steps():
                yield replace(step, group=rung)
