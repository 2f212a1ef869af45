"""`status`: the queue at a glance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from patchq.commands.place import Place
from patchq.errors import Invalid, PatchqError
from patchq.evidence.inforce import last_apply
from patchq.lock import differences, load_lock
from patchq.machine.lease import leases
from patchq.queue.load import Queue
from patchq.queue.selection import Selection, selections
from patchq.report import Report, State, Step
from patchq.workcopy import current


def status(place: Place) -> Report:
    """Which patch is in which target, whether the lock is fresh, and what was applied on this host."""
    queue = place.queue
    steps = [*place.assumed(), _lock(place)]
    steps += [step for target in queue.targets for step in _applied(place, target)]
    found = list(selections(queue))
    table = {
        selection.key: {choice.queued.name: choice.reason if choice.chosen else "" for choice in selection.choices}
        for selection in found
    }
    data = {"queue": str(place.root), "name": queue.settings.name, "matrix": _matrix(queue, found), "selections": table,
            "variants": {name: variant.description for name, variant in queue.variants.items()}}  # fmt: skip
    return Report("status", tuple(steps), data)


def _matrix(queue: Queue, found: Sequence[Selection]) -> dict[str, dict[str, str]]:
    """Patch → target → `in`, `out`, or the variants that take the patch."""
    takers: dict[tuple[str, str], list[str | None]] = {}
    for selection in found:
        for queued in selection.chosen:
            takers.setdefault((queued.name, selection.target), []).append(selection.variant)
    return {
        queued.name: {
            target: _mark(takers.get((queued.name, target), []))
            for target, use in queue.targets.items()
            if name in use.upstreams
        }
        for name, upstream in queue.upstreams.items()
        for queued in upstream.patches
    }


def _mark(variants: Sequence[str | None]) -> str:
    if None in variants:
        return "in"
    return "+" + ",".join(filter(None, variants)) if variants else "out"


def _lock(place: Place) -> Step:
    try:
        stale = list(differences(place.queue, load_lock(place.queue)))
    except PatchqError as error:
        return Step("lock", State.WARNING, error.problems[0].what, hint=error.problems[0].hint)
    if stale:
        return Step("lock", State.WARNING, f"stale: {len(stale)} files differ from it",
                    detail=tuple(map(str, stale)), hint="run: patchq lock")  # fmt: skip
    return Step("lock", State.PASSED, "fresh")


def _applied(place: Place, target: str) -> Iterator[Step]:
    try:
        area = place.area(target)
    except Invalid as error:
        yield Step(target, State.NOTE, f"no work area on this host: {error.problems[0].what}")
        return
    for lease in leases(area):
        if lease.target == target:
            yield Step(target, State.NOTE, f"{lease.env} is in use by {lease}", data=lease.model_dump(mode="json"))
    record = last_apply(area.records, target)
    if record is None:
        yield Step(target, State.NOTE, "not applied on this host", data={"work": str(area.root)})
        return
    copies = {name: current(area.upstream(name)) for name in place.queue.target(target).upstreams}
    shown = ", ".join(f"{name} {commit[:12]}" for name, commit in copies.items() if commit)
    missing = record.not_run()
    yield Step(target, State.NOTE, f"applied {record.began} (exit {record.exit}): {shown or 'nothing placed'}",
               detail=tuple(f"not run: {name}" for name in missing),
               data={"work": str(area.root), "record": record.id, "current": copies})  # fmt: skip
