"""Headers of patches, made from a commit or changed where a commit says something else; the rest stays as it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone

from patchq.patch import Field, Patch, strip_space
from patchq.patch.fields import SUBJECTS

_TAGS = r"(?:\s*\[[^\[\]]*PATCH[^\[\]]*\]\s*)*"
_NOTES = rb"---(?:\s|$)"
_PREFACE = rb"#|From [0-9a-f]{7,64} |\s*$"


def new_header(subject: str, body: str, author: str, seconds: int) -> bytes:
    """The DEP-3 header of a new patch, the blank line above its diff included; `seconds` is when it was written."""
    day = datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d")
    rows = _dep3("Description", subject, body)
    return _encode([*rows, f"Author: {author}", f"Last-Update: {day}", ""])


def rewrite_header(
    patch: Patch, *, subject: str | None = None, body: str | None = None, author: str | None = None
) -> bytes:
    """The bytes above a patch's diff with another subject, body or author (`Name <mail>`); None: as it was.

    Every other field, comment and blank stays where it is. A body that itself looks like fields about the patch
    will be read as such.
    """
    header = patch.header
    draft = _Draft(header.raw, header.fields)
    title = next((field for field in header.fields if field.key in SUBJECTS and any(field.lines)), None)
    is_changed = (subject, body) != (None, None)
    new_subject, new_body = header.subject if subject is None else subject, header.body if body is None else body
    if is_changed and title and (not header.is_mail or title.key == "description"):
        _change_dep3(draft, title, new_subject, new_body, free="\n".join(header.free_text).strip("\n"))
    elif is_changed and title:
        tags = re.match(_TAGS, title.folded)
        if subject is not None:
            draft.replace(title, [f"{title.name}: {(tags[0] if tags else '').lstrip()}{subject}"])
        if body is not None:
            draft.set_text(body)
    elif is_changed:
        draft.set_text(f"{new_subject}\n\n{new_body}" if new_body else new_subject)
    if author is not None:
        _change_author(draft, header.fields, title, author)
    return draft.raw


class _Draft:
    """The lines of a header, of which some get others in their place."""

    def __init__(self, raw: bytes, fields: Sequence[Field]) -> None:
        self._lines = re.findall(rb"[^\n]*\n|[^\n]+", raw)
        self._end = "\r\n" if raw.partition(b"\n")[0].endswith(b"\r") else "\n"
        self._fields = fields
        # What comments and blanks stand above everything stay there.
        self._start = next((n for n, line in enumerate(self._lines) if not re.match(_PREFACE, line)), len(self._lines))
        self._new: dict[int, list[str] | None] = {}
        self._after: dict[int, list[str]] = {}

    def replace(self, field: Field, rows: list[str]) -> None:
        """Put `rows` where `field` stands."""
        self._new.update(dict.fromkeys(_extent(field)))
        self._new[field.line - 1] = rows

    def add_after(self, field: Field, row: str) -> None:
        self._after[_extent(field)[-1]] = [row]

    def add_paragraph(self, row: str) -> None:
        """Put `row` below all text, above the notes and the diff."""
        last = max(self._text_lines(), default=self._start - 1)
        self._after.setdefault(last, []).extend(["", row])

    def set_text(self, text: str) -> None:
        """Put `text` where the free text stands; or below the fields, where a field beside it would swallow it."""
        places = self._text_lines()
        self._new.update(dict.fromkeys(places))
        rows = text.split("\n") if text else []
        taken = {number for field in self._fields for number in _extent(field)}
        if places and not taken.intersection((places[0] - 1, places[-1] + 1)):
            self._new[places[0]] = rows
        elif rows:
            self._after.setdefault(max(taken, default=self._start - 1), []).extend(["", *rows])

    @property
    def raw(self) -> bytes:
        out = [self._encoded(self._after.get(-1))]
        for number, line in enumerate(self._lines):
            out.append(self._encoded(self._new[number]) if number in self._new else line)
            out.append(self._encoded(self._after.get(number)))
        return b"".join(out)

    def _encoded(self, rows: list[str] | None) -> bytes:
        return _encode(rows or (), self._end)

    def _text_lines(self) -> list[int]:
        """The numbers of the lines from the first of the free text to the last."""
        taken = {number for field in self._fields for number in _extent(field)}
        notes = (n for n, line in enumerate(self._lines) if n >= self._start and re.match(_NOTES, line))
        end = next(notes, len(self._lines))
        free = [n for n in range(self._start, end) if n not in taken]
        solid = [n for n in free if self._lines[n].strip()]
        return [n for n in free if solid[0] <= n <= solid[-1]] if solid else []


def _extent(field: Field) -> range:
    return range(field.line - 1, field.line - 1 + len(field.lines))


def _encode(rows: Sequence[str], end: str = "\n") -> bytes:
    return "".join(row + end for row in rows).encode("utf-8", "surrogateescape")


def _dep3(name: str, subject: str, body: str) -> list[str]:
    return [f"{name}: {subject}", *(f" {line}" if line.strip() else " ." for line in _rows(body))]


def _rows(text: str) -> list[str]:
    cleaned = strip_space(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
    return cleaned.rstrip("\n").split("\n") if cleaned else []


def _change_dep3(draft: _Draft, title: Field, subject: str, body: str, free: str) -> None:
    """Text below the fields stays there if the new body still ends in it; else all of it goes into the field."""
    cleaned = "\n".join(_rows(free))
    if cleaned and body.endswith(cleaned):
        draft.replace(title, _dep3(title.name, subject, body.removesuffix(cleaned)))
        return
    draft.replace(title, _dep3(title.name, subject, body))
    if cleaned:
        draft.set_text("")


def _change_author(draft: _Draft, fields: Sequence[Field], title: Field | None, author: str) -> None:
    told = next((field for field in fields if field.key in ("from", "author")), None)
    if told:
        draft.replace(told, [f"{told.name}: {author}"])
    elif title:
        draft.add_after(title, f"Author: {author}")
    else:
        draft.add_paragraph(f"Author: {author}")
