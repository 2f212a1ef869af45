"""`revert`: takes the last apply or install of a target back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from patchq.commands.install import last_install, take_back_install
from patchq.commands.place import Place
from patchq.commands.sinks import Installed
from patchq.errors import Problem, Refused
from patchq.evidence.inforce import applies_in_force
from patchq.evidence.record import Evidence, Record, write_record
from patchq.installed import roll_forward
from patchq.installed.undo import drop, roll_back_all
from patchq.lock import load_lock
from patchq.machine.lease import await_end, refuse_in_use
from patchq.queue.host import Host
from patchq.report import Report, State, Step
from patchq.store import Store
from patchq.workarea import WorkArea
from patchq.workcopy import clear_current, current, move_current


def revert(place: Place, target: str, *, wait: float = 0) -> Report:
    """Point `current` back to the copies of the apply before, and put installed files back; or, where an install
    came after the apply, put its files back.

    No work copy is changed or removed; raises `Refused` where there is nothing to take back and `Prevented`
    while something was launched from it that still runs.
    """
    area = place.area(target)
    _last(area, target)
    await_end(area, target, wait=wait)
    with area.locked("revert", wait):
        refuse_in_use(area, target)
        applied, before, journal = _last(area, target)
        if journal:
            return _revert_install(place, target, area, journal)
        assert applied
        _refuse_pruned(place, target, area, before)
        roll_forward(area.journals)
        roll_back_all(area)
        steps = list(_installed(area, target, applied).reverted())
        steps += _installed(area, target, before).placed() if before else ()
        steps += _copies(place, target, area, before)
        report = Report("revert", tuple(steps), {"target": target, "work": str(area.root)})
        evidence = Evidence(facts={"reverted": applied.id})
        write_record(area.records, report, evidence, target=target, variant=applied.variant, lock=applied.lock)
    return report


def _last(area: WorkArea, target: str) -> tuple[Record | None, Record | None, Path | None]:
    """The apply in force, the one before it, and the way back of an install that came after both; raises `Refused`
    where there is nothing to take back."""
    in_force = applies_in_force(area.records, target)
    applied, before = [*reversed(in_force), None, None][:2]
    journal = last_install(area, target)
    if journal and (applied is None or applied.id < journal.name):
        return applied, before, journal
    if applied is None:
        raise Refused(f"nothing was applied for {target} on this host", where=str(area.root))
    return applied, before, None


def _installed(area: WorkArea, target: str, applied: Record) -> Installed:
    """The installed selections of an apply, read from the queue that it left in the work area."""
    place = Place(area.queue(applied.lock) / "series", area)
    locked = load_lock(place.queue).of(target, applied.variant)
    return Installed(place, target, locked, area, Store(area.store), Host.here(area.root))


def _revert_install(place: Place, target: str, area: WorkArea, journal: Path) -> Report:
    report = Report("revert", (take_back_install(journal),), {"target": target, "work": str(area.root)})
    lock = load_lock(place.queue).digest
    write_record(area.records, report, Evidence(), target=target, variant=None, lock=lock)
    # Last, because it says what is to be taken back: the same words after a crash would go on to the apply before.
    drop(journal)
    roll_back_all(area)
    return report


def _commits(record: Record) -> dict[str, str]:
    return {name: facts["commit"] for name, facts in record.facts.get("patches", {}).items()}


def _refuse_pruned(place: Place, target: str, area: WorkArea, before: Record | None) -> None:
    """Raise `Refused` where a work copy of the apply before is not there any more."""
    commits = _commits(before) if before else {}
    uses = place.queue.target(target).upstreams.items()
    copies = [area.copy(name, commits[name]) for name, use in uses if use.sink == "work-copy" and name in commits]
    gone = [
        Problem("is not there any more", str(copy), "apply that queue again") for copy in copies if not copy.is_dir()
    ]
    if gone:
        raise Refused(gone)


def _copies(place: Place, target: str, area: WorkArea, before: Record | None) -> Iterator[Step]:
    commits = _commits(before) if before else {}
    for name, use in place.queue.target(target).upstreams.items():
        if use.sink != "work-copy":
            continue
        folder, now, then = area.upstream(name), current(area.upstream(name)), commits.get(name)
        if then and then == now:
            yield Step("current", State.UNCHANGED, f"was {then[:12]} before, too", name)
        elif then:
            move_current(folder, then)
            yield Step("current", State.PASSED, f"is {then[:12]} again", name)
        elif now:
            clear_current(folder)
            yield Step("current", State.PASSED, "names nothing any more: there was no apply before", name)
        else:
            yield Step("current", State.NOTE, "named nothing", name)
