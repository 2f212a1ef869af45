"""What was applied for an environment, checked to be what is there: the start of `env`, `smoke`, `run`, `install`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patchq.audit import Subject, subject_of
from patchq.commands.install import cut_short
from patchq.commands.place import Place
from patchq.environment import environment_name, launch_of
from patchq.errors import Refused
from patchq.evidence.inforce import last_apply
from patchq.evidence.record import Evidence, Record
from patchq.lock import Lock, LockedSelection, load_lock
from patchq.machine.launch import Launch
from patchq.queue.host import Host
from patchq.queue.target import Environment
from patchq.store import Store
from patchq.workarea import WorkArea
from patchq.workcopy import current, strangers


@dataclass(frozen=True)
class Ready:
    """One environment of a target, as the last apply left it. `copies` are the work copies that it imports from."""

    place: Place
    target: str
    env: str
    variant: str | None
    lock: Lock
    locked: dict[str, LockedSelection]
    area: WorkArea
    host: Host
    applied: Record
    launch: Launch
    copies: dict[str, Path]

    @property
    def environment(self) -> Environment:
        """What the target declares of the environment."""
        return self.place.queue.target(self.target).environments[self.env]

    def subject(self, evidence: Evidence, *, start: tuple[Path, ...] = ()) -> Subject:
        """The environment as what is audited; what is found goes into `evidence`."""
        return subject_of(
            self.place.queue, self.target, self.env, self.locked, self.area, self.host, evidence, start=start
        )

    @property
    def where(self) -> str:
        """The target's file, for messages."""
        return self.place.target_file(self.target)


def ready(place: Place, target: str, env: str | None, variant: str | None = None) -> Ready:
    """The environment for what was last applied.

    Raises `Refused` where that apply failed, was of another lock or variant, or its copy is not there, or an
    install into the environment was cut short.
    """
    queue = place.queue
    name = environment_name(queue, target, env)
    area = place.area(target)
    for step in cut_short(area, target, name):
        raise Refused(f"an install {step.summary}", where=str(area.root), hint=step.hint)
    applied = last_apply(area.records, target)
    if applied is None or applied.exit not in (0, 4):
        raise Refused(f"nothing was applied for {target} on this host, or the apply failed", where=str(area.root))
    variant = queue.variant_name(variant) or applied.variant
    lock = load_lock(queue)
    if (applied.lock, applied.variant) != (lock.digest, variant):
        raise Refused("the last apply was of another lock or variant", where=str(area.root), hint="run: patchq apply")
    locked = lock.of(target, variant)
    copies = _copies(place, target, name, locked, area)
    host = place.area_host(target)
    launch = launch_of(queue, target, name, locked, area, host)
    return Ready(place, target, name, variant, lock, locked, area, host, applied, launch, copies)


def _copies(place: Place, target: str, env: str, locked: dict[str, LockedSelection], area: WorkArea) -> dict[str, Path]:
    copies = {}
    for upstream, use in place.queue.target(target).upstreams.items():
        if use.sink == "work-copy" and env in use.environments:
            now = current(area.upstream(upstream))
            if now != locked[upstream].commit or not area.copy(upstream, now).is_dir():
                raise Refused(f"the work copy of {upstream} is not the one that was applied", hint="run: patchq apply")
            copies[upstream] = area.copy(upstream, now)
    refuse_strangers(place, locked, area, copies)
    return copies


def refuse_strangers(
    place: Place, locked: dict[str, LockedSelection], area: WorkArea, copies: Mapping[str, Path]
) -> None:
    """Raise `Refused` where starting an interpreter would run what somebody put into a work copy."""
    store = Store(area.store)
    for upstream, folder in copies.items():
        root = place.queue.upstream(upstream).baseline.root
        if found := strangers(store, folder, locked[upstream].commit, root):
            what = f"holds {', '.join(found)}, which Python would run when it starts"
            raise Refused(what, where=str(folder), hint="remove it, or move the copy away and run: patchq apply")
