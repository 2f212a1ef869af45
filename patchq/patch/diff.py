"""The diff of a patch: finding where it begins, each change in turn, and no text between them."""

from __future__ import annotations

import re

from patchq.patch.gitdiff import GIT, read_git_change
from patchq.patch.model import Change
from patchq.patch.plaindiff import read_plain_change
from patchq.patch.source import Broken, Source

_PAIR = rb"--- [^\n]*\n\+\+\+ [^\n]*\n@@ -"
# Where git's apply would see a diff, or a hunk that lost its head.
_START = re.compile(rb"^(?:diff --git |" + _PAIR + rb"|@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@)", re.MULTILINE)
_NEXT_FILE = re.compile(rb"^(?:diff --git |" + _PAIR + rb")", re.MULTILINE)

# Lines that other tools write above a file's diff; `diff -ruN`, svn, cvs, bzr, p4.
_PREAMBLE = (
    rb"(?:Index: |={20}|diff -(?!-git |-cc |-combined )|Only in |RCS file: |retrieving revision "
    rb"|=== (?:modified|added|removed) file |==== [^\n]* ====)"
)
_PREAMBLE_END = re.compile(rb"(?:^" + _PREAMBLE + rb"[^\n]*\n)+\Z", re.MULTILINE)
_FOREIGN = re.compile(rb"^(?!#|" + _PREAMBLE + rb")[^\r\n]", re.MULTILINE)

_COMBINED = re.compile(rb"^(?:diff --(?:cc|combined) |@@@+ -)", re.MULTILINE)
_CONTEXT_DIFF = re.compile(rb"^\*\*\* [^\n]*\n--- [^\n]*\n\*{15}", re.MULTILINE)
_NEXT_MAIL = re.compile(
    rb"^(?:From [0-9a-f]{7,64} |# HG changeset patch|(?:From|Date|Subject|Author|Description|Origin): )",
    re.MULTILINE | re.I,
)
_SIGNATURE = re.compile(rb"^-- ?\r?$", re.MULTILINE)
_MORE = re.compile(
    rb"^(?:[ \t+\\@-]|diff |Index: |\*\*\* |GIT binary |Binary files |(?:literal|delta) \d"
    rb"|(?:rename|copy) (?:from|to) |(?:dis)?similarity index |(?:deleted file|new file|old|new) mode"
    rb"|index [0-9a-f]+\.\.)",
    re.MULTILINE,
)
_LOOKS_LIKE_DIFF = re.compile(
    rb"^(?:\+\+\+ [^\n]*\n@@ |@@ -|GIT binary patch|Index: |[^\n]*@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@"
    rb"|[^\n]*diff --git [^\n]|\d+(?:,\d+)?[acd]\d+(?:,\d+)?\n[<>] |\d+(?:,\d+)?[acd]\n)",
    re.MULTILINE,
)
_COLOUR = re.compile(rb"\x1b\[[0-9;]*m(?:diff |index |--- |@@ |[+-])")
# What stands for a change that no diff carries; git passes over it.
_LEFT_OUT = (
    (re.compile(rb"^(?:Binary files [^\n]* and [^\n]* differ|Files [^\n]* and [^\n]* differ)\r?$", re.MULTILINE),
     "a binary file without its data", "make the patch with `git diff --binary`"),
    (re.compile(rb"^Property changes on: ", re.MULTILINE),
     "a Subversion property changes, which git does not have", "remove it; an x bit is `old mode` and `new mode`"),
)  # fmt: skip
_BINARY = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")
_BLANKS = re.compile(rb"\n*")
_PREAMBLE_WINDOW = 64 << 10


def find_diff(data: bytes) -> int:
    """The offset at which the diff begins, with the lines that belong above its first file; `len` if none."""
    found = _START.search(data)
    if not found:
        return len(data)
    window = max(0, found.start() - _PREAMBLE_WINDOW)
    above = _PREAMBLE_END.search(data[window : found.start()]) if found[0].startswith(b"---") else None
    return window + above.start() if above else found.start()


def read_changes(source: Source, start: int, strip: int) -> tuple[Change, ...]:
    """Every change from offset `start` on; what is wrong is taken down in `source`."""
    _check_kind_of_diff(source, start)
    changes: list[Change] = []
    at, previous = start, start
    while found := _START.search(source.data, at):
        source.count_part(found.start())
        _check_between(source, previous, found.start())
        try:
            change, at = _read_change(source, found.start(), strip)
            changes.append(change)
        except Broken as broken:
            source.refuse(broken.what, broken.at, broken.hint)
            again = _NEXT_FILE.search(source.data, max(found.start() + 1, broken.at))
            if not again:
                return tuple(changes)
            at = again.start()
        previous = at
    if changes:
        _check_end(source, at)
    return tuple(changes)


def _read_change(source: Source, at: int, strip: int) -> tuple[Change, int]:
    if source.data.startswith(GIT, at):
        return read_git_change(source, at, strip)
    if source.data.startswith(b"--- ", at):
        return read_plain_change(source, at, strip)
    raise Broken("a hunk without the names of its file above it", at)


def _check_kind_of_diff(source: Source, start: int) -> None:
    for pattern, what, hint in (
        (_COMBINED, "a combined diff of a merge cannot be applied", "diff against one parent"),
        (_CONTEXT_DIFF, "a context diff cannot be applied", "make a unified diff"),
    ):
        if found := pattern.search(source.data, 0, start):
            source.refuse(what, found.start(), hint)
    _check_left_out(source, 0, start)
    if start < len(source.data) or source.problems:
        return
    if coloured := _COLOUR.search(source.data):
        source.refuse("a diff with the colours of a terminal", coloured.start(), "make it with `git diff --no-color`")
    elif lost := _LOOKS_LIKE_DIFF.search(source.data):
        source.refuse("this looks like a diff, but git sees none", lost.start(), "was it cut off, indented or packed?")
    elif _BINARY.search(source.data) and not _is_utf8(source.data):
        source.refuse("is not text", 0, "is it packed?")


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _check_left_out(source: Source, begin: int, end: int) -> bool:
    """Refuse what stands for a change that is not there."""
    for pattern, what, hint in _LEFT_OUT:
        if found := pattern.search(source.data, begin, end):
            source.refuse(what, found.start(), hint)
            return True
    return False


def _check_between(source: Source, begin: int, end: int) -> None:
    """Nothing but blank lines, comments and other tools' headings may stand above a change."""
    if _check_left_out(source, begin, end):
        return
    mail = _NEXT_MAIL.search(source.data, begin, end)
    foreign = _FOREIGN.search(source.data, begin, end)
    if mail:
        source.refuse("a second patch begins here; one file holds one patch", mail.start(), "split the file in two")
    elif foreign:
        what = "text between two diffs: is a diff hidden in the message above, or are these two patches?"
        source.refuse(what, foreign.start(), "a diff quoted in a message has to be indented")


def _check_end(source: Source, at: int) -> None:
    blanks = _BLANKS.match(source.data, at)
    at = blanks.end() if blanks else at
    signature = _SIGNATURE.search(source.data, at)
    more = _MORE.search(source.data, at, signature.start() if signature else len(source.data))
    mail = _NEXT_MAIL.search(source.data, at)
    if not signature and at < len(source.data) and not source.data.endswith(b"\n"):
        source.refuse("the patch ends in the middle of a line", len(source.data), "was it cut off?")
    if _check_left_out(source, at, len(source.data)):
        return
    if more:
        what = "text behind the last change that looks like more of it"
        source.refuse(what, more.start(), "do the counts of the hunk above agree with its lines?")
    if mail:
        source.refuse("a second patch begins here; one file holds one patch", mail.start())
