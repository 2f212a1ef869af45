"""`prune`: removes old copies, failed copies and queues that nothing refers to."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from patchq.commands.place import Place
from patchq.evidence.inforce import last_apply
from patchq.evidence.record import list_records
from patchq.exclusive import dead_rooms
from patchq.machine.lease import leases
from patchq.report import Report, State, Step
from patchq.workarea import WorkArea
from patchq.workcopy import current

_DOOMED = ".new-pruned-"


def prune(place: Place, target: str, *, keep: int = 2, dry_run: bool = False, wait: float = 0) -> Report:
    """Remove what is old: work copies but the current and the newest `keep`, copies that failed, queues of no copy.

    Records are evidence and stay.
    """
    area = place.area(target)
    with area.locked("prune", wait):
        kept = _kept_commits(area, place, keep)
        steps = [_gone(path, what, dry_run) for path, what in _old(area, place, kept)]
    return Report("prune", tuple(steps), {"work": str(area.root), "dry_run": dry_run})


def _kept_commits(area: WorkArea, place: Place, keep: int) -> dict[str, set[str]]:
    """By upstream: the current commit, those of the newest good applies, and those that somebody uses."""
    kept: dict[str, list[str]] = {name: [] for name in place.queue.upstreams}
    for record in reversed(list_records(area.records)):
        if record.verb == "apply" and record.exit in (0, 4):
            for name, facts in record.facts.get("patches", {}).items():
                if facts["commit"] not in kept.setdefault(name, []):
                    kept[name].append(facts["commit"])
    used = {name: {current(area.upstream(name)) or ""} for name in kept}
    for path in (path for lease in leases(area) for path in lease.copies):
        upstream, _, commit = path.rpartition("/")
        used.setdefault(upstream, set()).add(commit)
    return {name: {*kept.get(name, [])[:keep], *commits} for name, commits in used.items()}


def _old(area: WorkArea, place: Place, kept: dict[str, set[str]]) -> Iterator[tuple[Path, str]]:
    for name, commits in kept.items():
        folder = area.upstream(name)
        for path in sorted(folder.glob("*")):
            if re.fullmatch(r"[0-9a-f]{40}", path.name) and path.name not in commits:
                yield path, f"work copy of {name}"
        for path in sorted((folder / "failed").glob("*")):
            yield path, f"failed copy of {name}"
        yield from _half_gone(folder)
    records = list_records(area.records)
    used = {record.lock for record in records if _is_kept(record.facts, kept)}
    used |= {last.lock for target in {record.target for record in records}
             if (last := last_apply(area.records, target))}  # fmt: skip
    for path in sorted((area.root / "queue").glob("*")):
        if path.name not in used and place.root.parent != path:
            yield path, "queue of no copy that is left"
    yield from _half_gone(area.queues)
    for folder in (area.records, area.queues):
        for path in dead_rooms(folder):
            if not path.name.startswith(_DOOMED):
                yield path, "left by a call that was killed"


def _half_gone(folder: Path) -> Iterator[tuple[Path, str]]:
    """What a prune that was killed had begun to remove."""
    for path in sorted(folder.glob(f"{_DOOMED}*")):
        yield path, "left by a prune that was killed"


def _is_kept(facts: dict[str, object], kept: dict[str, set[str]]) -> bool:
    patches = facts.get("patches", {})
    return isinstance(patches, dict) and any(item["commit"] in kept.get(name, ()) for name, item in patches.items())


def _gone(path: Path, what: str, dry_run: bool) -> Step:
    if not dry_run:
        # By a rename first, so that a half-removed copy is never taken for a whole one.
        doomed = path if path.name.startswith(_DOOMED) else path.with_name(f"{_DOOMED}{path.name}")
        if doomed != path:
            path.rename(doomed)
        while doomed.exists():
            with suppress(FileNotFoundError):  # a verb that makes a room there removes it at the same time
                shutil.rmtree(doomed)
    return Step(str(path), State.NOTE, f"{what}: {'would go' if dry_run else 'removed'}")
