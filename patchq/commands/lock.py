"""`lock`: resolves every selection and writes `patchq.lock`; with `check` it only compares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from patchq.commands.place import Place
from patchq.engine import Engine
from patchq.errors import Invalid, Problem, Refused
from patchq.index import Platform
from patchq.index import resolve as resolve_wheels
from patchq.lock import (
    Lock,
    LockedWheels,
    differences,
    load_lock,
    lock_path,
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
        return Report("lock", tuple(_compare(queue, before, resolved)))
    now = Lock(
        queue=queue.settings.name,
        files=queue.digests,
        selections=resolved,
        tools=_tools(queue, before),
        wheels=_wheels(queue, before),
    )
    unchanged = before is not None and before.to_bytes() == now.to_bytes()
    if not unchanged:
        save_lock(queue, now)
    state = State.UNCHANGED if unchanged else State.PASSED
    summary = f"{len(now.selections)} selections, {len(now.files)} files, {now.digest[:12]}"
    steps = (Step("lock", state, summary), *_changes(before, now))
    return Report("lock", steps, {"path": str(lock_path(queue)), "digest": now.digest})


def _previous(queue: Queue) -> Lock | None:
    return load_lock(queue) if LOCK_NAME in queue.files else None


def _compare(queue: Queue, lock: Lock | None, resolved: Mapping[str, object]) -> Iterator[Step]:
    if lock is None:
        raise Refused("the queue has no lock", where=str(lock_path(queue)), hint="run: patchq lock")
    stale = [Step(problem.where, State.EDITED, problem.what, hint=problem.hint) for problem in differences(queue, lock)]
    yield from stale
    for key in sorted({*lock.selections, *resolved}):
        if lock.selections.get(key) != resolved.get(key):
            yield Step(key, State.EDITED, "resolves to something else than the lock says", hint="run: patchq lock")
            stale.append(Step(key, State.EDITED))
    if not stale:
        yield Step("lock", State.PASSED, f"{len(lock.selections)} selections agree, {lock.digest[:12]}")


def _changes(before: Lock | None, now: Lock) -> Iterator[Step]:
    if before is None:
        return
    for key in sorted({*before.selections, *now.selections}):
        old, new = before.selections.get(key), now.selections.get(key)
        if old != new:
            shown = f"{old.commit[:12] if old else 'new'} → {new.commit[:12] if new else 'gone'}"
            yield Step(key, State.NOTE, shown)


def _tools(queue: Queue, before: Lock | None) -> dict[str, LockedWheels]:
    """Wheels of patchq's own dependencies for every Python and platform that a target names."""
    request = tuple(sorted(own_requirements()))
    wanted = {
        tools_key(environment): (python_of(environment), environment.platform)
        for target in queue.targets.values()
        for environment in target.environments.values()
        if environment.version
    }
    old = before.tools if before else {}
    return {key: _pins(old.get(key), request, *wanted[key], deps=True) for key in sorted(wanted)}


def _wheels(queue: Queue, before: Lock | None) -> dict[str, LockedWheels]:
    """What each environment wants installed, without dependencies."""
    old = before.wheels if before else {}
    return {
        f"{target_name}/{name}": _pins(
            old.get(f"{target_name}/{name}"),
            tuple(sorted(environment.wheels)),
            python_of(environment),
            environment.platform,
            deps=False,
        )
        for target_name, target in sorted(queue.targets.items())
        for name, environment in sorted(target.environments.items())
        if environment.wheels
    }


def _pins(
    old: LockedWheels | None, request: tuple[str, ...], python: str, platform: str, *, deps: bool
) -> LockedWheels:
    """The old pins where the same was asked for: a lock is not upgraded by being written again."""
    if old and (old.request, old.python, old.platform) == (request, python, platform):
        return old
    tell(f"resolving wheels for Python {python}")
    pins = resolve_wheels(request, python=python, platform=Platform(platform), deps=deps)
    return LockedWheels(request=request, python=python, platform=platform, pins=pins)
