"""`check`: proves that every target's selection applies, without touching a work tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from patchq.commands.place import Place
from patchq.engine import Base, Engine, Placed
from patchq.engine.conditions import broken
from patchq.engine.explain import patch_step
from patchq.errors import Invalid, PatchqError, Refused
from patchq.lock import differences, load_lock
from patchq.queue.lint import lint, unsatisfied
from patchq.queue.selection import Selection, selections
from patchq.report import Report, State, Step


def check(place: Place, targets: Sequence[str] = (), sources: dict[str, str] | None = None) -> Report:
    """Check the given targets (none: all) with every variant, and lint the whole queue."""
    queue = place.queue
    names = [name for name in queue.targets if not targets or name in targets]
    for name in targets:
        queue.target(name)
    steps = [*place.assumed(), *lint(queue)]
    known = place.sources(sources)
    if refused := list(known.refused(queue.upstreams.values())):
        raise Invalid(refused)
    with Engine.on(place.store) as engine:
        for selection in selections(queue, names):
            try:
                base = known.base(selection.upstream, selection.form)
            except PatchqError as error:
                steps.append(_no_baseline(selection, error))
                continue
            steps += check_selection(engine, base, selection)
    steps.append(_lock_step(place))
    return Report("check", tuple(steps), {"queue": str(place.root), "targets": names})


def check_selection(engine: Engine, base: Base, selection: Selection) -> list[Step]:
    """One step for every patch of a selection, in or out, and one for each condition that does not hold."""
    placed = engine.apply(base, selection.chosen)
    by_name = {step.queued.name: step for step in placed}
    steps = []
    for choice in selection.choices:
        if choice.chosen:
            steps.append(patch_step(engine, base, selection, placed, by_name[choice.queued.name]))
        else:
            steps.append(Step(choice.queued.name, State.EXCLUDED, choice.reason, group=selection.scope))
    steps += [Step(problem.what, State.FAILED, group=selection.scope) for problem in unsatisfied(selection)]
    if placed and all(step.ok for step in placed):
        steps += _conditions(engine, selection, placed)
    return steps


def _conditions(engine: Engine, selection: Selection, placed: Sequence[Placed]) -> Iterator[Step]:
    for problem in broken(engine.store, placed[-1].tree, selection.chosen):
        yield Step(problem.what, State.FAILED, problem.where, group=selection.scope)


def _no_baseline(selection: Selection, error: PatchqError) -> Step:
    problem = error.problems[0]
    state = State.FAILED if isinstance(error, Refused) else State.NOT_RUN
    return Step(f"{selection.upstream.name} baseline", state, problem.what, selection.scope, hint=problem.hint)


def _lock_step(place: Place) -> Step:
    try:
        stale = list(differences(place.queue, load_lock(place.queue)))
    except PatchqError as error:
        state = State.WARNING if isinstance(error, Refused) else State.MALFORMED
        return Step("lock", state, error.problems[0].what, group="queue", hint=error.problems[0].hint)
    if not stale:
        return Step("lock", State.PASSED, "agrees with every file of the queue", group="queue")
    detail = tuple(map(str, stale))
    return Step("lock", State.WARNING, f"{len(stale)} files differ from it", "queue", detail, "run: patchq lock")
