"""`verify`: proves again, from contents, that what was applied is what is there; writes a record, nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from patchq.commands.place import Place, last_apply
from patchq.commands.sinks import Installed
from patchq.environment import launch_of
from patchq.errors import PatchqError, Refused
from patchq.lock import Lock, LockedSelection, differences, load_lock
from patchq.proof import Prover
from patchq.queue.host import Host
from patchq.record import Evidence, write_record
from patchq.report import Report, State, Step
from patchq.store import Store, require_git
from patchq.workarea import WorkArea
from patchq.workcopy import current, inspect


def verify(place: Place, target: str, variant: str | None = None, *, wait: float = 0) -> Report:
    """Verify the target's last apply (or `variant`); raises `Refused` where nothing was applied."""
    require_git((2, 25), "verify")
    queue, area = place.queue, place.area(target)
    queue.variant_name(variant)
    applied = last_apply(area, target)
    if applied is None:
        raise Refused(f"nothing was applied for {target} on this host", where=str(area.root), hint="run: patchq apply")
    variant = variant or applied.variant
    lock = load_lock(queue)
    evidence = Evidence()
    with area.locked("verify", wait):
        steps = list(_steps(place, target, variant, lock, area, evidence))
        steps += _since_apply(applied.lock, applied.not_run(), lock)
        report = Report("verify", tuple(steps), {"target": target, "variant": variant, "lock": lock.digest})
        folder = write_record(area.records, report, evidence, target=target, variant=variant, lock=lock.digest)
    return Report("verify", report.steps, {**report.data, "record": str(folder)})


def _steps(
    place: Place, target: str, variant: str | None, lock: Lock, area: WorkArea, evidence: Evidence
) -> Iterator[Step]:
    stale = list(differences(place.queue, lock))
    yield from (Step(problem.where, State.EDITED, problem.what, "queue", hint=problem.hint) for problem in stale)
    if not stale:
        yield Step("lock", State.PASSED, f"{lock.digest[:12]} agrees with every file of the queue", "queue")
    locked = lock.of(target, variant)
    store, host = Store(area.store), Host.here(area.root)
    for name, selection in locked.items():
        if place.queue.target(target).upstreams[name].sink == "work-copy":
            yield from _copy(place, area, store, name, selection)
    yield from Installed(place, target, locked, area, store, host).verified()
    yield from _origins(place, target, locked, area, host, evidence)


def _copy(place: Place, area: WorkArea, store: Store, name: str, locked: LockedSelection) -> Iterator[Step]:
    folder = area.copy(name, locked.commit)
    if not folder.is_dir():
        yield Step("work copy", State.FAILED, "is not there", name, hint="run: patchq apply")
        return
    found = inspect(store, folder, locked.commit, locked.submodules, (place.queue.upstream(name).baseline.root,))
    rows = tuple(f"{drift.what}: {drift.path} {drift.detail}".rstrip() for drift in found.drift)
    if rows:
        yield Step("work copy", State.FAILED, f"{len(rows)} things differ from the lock", name, rows[:50])
    else:
        yield Step("work copy", State.PASSED, f"{folder}: every byte as locked, commit {locked.commit[:12]}", name)
    if found.untracked:
        shown = f"{len(found.untracked)} files that nothing imports"
        yield Step("untracked", State.NOTE, shown, name, found.untracked[:10])
    now = current(area.upstream(name))
    if now != locked.commit:
        yield Step("current", State.WARNING, f"names {now[:12] if now else 'nothing'}, not this copy", name)


def _origins(
    place: Place,
    target: str,
    locked: dict[str, LockedSelection],
    area: WorkArea,
    host: Host,
    evidence: Evidence,
) -> Iterator[Step]:
    """The training interpreter is asked where it would import each package from."""
    declared = place.queue.target(target)
    for env, environment in declared.environments.items():
        try:
            launch = launch_of(place.queue, target, env, locked, area, host)
        except PatchqError as error:
            yield Step(f"interpreter {env}", State.NOT_RUN, str(error.problems[0]), f"environment {env}")
            continue
        prover = Prover(env, launch, frozenset(environment.without), evidence)
        interpreter = prover.interpreter(environment.version)
        yield interpreter
        if interpreter.state is State.NOT_RUN:
            continue
        for name, use in declared.upstreams.items():
            if env in use.environments and use.sink == "work-copy":
                folder = area.copy(name, locked[name].commit)
                yield from prover.imports(name, folder, place.queue.upstream(name).baseline, ())


def _since_apply(applied: str, not_run: list[str], lock: Lock) -> Iterator[Step]:
    if applied != lock.digest:
        yield Step("last apply", State.FAILED, f"was of lock {applied[:12]}", "queue", hint="run: patchq apply")
    if not_run:
        yield Step("last apply", State.NOT_RUN, "has steps that were not run", "queue", tuple(not_run))
