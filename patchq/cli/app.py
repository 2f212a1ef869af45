"""The typer application, and the options that several verbs share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from patchq.errors import Invalid

if TYPE_CHECKING:
    from patchq.commands.place import Place
    from patchq.report import Step

app = typer.Typer(
    name="patchq",
    help="Patches for VERL, LLaMA-Factory and DeepSpeed, chosen per machine and carried offline.",
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

QueueOption = Annotated[
    Path | None,
    typer.Option("--queue", metavar="FOLDER", help="The folder that holds series/, or a work area."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, and nothing else there.")]
OneTarget = Annotated[str, typer.Option("--target", metavar="TARGET", help="The kind of machine.")]
ManyTargets = Annotated[
    list[str],
    typer.Option("--target", metavar="TARGET", help="Only this target; may be given more than once."),
]
VariantOption = Annotated[
    str | None, typer.Option("--variant", metavar="VARIANT", help="A choice of research patches.")
]
SourceOption = Annotated[
    list[str],
    typer.Option(
        "--source",
        metavar="NAME=LOCATION",
        help="A clone, mirror or URL to take an upstream's baseline from.",
    ),
]
EnvOption = Annotated[str | None, typer.Option("--env", metavar="ENV", help="Which of the target's environments.")]
Wait = Annotated[float, typer.Option("--wait", metavar="SECONDS", help="Wait so long for a lock that is held.")]


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from patchq import __version__

        typer.echo(f"patchq {__version__}")
        raise typer.Exit


def sources_of(given: list[str]) -> dict[str, str]:
    """`--source` options as name → location; raises `Invalid` for one that is not NAME=LOCATION."""
    pairs = {}
    for item in given:
        name, equals, location = item.partition("=")
        if not (name and equals and location):
            raise Invalid(f"cannot read --source {item!r}", hint="write NAME=PATH or NAME=URL")
        pairs[name] = location
    return pairs


def received(bundle: Path, target: str, wait: float) -> tuple[Place, list[Step]]:
    """Take a bundle in; the queue that it brought, in its work area, and the steps of that."""
    from patchq.commands.place import Place
    from patchq.receive import receive

    area, digest, steps = receive(bundle, target, wait)
    return Place(area.queue(digest) / "series", area), steps
