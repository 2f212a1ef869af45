"""What becomes of one patch on another tree: exactly one fate, and the tree after it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from patchq.authoring.merging import Merged, dropped, merge
from patchq.authoring.newdiff import make_diff
from patchq.authoring.relations import hunk_rows
from patchq.engine import Engine
from patchq.engine.places import findings
from patchq.errors import Invalid
from patchq.patch import Patch, parse_patch
from patchq.queue.baseline import Baseline
from patchq.report import State
from patchq.store import Store

_IMPORT = rb"\s*(?:from\s+([A-Za-z_][\w.]*)\s+import\s|import\s+([A-Za-z_][\w.]*))"


class Fate(str, Enum):
    """What can become of a patch. Only the first three leave a patch that goes on by itself."""

    UNCHANGED = "unchanged"
    SHIFTED = "shifted"
    MERGED = "merged"
    UPSTREAMED = "upstreamed"
    EMPTIED = "emptied"
    CONFLICT = "conflict"


@dataclass(frozen=True)
class Carried:
    """One patch on another tree. `tree` is the one after it (that before it where it does not go on).

    `diff` is its new text (None: the old bytes still do), `findings` what a person has to look at, `lost` the
    changes that a 3-way merge dropped, `merged` its result where it is not clean, `files` the fate of each file.
    """

    fate: Fate
    tree: str
    diff: bytes | None = None
    findings: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    merged: Merged | None = None
    files: dict[str, Fate] = field(default_factory=dict)

    @property
    def goes_on(self) -> bool:
        """Whether nobody has to look at it."""
        return self.fate in (Fate.UNCHANGED, Fate.SHIFTED, Fate.MERGED) and not self.lost


def carry(engine: Engine, patch: Patch, before: str, after: str, onto: str) -> Carried:
    """Carry a patch, which turned the tree `before` into `after`, over to the tree `onto`."""
    whole = _carry(engine, patch, before, after, onto)
    if len(patch.changes) == 1 or whole.fate is Fate.UNCHANGED:
        return Carried(**{**vars(whole), "files": {change.path: whole.fate for change in patch.changes}})
    return Carried(**{**vars(whole), "files": dict(_by_file(engine, patch, before, onto))})


def _carry(engine: Engine, patch: Patch, before: str, after: str, onto: str) -> Carried:
    store = engine.store
    done = engine.step(patch, onto)
    if done.ok:
        found = findings(store, patch, onto, done)
        warned = tuple(finding.text for finding in found if finding.state is State.WARNING)
        fate = Fate.SHIFTED if done.offsets else Fate.UNCHANGED
        return Carried(fate, store.update_tree(onto, done.changes), findings=warned)
    if engine.is_upstreamed(patch, onto):
        return Carried(Fate.UPSTREAMED, onto)
    merged = merge(store, before, onto, after)
    if merged.conflicts:
        return Carried(Fate.CONFLICT, onto, findings=merged.conflicts, merged=merged)
    if merged.tree == onto:
        return Carried(Fate.EMPTIED, onto)
    lost = dropped(store, patch, onto, merged.tree)
    return Carried(Fate.MERGED, merged.tree, make_diff(store, onto, merged.tree), lost, lost, merged)


def _by_file(engine: Engine, patch: Patch, before: str, onto: str) -> Iterator[tuple[str, Fate]]:
    """The fate of each file's change alone."""
    for part in split(patch):
        done = engine.step(part, before)
        if done.ok:
            alone = _carry(engine, part, before, engine.store.update_tree(before, done.changes), onto)
            yield part.changes[0].path, alone.fate


def split(patch: Patch) -> Iterator[Patch]:
    """One patch for each file that a patch changes."""
    starts = [0]
    while (newline := patch.data.find(b"\n", starts[-1])) >= 0:
        starts.append(newline + 1)
    places = [max(starts[change.line - 1], patch.diff_start) for change in patch.changes]
    for begin, end in zip(places, [*places[1:], len(patch.data)], strict=True):
        try:
            yield parse_patch(patch.name, patch.data[begin:end], patch.where, patch.strip)
        except Invalid:  # noqa: PERF203 - the others go on
            continue  # a signature or another tool's heading does not stand alone


def missing_modules(store: Store, patch: Patch, baseline: Baseline, tree: str) -> tuple[str, ...]:
    """Modules of the upstream's own packages that lines of a patch import and its new tree does not have."""
    wanted = dict(_imported(patch, baseline))
    root = "" if baseline.root == "." else f"{baseline.root}/"
    missing = []
    for module, path in wanted.items():
        place = root + module.replace(".", "/")
        if not store.entries(tree, [f"{place}.py", place]):
            missing.append(f"{path} imports {module}, which is not there")
    return tuple(missing)


def _imported(patch: Patch, baseline: Baseline) -> Iterator[tuple[str, str]]:
    for change in patch.changes:
        for hunk in change.hunks if change.path.endswith(".py") else ():
            for sign, text in hunk_rows(patch, hunk):
                found = re.match(_IMPORT, text) if sign == b"+" else None
                module = (found[1] or found[2]).decode() if found else ""
                if module.split(".")[0] in baseline.packages:
                    yield module, change.path
