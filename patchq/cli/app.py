"""The typer application, and the options that several verbs share."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from patchq.errors import Invalid

if TYPE_CHECKING:
    from patchq.commands.place import Place
    from patchq.report import Step

Verb = TypeVar("Verb", bound=Callable[..., Any])
VERBS: dict[str, typer.Typer] = {}


def verb(name: str = "") -> Callable[[Verb], Verb]:
    """Register a function as the verb of its own name or of `name`."""

    def register(function: Verb) -> Verb:
        alone = VERBS[name or function.__name__] = typer.Typer(add_completion=False, rich_markup_mode=None)
        return alone.command(name or function.__name__)(function)

    return register


class _Commands(UserDict[str, Any]):
    """The verbs as typer's commands, each built when it is asked for: to build all costs more than most verbs do."""

    def __getitem__(self, name: str) -> Any:
        return typer.main.get_command(self.data[name])


class _Root(TyperGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands(VERBS)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)


# For a flag without a value typer imports pydantic; without these the shell would wait for that at every completion.
_NOT_ASKED = {"help": False, "install_completion": False, "show_completion": False}

app = typer.Typer(
    name="patchq",
    cls=_Root,
    help="Patches for VERL, LLaMA-Factory and DeepSpeed, chosen per machine and carried offline.",
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "default_map": _NOT_ASKED},
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

AllowOlder = Annotated[bool, typer.Option("--allow-older", help="Take a bundle whose lock came before the one in use.")]


def _show_version(asked: bool) -> None:
    if asked:
        from patchq import __version__

        typer.echo(f"patchq {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


def sources_of(given: list[str]) -> dict[str, str]:
    """`--source` options as name → location; raises `Invalid` for one that is not NAME=LOCATION."""
    pairs = {}
    for item in given:
        name, equals, location = item.partition("=")
        if not (name and equals and location):
            raise Invalid(f"cannot read --source {item!r}", hint="write NAME=PATH or NAME=URL")
        pairs[name] = location
    return pairs


def received(bundle: Path, target: str, wait: float, allow_older: bool) -> tuple[Place, list[Step]]:
    """Take a bundle in; the queue that it brought, in its work area, and the steps of that."""
    from patchq.commands.place import Place
    from patchq.transfer.receive import receive

    area, digest, steps = receive(bundle, target, wait, allow_older=allow_older)
    return Place(area.queue(digest) / "series", area), steps
