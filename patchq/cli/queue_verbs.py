"""The verbs of a queue and of its way to a machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from patchq.cli.app import (
    AllowOlder,
    EnvOption,
    Json,
    ManyTargets,
    OneTarget,
    QueueOption,
    SourceOption,
    VariantOption,
    Wait,
    received,
    sources_of,
    verb,
)
from patchq.errors import Invalid
from patchq.report import Report


@verb()
def init(
    folder: Annotated[Path, typer.Argument(help="Where series/ is to be.")] = Path(),
    name: Annotated[str | None, typer.Option(help="The queue's name; else the folder's.")] = None,
    as_json: Json = False,
) -> Report:
    """Start a queue in this repository."""
    from patchq.commands.init import init

    return init(folder, name)


@verb()
def status(queue: QueueOption = None, as_json: Json = False) -> Report:
    """Show the queue at a glance: targets across, patches down, the lock, what was applied here."""
    from patchq.commands.place import Place
    from patchq.commands.status import status

    return status(Place.find(queue))


@verb()
def series(
    target: OneTarget,
    variant: VariantOption = None,
    why: Annotated[bool, typer.Option("--why", help="Every patch, in or out, with the reason.")] = False,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """List a target's ordered selection."""
    from patchq.commands.place import Place
    from patchq.commands.series import series

    return series(Place.find(queue, target), target, variant, why=why)


@verb()
def check(
    target: ManyTargets = [],  # noqa: B006
    source: SourceOption = [],  # noqa: B006
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Prove that every target's selection applies; lint headers, guards, layers and dependencies."""
    from patchq.commands.check import check
    from patchq.commands.place import Place

    return check(Place.find(queue, target[0] if target else None), target, sources_of(source))


@verb()
def lock(
    check: Annotated[bool, typer.Option("--check", help="Only compare; write nothing.")] = False,
    source: SourceOption = [],  # noqa: B006
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Resolve every selection and write series/patchq.lock."""
    from patchq.commands.lock import lock
    from patchq.commands.place import Place

    return lock(Place.find(queue), check=check, sources=sources_of(source))


@verb()
def bundle(
    target: OneTarget,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="The bundle's folder (default: bundles/…).")
    ] = None,
    since: Annotated[
        Path | None,
        typer.Option("--since", metavar="LOCK", help="Leave out what the receiver of this lock has."),
    ] = None,
    history: Annotated[bool, typer.Option("--history", help="Carry the whole history of the baselines.")] = False,
    rebase_to: Annotated[
        list[str], typer.Option("--rebase-to", metavar="REF", help="Also carry this baseline, to move to it offline.")
    ] = [],  # noqa: B006
    sign: Annotated[
        Path | None,
        typer.Option("--sign", metavar="KEY", help="Sign it with this OpenSSH key, or with the agent's for a .pub."),
    ] = None,
    tar: Annotated[bool, typer.Option("--tar", help="Also write one uncompressed tar of the folder.")] = False,
    source: SourceOption = [],  # noqa: B006
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Build the folder that crosses the air gap."""
    from patchq.commands.bundle import bundle
    from patchq.commands.place import Place

    return bundle(
        Place.find(queue, target),
        target,
        out,
        since=since,
        history=history,
        tar=tar,
        rebase_to=rebase_to,
        sign=sign,
        sources=sources_of(source),
    )


@verb()
def apply(
    target: OneTarget,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", metavar="FOLDER", help="The bundle, as a folder or a tar.")
    ] = None,
    variant: VariantOption = None,
    source: SourceOption = [],  # noqa: B006
    allow_older: AllowOlder = False,
    wait: Wait = 0,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Apply a target's selection into new work copies; compile, import, test and record them."""
    from patchq.commands.apply import apply
    from patchq.commands.place import Place

    if bundle is not None:
        if queue or source:
            raise Invalid("--bundle brings its own queue and sources", hint="leave out --queue and --source")
        place, steps = received(bundle, target, wait, allow_older)
        return apply(place, target, variant, wait=wait, before=steps)
    if allow_older:
        raise Invalid("--allow-older is about a bundle", hint="say --bundle, too")
    return apply(Place.find(queue, target), target, variant, wait=wait, sources=sources_of(source))


@verb()
def verify(
    target: OneTarget,
    env: Annotated[str | None, typer.Option("--env", metavar="ENV", help="Only this environment.")] = None,
    variant: VariantOption = None,
    no_smoke: Annotated[bool, typer.Option("--no-smoke", help="Leave out the rungs that need a device.")] = False,
    wait: Wait = 0,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Prove again, before a long run, that what was applied is what is there."""
    from patchq.commands.place import Place
    from patchq.commands.verify import verify

    return verify(Place.find(queue, target), target, variant, env=env, smoke=not no_smoke, wait=wait)


@verb()
def revert(target: OneTarget, wait: Wait = 0, queue: QueueOption = None, as_json: Json = False) -> Report:
    """Take the last apply of a target back."""
    from patchq.commands.place import Place
    from patchq.commands.revert import revert

    return revert(Place.find(queue, target), target, wait=wait)


@verb()
def env(
    target: OneTarget,
    env: EnvOption = None,
    variant: VariantOption = None,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Print an environment's shell lines, for launch scripts to source."""
    from patchq.commands.env import env as print_env
    from patchq.commands.place import Place

    return print_env(Place.find(queue, target), target, env, variant)


@verb()
def export(
    out: Annotated[Path, typer.Option("--out", metavar="PATH", help="A folder, or a file, that is not there yet.")],
    target: Annotated[str, typer.Option("--target", metavar="TARGET", help="The kind of machine.")] = "",
    form: Annotated[
        str, typer.Option("--format", metavar="quilt|git-am", help="For quilt push, or for git am --keep-cr.")
    ] = "",
    since: Annotated[
        Path | None, typer.Option("--since", metavar="LOCK", help="Instead: one text file with what changed since.")
    ] = None,
    variant: VariantOption = None,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Write a selection for other tools, or what changed since a lock, for import elsewhere."""
    from patchq.commands.export import export, export_since
    from patchq.commands.place import Place

    if since and not (form or variant):
        return export_since(Place.find(queue, target or None), since, out)
    if since or not (target and form):
        raise Invalid("say either --target and --format, or --since")
    return export(Place.find(queue, target), target, variant, form, out)


@verb()
def prune(
    target: OneTarget,
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", min=1, help="Keep the newest N copies of each upstream.")
    ] = 2,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    wait: Wait = 0,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Remove old copies, failed copies and what nothing refers to any more."""
    from patchq.commands.place import Place
    from patchq.commands.prune import prune

    return prune(Place.find(queue, target), target, keep=keep, dry_run=dry_run, wait=wait)
