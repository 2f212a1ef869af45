"""The verbs that look into patches, bring them in, and move them to another baseline."""

from __future__ import annotations

from typing import Annotated

import typer

from patchq.cli.app import Json, ManyTargets, OneTarget, QueueOption, SourceOption, VariantOption, app, sources_of
from patchq.report import Report


@app.command()
def show(
    patch: Annotated[str, typer.Argument(help="UPSTREAM/LAYER/NAME, or the end of it.")],
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Print a patch as it is, and which selections take it."""
    from patchq.commands.place import Place
    from patchq.commands.show import show

    return show(Place.find(queue), patch)


@app.command()
def files(
    which: Annotated[str, typer.Argument(help="A glob over patches or paths.")] = "*",
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """List the files that patches touch, each with its patches."""
    from patchq.commands.files import files
    from patchq.commands.place import Place

    return files(Place.find(queue), which)


@app.command()
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


@app.command()
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
