"""The verbs that look into patches, bring them in, and move them to another baseline."""

from __future__ import annotations

from typing import Annotated

import typer

from patchq.cli.app import Json, ManyTargets, OneTarget, QueueOption, SourceOption, VariantOption, sources_of, verb
from patchq.errors import Invalid
from patchq.report import Report


@verb()
def show(
    patch: Annotated[str, typer.Argument(help="UPSTREAM/LAYER/NAME, or the end of it.")],
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Print a patch as it is, and which selections take it."""
    from patchq.commands.place import Place
    from patchq.commands.show import show

    return show(Place.find(queue), patch)


@verb()
def files(
    which: Annotated[str, typer.Argument(help="A glob over patches or paths.")] = "*",
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """List the files that patches touch, each with its patches."""
    from patchq.commands.files import files
    from patchq.commands.place import Place

    return files(Place.find(queue), which)


@verb()
def annotate(
    file: Annotated[str, typer.Argument(help="A path in an upstream, or UPSTREAM/PATH.")],
    target: OneTarget,
    variant: VariantOption = None,
    source: SourceOption = [],  # noqa: B006
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Print a patched file, each line with the patch that it comes from."""
    from patchq.commands.annotate import annotate
    from patchq.commands.place import Place

    return annotate(Place.find(queue, target), file, target, variant, sources_of(source))


@verb()
def graph(
    target: ManyTargets = [],  # noqa: B006
    form: Annotated[str, typer.Option("--format", metavar="text|mermaid", help="For people, or a diagram.")] = "text",
    source: SourceOption = [],  # noqa: B006
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Show which patch needs which."""
    from patchq.commands.graph import graph
    from patchq.commands.place import Place

    return graph(Place.find(queue, target[0] if target else None), target, form, sources_of(source))


@verb("import")
def import_(
    what: Annotated[
        str, typer.Argument(help="A patch, mbox, folder, series, clone, site-packages, or PROJECT==VERSION.")
    ],
    upstream: Annotated[
        str, typer.Option("--upstream", metavar="NAME", help="Where it goes; else where it fits.")
    ] = "",
    layer: Annotated[str, typer.Option("--layer", metavar="LAYER", help="backport, device or research.")] = "",
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What to call the patch.")] = "",
    guard: Annotated[
        list[str], typer.Option("--guard", metavar="±TRAIT", help="Only for machines with it (+), or without (-).")
    ] = [],  # noqa: B006
    span: Annotated[
        str, typer.Option("--range", metavar="A..B", help="Commits of a clone; A...B makes one patch of all.")
    ] = "",
    only: Annotated[list[str], typer.Option("--only", metavar="GLOB", help="Of edited files, just these.")] = [],  # noqa: B006
    three_way: Annotated[bool, typer.Option("--3way", help="Re-anchor what was made for another base.")] = False,
    as_upstream: Annotated[
        str, typer.Option("--as-upstream", metavar="NAME", help="Not a patch: a clone or release as a new upstream.")
    ] = "",
    at: Annotated[str, typer.Option("--at", metavar="REF", help="With --as-upstream: the clone's commit.")] = "HEAD",
    source: SourceOption = [],  # noqa: B006
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Bring patches, edited files, or a new upstream into the queue."""
    from patchq.commands.import_ import add_upstream, import_
    from patchq.commands.place import Place
    from patchq.importing.desk import Wanted

    if as_upstream:
        return add_upstream(Place.find(queue), what, as_upstream, at)
    wanted = Wanted(upstream, layer, name, tuple(guard), span, tuple(only), three_way)
    return import_(Place.find(queue), what, wanted, sources_of(source))


@verb()
def rebase(
    upstream: Annotated[str, typer.Argument(metavar="UPSTREAM")],
    to: Annotated[
        list[str], typer.Option("--to", metavar="REF|VERSION", help="The baseline; with --plan, as many as you like.")
    ] = [],  # noqa: B006
    plan: Annotated[bool, typer.Option("--plan", help="Only tell what would become of each patch.")] = False,
    go_on: Annotated[bool, typer.Option("--continue", help="The conflict is resolved in the scratch copy.")] = False,
    skip: Annotated[bool, typer.Option("--skip", help="Leave this patch out.")] = False,
    abort: Annotated[bool, typer.Option("--abort", help="Give up; the queue is as it was.")] = False,
    alias: Annotated[
        str, typer.Option("--as", metavar="NAME", help="Leave UPSTREAM where it is; move a copy of it called NAME.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Leave out what the new baseline has already.")] = False,
    source: SourceOption = [],  # noqa: B006
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Move an upstream's series to another baseline."""
    from patchq.commands import rebase as verbs
    from patchq.commands.place import Place

    place, sources = Place.find(queue), sources_of(source)
    action = verbs.chosen_action({"--plan": plan, "--continue": go_on, "--skip": skip, "--abort": abort})
    if action in ("", "--plan") and not to:
        raise Invalid("where to?", hint="say --to REF, or --continue, --skip, --abort")
    if action == "--plan":
        from patchq.commands.rebase_plan import plan as tell

        return tell(place, upstream, to, sources)
    if action == "--continue":
        return verbs.go_on(place, upstream, yes=yes, sources=sources)
    if action == "--skip":
        return verbs.skip(place, upstream, yes=yes, sources=sources)
    if action == "--abort":
        return verbs.abort(place, upstream)
    if len(to) > 1:
        raise Invalid("one baseline at a time", hint="--plan compares several")
    return verbs.rebase(place, upstream, to[0], yes=yes, alias=alias, sources=sources)
