"""`files`: which patch touches which file."""

from __future__ import annotations

from fnmatch import fnmatchcase

from patchq.commands.place import Place
from patchq.document import nearest
from patchq.errors import Invalid
from patchq.patch import Change
from patchq.queue.load import QueuedPatch, Upstream
from patchq.queue.selection import matches
from patchq.report import Report, State, Step


def files(place: Place, which: str = "*") -> Report:
    """One step for every touched file, with its patches in their order.

    `which` is a glob over patch names, or over paths with or without the upstream's name in front. Raises
    `Invalid` where it matches nothing.
    """
    steps: list[Step] = []
    for upstream in place.queue.upstreams.values():
        for path, touching in sorted(_touched(upstream).items()):
            chosen = [item for item in touching if _wanted(which, upstream.name, path, item[0])]
            if chosen:
                steps.append(_step(upstream.name, path, chosen))
    if not steps and which != "*":
        names = [queued.name for upstream in place.queue.upstreams.values() for queued in upstream.patches]
        raise Invalid(f"{which!r} matches no patch and no file that a patch touches", hint=nearest(which, names))
    return Report("files", tuple(steps), {"queue": str(place.root)})


def _touched(upstream: Upstream) -> dict[str, list[tuple[QueuedPatch, Change]]]:
    touched: dict[str, list[tuple[QueuedPatch, Change]]] = {}
    for queued in upstream.patches:
        for change in queued.patch.changes if queued.patch else ():
            for path in dict.fromkeys(filter(None, (change.old, change.new))):
                touched.setdefault(path, []).append((queued, change))
    return touched


def _wanted(which: str, upstream: str, path: str, queued: QueuedPatch) -> bool:
    names = (path, f"{upstream}/{path}", queued.entry.name, queued.entry.name.removesuffix(".patch"))
    return matches(which, queued.name) or any(fnmatchcase(name, which) for name in names)


def _step(upstream: str, path: str, touching: list[tuple[QueuedPatch, Change]]) -> Step:
    detail = tuple(f"{queued.name}  {_what(change, path)}" for queued, change in touching)
    return Step(path, State.NOTE, "", upstream, detail, data={"patches": [queued.name for queued, _ in touching]})


def _what(change: Change, path: str) -> str:
    if change.kind in ("rename", "copy"):
        done = "renamed" if change.kind == "rename" else "copied"
        return f"{done} to {change.new}" if path == change.old else f"{done} from {change.old}"
    if change.binary:
        return f"{change.kind}, binary"
    if change.kind == "mode":
        return f"mode {change.new_mode}"
    counts = f"+{sum(hunk.added for hunk in change.hunks)} -{sum(hunk.deleted for hunk in change.hunks)}"
    return counts if change.kind == "modify" else f"{change.kind}, {counts}"
