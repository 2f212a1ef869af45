"""Three-way merges of trees, by git's own merge machinery, without a work tree; and what a merge left out."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from patchq.authoring.newdiff import make_diff
from patchq.authoring.relations import hunk_rows
from patchq.errors import Prevented
from patchq.patch import Patch, parse_patch
from patchq.store import Store
from patchq.store.git import last_line
from patchq.store.objects import IDENTITY

# `merge-tree --write-tree` is new in git 2.38; its `--merge-base` only in 2.40, hence the commits below.
OLDEST_GIT = (2, 38)
_TIME = "0 +0000"
_CONFIG = ("-c", "merge.directoryRenames=false", "-c", "merge.conflictStyle=merge", "-c", "merge.renames=true",
           "-c", "merge.renameLimit=0")  # fmt: skip
_STAGE = r"(?s)(\d+) ([0-9a-f]{40}) ([123])\t(.*)"


@dataclass(frozen=True)
class Merged:
    """The merged tree; where git was not sure, files hold conflict markers and `stages` has their versions.

    `stages` are (mode, blob, stage, path) as in an index: stage 1 the base, 2 ours, 3 theirs.
    """

    tree: str
    stages: tuple[tuple[str, str, int, str], ...] = ()

    @property
    def conflicts(self) -> tuple[str, ...]:
        """The paths that are in conflict."""
        return tuple(dict.fromkeys(path for *_, path in self.stages))


def merge(store: Store, base: str, ours: str, theirs: str) -> Merged:
    """Merge what changed from the tree `base` to `theirs` into `ours`; raises `Prevented` where git cannot."""
    root = store.write_commit(base, (), IDENTITY, _TIME, _TIME, b"base\n")
    sides = [store.write_commit(tree, (root,), IDENTITY, _TIME, _TIME, b"side\n") for tree in (ours, theirs)]
    if sides[0] == sides[1]:
        return Merged(ours)
    done = store.git.try_run((*_CONFIG, "merge-tree", "--write-tree", "-z", "--no-messages", *sides))
    if done.code not in (0, 1):
        raise Prevented(f"git could not merge: {last_line(done)}")
    tree, *rest = done.stdout.decode("utf-8", "surrogateescape").split("\0")
    stages = tuple((m[1], m[2], int(m[3]), m[4]) for entry in rest if (m := re.fullmatch(_STAGE, entry)))
    return Merged(tree, stages)


Block = tuple[tuple[bytes, ...], tuple[bytes, ...]]


def dropped(store: Store, patch: Patch, ours: str, merged: str) -> tuple[str, ...]:
    """What a patch changes and the merge does not: one sentence for each run of lines that got lost.

    A merge is silent where `ours` has a change already, or where both sides made the same one.
    """
    text = make_diff(store, ours, merged)
    made = parse_patch(patch.name, text, patch.where) if text else None
    there = Counter(block for _, block in _blocks(made)) if made else Counter[Block]()
    lost = []
    for where, block in _blocks(patch):
        if there[block] > 0:
            there[block] -= 1
        else:
            lost.append(f"{where}: the change is not in the result as the patch has it")
    return tuple(lost)


def _blocks(patch: Patch) -> Iterator[tuple[str, Block]]:
    """Each run of changed lines as (removed, added), with its place in words."""
    for change in patch.changes:
        for number, hunk in enumerate(change.hunks, 1):
            old: list[bytes] = []
            new: list[bytes] = []
            for sign, text in [*hunk_rows(patch, hunk), (b" ", b"")]:
                if sign == b" ":
                    if old or new:
                        yield f"{change.path}, hunk {number}", (tuple(old), tuple(new))
                    old, new = [], []
                else:
                    (new if sign == b"+" else old).append(text)
