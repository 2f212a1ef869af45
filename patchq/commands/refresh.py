"""`refresh`: writes an edit copy's commits back into the queue, losslessly."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from patchq.authoring.editcopy import EditCopy, Pending
from patchq.authoring.edited import Decide, Edit, fold, read_edits
from patchq.authoring.refresh import Plan, Refresh
from patchq.commands.aftermath import aftermath, changed
from patchq.commands.edit import agreement, canonical
from patchq.commands.place import Place
from patchq.document import nearest, sha256
from patchq.engine import Base, Engine, Placed
from patchq.errors import Invalid, PatchqError, Problem, Refused
from patchq.queue.load import Queue, load_queue
from patchq.queue.selection import Selection, select
from patchq.queuejournal import write_queue
from patchq.report import Report, State, Step
from patchq.sources import Sources


@dataclass(frozen=True)
class Wish:
    """What a refresh is asked for: the patch that takes uncommitted edits, the layer of new patches, how strictly."""

    into: str = ""
    layer: str = ""
    is_check: bool = False
    is_strict: bool = False


def refresh(place: Place, folder: Path, wish: Wish, decide: Decide, sources: dict[str, str] | None = None) -> Report:
    """Refresh the queue from the edit copy at `folder`, then let its branch name the canonical commits.

    With `is_check` it only compares. Raises `Refused`, `Invalid` or `DoesNotApply`, with nothing written, where the
    commits cannot become patches.
    """
    copy = EditCopy(place.store, folder)
    copy.settle(place.queue.digests)
    given = place.sources(sources)
    with Engine.on(place.store) as engine:
        job = _Job(place, copy, engine, given, wish, decide)
        plan, tip, tree = job.plan()
        new = changed(place.queue, plan.changes)
        placed = job.proved(new, plan)
        steps = [*plan.steps, *job.left_over(bool(tree)), *aftermath(place, engine, given, new)]
        is_broken = any(step.state is State.FAILED for step in steps)
        if wish.is_check:
            return Report("refresh", tuple(_as_finding(step, plan) for step in steps), job.data(plan, written=False))
        if wish.is_strict and is_broken:
            steps.append(Step("queue", State.FAILED, "nothing was written", hint="leave out --strict to write anyway"))
            return Report("refresh", tuple(steps), job.data(plan, written=False))
        job.write(plan, placed, tip, is_folded=bool(tree))
    return Report("refresh", tuple(steps), job.data(plan, written=bool(plan.changes)))


@dataclass(frozen=True)
class _Job:
    place: Place
    copy: EditCopy
    engine: Engine
    sources: Sources
    wish: Wish
    decide: Decide

    @property
    def selection(self) -> Selection:
        return self._select(self.place.queue)

    def _select(self, queue: Queue) -> Selection:
        state = self.copy.state
        queue.variant_name(state.variant)
        if state.upstream not in queue.target(state.target).upstreams:
            raise Refused(f"the target {state.target} does not use {state.upstream}", where=str(self.copy.folder))
        return select(queue, state.target, state.variant, state.upstream)

    def base(self) -> Base:
        """The base of the copy's commits; raises `Refused` where the queue has another by now."""
        base = self.sources.base(self.selection.upstream, self.selection.form)
        if base.commit != self.copy.state.base:
            what = f"the queue's baseline is {base.commit[:12]}, the copy's is {self.copy.state.base[:12]}"
            raise Refused(what, where=str(self.copy.folder), hint="make a new edit copy and bring the work over")
        return base

    def plan(self) -> tuple[Plan, str, str]:
        """The plan, the tip that it is made from, and the tree of uncommitted edits where they are folded in."""
        base, tip = self.base(), self.copy.tip()
        self.copy.bring(tip)
        edits = read_edits(self.engine.store, base.commit, tip, self.decide)
        tree = ""
        if self.wish.into:
            tree = self.copy.work_tree()
            edits = self._folded(edits, base, tip, tree)
        state = self.copy.state
        refreshing = Refresh(self.place.queue, self.selection, self.engine, base, self._reference(base))
        plan = refreshing.plan(edits, [patch.name for patch in state.agreed.patches], self.wish.layer)
        self._refuse_what_moved(plan)
        return plan, tip, tree

    def _folded(self, edits: tuple[Edit, ...], base: Base, tip: str, tree: str) -> tuple[Edit, ...]:
        store = self.engine.store
        before = edits[-1].after if edits else base.tree
        if tree == store.commit(tip).tree:
            raise Refused("there are no uncommitted edits", where=str(self.copy.folder))
        names = [edit.name for edit in edits]
        into = _meant(names, self.wish.into)
        extra = Edit("", "", "", before, tree, "", "", "", 0)
        folded = fold(store, edits, into, extra)
        if folded[-1].after != tree:
            what = f"with the edits in {names[into]}, what follows gives other files than yours"
            raise Refused(what, hint="git commit --fixup, then git rebase -i --autosquash baseline")
        return folded

    def _reference(self, base: Base) -> Base:
        """The base of the reference context: the first baseline form of the upstream that is at hand."""
        upstream = self.selection.upstream
        for form in upstream.baseline.forms():
            with _passing_over():
                return self.sources.base(upstream, form)
        return base

    def _refuse_what_moved(self, plan: Plan) -> None:
        """Nothing is overwritten that somebody else changed in the queue since the copy and it agreed."""
        agreed, queue = self.copy.state.agreed, self.place.queue
        moved = [
            Problem(f"{path} was changed in the queue since this copy was made", str(queue.root / path),
                    "make a second copy with patchq edit --out, and bring your commits over with git cherry-pick")
            for path in plan.changes
            if (known := agreed.knows(path)) is not None and queue.digests.get(path) != known
        ]  # fmt: skip
        if moved:
            raise Refused(moved)

    def proved(self, new: Queue, plan: Plan) -> tuple[Placed, ...]:
        """The new selection, applied: it has to hold the edits, in their order, and give their very trees."""
        selection = self._select(new)
        chosen, wanted = [queued.name for queued in selection.chosen], [edit.name for edit in plan.edits]
        reasons = {choice.queued.name: choice.reason for choice in selection.excluded}
        problems = [Problem(f"{name} would not be in {selection.scope}: {reasons[name]}", hint="nothing was written")
                    for name in wanted if name in reasons]  # fmt: skip
        problems += [Problem(f"the queue has {name}, which this copy does not know", hint="reopen it with: patchq edit")
                     for name in chosen if name not in wanted]  # fmt: skip
        if problems:
            raise Refused(problems)
        placed = canonical(self.engine, self.base(), selection)
        wrong = [step.queued.name for step, edit in zip(placed, plan.edits, strict=True) if step.tree != edit.after]
        if chosen != wanted or wrong:
            raise Refused(f"{(wrong or chosen)[0]} would not give what the edit copy has; nothing was written")
        return placed

    def left_over(self, is_folded: bool) -> Iterator[Step]:
        """What stands in the work tree and goes into no patch."""
        tracked, untracked = self.copy.dirty()
        if tracked and not is_folded:
            yield Step("work tree", State.WARNING, f"{len(tracked)} files with uncommitted edits stay out",
                       detail=tuple(tracked[:20]), hint="commit them, or: patchq refresh --into PATCH")  # fmt: skip
        if untracked:
            yield Step("work tree", State.NOTE, f"{len(untracked)} untracked files stay out",
                       detail=tuple(untracked[:20]), hint="git add what belongs to a patch")  # fmt: skip

    def write(self, plan: Plan, placed: tuple[Placed, ...], tip: str, *, is_folded: bool) -> None:
        """Write the queue, then move the branch; whatever ends this early, the next call of patchq completes it."""
        base, state = self.base(), self.copy.state
        agreed = agreement(base, placed)
        files = {path: None if data is None else sha256(data) for path, data in plan.changes.items()}
        self.copy.receive(agreed.tip)
        pending = Pending(before=tip, agreed=agreed, files=files, is_folded=is_folded)
        self.copy.save(state.model_copy(update={"pending": pending}))
        write_queue(self.place.root, plan.changes, seen=self.place.queue.digests)
        self.copy.settle(load_queue(self.place.root).digests)

    def data(self, plan: Plan, *, written: bool) -> dict[str, object]:
        return {"queue": str(self.place.root), "copy": str(self.copy.folder), "changed": sorted(plan.changes),
                "written": written}  # fmt: skip


def _as_finding(step: Step, plan: Plan) -> Step:
    """With --check, what would be written is a finding."""
    return replace(step, state=State.EDITED) if step.name in plan.changes else step


def _meant(names: list[str], text: str) -> int:
    wanted = text.removesuffix(".patch")
    found = [n for n, name in enumerate(names) if f"/{name}".removesuffix(".patch").endswith(f"/{wanted}")]
    if len(found) != 1:
        short = [name.rpartition("/")[2].removesuffix(".patch") for name in names]
        what = "more than one patch" if found else "no patch"
        raise Invalid(f"--into {text}: {what} of this copy is meant", hint=nearest(text.rpartition("/")[2], short))
    return found[0]


@contextmanager
def _passing_over() -> Iterator[None]:
    try:
        yield
    except PatchqError:
        return
