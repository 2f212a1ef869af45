"""`record` and its verbs."""

from __future__ import annotations

from typing import Annotated

import typer

from patchq.cli.app import Json, OneTarget, QueueOption, app
from patchq.report import Report

record_app = typer.Typer(help="Read the evidence that was written.", rich_markup_mode=None)
app.add_typer(record_app, name="record")


@record_app.command("list")
def record_list(target: OneTarget, queue: QueueOption = None, as_json: Json = False) -> Report:
    """List the records of a target's work area, oldest first."""
    from patchq.commands.place import Place
    from patchq.commands.record import list_all

    return list_all(Place.find(queue, target), target)


@record_app.command("show")
def record_show(
    identity: Annotated[str, typer.Argument(metavar="ID", help="A record's id, or its beginning.")],
    target: OneTarget,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Show one record, its digests checked."""
    from patchq.commands.place import Place
    from patchq.commands.record import show

    return show(Place.find(queue, target), target, identity)
