"""Which locks came before a lock, by the git history of its queue; so that a host knows an older bundle for one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from pydantic import Field

from patchq.document import Document, sha256
from patchq.importing.clone import Clone
from patchq.lock import Lock
from patchq.queue.baseline import Sha256
from patchq.queuejournal import LOCK_NAME, repository_of
from patchq.store import Store

MAX_LOCKS = 256
_MAX_COMMITS = 4096


class Ancestry(Document):
    """The locks that came before one, newest first, at most `MAX_LOCKS` of them.

    `generation` counts the commits that gave the queue a lock, with the one that gives it this. `whole` says that
    nothing of the history was missing (a shallow clone lacks some) and nothing left out.
    """

    generation: int = Field(ge=1)
    locks: tuple[Sha256, ...] = Field(default=(), max_length=MAX_LOCKS)
    whole: bool = True


class Relation(Enum):
    """How the lock of a bundle stands to the lock in use."""

    SAME = "the lock in use"
    NEWER = "newer than the lock in use"
    OLDER = "older than the lock in use"
    PARTED = "neither older nor newer than the lock in use: their histories have parted"
    UNKNOWN = "may be older than the lock in use"


@dataclass(frozen=True)
class Point:
    """A lock, and what came before it as far as anybody said so."""

    lock: str
    ancestry: Ancestry | None

    @property
    def before(self) -> tuple[str, ...]:
        return self.ancestry.locks if self.ancestry else ()


def relation(new: Point, used: Point) -> Relation:
    """How `new` stands to `used`. Where each came before the other (a change taken back), the longer history wins."""
    if new.lock == used.lock:
        return Relation.SAME
    is_before, is_after = new.lock in used.before, used.lock in new.before
    if is_before and is_after and new.ancestry and used.ancestry:
        is_before = new.ancestry.generation <= used.ancestry.generation
    if is_before:
        return Relation.OLDER
    if is_after:
        return Relation.NEWER
    told = [point.ancestry is not None and point.ancestry.whole for point in (new, used)]
    return Relation.PARTED if all(told) else Relation.UNKNOWN


def ancestry_of(root: Path, lock: Lock, store: Store) -> Ancestry | None:
    """What came before `lock` by the git history of the queue at `root`; None where it is in no git repository."""
    folder = repository_of(root)
    if folder is None or "\n" in str(root):
        return None
    clone = Clone(folder, store)
    if not clone.git.try_run(("rev-parse", "--verify", "--quiet", "HEAD")).ok:
        return Ancestry(generation=1)
    path = (root.resolve() / LOCK_NAME).relative_to(folder.resolve()).as_posix()
    names = [f"{commit}:{path}" for commit in ("HEAD", *_commits(clone, path))]
    head, *blobs = _blobs(clone, names)
    known = _digests(clone, [blob for blob in dict.fromkeys((head, *blobs)) if blob][: MAX_LOCKS + 1])
    before = [
        digest for digest in dict.fromkeys(known.get(blob, "") for blob in blobs) if digest not in ("", lock.digest)
    ]
    return Ancestry(
        generation=sum(map(bool, blobs)) + (known.get(head) != lock.digest),
        locks=tuple(before[:MAX_LOCKS]),
        whole=len(before) <= MAX_LOCKS and known.keys() == {*blobs, head} - {""} and not _is_shallow(clone),
    )


def _commits(clone: Clone, path: str) -> list[str]:
    """Every commit that changed the lock, newest first."""
    words = ("log", "--full-history", "--topo-order", "--format=%H", "--", f":(top,literal){path}")
    return clone.git.run(words, cwd=clone.folder).decode().split()


def _blobs(clone: Clone, names: Sequence[str]) -> list[str]:
    """The id of the blob that each `COMMIT:PATH` names; empty where there is none."""
    listing = clone.git.run(("cat-file", "--batch-check"), stdin=os.fsencode("".join(f"{name}\n" for name in names)))
    rows = [row.split() for row in listing.splitlines()]
    return [row[0].decode() if len(row) == 3 and row[1] == b"blob" else "" for row in rows]


def _digests(clone: Clone, blobs: Sequence[str]) -> dict[str, str]:
    """Blob id → SHA-256 of its bytes, for those that are here."""
    data = clone.git.run(("cat-file", "--batch"), stdin="".join(f"{blob}\n" for blob in blobs).encode())
    found, at = {}, 0
    for blob in blobs:
        end = data.index(b"\n", at)
        row = data[at:end].split()
        at = end + 1
        if len(row) == 3:
            size = int(row[2])
            found[blob] = sha256(data[at : at + size])
            at += size + 1
    return found


def _is_shallow(clone: Clone) -> bool:
    return clone.git.line(("rev-parse", "--is-shallow-repository")) != "false"
