"""The one engine: a base tree and an ordered selection in, a tree and a commit after each patch out.

A patch touches the paths that it names and no others, so what it does depends on just those entries: the
engine remembers each (patch, entries before) and never asks git twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from patchq.errors import Problem
from patchq.patch import Patch
from patchq.places import Finding, findings, reverse_is_unique
from patchq.queue.load import QueuedPatch
from patchq.report import State
from patchq.store import Store
from patchq.store.apply import Applied, Applier
from patchq.store.trees import Entry

_IGNORED_ID = "0" * 7


@dataclass(frozen=True)
class Base:
    """Where a selection starts: the baseline's commit, its tree, and its committer's time."""

    commit: str
    tree: str
    committed: str

    @classmethod
    def of(cls, store: Store, commit: str) -> Base:
        parsed = store.commit(commit)
        return cls(commit, parsed.tree, parsed.committed)


@dataclass(frozen=True)
class Placed:
    """How one patch ended: its state, and the tree and commit after it (those before it unless `applied`)."""

    queued: QueuedPatch
    state: State
    tree: str
    commit: str
    findings: tuple[Finding, ...] = ()
    problems: tuple[Problem, ...] = ()
    applied: Applied | None = None

    @property
    def ok(self) -> bool:
        return self.state is State.APPLIED


Touched = tuple[tuple[str, Entry], ...]


class Engine:
    """Applies selections to base trees in one store."""

    def __init__(self, store: Store, applier: Applier) -> None:
        self.store = store
        self._applier = applier
        self._done: dict[tuple[str, bool, int, Touched], Applied] = {}

    @classmethod
    @contextmanager
    def on(cls, store: Store) -> Iterator[Engine]:
        """An engine for the block."""
        with Applier.on(store) as applier:
            yield cls(store, applier)

    def apply(self, base: Base, patches: Sequence[QueuedPatch]) -> tuple[Placed, ...]:
        """Apply the patches in order; one that fails is passed over, so that it does not hide the rest."""
        placed: list[Placed] = []
        tree, commit = base.tree, base.commit
        for queued in patches:
            step = self._place(queued, tree, commit, base)
            tree, commit = step.tree, step.commit
            placed.append(step)
        return tuple(placed)

    def step(self, patch: Patch, tree: str, *, reverse: bool = False) -> Applied:
        """What a patch does to a tree, with what git and its own text say compared."""
        before = self.store.entries(tree, sorted(patch.paths))
        key = (patch.sha256, reverse, patch.strip, tuple(sorted(before.items(), key=lambda item: item[0])))
        if key not in self._done:
            diff = patch.data[patch.diff_start :]
            done = self._applier.apply(diff, before, strip=patch.strip, reverse=reverse)
            self._done[key] = _checked(patch, before, done, reverse)
        return self._done[key]

    def _place(self, queued: QueuedPatch, tree: str, commit: str, base: Base) -> Placed:
        patch = queued.patch
        if patch is None:
            return Placed(queued, State.MALFORMED, tree, commit, problems=queued.problems)
        if not patch.changes:
            return self._commit(Placed(queued, State.APPLIED, tree, commit), patch, base, commit)
        done = self.step(patch, tree)
        if done.ok:
            after = self.store.update_tree(tree, done.changes)
            found = findings(self.store, patch, tree, done)
            return self._commit(Placed(queued, State.APPLIED, after, commit, found, applied=done), patch, base, commit)
        if self.is_upstreamed(patch, tree):
            return Placed(queued, State.UPSTREAMED, tree, commit, applied=done)
        return Placed(queued, State.CONFLICT, tree, commit, applied=done)

    def _commit(self, placed: Placed, patch: Patch, base: Base, parent: str) -> Placed:
        date = patch.header.author_date
        authored = f"{date[0]} {date[1]}" if date else base.committed
        message = patch.header.message(patch.name)
        commit = self.store.write_commit(placed.tree, [parent], patch.header.author, authored, base.committed, message)
        return replace(placed, commit=commit)

    def is_upstreamed(self, patch: Patch, tree: str) -> bool:
        """Whether the patch is there already: it reverses without offset, and each place is the only one."""
        back = self.step(patch, tree, reverse=True)
        return back.ok and not back.offsets and reverse_is_unique(self.store, patch, tree)


def _checked(patch: Patch, before: Mapping[str, Entry], done: Applied, reverse: bool) -> Applied:
    """Refuse what git did if it is not what the patch's text says: other names, or another result."""
    if not done.ok:
        return done
    said = {change.old if reverse and change.old else change.path for change in patch.changes}
    if done.named != said:
        odd = sorted(str(name) for name in done.named.symmetric_difference(said))
        return replace(done, changes={}, errors=(f"git and the patch's text disagree on the files: {', '.join(odd)}",))
    wrong = [] if reverse else list(_other_results(patch, before, done.changes))
    return replace(done, changes={}, errors=tuple(wrong)) if wrong else done


def _other_results(patch: Patch, before: Mapping[str, Entry], changes: Mapping[str, Entry | None]) -> Iterator[str]:
    """Files whose pre-image is the recorded one and whose result is not."""
    for change in patch.changes:
        if not (change.old and change.new and change.old_id and change.new_id):
            continue
        pre, post = before.get(change.old), changes.get(change.new)
        if pre and post and pre.id.startswith(change.old_id) and not post.id.startswith(change.new_id):
            yield f"{change.new}: made for this very file, but its text gives another result than it records"
