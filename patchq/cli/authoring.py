"""The verbs that make, change and drop patches."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from patchq.cli.app import Json, OneTarget, QueueOption, SourceOption, VariantOption, sources_of, verb
from patchq.report import Report

CopyArgument = Annotated[
    Path | None, typer.Argument(metavar="FOLDER", help="The edit copy; else the one that this folder is in.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Answer every question with yes.")]
Strict = Annotated[bool, typer.Option("--strict", help="Write nothing if a target or variant breaks.")]
Layer = Annotated[str, typer.Option("--layer", metavar="backport|device|research", help="The layer of new patches.")]


class _Answers:
    """Asks on a terminal; elsewhere the answer is no, unless --yes was said."""

    def __init__(self, yes: bool) -> None:
        self._yes = yes

    def __call__(self, question: str) -> bool:
        if self._yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return self._yes
        from patchq.printable import clean

        return typer.confirm(clean(question), err=True)


@verb()
def edit(
    target: OneTarget,
    upstream: Annotated[str | None, typer.Argument(metavar="UPSTREAM", help="Else all that the target uses.")] = None,
    variant: VariantOption = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Where; else edit/TARGET/UPSTREAM beside series/.")
    ] = None,
    source: SourceOption = [],  # noqa: B006
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Make or reopen an edit copy: an ordinary git repository with one commit a patch."""
    from patchq.commands.edit import edit
    from patchq.commands.place import Place

    return edit(Place.find(queue, target), target, variant, upstream, out=out, sources=sources_of(source))


@verb()
def refresh(
    folder: CopyArgument = None,
    into: Annotated[
        str, typer.Option("--into", metavar="PATCH", help="Fold the uncommitted edits into this patch.")
    ] = "",
    layer: Layer = "",
    check: Annotated[bool, typer.Option("--check", help="Only compare; write nothing.")] = False,
    strict: Strict = False,
    yes: Yes = False,
    source: SourceOption = [],  # noqa: B006
    as_json: Json = False,
) -> Report:
    """Write an edit copy's commits back into the queue, and check every target that they touch."""
    from patchq.authoring.editcopy import copy_meant, queue_of
    from patchq.commands.place import Place
    from patchq.commands.refresh import Wish, refresh

    copy = copy_meant(folder)
    wish = Wish(into, layer, check, strict)
    return refresh(Place.find(queue_of(copy)), copy, wish, _Answers(yes), sources_of(source))


@verb()
def new(
    name: Annotated[
        str | None, typer.Argument(metavar="[UPSTREAM/]LAYER/NAME", help="Else list what could go in.")
    ] = None,
    take: Annotated[
        list[str], typer.Option("--take", metavar="PATH|N", help="A file, or numbers as listed: 1,3-5.")
    ] = [],  # noqa: B006
    subject: Annotated[str, typer.Option("--subject", metavar="TEXT", help="What it does, in one line.")] = "",
    guard: Annotated[list[str], typer.Option("--guard", metavar="+TRAIT|-TRAIT", help="For the series line.")] = [],  # noqa: B006
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Start a patch: in an edit copy from uncommitted changes, in a queue as an empty one."""
    from patchq.authoring.editcopy import find_copy, queue_of
    from patchq.commands.new import new_in_copy, new_in_queue
    from patchq.commands.place import Place

    copy = None if queue else find_copy(Path.cwd())
    if copy:
        return new_in_copy(Place.find(queue_of(copy)), copy, name, take, subject, guard)
    return new_in_queue(Place.find(queue), name, take, subject, guard)


@verb()
def drop(
    patch: Annotated[str, typer.Argument(metavar="PATCH", help="UPSTREAM/LAYER/NAME, or the end of it.")],
    strict: Strict = False,
    yes: Yes = False,
    source: SourceOption = [],  # noqa: B006
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Take a patch out of the queue, and check every target that it was in."""
    from patchq.commands.drop import drop
    from patchq.commands.place import Place

    return drop(Place.find(queue), patch, _Answers(yes), is_strict=strict, sources=sources_of(source))
