"""Splitting the text above a diff into fields and free text: DEP-3 pseudo-headers and mail headers alike.

DEP-3 (https://dep-team.pages.debian.net/deps/dep3/) and RFC 5322 agree on `Name: value` with indented lines
that go on, and differ in what those mean: DEP-3 keeps the lines (" ." is a blank one), mail folds them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_FIELD = re.compile(r"([A-Za-z][A-Za-z0-9-]*):(?!//)(?:[ \t]+(.*))?$")
_MBOX = re.compile(r"From [0-9a-f]{7,64} ")
_CUT = re.compile(r"---(?:\s|$)")

_LONGEST_ENCODED = 20_000

SUBJECTS = frozenset({"subject", "description"})
_DEP3 = {"origin", "author", "forwarded", "bug", "last-update", "applied-upstream"}
_PATCHQ = {"requires", "tests", "expect", "forbid", "symlink", "patchq-patch"}
_TRAILERS = {"signed-off-by", "co-authored-by", "reviewed-by", "acked-by", "tested-by", "reported-by"}
_TRAILERS |= {"suggested-by", "cc", "fixes", "link", "change-id"}
_MAIL = {"from", "date", "to", "message-id", "in-reply-to", "references"}
_MAIL |= {"mime-version", "content-type", "content-transfer-encoding"}
# Fields that tell about a patch and are no part of its message; Bug-Debian and its like belong here too.
ABOUT = frozenset(_DEP3 | _PATCHQ)
KNOWN = SUBJECTS | ABOUT | _TRAILERS | _MAIL


@dataclass(frozen=True)
class Field:
    """One field as it stands: its value's lines (without the one blank that indents them), and its line."""

    name: str
    lines: tuple[str, ...]
    line: int

    @property
    def key(self) -> str:
        return self.name.lower()

    @property
    def folded(self) -> str:
        """The value as mail means it: one line, encoded words (RFC 2047) decoded."""
        return _decode_words(" ".join(part.strip() for part in self.lines).strip())

    @property
    def text(self) -> tuple[str, ...]:
        """The value as DEP-3 means it: its lines, a lone full stop being a blank one."""
        return tuple("" if part.strip() == "." else part for part in self.lines)


@dataclass(frozen=True)
class Parts:
    """A header taken apart: the fields in their order, and the free text without them."""

    is_mail: bool
    fields: tuple[Field, ...]
    text: tuple[str, ...]


def is_about(key: str) -> bool:
    """Whether a field tells about the patch rather than belonging to its message."""
    return key in ABOUT or key.startswith("bug-")


def split_header(lines: list[str]) -> Parts:
    """Take the lines above a diff apart. What stands behind a `---` line gives fields but no text."""
    start = _skip_preface(lines)
    is_mbox = any(_MBOX.match(line) for line in lines[:start])
    cut = next((n for n in range(start, len(lines)) if _CUT.match(lines[n])), len(lines))
    first, stray, at = _read_first(lines, start, cut, is_mbox)
    keys = {field.key for field in first}
    is_mail = is_mbox or {"from", "subject"} <= keys
    more, text = _read_body(lines, at, cut)
    notes, _ = _read_body(lines, min(cut + 1, len(lines)), len(lines))
    gap = [""] if stray and text else []
    return Parts(is_mail, (*first, *more, *notes), (*stray, *gap, *text))


def _skip_preface(lines: list[str]) -> int:
    """The first line that says something: blank lines, `#` lines and the mbox line are passed over."""
    for at, line in enumerate(lines):
        if line.strip() and not line.startswith("#") and not _MBOX.match(line):
            return at
    return len(lines)


def _read_first(lines: list[str], at: int, cut: int, is_mbox: bool) -> tuple[list[Field], list[str], int]:
    """The first paragraph where it holds fields; lines of it that are none are free text (as DEP-3 says)."""
    opening = _FIELD.match(lines[at]) if at < cut else None
    if not opening or not (is_mbox or _is_known(opening[1].lower())):
        return [], [], at
    fields: list[Field] = []
    stray: list[str] = []
    while at < cut and lines[at].strip():
        found = _FIELD.match(lines[at])
        if not found:
            stray.append(lines[at])
            at += 1
            continue
        field, at = _read_field(lines, at, cut, found)
        fields.append(field)
    return fields, stray, at


def _read_body(lines: list[str], at: int, cut: int) -> tuple[list[Field], list[str]]:
    """Free text from `at` to `cut`, without the fields about the patch that stand in paragraphs of fields."""
    fields: list[Field] = []
    text: list[str] = []
    while at < cut:
        end = next((n for n in range(at, cut) if not lines[n].strip()), cut)
        if end == at:
            text.append(lines[at])
            at += 1
            continue
        found = _read_paragraph(lines, at, end)
        kept = lines[at:end] if found is None else found[1]
        fields += found[0] if found else []
        text += [line for line in kept if not line.lower().startswith("patchq-patch:")]
        at = end
    return fields, text


def _read_paragraph(lines: list[str], at: int, end: int) -> tuple[list[Field], list[str]] | None:
    """A paragraph's fields about the patch and its other lines; None where it holds anything but fields."""
    fields: list[Field] = []
    others: list[str] = []
    while at < end:
        found = _FIELD.match(lines[at])
        if not found:
            return None
        field, after = _read_field(lines, at, end, found)
        if is_about(field.key):
            fields.append(field)
        else:
            others += lines[at:after]
        at = after
    return fields, others


def _read_field(lines: list[str], at: int, end: int, found: re.Match[str]) -> tuple[Field, int]:
    after = at + 1
    while after < end and lines[after][:1] in (" ", "\t") and lines[after].strip():
        after += 1
    value = ((found[2] or "").strip(), *(line[1:].rstrip() for line in lines[at + 1 : after]))
    return Field(found[1], value, at + 1), after


def _is_known(key: str) -> bool:
    return key in KNOWN or key.startswith(("bug-", "x-"))


def _decode_words(value: str) -> str:
    if "=?" not in value or len(value) > _LONGEST_ENCODED:
        return value
    from email.errors import MessageError
    from email.header import decode_header, make_header

    try:
        return str(make_header(decode_header(value)))
    except (MessageError, ValueError, LookupError):
        return value
