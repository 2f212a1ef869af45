"""What a header should tell and a hunk should show, so that others can judge the patch in a year."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from patchq.errors import Problem
from patchq.patch.fields import KNOWN, Field
from patchq.patch.ident import parse_date, parse_day
from patchq.patch.model import Change, Hunk, Patch

_CONTEXT = 3
_PROVEN_LAYERS = ("device", "research")


def lint_header(patch: Patch, layer: str) -> tuple[Problem, ...]:
    """What is missing or doubtful in a patch of `layer` ("backport", "device" or "research")."""
    return (*_lint_fields(patch, layer), *_lint_names(patch), *_lint_context(patch))


def _lint_fields(patch: Patch, layer: str) -> Iterator[Problem]:
    header, top = patch.header, f"{patch.where}:1"
    if not patch.changes:
        yield Problem("has no diff: it changes nothing", top, "was it cut off?")
    if not header.subject:
        yield Problem("the header has no Description or Subject", top, "say in one line what the patch does")
    if not header.origin and not (header.get("author") or header.get("from")):
        yield Problem("the header has neither Origin nor Author", top, "say where the patch comes from")
    if layer in _PROVEN_LAYERS and not header.tests:
        yield Problem(f"a {layer} patch without Tests", top, "name the CPU tests that prove its effect")
    for name, is_date in (("last-update", parse_day), ("date", parse_date)):
        for field in header.every(name):
            if not is_date(field.folded):
                form = "YYYY-MM-DD" if name == "last-update" else "a date with a numeric offset"
                yield _at(patch, field, f"{field.name}: {field.folded!r} is not {form}")
    for field in header.every("symlink"):
        if field.folded.lower() != "allowed":
            yield _at(patch, field, f"Symlink: {field.folded!r} means nothing", "`Symlink: allowed`")


def _lint_names(patch: Patch) -> Iterator[Problem]:
    for field in patch.header.fields:
        if field.key in KNOWN or field.key.startswith(("bug-", "x-")):
            continue
        close = difflib.get_close_matches(field.key, KNOWN, n=1, cutoff=0.8)
        if close:
            yield _at(patch, field, f"unknown field {field.name!r}", f"did you mean {close[0].title()!r}?")


def _lint_context(patch: Patch) -> Iterator[Problem]:
    for change in patch.changes:
        if change.hunks and change.kind not in ("add", "delete"):
            yield from _lint_hunks(patch, change)


def _lint_hunks(patch: Patch, change: Change) -> Iterator[Problem]:
    """Hunks with less than the usual context where the file provably goes on: nothing is guessed."""
    following: tuple[Hunk | None, ...] = (*change.hunks[1:], None)
    for hunk, after in zip(change.hunks, following, strict=True):
        lines_above = hunk.old_start - 1 if hunk.old_count else hunk.old_start
        has_more_below = after is not None and after.old_start > hunk.old_start + hunk.old_count
        if hunk.leading < min(_CONTEXT, hunk.leading + lines_above):
            what = f"{change.path!r}: {hunk.leading} lines of context above the change"
        elif has_more_below and hunk.trailing < _CONTEXT:
            what = f"{change.path!r}: {hunk.trailing} lines of context below the change"
        else:
            continue
        yield Problem(what, f"{patch.where}:{hunk.line}", "with 3 lines the place is easier to prove")


def _at(patch: Patch, field: Field, what: str, hint: str = "") -> Problem:
    return Problem(what, f"{patch.where}:{field.line}", hint)
