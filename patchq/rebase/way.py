"""A whole series on its way to another baseline: each patch in its reference context, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from patchq.engine import Base, Engine, Placed
from patchq.engine.conditions import broken
from patchq.patch import Patch, parse_patch
from patchq.queue.baseline import BaselineForm
from patchq.queue.load import Queue, QueuedPatch, Upstream
from patchq.queue.selection import selections
from patchq.rebase.carry import Carried, Fate, carry, missing_modules
from patchq.sources import Sources


@dataclass(frozen=True)
class Reference:
    """Where a patch applies on the old baseline: the trees around it, and the patches that are on before it."""

    before: str
    after: str
    earlier: tuple[str, ...]


def references(engine: Engine, queue: Queue, upstream: Upstream, base: Base) -> dict[str, Reference]:
    """The reference context of each patch: the whole series where it applies there, else the first selection in which
    it does. A patch that applies nowhere has none."""
    found: dict[str, Reference] = {}
    orders = [upstream.patches]
    orders += [one.chosen for one in selections(queue) if one.upstream.name == upstream.name]
    for order in dict.fromkeys(orders):
        if all(queued.name in found for queued in order):
            continue
        placed = engine.apply(base, order)
        for name, reference in _contexts(base, placed):
            found.setdefault(name, reference)
    return found


def _contexts(base: Base, placed: Sequence[Placed]) -> Iterator[tuple[str, Reference]]:
    earlier: list[str] = []
    before = base.tree
    for step in placed:
        if step.ok:
            yield step.queued.name, Reference(before, step.tree, tuple(earlier))
            earlier.append(step.queued.name)
            before = step.tree


@dataclass
class Way:
    """Patches carried to the tree `base`, in order. `moved` are the new versions by name (None: it is left out)."""

    engine: Engine
    upstream: Upstream
    base: Base
    known: Mapping[str, Reference]
    moved: dict[str, Patch | None] = field(default_factory=dict)
    _last: tuple[tuple[str, ...], str] = ((), "")

    def ours(self, name: str) -> str:
        """The new tree that a patch goes on: the new baseline with what is on before it."""
        earlier = self.known[name].earlier if name in self.known else ()
        done, tree = self._last if earlier[: len(self._last[0])] == self._last[0] else ((), self.base.tree)
        tree = tree or self.base.tree
        for other in earlier[len(done) :]:
            patch = self.moved.get(other)
            step = self.engine.step(patch, tree) if patch else None
            tree = self.engine.store.update_tree(tree, step.changes) if step and step.ok else tree
        self._last = (earlier, tree)
        return tree

    def carry(self, queued: QueuedPatch) -> Carried:
        """What becomes of the next patch; it is taken on where it goes on by itself."""
        patch, reference = queued.patch, self.known.get(queued.name)
        if patch is None or reference is None:
            return Carried(Fate.CONFLICT, self.base.tree, findings=("does not apply on the old baseline",))
        if not patch.changes:
            self.moved[queued.name] = patch
            return Carried(Fate.UNCHANGED, self.ours(queued.name))
        result = carry(self.engine, patch, reference.before, reference.after, self.ours(queued.name))
        new = self.take(queued, result.diff) if result.goes_on else None
        if new:
            result = replace(result, findings=(*result.findings, *self.doubts(queued, new, result.tree)))
        return result

    def doubts(self, queued: QueuedPatch, new: Patch, tree: str) -> tuple[str, ...]:
        """What a moved patch imports and is not there, and what its header says and does not hold in `tree`."""
        store = self.engine.store
        unheld = broken(store, tree, (queued,))  # its header stays
        told = (f"{problem.where}: {problem.what.removeprefix(queued.name).strip()}" for problem in unheld)
        return (*missing_modules(store, new, self.upstream.baseline, tree), *told)

    def take(self, queued: QueuedPatch, diff: bytes | None) -> Patch:
        """Note a patch's new version: the same header, and the new diff text (None: the old)."""
        assert queued.patch
        patch = queued.patch
        if diff is not None:
            patch = parse_patch(patch.name, patch.data[: patch.diff_start] + diff, patch.where)
        self.moved[queued.name] = patch
        return patch


def way_to(queue: Queue, engine: Engine, sources: Sources, upstream: Upstream, base: Base, form: BaselineForm) -> Way:
    """The way of an upstream's series from its own baseline of a form to `base`."""
    old = sources.base(upstream, form)
    return Way(engine, upstream, base, references(engine, queue, upstream, old))
