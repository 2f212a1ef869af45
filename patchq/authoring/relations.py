"""Which line came from which patch, and which patch needs which: followed through the patches' own hunks.

A patch needs an earlier one where its hunks, context included, stand on lines that the other added, or across
a place where the other removed some: without the other those lines would not be found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from patchq.engine import Placed
from patchq.patch import Change, Hunk, Patch
from patchq.store import Store

BASELINE = ""


@dataclass(frozen=True)
class Need:
    """The patch `name` needs `other`; `line` (from 1) is where in `path` its hunk found the other's lines."""

    name: str
    other: str
    path: str
    line: int


@dataclass
class Traced:
    """A file while patches change it: its lines, and who is behind each of them.

    `owners` has the patch that added each line (`BASELINE`: none), `cuts` who removed lines in front of each line
    and at the end, `whole` who made, renamed or removed the file, `modes` who changed its mode.
    """

    lines: list[bytes]
    owners: list[str]
    cuts: list[frozenset[str]]
    whole: frozenset[str] = frozenset()
    modes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, data: bytes, owner: str) -> Traced:
        lines = split_lines(data)
        return cls(lines, [owner] * len(lines), [frozenset()] * (len(lines) + 1))

    def place(self, hunk: Hunk, before: list[bytes]) -> int:
        """The index of a hunk's first old line: where it says, else the nearest place, ahead first, as git does."""
        last = max(len(self.lines) - len(before), 0)
        wanted = min(max(hunk.new_start - (1 if hunk.new_count else 0), 0), last)
        near = _nearest_first(wanted, last)
        return next((at for at in near if self.lines[at : at + len(before)] == before), wanted)

    def around(self, at: int, count: int) -> Iterator[tuple[int, str]]:
        """Who is behind `count` lines from `at` on, as (line, patch)."""
        for index in range(at, min(at + count, len(self.lines))):
            yield index + 1, self.owners[index]
            if index > at:
                yield from ((index + 1, name) for name in self.cuts[index])

    def change(self, at: int, rows: Sequence[tuple[bytes, bytes]], name: str) -> None:
        """Put a hunk's rows (sign, text) on from index `at`, for the patch `name`."""
        lines, owners, cuts = self.lines[:at], self.owners[:at], self.cuts[:at]
        cut = self.cuts[at]
        for sign, text in rows:
            if sign == b"+":
                lines.append(text)
                owners.append(name)
                cuts.append(cut)
                cut = frozenset()
                continue
            if sign == b" ":
                lines.append(self.lines[at])
                owners.append(self.owners[at])
                cuts.append(cut)
                cut = self.cuts[at + 1]
            else:
                cut |= self.cuts[at + 1] | {name}
            at += 1
        self.lines = lines + self.lines[at:]
        self.owners = owners + self.owners[at:]
        self.cuts = [*cuts, cut, *self.cuts[at + 1 :]]


@dataclass
class Trace:
    """The files that patches touched, by path, and every need that was found."""

    store: Store
    tree: str
    files: dict[str, Traced] = field(default_factory=dict)
    needs: list[Need] = field(default_factory=list)

    def file(self, path: str) -> Traced:
        """The file at `path` as it is by now; an empty one where there is none."""
        if path not in self.files:
            self.files[path] = Traced.of(read_file(self.store, self.tree, path), BASELINE)
        return self.files[path]

    def follow(self, placed: Placed) -> None:
        """Take one more patch into account; one that did not apply changes nothing."""
        patch = placed.queued.patch
        if patch is None or not placed.ok:
            return
        # Old names first: a patch may swap two files.
        before = {change.old: self.file(change.old) for change in patch.changes if change.old}
        for change in patch.changes:
            if change.kind in ("delete", "rename") and change.old:
                self.files[change.old] = Traced.of(b"", BASELINE)
                self.files[change.old].whole = frozenset({patch.name})
        for change in patch.changes:
            self._follow_change(patch, change, before.get(change.old or ""), placed.tree)

    def _follow_change(self, patch: Patch, change: Change, old: Traced | None, after: str) -> None:
        file = old or self.file(change.path)
        touched = set(file.whole)
        if change.old_mode != change.new_mode:
            touched |= file.modes
        self._need(patch.name, change.path, ((1, other) for other in touched))
        if change.binary or change.kind == "copy":
            file = Traced.of(read_file(self.store, after, change.new) if change.new else b"", patch.name)
        for hunk in change.hunks if change.kind != "copy" else ():
            rows = hunk_rows(patch, hunk)
            before = [text for sign, text in rows if sign != b"+"]
            at = file.place(hunk, before)
            self._need(patch.name, change.path, file.around(at, len(before)))
            file.change(at, rows, patch.name)
        if change.binary or change.kind in ("add", "rename", "copy", "delete"):
            file.whole = frozenset({patch.name})
        if change.kind == "mode" or change.old_mode != change.new_mode:
            file.modes = frozenset({patch.name})
        if change.new:
            self.files[change.new] = file

    def _need(self, name: str, path: str, found: Iterator[tuple[int, str]]) -> None:
        known = {(need.other, need.path) for need in self.needs if need.name == name}
        for line, other in found:
            if other not in (BASELINE, name) and (other, path) not in known:
                known.add((other, path))
                self.needs.append(Need(name, other, path, line))


def trace(store: Store, tree: str, placed: Sequence[Placed]) -> Trace:
    """Follow patches that were applied, in their order, from the baseline's `tree` on."""
    found = Trace(store, tree)
    for step in placed:
        found.follow(step)
    return found


def _nearest_first(wanted: int, last: int) -> Iterator[int]:
    """Every number from 0 to `last`, beginning at `wanted`, the one ahead before the one behind."""
    yield wanted
    for by in range(1, max(wanted, last - wanted) + 1):
        if wanted + by <= last:
            yield wanted + by
        if wanted - by >= 0:
            yield wanted - by


def split_lines(data: bytes) -> list[bytes]:
    """The lines of a file without their newlines; what follows the last newline counts if it is not empty."""
    lines = data.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def hunk_rows(patch: Patch, hunk: Hunk) -> list[tuple[bytes, bytes]]:
    """A hunk's rows as (sign, text); an empty row is an empty context line, as for git."""
    rows = split_lines(patch.data[hunk.start : hunk.end])[1:]
    return [(row[:1] or b" ", row[1:]) for row in rows if row[:1] != b"\\"]


def read_file(store: Store, tree: str, path: str) -> bytes:
    """The bytes of a file in a tree; none where there is no such file."""
    entry = store.entries(tree, [path]).get(path)
    return store.read(entry.id, "blob") if entry else b""
