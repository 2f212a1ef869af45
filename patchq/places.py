"""Where hunks landed: whether a place was the only one, and whether it is in the function it was meant for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from patchq.patch import Change, Hunk, Patch
from patchq.report import State
from patchq.store import Store
from patchq.store.apply import Applied, Offset

_DEFINITION = re.compile(rb"\s*(?:async\s+def|def|class)\s")
_OUTER = re.compile(rb"[A-Za-z_$]")


@dataclass(frozen=True)
class Finding:
    """Something about a patch that applied: a `note` or a `warning`, in words."""

    state: State
    text: str


def findings(store: Store, patch: Patch, tree: str, done: Applied) -> tuple[Finding, ...]:
    """One finding for every hunk that landed elsewhere than the patch says."""
    return tuple(_finding(store, patch, tree, offset) for offset in done.offsets)


def _finding(store: Store, patch: Patch, tree: str, offset: Offset) -> Finding:
    moved = f"{offset.path}: hunk {offset.number} applies at line {offset.line}, {abs(offset.by)} lines "
    moved += "below" if offset.by > 0 else "above"
    change = next((change for change in patch.changes if offset.path in (change.new, change.old)), None)
    if change is None or not change.old:
        return Finding(State.NOTE, moved)
    hunk = change.hunks[offset.number - 1]
    text = _file(store, tree, change.old)
    places = count_places(text, hunk_lines(patch, hunk, b" -"))
    if places > 1:
        return Finding(State.WARNING, f"{moved}; its lines stand there {places} times")
    start = hunk.old_start + offset.by
    if hunk.section and not _same_function(text, start, hunk.section):
        return Finding(State.WARNING, f"{moved}; it was made for {hunk.section.strip()!r}, which is not around it")
    return Finding(State.NOTE, moved)


def reverse_is_unique(store: Store, patch: Patch, tree: str) -> bool:
    """Whether what each hunk would leave behind stands in its file exactly once."""
    return all(_left_behind_once(store, patch, tree, change) for change in patch.changes)


def _left_behind_once(store: Store, patch: Patch, tree: str, change: Change) -> bool:
    if not change.new or not change.hunks:
        return True
    text = _file(store, tree, change.new)
    return all(count_places(text, hunk_lines(patch, hunk, b" +")) == 1 for hunk in change.hunks)


def hunk_lines(patch: Patch, hunk: Hunk, kinds: bytes) -> list[bytes]:
    """A hunk's lines of some kinds (`b" -"`: before, `b" +"`: after) without their first character."""
    rows = patch.data[hunk.start : hunk.end].split(b"\n")[1:]
    return [row[1:] for row in rows if row[:1] in (kinds[:1], kinds[1:])]


def count_places(text: bytes, block: list[bytes]) -> int:
    """How often a run of whole lines stands in `text`."""
    if not block:
        return 1
    needle, hay = b"\n".join(block), b"\n" + text.rstrip(b"\n") + b"\n"
    needle = b"\n" + needle.rstrip(b"\n") + b"\n"
    count = at = 0
    while (at := hay.find(needle, at)) >= 0:
        count, at = count + 1, at + 1
    return count


def _same_function(text: bytes, start: int, section: str) -> bool:
    """Whether the nearest line above that opens something is the one that the hunk header names."""
    wanted = section.strip().encode("utf-8", "surrogateescape")
    above = text.split(b"\n")[: max(start - 1, 0)]
    definition = next((line for line in reversed(above) if _DEFINITION.match(line)), b"")
    outer = next((line for line in reversed(above) if _OUTER.match(line)), b"")
    return any(line.strip().startswith(wanted) for line in (definition, outer))


def _file(store: Store, tree: str, path: str) -> bytes:
    entry = store.entries(tree, [path]).get(path)
    return store.read(entry.id, "blob") if entry else b""
