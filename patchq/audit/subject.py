"""What is audited: one environment of a target on this host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patchq.environment import launch_of
from patchq.evidence.record import Evidence
from patchq.lock import LockedSelection
from patchq.machine.launch import Launch
from patchq.printable import storable
from patchq.queue.host import Host
from patchq.queue.load import Queue
from patchq.queue.target import Environment
from patchq.report import State, Step
from patchq.workarea import WorkArea

Answer = Mapping[str, Any]


@dataclass(frozen=True)
class Subject:
    """One environment, with every variable in its declaration expanded for this host.

    `copies` maps the packages that have to come from a work copy to that copy; `start` are the folders that training
    may be started from, which come before everything else on the import path; `before` is what the last good record
    says of this environment; `answers` gathers what probes have said, by name.
    """

    name: str
    declared: Environment
    launch: Launch
    work: Path
    copies: Mapping[str, Path] = field(default_factory=dict)
    start: tuple[Path, ...] = ()
    before: Answer = field(default_factory=dict)
    evidence: Evidence = field(default_factory=Evidence)
    answers: dict[str, Answer] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return f"environment {self.name}"

    def step(self, name: str, state: State, summary: str = "", **more: Any) -> Step:
        """A step of this environment."""
        return Step(name, state, summary, self.group, **more)

    def keep(self, probe: str, facts: Any) -> None:
        """Put facts into the record, where later verifications compare with them."""
        self.evidence.facts.setdefault("audit", {}).setdefault(self.name, {})[probe] = storable(facts)


def subject_of(
    queue: Queue,
    target: str,
    name: str,
    locked: Mapping[str, LockedSelection],
    area: WorkArea,
    host: Host,
    evidence: Evidence,
    *,
    start: tuple[Path, ...] = (),
    before: Answer | None = None,
) -> Subject:
    """The environment `name` of a target on this host; raises `Invalid` for a variable that is not set."""
    launch = launch_of(queue, target, name, locked, area, host)
    copies = {
        package: area.copy(upstream, locked[upstream].commit)
        for upstream, use in queue.target(target).upstreams.items()
        if name in use.environments and use.sink == "work-copy"
        for package in queue.upstream(upstream).baseline.packages
    }
    where = str(queue.root / "targets" / f"{target}.yaml")
    declared = _expanded(queue.target(target).environments[name], host, where)
    return Subject(name, declared, launch, area.root, copies, start, before or {}, evidence)


def _expanded(declared: Environment, host: Host, where: str) -> Environment:
    folders = {
        name: folder.model_copy(update={"path": host.expand(folder.path, where)})
        for name, folder in declared.folders.items()
    }
    query = host.expand(declared.device_query, where)
    return declared.model_copy(update={"folders": folders, "device_query": query})
