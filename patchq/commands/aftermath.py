"""What a change of the queue means for every target and variant that it touches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from patchq.commands.check import check_selection
from patchq.commands.place import Place
from patchq.engine import Engine
from patchq.errors import PatchqError
from patchq.queue.lint import lint
from patchq.queue.load import Queue, parse_queue
from patchq.queue.selection import Selection, select, selections
from patchq.queuejournal import LOCK_NAME
from patchq.report import State, Step
from patchq.sources import Sources

_GROUP = "targets and variants"


def changed(queue: Queue, changes: Mapping[str, bytes | None]) -> Queue:
    """The queue as it would be after `changes`; raises `Invalid` where that is none."""
    files = {path: data for path, data in {**queue.files, **changes}.items() if data is not None}
    return parse_queue(queue.root, dict(sorted(files.items())))


def aftermath(place: Place, engine: Engine, sources: Sources, new: Queue) -> Iterator[Step]:
    """One step for every selection that another one takes the place of: `passed`, or `failed` with what it broke.

    A selection that was broken before is a warning, one whose baseline is not here is not run. Errors that the queue
    as a whole did not have before are `failed` too; a lock that is older now is a note.
    """
    yield from _new_errors(place.queue, new)
    for selection in selections(new):
        before = select(place.queue, selection.target, selection.variant, selection.upstream.name)
        if _content(before) != _content(selection):
            yield _checked(engine, sources, before, selection)
    if LOCK_NAME in new.files and new.digests != place.queue.digests:
        yield Step("lock", State.NOTE, "is older than the queue now", _GROUP, hint="run: patchq lock")


def _content(selection: Selection) -> list[Any]:
    chosen = [(queued.name, queued.entry.strip, queued.patch and queued.patch.sha256) for queued in selection.chosen]
    return [selection.upstream.baseline, *chosen]


def _checked(engine: Engine, sources: Sources, before: Selection, after: Selection) -> Step:
    try:
        base = sources.base(after.upstream, after.form)
    except PatchqError as error:
        what = f"not checked: {error.problems[0].what}"
        return Step(after.key, State.NOT_RUN, what, _GROUP, hint=error.problems[0].hint)
    broken = [step for step in check_selection(engine, base, after) if step.state.code]
    if not broken:
        count = len(after.chosen)
        return Step(after.key, State.PASSED, "1 patch applies" if count == 1 else f"{count} patches apply", _GROUP)
    lines = tuple(f"{step.name}: {step.state.value}  {step.summary}".rstrip() for step in broken)
    was_broken = _was_broken(engine, sources, before)
    state, what = (State.WARNING, "was broken before, and is") if was_broken else (State.FAILED, "is broken by this")
    return Step(after.key, state, what, _GROUP, lines, f"patchq check --target {after.target} says why")


def _was_broken(engine: Engine, sources: Sources, before: Selection) -> bool:
    """Whether a selection did not hold on the baseline that it had; one that cannot be tried did."""
    try:
        base = sources.base(before.upstream, before.form)
    except PatchqError:
        return False
    return any(step.state.code for step in check_selection(engine, base, before))


def _new_errors(old: Queue, new: Queue) -> Iterator[Step]:
    known = {(step.name, step.summary) for step in lint(old)}
    for step in lint(new):
        if step.state is State.MALFORMED and (step.name, step.summary) not in known:
            yield Step(step.name, State.FAILED, step.summary, _GROUP, hint=step.hint)
