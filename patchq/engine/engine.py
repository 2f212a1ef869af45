"""The one engine: a base tree and an ordered selection in, a tree and a commit after each patch out.

A patch touches the paths that it names and no others, so what it does depends on just those entries: the
engine remembers each (patch, entries before) and never asks git twice, and it asks about several patches at once
where they have no path in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice

from patchq.engine.places import Finding, findings, reverse_is_unique
from patchq.engine.refusals import links_out, refusals
from patchq.errors import Problem
from patchq.patch import Patch
from patchq.queue.load import QueuedPatch
from patchq.report import State
from patchq.store import Store
from patchq.store.apply import Applied, Applier
from patchq.store.trees import Entry

_TOGETHER = 32


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
Key = tuple[str, bool, int, Touched]


class Engine:
    """Applies selections to base trees in one store."""

    def __init__(self, store: Store, applier: Applier) -> None:
        self.store = store
        self._applier = applier
        self._done: dict[Key, Applied] = {}
        self._alone: set[str] = set()

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
        with self.store.at_once():
            for number, queued in enumerate(patches):
                self.ask_together((one.patch for one in patches[number:] if one.patch), tree)
                step = self._place(queued, tree, commit, base)
                tree, commit = step.tree, step.commit
                placed.append(step)
        return tuple(placed)

    def step(self, patch: Patch, tree: str, *, reverse: bool = False) -> Applied:
        """What a patch does to a tree, with what git and its own text say compared."""
        before, key = self._before(patch, tree, reverse)
        if key not in self._done:
            diff = patch.data[patch.diff_start :]
            done = self._applier.apply(diff, before, strip=patch.strip, reverse=reverse)
            self._done[key] = self._judged(patch, before, done, reverse=reverse)
        return self._done[key]

    def _judged(self, patch: Patch, before: dict[str, Entry], done: Applied, *, reverse: bool = False) -> Applied:
        refused = refusals(self.store, patch, before, done, reverse=reverse) if done.ok else ()
        return replace(done, changes={}, errors=refused) if refused else done

    def _before(self, patch: Patch, tree: str, reverse: bool = False) -> tuple[dict[str, Entry], Key]:
        """What stands at the patch's paths, and what the outcome is remembered by."""
        before = self.store.entries(tree, sorted(patch.paths))
        return before, (patch.sha256, reverse, patch.strip, tuple(sorted(before.items(), key=lambda item: item[0])))

    def ask_together(self, patches: Iterable[Patch], tree: str) -> None:
        """Ask git in one go, for the steps to come, about the first of `patches` and those behind it that have no path
        in common with any before them. If they do not all go on, nothing is learned, and each is asked about alone."""
        asked: list[tuple[Patch, dict[str, Entry], Key]] = []
        paths = _Paths()
        for patch in islice((patch for patch in patches if patch.changes), _TOGETHER):
            if not paths.take(patch.paths):
                break
            before, key = self._before(patch, tree)
            if key not in self._done and patch.sha256 not in self._alone and patch.strip == 1:
                asked.append((patch, before, key))
            elif not asked:
                return
        if len(asked) < 2:
            return
        diff = b"\n".join(patch.data[patch.diff_start :] for patch, _, _ in asked)
        done = self._applier.apply(diff, {path: entry for _, before, _ in asked for path, entry in before.items()})
        if not done.ok or done.named - paths.taken:
            self._alone.update(patch.sha256 for patch, _, _ in asked)
            return
        for patch, before, key in asked:
            self._done[key] = self._judged(patch, before, _part(done, patch))

    def _place(self, queued: QueuedPatch, tree: str, commit: str, base: Base) -> Placed:
        patch = queued.patch
        if patch is None:
            return Placed(queued, State.MALFORMED, tree, commit, problems=queued.problems)
        if not patch.changes:
            return self._commit(Placed(queued, State.APPLIED, tree, commit), patch, base, commit)
        done = self.step(patch, tree)
        if done.ok:
            after = self.store.update_tree(tree, done.changes)
            if problems := tuple(links_out(self.store, tree, after, done.changes)):
                return Placed(queued, State.MALFORMED, tree, commit, problems=problems)
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


class _Paths:
    """Paths of which none is, or lies below, another's."""

    def __init__(self) -> None:
        self.taken: set[str] = set()
        self._folders: set[str] = set()

    def take(self, paths: frozenset[str]) -> bool:
        """Whether `paths` have nothing in common with those taken so far; they are taken then."""
        folders = {path[:at] for path in paths for at, letter in enumerate(path) if letter == "/"}
        if paths & self.taken or paths & self._folders or folders & self.taken:
            return False
        self.taken |= paths
        self._folders |= folders
        return True


def _part(done: Applied, patch: Patch) -> Applied:
    """What one patch has done of what several have."""
    changes = {path: entry for path, entry in done.changes.items() if path in patch.paths}
    offsets = tuple(offset for offset in done.offsets if offset.path in patch.paths)
    return Applied(changes, done.named & patch.paths, offsets)
