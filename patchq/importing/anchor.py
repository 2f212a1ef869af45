"""Putting an incoming patch onto a tree: exactly, or re-anchored by a 3-way merge; else saying what it fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from patchq.authoring.merging import merge
from patchq.authoring.newdiff import make_diff
from patchq.engine import Engine
from patchq.engine.explain import changed_how
from patchq.engine.refusals import OTHER_RESULT
from patchq.errors import DoesNotApply, Invalid, Problem
from patchq.importing.clone import Clone
from patchq.importing.model import Incoming
from patchq.importing.transit import forms
from patchq.patch import Change, Patch, parse_patch
from patchq.store.apply import Applied
from patchq.store.trees import Entry

_STRIPS = (1, 0, 2, 3, 4, 5, 6, 7, 8, 9)
_USUAL, _LARGE = 2, 1 << 20
_MAX_COMMITS = 200


@dataclass(frozen=True)
class Anchored:
    """A patch that applies to the tree it was tried on, and what was done to it, in words."""

    patch: Patch
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Anchor:
    """Tries patches; `clones` are where blobs of other bases may be found."""

    engine: Engine
    clones: Sequence[Clone]
    three_way: bool = False

    def put(self, incoming: Incoming, name: str, tree: str) -> Anchored:
        """The incoming patch as `name` on `tree`.

        Raises `Invalid` where it cannot be read, and `DoesNotApply` saying where it fails and which base it fits.
        """
        if incoming.reverse:
            return self._reversed(incoming, name, tree)
        patch, notes, applies = self._read(incoming, name, tree)
        if applies:
            told = () if patch.changes else ("holds no diff; quilt takes it, and so does the queue",)
            return Anchored(patch, (*incoming.notes, *notes, *told))
        if self.three_way:
            return self._re_anchored(incoming, patch, tree)
        raise DoesNotApply([self._refusal(incoming, patch, tree)])

    def _read(self, incoming: Incoming, name: str, tree: str) -> tuple[Patch, tuple[str, ...], bool]:
        """The patch in the first of its forms, and under the `-pN` that it was listed with or the first, with which
        it applies; else in the one that has most files in common with `tree`."""
        readings: list[tuple[Patch, tuple[str, ...]]] = []
        for patch, notes in _readings(incoming, name):
            if not patch.changes and incoming.strip is None:
                raise Invalid("holds no diff", where=incoming.where)
            is_likely = patch.strip <= _USUAL or self.engine.store.entries(tree, sorted(patch.paths))
            if not patch.changes or (is_likely and self.engine.step(patch, tree).ok):
                return patch, notes, True
            readings.append((patch, notes))
        return *max(readings, key=lambda item: len(self.engine.store.entries(tree, sorted(item[0].paths)))), False

    def _reversed(self, incoming: Incoming, name: str, tree: str) -> Anchored:
        patch = parse_patch(name, incoming.data, incoming.where, 1 if incoming.strip is None else incoming.strip)
        done = self.engine.step(patch, tree, reverse=True)
        if not done.ok:
            raise DoesNotApply([Problem(f"does not apply in reverse: {reason(done)}", incoming.where)])
        after = self.engine.store.update_tree(tree, done.changes)
        return self._made_anew(patch, tree, after, (*incoming.notes, "listed with -R: stored in its forward direction"))

    def _made_anew(self, patch: Patch, before: str, after: str, notes: tuple[str, ...]) -> Anchored:
        diff = make_diff(self.engine.store, before, after)
        return Anchored(parse_patch(patch.name, patch.data[: patch.diff_start] + diff, patch.where), notes)

    def _re_anchored(self, incoming: Incoming, patch: Patch, tree: str) -> Anchored:
        store = self.engine.store
        made_for = self._made_for(patch, tree)
        if made_for is None:
            hint = "name a clone that has them: --source UPSTREAM=PATH"
            raise DoesNotApply([replace(self._refusal(incoming, patch, tree), hint=hint)])
        done = self.engine.step(patch, made_for)
        if not done.ok:
            raise DoesNotApply([Problem(f"does not apply to its own blobs: {reason(done)}", incoming.where)])
        merged = merge(store, made_for, tree, store.update_tree(made_for, done.changes))
        if merged.conflicts:
            what = f"a 3-way merge leaves conflicts in {', '.join(merged.conflicts)}"
            hint = self._fitting(patch) or "re-make it in an edit copy"
            raise DoesNotApply([Problem(what, incoming.where, hint)])
        if merged.tree == tree:
            raise DoesNotApply([Problem("a 3-way merge leaves nothing of it: all of it is there", incoming.where)])
        return self._made_anew(patch, tree, merged.tree, (*incoming.notes, "re-anchored by a 3-way merge"))

    def _made_for(self, patch: Patch, tree: str) -> str | None:
        """`tree` with the very files that the patch was made for; None where a blob is not to be had."""
        changes: dict[str, Entry | None] = {}
        known = self.engine.store.entries(tree, sorted(patch.paths))
        for change in patch.changes:
            if change.old is None:
                changes[change.path] = None
                continue
            blob = self._blob(change.old_id) if change.old_id else None
            if blob is None:
                return None
            there = known.get(change.old)
            mode = change.old_mode or (there.mode if there else "100644")
            changes[change.old] = Entry(mode, self.engine.store.write("blob", blob))
            if change.new and change.new != change.old:
                changes[change.new] = None
        return self.engine.store.update_tree(tree, changes)

    def _blob(self, identity: str) -> bytes | None:
        if len(identity) == 40 and self.engine.store.has(identity):
            return self.engine.store.read(identity, "blob")
        found = (clone.blob(identity) for clone in self.clones)
        return next((blob for blob in found if blob is not None), None)

    def _refusal(self, incoming: Incoming, patch: Patch, tree: str) -> Problem:
        done = self.engine.step(patch, tree)
        if self.engine.step(patch, tree, reverse=True).ok:
            return Problem("is there already: it reverse applies", incoming.where)
        if not done.failed and OTHER_RESULT in done.errors[0]:
            hint = "it was changed by hand: if its text is right, take its index lines out"
        elif own := self._made_for_this(patch, tree, done):
            hint = f"it was made for the very file that is here: {changed_how(own)}"
        else:
            hint = self._fitting(patch) or "try --3way, with --source UPSTREAM=CLONE where its blobs are"
        return Problem(f"does not apply: {reason(done)}", incoming.where, hint)

    def _made_for_this(self, patch: Patch, tree: str, done: Applied) -> Change | None:
        """The first change that finds no place in the very file that it was made for."""
        there = self.engine.store.entries(tree, sorted(patch.paths))
        lost = {path for path, _ in done.failed}
        for change in patch.changes:
            entry = there.get(change.old or "")
            if lost & {change.path, change.old} and entry and change.old_id and entry.id.startswith(change.old_id):
                return change
        return None

    def _fitting(self, patch: Patch) -> str:
        """A tag, else a commit, in which every file is the one that the patch was made for; in words."""
        wanted = {change.old: change.old_id for change in patch.changes if change.old and change.old_id}
        if not wanted or any(change.old and not change.old_id for change in patch.changes):
            return ""
        for clone in self.clones:
            for label, commit in _candidates(clone, *next(iter(wanted.items()))):
                if _has_blobs(clone, commit, wanted):
                    return f"it fits {label}; --3way may re-anchor it"
        return ""


def _readings(incoming: Incoming, name: str) -> Iterator[tuple[Patch, tuple[str, ...]]]:
    """What the text can be read as, the likeliest first; raises `Invalid` where it is none at all."""
    refused: list[Invalid] = []
    found = False
    strips = (incoming.strip,) if incoming.strip is not None else _STRIPS
    for lost_end in (False, True):
        for (data, notes), strip in product(forms(incoming.data, lost_end=lost_end), strips):
            if strip > _USUAL and len(data) > _LARGE:
                continue
            try:
                yield parse_patch(name, data, incoming.where, strip), notes
                found = True
            except Invalid as error:
                refused.append(error)
        if found:
            return
    raise refused[0]


def reason(done: Applied) -> str:
    """The first place at which a patch failed, else git's first word on it."""
    return "{}:{}".format(*done.failed[0]) if done.failed else done.errors[0]


def _candidates(clone: Clone, path: str, blob: str) -> Iterator[tuple[str, str]]:
    tags = clone.git.try_run(("for-each-ref", "--sort=-creatordate", "--format=%(refname:short)", "refs/tags"))
    yield from ((tag, tag) for tag in tags.text.split())
    full = clone.git.try_run(("rev-parse", "--verify", "--quiet", f"{blob}^{{blob}}"))
    if full.ok:
        search = ("log", "--all", f"-{_MAX_COMMITS}", "--format=%H", f"--find-object={full.text.strip()}", "--", path)
        for commit in clone.git.try_run(search).text.split():
            yield f"commit {commit[:12]}", commit


def _has_blobs(clone: Clone, commit: str, wanted: dict[str, str]) -> bool:
    names = "".join(f"{commit}:{path}\n" for path in wanted).encode("utf-8", "surrogateescape")
    rows = clone.git.try_run(("cat-file", "--batch-check=%(objectname)"), stdin=names).text.splitlines()
    return len(rows) == len(wanted) and all(
        row.startswith(identity) for row, identity in zip(rows, wanted.values(), strict=True)
    )
