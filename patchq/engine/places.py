"""Where hunks landed: whether a place was the only one, and whether it is in the function it was meant for."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from patchq.patch import Change, Hunk, Patch
from patchq.report import State
from patchq.store import Store
from patchq.store.apply import Applied, Offset
from patchq.store.trees import Entry

_DEFINITION = rb"\s*(?:async\s+def|def|class)\s"
_OUTER = rb"[A-Za-z_$]"
_FAR = 20_000
_SHOWN = 50
_MANY = 100
_CONTEXT = 3
_MAX_SHORT = 1000


@dataclass(frozen=True)
class Finding:
    """Something about a patch that applied: a `note` or a `warning`, in words."""

    state: State
    text: str


class _Lines:
    """A file's lines, and where each line of some blocks stands; made once for all blocks that are looked for."""

    def __init__(self, text: bytes, blocks: Iterable[list[bytes]]) -> None:
        self.rows = text.split(b"\n")
        if not self.rows[-1]:
            self.rows.pop()
        wanted = {row for block in blocks for row in block}
        self._at: dict[bytes, list[int]] = defaultdict(list)
        for number, row in enumerate(self.rows):
            if row in wanted:
                self._at[row].append(number)

    def places(self, block: list[bytes]) -> int:
        """How often a run of whole lines stands here, counted up to a hundred; an empty one counts once."""
        if not block:
            return 1
        rarest = min(range(len(block)), key=lambda n: len(self._at.get(block[n], ())))
        starts = (at - rarest for at in self._at.get(block[rarest], ()) if at >= rarest)
        found = (start for start in starts if self.rows[start : start + len(block)] == block)
        return sum(1 for _ in islice(found, _MANY))

    def is_in(self, section: str, start: int) -> bool:
        """Whether the nearest line above `start` (from 0) that opens something is the one that a hunk header names."""
        wanted = section.strip().encode("utf-8", "surrogateescape")
        above = self.rows[max(0, start - _FAR) : max(0, start)]
        definition = next((line for line in reversed(above) if re.match(_DEFINITION, line)), b"")
        outer = next((line for line in reversed(above) if re.match(_OUTER, line)), b"")
        return any(line.strip().startswith(wanted) for line in (definition, outer))


def findings(store: Store, patch: Patch, tree: str, done: Applied) -> tuple[Finding, ...]:
    """One finding for every hunk that landed elsewhere than the patch says, and for every file that is as it was."""
    before = store.entries(tree, sorted(patch.paths))
    found = [
        Finding(State.WARNING, f"{change.new}: is already as the patch leaves it")
        for change in patch.changes
        if change.new and change.new == change.old and change.new not in done.changes
    ]
    moved: dict[str, list[Offset]] = defaultdict(list)
    for offset in done.offsets[:_SHOWN]:
        moved[offset.path].append(offset)
    for path, offsets in moved.items():
        change = next((change for change in patch.changes if path in (change.new, change.old)), None)
        found += _findings_in(store, patch, change, before, offsets) if change else map(_note, offsets)
    if len(done.offsets) > _SHOWN:
        what = f"{len(done.offsets) - _SHOWN} more hunks apply at other lines than the patch says"
        found.append(Finding(State.WARNING, what))
    return tuple(found)


def _note(offset: Offset) -> Finding:
    return Finding(State.NOTE, _moved(offset))


def _moved(offset: Offset) -> str:
    where = "below" if offset.by > 0 else "above"
    return f"{offset.path}: hunk {offset.number} applies at line {offset.line}, {abs(offset.by)} lines {where}"


def _findings_in(
    store: Store, patch: Patch, change: Change, before: Mapping[str, Entry], offsets: list[Offset]
) -> Iterator[Finding]:
    hunks = [change.hunks[offset.number - 1] for offset in offsets]
    blocks = [hunk_lines(patch, hunk, b" -") for hunk in hunks]
    lines = _Lines(_text(store, before, change.old), blocks)
    starts = _starts(change, offsets)
    for offset, hunk, block in zip(offsets, hunks, blocks, strict=True):
        count = lines.places(block)
        if count > 1:
            more = "" if count < _MANY else " or more"
            yield Finding(State.WARNING, f"{_moved(offset)}; its lines stand there {count} times{more}")
        elif hunk.section and not lines.is_in(hunk.section, starts[offset.number]):
            what = f"{_moved(offset)}; it was made for {hunk.section.strip()!r}, which is not around it"
            yield Finding(State.WARNING, what)
        else:
            yield _note(offset)


def _starts(change: Change, offsets: Iterable[Offset]) -> dict[int, int]:
    """Hunk number → the line, from 0, of the file before the patch at which it landed.

    Git goes by the new line numbers; what the hunks before added is taken off again.
    """
    landed = {offset.number: offset.line for offset in offsets}
    starts: dict[int, int] = {}
    grown = 0
    for number, hunk in enumerate(change.hunks, 1):
        starts[number] = max(landed.get(number, hunk.new_start) - 1, 0) - grown
        grown += hunk.added - hunk.deleted
    return starts


def lost_places(store: Store, patch: Patch, before: Mapping[str, Entry], done: Applied) -> Iterator[str]:
    """Hunks with fewer lines of context than make their place the only one, where no recorded id proves it."""
    for change in patch.changes:
        entry = before.get(change.old or "")
        if entry is None or change.kind in ("add", "delete") or (change.old_id and entry.id.startswith(change.old_id)):
            continue
        short = [n for n, hunk in enumerate(change.hunks, 1) if min(hunk.leading, hunk.trailing) < _CONTEXT]
        if len(short) > _MAX_SHORT:
            yield f"{change.path}: more than {_MAX_SHORT} hunks with less than {_CONTEXT} lines of context"
        elif short:
            yield from _lost_in(store, patch, change, before, short, done)


def _lost_in(
    store: Store, patch: Patch, change: Change, before: Mapping[str, Entry], short: list[int], done: Applied
) -> Iterator[str]:
    blocks = {number: hunk_lines(patch, change.hunks[number - 1], b" -") for number in short}
    lines = _Lines(_text(store, before, change.old), blocks.values())
    offsets = [offset for offset in done.offsets if offset.path == change.path]
    moved = {offset.number for offset in offsets}
    starts = _starts(change, offsets)
    for number, block in blocks.items():
        hunk = change.hunks[number - 1]
        above, below = starts[number], len(lines.rows) - starts[number] - len(block)
        if hunk.leading >= min(_CONTEXT, above) and hunk.trailing >= min(_CONTEXT, below):
            continue
        if not block and (number in moved or below):
            yield f"{change.path}: hunk {number} adds lines and has no line of context that shows where"
        elif lines.places(block) > 1:
            yield (
                f"{change.path}: hunk {number} has {hunk.leading} and {hunk.trailing} lines of context, and its "
                "lines stand there more than once"
            )


def reverse_is_unique(store: Store, patch: Patch, tree: str) -> bool:
    """Whether what each hunk would leave behind stands in its file exactly once."""
    there = store.entries(tree, sorted(patch.paths))
    return all(_left_behind_once(store, patch, there, change) for change in patch.changes)


def _left_behind_once(store: Store, patch: Patch, there: Mapping[str, Entry], change: Change) -> bool:
    if not change.new or not change.hunks:
        return True
    blocks = [hunk_lines(patch, hunk, b" +") for hunk in change.hunks]
    lines = _Lines(_text(store, there, change.new), blocks)
    return all(lines.places(block) == 1 for block in blocks)


def hunk_lines(patch: Patch, hunk: Hunk, kinds: bytes) -> list[bytes]:
    """A hunk's lines of some kinds (`b" -"`: before, `b" +"`: after) without their first character."""
    rows = patch.data[hunk.start : hunk.end].split(b"\n")[1:-1]
    return [row[1:] for row in rows if (row[:1] or b" ") in (kinds[:1], kinds[1:])]


def _text(store: Store, entries: Mapping[str, Entry], path: str | None) -> bytes:
    entry = entries.get(path or "")
    return store.read(entry.id, "blob") if entry else b""
