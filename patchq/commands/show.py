"""`show`: one patch, with what the queue says about it."""

from __future__ import annotations

from collections.abc import Iterator

from patchq.commands.place import Place
from patchq.document import read_regular
from patchq.queue.find import find_patch
from patchq.queue.load import MAX_PATCH, Queue, QueuedPatch
from patchq.queue.selection import Choice, selections
from patchq.report import Report, State, Step


def show(place: Place, name: str) -> Report:
    """The bytes of the patch that `name` means, and where it stands; raises `Invalid` for an unknown one."""
    queue = place.queue
    queued = find_patch(queue, name)
    data = read_regular(queue.root / queued.name, MAX_PATCH)
    facts = {
        "patch": queued.name,
        "layer": queued.entry.layer,
        "guards": list(queued.entry.guards),
        "strip": queued.entry.strip,
        "sha256": queue.digests[queued.name],
        "in": [scope for scope, choice in _choices(queue, queued) if choice.chosen],
    }
    steps = (_patch(queued), *(_choice(scope, choice) for scope, choice in _choices(queue, queued)))
    return Report("show", steps, facts, output=data.decode("utf-8", "surrogateescape"))


def _patch(queued: QueuedPatch) -> Step:
    if queued.patch is None:
        return Step(queued.name, State.MALFORMED, detail=tuple(map(str, queued.problems)))
    guards = " ".join(f"#{guard}" for guard in queued.entry.guards)
    detail = tuple(
        f"{change.kind} {change.path} +{sum(hunk.added for hunk in change.hunks)}"
        f" -{sum(hunk.deleted for hunk in change.hunks)}"
        for change in queued.patch.changes
    )
    return Step(queued.name, State.NOTE, guards, detail=detail)


def _choices(queue: Queue, queued: QueuedPatch) -> Iterator[tuple[str, Choice]]:
    for selection in selections(queue):
        if selection.upstream.name == queued.upstream:
            yield selection.scope, next(choice for choice in selection.choices if choice.queued is queued)


def _choice(scope: str, choice: Choice) -> Step:
    return Step(scope, State.PASSED if choice.chosen else State.EXCLUDED, choice.reason, group="selections")
