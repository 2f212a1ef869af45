"""`env`: an environment's shell lines, to be sourced by launch scripts. Where it fails, the shell stops."""

from __future__ import annotations

from patchq.commands.place import Place
from patchq.commands.ready import ready
from patchq.report import Report, State, Step


def env(place: Place, target: str, name: str | None, variant: str | None = None) -> Report:
    """The shell lines of an environment for what was last applied.

    Raises `Refused` where that apply failed, was of another lock or variant, or its copy is not there.
    """
    now = ready(place, target, name, variant)
    steps = [Step("environment", State.PASSED, now.launch.title)]
    missing = now.applied.not_run()
    if missing:
        steps.append(Step("last apply", State.WARNING, "has steps that were not run", detail=tuple(missing)))
    data = {"target": target, "env": now.env, "variant": now.variant}
    return Report("env", tuple(steps), data, output=now.launch.lines())
