"""What a patch is once it has been read: frozen, and still holding every byte of its file."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from patchq.document import sha256
from patchq.patch.header import Header

Kind = Literal["modify", "add", "delete", "rename", "copy", "mode"]


@dataclass(frozen=True)
class Hunk:
    """One `@@` block. Positions and counts are lines, `start` and `end` byte offsets in the patch file.

    `leading` and `trailing` count the context lines before the first and after the last changed line.
    """

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    section: str
    leading: int
    trailing: int
    added: int
    deleted: int
    line: int
    start: int
    end: int


@dataclass(frozen=True)
class Change:
    """What the patch does to one file.

    `old` is None for an added file, `new` for a deleted one; of a copy it is what `new` is made from and stays. Modes
    are "100644", "100755" or "120000", None where the patch is silent; ids are the hex of the `index` line, None for
    "no such file". A plain (non-git) diff that neither names /dev/null nor carries an epoch timestamp is a "modify",
    although git lets such a diff create a file that is not there.
    """

    old: str | None
    new: str | None
    old_mode: str | None
    new_mode: str | None
    old_id: str | None
    new_id: str | None
    kind: Kind
    binary: bool
    hunks: tuple[Hunk, ...]
    line: int

    @property
    def path(self) -> str:
        """The name that `git apply --numstat` prints: the new one, or that of a deleted file."""
        return self.new or self.old or ""


@dataclass(frozen=True)
class Patch:
    """One patch file. `name` is UPSTREAM/LAYER/NAME; the diff is `data[diff_start:]`, for `-p strip`."""

    name: str
    data: bytes
    where: str
    strip: int
    header: Header
    changes: tuple[Change, ...]
    diff_start: int

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the whole file, hex."""
        return sha256(self.data)

    @cached_property
    def paths(self) -> frozenset[str]:
        """Every old and every new path."""
        return frozenset(path for change in self.changes for path in (change.old, change.new) if path)
