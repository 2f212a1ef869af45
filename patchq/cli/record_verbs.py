"""`record` and its verbs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from patchq.cli.app import VERBS, Json, OneTarget, QueueOption
from patchq.report import Report

record_app = VERBS["record"] = typer.Typer(
    name="record", help="Read the evidence that was written.", add_completion=False, rich_markup_mode=None
)


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


@record_app.command("attach")
def record_attach(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What to keep beside a record.")],
    target: OneTarget,
    kind: Annotated[str, typer.Option("--kind", metavar="KIND", help="What it is, such as resolved-config.")],
    to: Annotated[str | None, typer.Option("--to", metavar="ID", help="To this record (default: the newest).")] = None,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Keep a file beside a record, which itself stays as it was written."""
    from patchq.commands.place import Place
    from patchq.commands.record import attach

    return attach(Place.find(queue, target), target, file, kind, to)


@record_app.command("diff")
def record_diff(
    first: Annotated[str, typer.Argument(metavar="A", help="A record's id, its beginning, or a folder.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The other one.")],
    target: OneTarget,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Show what differs between two records: two machines, or two days."""
    from patchq.commands.place import Place
    from patchq.commands.record import diff

    return diff(Place.find(queue, target), target, first, second)


@record_app.command("export")
def record_export(
    target: OneTarget,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="A folder that is not there yet.")],
    identity: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="A record's id or folder (default: the newest).")
    ] = None,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Write a record as one Markdown page and one folder small enough to carry out."""
    from patchq.commands.place import Place
    from patchq.commands.record import export

    return export(Place.find(queue, target), target, out, identity)
