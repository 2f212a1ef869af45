"""Part of a diff: its changes numbered hunk by hunk, and the tree that some of them give."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from patchq.authoring.newdiff import make_diff
from patchq.document import nearest
from patchq.engine import Engine
from patchq.errors import Invalid, Prevented
from patchq.patch import Change, Hunk, Patch, parse_patch

_NUMBERS = r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*"
_INDEX = rb"(?m)^index [0-9a-f.]+(?: (\d+))?\n"


@dataclass(frozen=True)
class Piece:
    """One thing that can be taken: a hunk, or a whole change where it has none or is not text."""

    number: int
    change: Change
    hunk: Hunk | None

    @property
    def summary(self) -> str:
        """What it is, in one line."""
        if self.hunk is None:
            return self.change.kind + (", binary" if self.change.binary else "")
        hunk = self.hunk
        return f"line {hunk.new_start}: +{hunk.added} -{hunk.deleted} {hunk.section.strip()}".rstrip()


@dataclass(frozen=True)
class Portion:
    """A diff between two trees, in pieces."""

    engine: Engine
    before: str
    patch: Patch | None

    @classmethod
    def between(cls, engine: Engine, before: str, after: str) -> Portion:
        """The pieces of what changes from one tree to the other."""
        text = make_diff(engine.store, before, after)
        header = b"Description: uncommitted\nSymlink: allowed\n\n"
        return cls(engine, before, parse_patch("uncommitted", header + text, "uncommitted", 1) if text else None)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        changes = self.patch.changes if self.patch else ()
        found = [(change, hunk) for change in changes for hunk in _parts(change)]
        return tuple(Piece(number, change, hunk) for number, (change, hunk) in enumerate(found, 1))

    def meant(self, wanted: Sequence[str]) -> tuple[Piece, ...]:
        """The pieces that `wanted` (paths, folders, or numbers as `1,3-5`) means; raises `Invalid` for what is none."""
        chosen: set[int] = set()
        for text in wanted:
            numbers = _numbers(text) if re.fullmatch(_NUMBERS, text) else self._of_path(text)
            if not numbers or not numbers <= {piece.number for piece in self.pieces}:
                paths = [path for piece in self.pieces for path in (piece.change.path,)]
                raise Invalid(
                    f"there is no uncommitted change {text!r}", hint=nearest(text, list(dict.fromkeys(paths)))
                )
            chosen |= numbers
        return tuple(piece for piece in self.pieces if piece.number in chosen)

    def tree(self, pieces: Sequence[Piece]) -> str:
        """The tree that `pieces` alone make of the one before; raises `Prevented` where git does not agree."""
        if not pieces or self.patch is None:
            return self.before
        numbers = {piece.number for piece in pieces}
        text = b"".join(self._text(change, numbers) for change in self.patch.changes)
        part = parse_patch("uncommitted", self.patch.header.raw + text, "uncommitted", 1)
        done = self.engine.step(part, self.before)
        if not done.ok:
            raise Prevented(f"these changes cannot be taken alone: {done.errors[0]}")
        return self.engine.store.update_tree(self.before, done.changes)

    def _of_path(self, path: str) -> set[int]:
        return {piece.number for piece in self.pieces for name in (piece.change.old, piece.change.new)
                if name and (name == path or name.startswith(f"{path.rstrip('/')}/"))}  # fmt: skip

    def _text(self, change: Change, numbers: set[int]) -> bytes:
        """The diff of one file with just those of its hunks."""
        assert self.patch
        taken = [piece.hunk for piece in self.pieces if piece.number in numbers and piece.change is change]
        if not taken:
            return b""
        start, end = self._extent(change)
        whole = self.patch.data[start:end]
        if len(taken) == len(list(_parts(change))):
            return whole
        # Without its `index` line: part of the hunks give another file than the one that it records.
        head = re.sub(_INDEX, b"", self.patch.data[start : change.hunks[0].start])
        return head + b"".join(self.patch.data[hunk.start : hunk.end] for hunk in taken if hunk)

    def _extent(self, change: Change) -> tuple[int, int]:
        assert self.patch
        starts = [_offset(self.patch.data, one.line) for one in self.patch.changes]
        at = self.patch.changes.index(change)
        return starts[at], (*starts, len(self.patch.data))[at + 1]


def _parts(change: Change) -> Iterator[Hunk | None]:
    """The hunks of a change that may be taken one by one; one None where it goes as a whole."""
    if change.kind == "modify" and not change.binary and change.old_mode == change.new_mode and change.hunks:
        yield from change.hunks
    else:
        yield None


def _offset(data: bytes, line: int) -> int:
    at = 0
    for _ in range(line - 1):
        at = data.index(b"\n", at) + 1
    return at


def _numbers(text: str) -> set[int]:
    pairs = [part.partition("-")[::2] for part in text.split(",")]
    return {number for low, high in pairs for number in range(int(low), int(high or low) + 1)}
