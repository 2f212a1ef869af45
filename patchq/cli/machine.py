"""The verbs that prove and use a machine: `smoke`, `run`, `install`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from patchq.cli.app import AllowOlder, EnvOption, Json, OneTarget, QueueOption, VariantOption, Wait, received, verb
from patchq.errors import Invalid
from patchq.report import Report


@verb()
def smoke(
    target: OneTarget,
    env: EnvOption = None,
    variant: VariantOption = None,
    first: Annotated[str | None, typer.Option("--from", metavar="RUNG", help="Begin with this rung.")] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="RUNG", help="End with this rung.")] = None,
    wait: Wait = 0,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Climb the ladder (static, service, framework, step, recovery) and stop at the first rung that fails."""
    from patchq.commands.place import Place
    from patchq.commands.smoke import smoke

    return smoke(Place.find(queue, target), target, env, variant, first=first, last=last, wait=wait)


@verb()
def run(
    target: OneTarget,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- CMD...]", help="What to launch; without it, a shell.")
    ] = None,
    env: EnvOption = None,
    variant: VariantOption = None,
    accept_not_run: Annotated[
        list[str], typer.Option("--accept-not-run", metavar="STEP", help="Launch though this step was not run.")
    ] = [],  # noqa: B006
    wait: Wait = 0,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Verify, then launch a command in an environment, under a lease on the work copies, recorded."""
    from patchq.commands.place import Place
    from patchq.commands.run import run

    place = Place.find(queue, target)
    return run(place, target, env, command or [], variant, accepted=accept_not_run, wait=wait)


@verb()
def install(
    target: OneTarget,
    env: EnvOption = None,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", metavar="FOLDER", help="The bundle that brings the wheels.")
    ] = None,
    allow_older: AllowOlder = False,
    wait: Wait = 0,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Put the target's wheels into an environment, without dependencies, guarding what is protected."""
    from patchq.commands.install import install
    from patchq.commands.place import Place

    if bundle is None:
        if allow_older:
            raise Invalid("--allow-older is about a bundle", hint="say --bundle, too")
        return install(Place.find(queue, target), target, env, wait=wait)
    if queue:
        raise Invalid("--bundle brings its own queue", hint="leave out --queue")
    place, steps = received(bundle, target, wait, allow_older)
    return install(place, target, env, wait=wait, before=steps)
