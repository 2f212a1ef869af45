"""`edit`: makes or reopens an edit copy, an ordinary git repository with one commit a patch."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from patchq.authoring.editcopy import Agreement, EditCopy, EditState, KnownPatch, create, is_copy, refuse_if_missing
from patchq.commands.place import Place
from patchq.document import sync_folder, write_atomic
from patchq.engine import Base, Engine, Placed
from patchq.errors import DoesNotApply, Invalid, Problem, Refused
from patchq.exclusive import room_in
from patchq.lock import differences, load_lock
from patchq.queue.load import load_queue
from patchq.queue.selection import Selection, select
from patchq.report import Report, State, Step

FOLDER = "edit"


def edit(
    place: Place,
    target: str,
    variant: str | None = None,
    upstream: str | None = None,
    *,
    out: Path | None = None,
    sources: dict[str, str] | None = None,
) -> Report:
    """Make the edit copies of a target's upstreams (or of one), or bring those that are there up to date.

    Work that was not refreshed stays as it is. Raises `DoesNotApply` where the selection does not.
    """
    place = authored(place)
    queue = place.queue
    queue.variant_name(variant)
    uses = queue.target(target).upstreams
    if upstream is not None and upstream not in uses:
        queue.upstream(upstream)
        raise Invalid(f"the target {target} does not use {upstream}", where=place.target_file(target))
    if out and upstream is None and len(uses) > 1:
        raise Invalid("--out is for one upstream", hint=f"one of {', '.join(uses)}")
    steps, folders = [], {}
    with Engine.on(place.store) as engine:
        for name in [upstream] if upstream else list(uses):
            selection = select(queue, target, variant, name)
            folder = (out or place.authoring / FOLDER / selection.scope / name).absolute()
            steps.append(_edit_one(place, engine, selection, folder, sources or {}))
            folders[name] = str(folder)
    return Report("edit", tuple(steps), {"queue": str(place.root), "copies": folders})


def authored(place: Place) -> Place:
    """The place where the queue may be changed; in a work area that is a copy of the queue that came last.

    A copy in which nothing was changed follows the queue; one with changes stays, whatever came since.
    """
    root = place.authoring / "series"
    if not place.home or place.root == root:
        return place
    if root.exists():
        known = load_queue(root)
        if load_lock(known).digest == load_lock(place.queue).digest or any(
            True for _ in differences(known, load_lock(known))
        ):
            return Place(root, place.home)
    with room_in(place.authoring) as room:
        shutil.copytree(place.root, room / "series")
        if root.exists():
            root.rename(room / "old")
        (room / "series").rename(root)
        sync_folder(place.authoring)
    return Place(root, place.home)


def agreement(base: Base, placed: tuple[Placed, ...]) -> Agreement:
    """What an edit copy knows when its branch is the canonical one."""
    known = (KnownPatch(name=step.queued.name, sha256=step.queued.patch.sha256) for step in placed if step.queued.patch)
    return Agreement(tip=placed[-1].commit if placed else base.commit, patches=tuple(known))


def canonical(engine: Engine, base: Base, selection: Selection) -> tuple[Placed, ...]:
    """The selection, applied; raises `DoesNotApply` with every patch that does not."""
    placed = engine.apply(base, selection.chosen)
    failed = [step for step in placed if not step.ok]
    if failed:
        hint = f"patchq check --target {selection.target} says why"
        raise DoesNotApply(Problem(f"{step.queued.name}: {step.state.value}", selection.scope, hint) for step in failed)
    return placed


def _edit_one(place: Place, engine: Engine, selection: Selection, folder: Path, given: dict[str, str]) -> Step:
    refuse_if_missing(folder)
    base = place.sources(given).base(selection.upstream, selection.form)
    agreed = agreement(base, canonical(engine, base, selection))
    group = selection.key
    if is_copy(folder):
        return _reopen(EditCopy(place.store, folder), selection, base, agreed, place.queue.digests)
    _hide(place, folder)
    state = EditState(
        queue=os.path.relpath(place.root, folder), target=selection.target, variant=selection.variant,
        upstream=selection.upstream.name, base=base.commit, agreed=agreed,
    )  # fmt: skip
    create(place.store, folder, state)
    hint = "change and commit there as you like, then run in it: patchq refresh"
    return Step(str(folder), State.PASSED, f"made: {len(agreed.patches)} patches, branch patchq", group, hint=hint)


def _hide(place: Place, folder: Path) -> None:
    """Keep the folder of edit copies out of the repository that the queue is in."""
    top = place.authoring / FOLDER
    if top in folder.parents and not (top / ".gitignore").exists():
        write_atomic(top / ".gitignore", b"*\n")


def _reopen(copy: EditCopy, selection: Selection, base: Base, agreed: Agreement, digests: Mapping[str, str]) -> Step:
    state, group = copy.state, selection.key
    mine = (state.scope, state.upstream)
    if mine != (selection.scope, selection.upstream.name):
        raise Refused(f"is the edit copy of {state.scope}/{state.upstream}", where=str(copy.folder))
    name = str(copy.folder)
    copy.settle(digests)
    if copy.state.agreed == agreed and state.base == base.commit:
        return Step(name, State.UNCHANGED, "is there, as new as the queue", group)
    changed, _ = copy.dirty()
    tip = copy.tip()
    if changed and tip == copy.state.agreed.tip and copy.holds(agreed.tip):
        changed = []  # it was being brought up to the queue when that was interrupted
    if changed or tip != copy.state.agreed.tip or state.base != base.commit:
        what = f"{len(changed)} files with uncommitted changes" if changed else "commits that were not refreshed"
        if state.base != base.commit:
            what = "another baseline"
        return Step(name, State.WARNING, f"the queue has moved on, and the copy has {what}: left as it is", group,
                    hint="refresh it, or make a second one with --out and bring the work over")  # fmt: skip
    copy.check_out(agreed.tip, tip, "edit")
    copy.save(copy.state.model_copy(update={"agreed": agreed}))
    return Step(name, State.PASSED, "brought up to the queue", group)
