"""Names on the lines of a diff, read as git's apply.c reads them, and stricter where it guesses."""

from __future__ import annotations

import os
import re

from patchq.patch.names import unquote

DEV_NULL = re.compile(rb"/dev/null(?=[ \t\r\n]|$)")
_STAMP_TAIL = 96
_STAMP = re.compile(rb"(?P<gap>[\t ])(?:\d\d)?\d\d-\d\d-\d\d(?: \d\d:\d\d:\d\d(?:\.\d{1,12})?)?(?: [+-]\d\d:?\d\d)?\Z")
_EPOCH = re.compile(rb"(1969-12-31|1970-01-01) ([0-2]\d):([0-5]\d):00(?:\.0+)? ([+-])([0-2]\d):?([0-5]\d)\Z")
_BACKUP = re.compile(rb"~|[.-][A-Za-z0-9.~_-]+")


def strip_components(name: bytes, strip: int) -> bytes | None:
    """`name` without its first `strip` components; None where it is absolute or has too few."""
    parts = name.split(b"/", strip)
    return parts[strip] if len(parts) > strip and parts[0] and parts[strip] else None


def name_on_line(text: bytes, *, ends_at_tab: bool) -> bytes | None:
    """The whole name on a `---`, `+++` (they end at a tab), `rename from` or `rename to` line of a git diff.

    `text` is the line behind its keyword, without the newline. None where the quoting is broken.
    """
    if text.startswith(b'"'):
        found = unquote(text)
        return found[0] if found else None
    plain = text.split(b"\r", 1)[0]
    return plain.split(b"\t", 1)[0] if ends_at_tab else plain


def name_on_plain_line(text: bytes) -> bytes | None:
    """The whole name on a `---` or `+++` line of a diff that is not git's: a timestamp may follow it."""
    if text.startswith(b'"'):
        return name_on_line(text, ends_at_tab=True)
    # Only the tail is searched: a long run of blanks must not cost its square.
    skipped = max(0, len(text) - _STAMP_TAIL)
    stamp = _STAMP.search(text[skipped:])
    if not stamp:
        return name_on_line(text, ends_at_tab=True)
    plain = text[: skipped + stamp.start()]
    return plain if stamp["gap"] == b"\t" else plain.rstrip(b" ")


def has_epoch_stamp(text: bytes) -> bool:
    """Whether a `---` or `+++` line says by its timestamp (the epoch) that there is no such file."""
    found = _EPOCH.match(text.rpartition(b"\t")[2]) if b"\t" in text else None
    if not found:
        return False
    day, hour, minute, sign, zone_hour, zone_minute = found.groups()
    zone = (int(zone_hour) * 60 + int(zone_minute)) * (-1 if sign == b"-" else 1)
    midnight = 24 * 60 if day == b"1969-12-31" else 0
    return int(hour) * 60 + int(minute) - zone == midnight


def same_file(old: bytes, new: bytes) -> bytes | None:
    """The one name that a plain diff means by two: equal, or one the other with an ending (`.orig`, `~`); else None.

    The shorter one, as git has it (apply.c `find_name_common`).
    """
    name, longer = sorted((old, new), key=len)
    return name if old == new or (longer.startswith(name) and _BACKUP.fullmatch(longer, len(name))) else None


def pair_on_git_line(text: bytes, strip: int) -> bytes | None:
    """The name that stands twice on a `diff --git` line (`text`: what follows it), else None.

    Git needs it where no other line has a name: for modes alone and for empty files.
    """
    text = text.rstrip(b"\r")
    first = unquote(text) if text.startswith(b'"') else None
    if first:
        name = strip_components(first[0], strip)
        return name if name and _second_is(text[first[1] :].lstrip(b" \t"), name, strip) else None
    start = _after_components(text, strip)
    if start is None:
        return None
    quoted = text.find(b'"', start)
    if quoted >= 0:
        found = unquote(text[quoted:])
        name = strip_components(found[0], strip) if found else None
        return name if name and text[start:quoted].rstrip(b" \t") == name else None
    return next(iter(_halves(text[start:], strip)), None)


def names_agree(text: bytes, old: bytes, new: bytes, strip: int) -> bool:
    """Whether a `diff --git` line (`text`: what follows it) names just these two files."""
    text = text.rstrip(b"\r")
    if text.startswith(b'"'):
        found = unquote(text)
        first, rest = (found[0], text[found[1] :]) if found else (b"", b"")
        return strip_components(first, strip) == old and _second_is(rest.lstrip(b" \t"), new, strip)
    start = _after_components(text, strip)
    if start is None or not text.startswith(old, start):
        return False
    rest = text[start + len(old) :]
    return rest[:1] in (b" ", b"\t") and _second_is(rest[1:], new, strip)


def decode(name: bytes) -> str:
    """A name as the rest of patchq keeps it."""
    return os.fsdecode(name)


def _second_is(text: bytes, name: bytes, strip: int) -> bool:
    if text.startswith(b'"'):
        found = unquote(text)
        return found is not None and strip_components(found[0], strip) == name
    return strip_components(text, strip) == name


def _after_components(text: bytes, strip: int) -> int | None:
    """Where the rest begins once `strip` components are skipped; None where there are too few."""
    at = 0
    for _ in range(strip):
        at = text.find(b"/", at) + 1
        if at <= 1:
            return None
    return at


def _halves(text: bytes, strip: int) -> list[bytes]:
    """The ways to read `NAME BLANK PREFIX/NAME` with equal names, the shortest first.

    The lengths add up only where the prefix ends as far behind the middle as the blank is before it, and a
    prefix of `strip` components ends at one of the first `strip` slashes there: a line full of blanks or
    slashes must not cost its square.
    """
    found = []
    end = (len(text) - 1) // 2
    for _ in range(max(strip, 1)):
        if strip:
            end = text.find(b"/", end + 1)
        length = len(text) - 1 - end
        if end < 0 or length <= 0 or text[length] not in b" \t":
            continue
        name = text[:length]
        if strip_components(text[length + 1 :], strip) == name:
            found.append(name)
    return found[::-1]
