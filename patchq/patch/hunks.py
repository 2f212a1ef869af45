"""Hunks of text: `@@ -a,b +c,d @@` and the lines that it promises (git's apply.c `parse_fragment`)."""

from __future__ import annotations

import os
import re

from patchq.patch.model import Hunk
from patchq.patch.source import Broken, Source

_HEADER = re.compile(rb"@@ -(\d{1,18})(?:,(\d{1,18}))? \+(\d{1,18})(?:,(\d{1,18}))? @@ ?([^\n]*)\n")
_PLUS, _MINUS, _SPACE, _NEWLINE, _BACKSLASH = b"+- \n\\"
# How many old and how many new lines one line of a kind stands for.
_STANDS_FOR = {_PLUS: (0, 1), _MINUS: (1, 0), _SPACE: (1, 1), _NEWLINE: (1, 1)}
_RUN = 64
_RUNS = {kind: re.compile(rb"(?:[%c][^\n]*\n){1,%d}" % (kind, _RUN)) for kind in (_PLUS, _MINUS, _SPACE)}
_SHORTEST_MARK = 12
_SECTION = 512
_LAST_LINE = (1 << 31) - 1  # git counts lines in a C int


def read_hunks(source: Source, at: int) -> tuple[tuple[Hunk, ...], int]:
    """All hunks that follow each other from `at`, and the offset behind them; raises `Broken`."""
    hunks = []
    while source.data.startswith(b"@@ -", at):
        source.count_part(at)
        hunk = _read_hunk(source, at)
        hunks.append(hunk)
        at = hunk.end
    return tuple(hunks), at


def _read_hunk(source: Source, at: int) -> Hunk:
    found = _HEADER.match(source.data, at)
    if not found:
        raise Broken("the hunk's header cannot be read", at, "it reads `@@ -LINE,COUNT +LINE,COUNT @@`")
    old_start, old, new_start, new = (1 if part is None else int(part) for part in found.groups()[:4])
    if max(old_start + old, new_start + new) > _LAST_LINE:
        raise Broken("the hunk's header names a line that no file has", at)
    end, leading, trailing, added, deleted = _read_body(source, at, found.end(), old, new)
    if not added and not deleted:
        raise Broken("the hunk changes nothing", at)
    section = os.fsdecode(found[5].rstrip(b"\r")[:_SECTION])
    line = source.line_number(at)
    return Hunk(old_start, old, new_start, new, section, leading, trailing, added, deleted, line, at, end)


def _read_body(source: Source, head: int, at: int, old: int, new: int) -> tuple[int, int, int, int, int]:
    """Walk over the promised lines: the offset behind them, and what they are.

    Offsets instead of lines, and many lines of a kind in one step, since patches may have any size.
    """
    data, size, wanted = source.data, len(source.data), (old, new)
    leading = trailing = added = deleted = 0
    while old > 0 or new > 0:
        if at >= size:
            raise _cut_off(source, head, *wanted)
        kind = data[at]
        if kind not in _STANDS_FOR:
            raise _stray(source, head, at, *wanted)
        of_old, of_new = _STANDS_FOR[kind]
        after, count = _step(data, at, kind, max(old * of_old, new * of_new))
        if not after:
            raise _cut_off(source, head, *wanted)
        old -= count * of_old
        new -= count * of_new
        added += count * (of_new - of_old == 1)
        deleted += count * (of_old - of_new == 1)
        trailing = trailing + count if of_old == of_new else 0
        leading += 0 if added or deleted else count
        at = after
        if at < size and data[at] == _BACKSLASH:
            at = _skip_mark(data, at, size)
    if old or new:
        raise Broken(
            f"the hunk promises {wanted[0]} old and {wanted[1]} new lines; its lines do not add up to that",
            head,
            "make the patch again; counts are not to be edited by hand",
        )
    return at, leading, trailing, added, deleted


def _step(data: bytes, at: int, kind: int, due: int) -> tuple[int, int]:
    """The offset behind some lines of one kind, at most as many as are due, and their number; (0, _) if cut."""
    if due < _RUN or kind == _NEWLINE:
        return data.find(b"\n", at) + 1, 1
    run = _RUNS[kind].match(data, at)
    return (run.end(), data.count(b"\n", at, run.end())) if run else (0, 0)


def _skip_mark(data: bytes, at: int, size: int) -> int:
    """The offset behind a `\\ No newline at end of file` line, in whatever language it was written."""
    after = data.find(b"\n", at) + 1 or size
    return after if data.startswith(b"\\ ", at) and after - at >= _SHORTEST_MARK else at


def _cut_off(source: Source, head: int, old: int, new: int) -> Broken:
    line = source.line_number(head)
    what = f"the patch ends inside the hunk of line {line}, which promises {old} old and {new} new lines"
    return Broken(what, head, "was it cut off, or its last newline lost?")


def _stray(source: Source, head: int, at: int, old: int, new: int) -> Broken:
    line = source.line_number(head)
    what = f"the hunk of line {line} promises {old} old and {new} new lines, but this line is none of them"
    return Broken(what, at, "a line of a hunk begins with a blank, + or -; make the patch again")
