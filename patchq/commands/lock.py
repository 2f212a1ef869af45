"""`lock`: resolves every selection and writes `patchq.lock`; with `check` it only compares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from patchq.commands.place import Place
from patchq.engine import Engine
from patchq.errors import Invalid, Problem, Refused
from patchq.index import Platform
from patchq.index.resolve import resolve as resolve_wheels
from patchq.lock import (
    Lock,
    LockedWheels,
    Resolution,
    differences,
    lock_path,
    parse_lock,
    python_of,
    resolve,
    save_lock,
    tools_key,
)
from patchq.ownwheel import own_requirements
from patchq.progress import tell
from patchq.queue.lint import lint, unsatisfied
from patchq.queue.load import Queue
from patchq.queue.selection import selections
from patchq.queuejournal import LOCK_NAME
from patchq.report import Report, State, Step

# What is asked for, the Python, and the platform.
_Request = tuple[tuple[str, ...], str, str]


def lock(place: Place, *, check: bool = False, sources: dict[str, str] | None = None) -> Report:
    """Write the lock, or compare the one that is there with the queue and with what the queue resolves to.

    Raises `Invalid` for a queue that does not lint and `DoesNotApply` for a selection that does not apply; nothing
    is written then.
    """
    queue = place.queue
    before = _previous(queue)
    errors = [step for step in lint(queue) if step.state is State.MALFORMED]
    if errors:
        raise Invalid(Problem(step.summary, step.name, step.hint) for step in errors)
    missing = [problem for selection in selections(queue) for problem in unsatisfied(selection)]
    if missing:
        raise Refused(missing)
    with Engine.on(place.store) as engine:
        resolved = resolve(queue, engine, place.sources(sources), before)
    if check:
        steps = (*place.assumed(), *_compare(queue, before, resolved.selections), *_kept(resolved, State.NOT_RUN))
        return Report("lock", steps)
    now = Lock(
        queue=queue.settings.name,
        files=queue.digests,
        selections=resolved.selections,
        tools=_pinned(_tools(queue), before.tools if before else {}, deps=True),
        wheels=_pinned(_wheels(queue), before.wheels if before else {}, deps=False),
    )
    unchanged = queue.files.get(LOCK_NAME) == now.to_bytes()
    if not unchanged:
        save_lock(queue, now)
    state = State.UNCHANGED if unchanged else State.PASSED
    summary = f"{len(now.selections)} selections, {len(now.files)} files, {now.digest[:12]}"
    steps = (*place.assumed(), Step("lock", state, summary), *_changes(before, now), *_kept(resolved, State.NOTE))
    return Report("lock", steps, {"path": str(lock_path(queue)), "digest": now.digest})


def _previous(queue: Queue) -> Lock | None:
    """The lock that is there, in whatever form; raises `Invalid` where it cannot be read at all."""
    data, where = queue.files.get(LOCK_NAME), str(lock_path(queue))
    if data is None:
        return None
    try:
        return parse_lock(data, where)
    except Invalid as error:
        hint = "put back the last good one (git checkout), or remove it and run patchq lock again"
        raise Invalid(replace(problem, hint=problem.hint or hint) for problem in error.problems) from None


def _kept(resolved: Resolution, state: State) -> Iterator[Step]:
    if resolved.kept:
        what = f"{len(resolved.kept)} selections stand as locked: their baselines can't be had here"
        yield Step("baselines", state, what, detail=resolved.kept)


def _compare(queue: Queue, lock: Lock | None, resolved: Mapping[str, object]) -> Iterator[Step]:
    if lock is None:
        raise Refused("the queue has no lock", where=str(lock_path(queue)), hint="run: patchq lock")
    stale = [*differences(queue, lock), *_other_wheels(queue, lock)]
    stale += [
        Problem("resolves to something else than the lock says", key, "run: patchq lock")
        for key in sorted({*lock.selections, *resolved})
        if lock.selections.get(key) != resolved.get(key)
    ]
    if lock.to_bytes() != queue.files[LOCK_NAME]:
        stale.append(Problem("is not in the form that patchq writes", LOCK_NAME, "run: patchq lock"))
    yield from (Step(problem.where, State.EDITED, problem.what, hint=problem.hint) for problem in stale)
    if not stale:
        yield Step("lock", State.PASSED, f"{len(lock.selections)} selections agree, {lock.digest[:12]}")


def _other_wheels(queue: Queue, lock: Lock) -> Iterator[Problem]:
    """Wheels that are asked for now and were not when the lock was written, or the other way round."""
    for what, wanted, locked in (("tools", _tools(queue), lock.tools), ("wheels", _wheels(queue), lock.wheels)):
        asked = {key: (pins.request, pins.python, pins.platform) for key, pins in locked.items()}
        for key in sorted({*wanted, *asked}):
            if wanted.get(key) != asked.get(key):
                yield Problem("other wheels are asked for than the lock names", f"{what} {key}", "run: patchq lock")


def _changes(before: Lock | None, now: Lock) -> Iterator[Step]:
    if before is None:
        return
    for key in sorted({*before.selections, *now.selections}):
        old, new = before.selections.get(key), now.selections.get(key)
        if old != new:
            shown = f"{old.commit[:12] if old else 'new'} → {new.commit[:12] if new else 'gone'}"
            yield Step(key, State.NOTE, shown)


def _tools(queue: Queue) -> dict[str, _Request]:
    """patchq's own dependencies, for every Python and platform that a target names."""
    environments = [one for target in queue.targets.values() for one in target.environments.values() if one.version]
    own = tuple(sorted(own_requirements())) if environments else ()
    return {tools_key(one): (own, python_of(one), one.platform) for one in environments}


def _wheels(queue: Queue) -> dict[str, _Request]:
    """What each environment wants installed."""
    return {
        f"{target_name}/{name}": (tuple(sorted(environment.wheels)), python_of(environment), environment.platform)
        for target_name, target in queue.targets.items()
        for name, environment in target.environments.items()
        if environment.wheels
    }


def _pinned(
    requests: Mapping[str, _Request], old: Mapping[str, LockedWheels], *, deps: bool
) -> dict[str, LockedWheels]:
    """Wheels for each request: the old pins where the same was asked for, so that writing again upgrades nothing."""
    pinned = {}
    for key, request in sorted(requests.items()):
        before = old.get(key)
        same = before and (before.request, before.python, before.platform) == request
        pinned[key] = before if before and same else _pins(*request, deps=deps)
    return pinned


def _pins(request: tuple[str, ...], python: str, platform: str, *, deps: bool) -> LockedWheels:
    tell(f"resolving wheels for Python {python}")
    pins = resolve_wheels(request, python=python, platform=Platform(platform), deps=deps)
    return LockedWheels(request=request, python=python, platform=platform, pins=pins)
