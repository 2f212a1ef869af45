"""`git apply --cached` on a thin index: one patch, exactly, against just the entries that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from patchq.exclusive import scratch
from patchq.store.git import Git
from patchq.store.index import read_index, write_index
from patchq.store.objects import Store
from patchq.store.trees import Entry

_OFFSET = r"Hunk #(\d+) succeeded at (\d+) \(offset (-?\d+) lines?\)"
_CHECKING = r"Checking patch .*\.\.\.$"
_FAILED = r"error: patch failed: (.*):(\d+)$"
# What git searched for follows on lines of its own; a conflict shows it better.
_BECAUSE = r"error: (?!while searching for:)(.*)$"


@dataclass(frozen=True)
class Offset:
    """A hunk that found its place elsewhere: `number` counts from 1 in its file, `line` is where it landed."""

    path: str
    number: int
    line: int
    by: int


@dataclass(frozen=True)
class Applied:
    """What git made of a patch: entries that changed (None: gone), the names it touched, offsets, and errors.

    `failed` are (path, line) pairs where a hunk found no place; `errors` is git's own account, empty when the
    patch went on.
    """

    changes: Mapping[str, Entry | None]
    named: frozenset[str]
    offsets: tuple[Offset, ...] = ()
    failed: tuple[tuple[str, int], ...] = ()
    errors: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.errors


class Applier:
    """Applies patches with git into `store`; holds one scratch folder for its thin indexes."""

    def __init__(self, store: Store, scratch: Path) -> None:
        self._index = scratch / "index"
        self._git: Git = store.git.with_variables({"GIT_INDEX_FILE": str(self._index)})

    @classmethod
    @contextmanager
    def on(cls, store: Store) -> Iterator[Applier]:
        """An applier whose scratch folder goes when the block ends."""
        with scratch() as room:
            yield cls(store, room.resolve())

    def apply(self, diff: bytes, before: Mapping[str, Entry], *, strip: int = 1, reverse: bool = False) -> Applied:
        """Apply `diff` to the entries `before`. New blobs go to the store; nothing else is written."""
        write_index(self._index, before)
        direction: Sequence[str] = ("--reverse",) if reverse else ()
        outcome = self._git.try_run(
            ("apply", "--cached", "--numstat", "--apply", "-z", "-v", f"-p{strip}", *direction, "-"),
            stdin=diff,
            cwd=self._index.parent,
        )
        said = outcome.stderr.decode("utf-8", "surrogateescape").splitlines()
        names = tuple(_numstat(outcome.stdout))
        if not outcome.ok:
            return Applied({}, frozenset(names), failed=_failures(said), errors=_reasons(said, outcome.code))
        return Applied(_difference(before, read_index(self._index)), frozenset(names), tuple(_offsets(said, names)))


def _numstat(output: bytes) -> Iterator[str]:
    for record in output.decode("utf-8", "surrogateescape").split("\0"):
        if record:
            yield record.split("\t", 2)[2]


def _difference(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> dict[str, Entry | None]:
    gone: dict[str, Entry | None] = {path: None for path in before if path not in after}
    return gone | {path: entry for path, entry in after.items() if before.get(path) != entry}


def _offsets(said: list[str], names: Sequence[str]) -> Iterator[Offset]:
    """The offsets, file by file: git checks them in the order of `names` and quotes what it says of them."""
    files = iter(names)
    path = ""
    for line in said:
        if re.match(_CHECKING, line):
            path = next(files, "")
        elif found := re.match(_OFFSET, line):
            yield Offset(path, int(found[1]), int(found[2]), int(found[3]))


def _failures(said: list[str]) -> tuple[tuple[str, int], ...]:
    return tuple((found[1], int(found[2])) for line in said if (found := re.match(_FAILED, line)))


def _reasons(said: list[str], code: int) -> tuple[str, ...]:
    reasons = tuple(found[1] for line in said if (found := re.match(_BECAUSE, line)))
    return reasons or tuple(said[-1:]) or (f"git apply ended with {code}",)
