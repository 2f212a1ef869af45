"""`env`: an environment's shell lines, to be sourced by launch scripts. Where it fails, the shell stops."""

from __future__ import annotations

from patchq.commands.place import Place, last_apply
from patchq.environment import environment_name, launch_of
from patchq.errors import Refused
from patchq.lock import load_lock
from patchq.report import Report, State, Step
from patchq.workcopy import current


def env(place: Place, target: str, name: str | None, variant: str | None = None) -> Report:
    """The shell lines of an environment for what was last applied.

    Raises `Refused` where that apply failed, was of another lock or variant, or its copy is not there.
    """
    queue, area = place.queue, place.area(target)
    name = environment_name(queue, target, name)
    applied = last_apply(area, target)
    if applied is None or applied.exit not in (0, 4):
        raise Refused(f"nothing was applied for {target} on this host, or the apply failed", where=str(area.root))
    variant = queue.variant_name(variant) or applied.variant
    lock = load_lock(queue)
    if (applied.lock, applied.variant) != (lock.digest, variant):
        raise Refused("the last apply was of another lock or variant", where=str(area.root), hint="run: patchq apply")
    locked = lock.of(target, variant)
    for upstream, use in queue.target(target).upstreams.items():
        if use.sink == "work-copy" and name in use.environments:
            now = current(area.upstream(upstream))
            if now != locked[upstream].commit or not area.copy(upstream, now).is_dir():
                raise Refused(f"the work copy of {upstream} is not the one that was applied", hint="run: patchq apply")
    launch = launch_of(queue, target, name, locked, area, place.area_host(target))
    steps = [Step("environment", State.PASSED, launch.title)]
    missing = applied.not_run()
    if missing:
        steps.append(Step("last apply", State.WARNING, "has steps that were not run", detail=tuple(missing)))
    return Report("env", tuple(steps), {"target": target, "env": name, "variant": variant}, output=launch.lines())
