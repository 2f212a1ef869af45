"""The text above a patch's diff: what it says to people, to git and to patchq."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from patchq.patch.condition import Condition, parse_condition
from patchq.patch.fields import SUBJECTS, Field, Parts, split_header
from patchq.patch.ident import NOBODY, clean_author, parse_date, parse_day
from patchq.patch.message import strip_space, with_trailer
from patchq.patch.source import Source

MAX_HEADER = 1 << 20
_MAX_CONDITIONS = 500

_PATCH_TAG = re.compile(r"\s*\[[^\[\]]*PATCH[^\[\]]*\]\s*")
_LOW_SURROGATES = {0xDC00 + byte: byte for byte in range(0x80, 0x100)}
_ENCODED = ("quoted-printable", "base64")


@dataclass(frozen=True)
class Header:
    """A patch's header; `raw` is its bytes, which survive every round trip.

    `fields` are all fields in their order, whatever paragraph they stand in; the conditions are compiled.
    """

    raw: bytes
    is_mail: bool
    fields: tuple[Field, ...]
    free_text: tuple[str, ...]
    expect: tuple[Condition, ...]
    forbid: tuple[Condition, ...]

    def get(self, name: str) -> str:
        """The first field of that name (in any case), folded to one line; empty where there is none."""
        return next((field.folded for field in self.fields if field.key == name.lower()), "")

    def every(self, name: str) -> tuple[Field, ...]:
        """All fields of that name, in their order."""
        return tuple(field for field in self.fields if field.key == name.lower())

    def line_of(self, name: str, item: str) -> int:
        """The line on which a field of that name lists `item`; 1 where none does."""
        rows = ((row, at) for field in self.every(name) for at, row in enumerate(field.lines, field.line))
        return next((at for row, at in rows if item in map(str.strip, row.split(","))), 1)

    @cached_property
    def subject(self) -> str:
        """The one line that says what the patch does, without `[PATCH n/m]`."""
        if self._title is None:
            return next((line.strip() for line in self.free_text if line.strip()), "")
        if self._title.key == "subject":
            line = self._title.folded if self.is_mail else self._title.text[0]
            return _without_tags(line)
        return next((line.strip() for line in self._title.text if line), "")

    @cached_property
    def body(self) -> str:
        """The message below the subject: DEP-3's long text, then the free text; no field about the patch."""
        long: tuple[str, ...] = ()
        free = self.free_text
        if self._title is None:
            first = next((n for n, line in enumerate(free) if line.strip()), len(free))
            free = free[first + 1 :]
        elif not self.is_mail or self._title.key == "description":
            lines = self._title.text
            first = next((n for n, line in enumerate(lines) if line), len(lines))
            long = lines[first + 1 :]
        text = "\n".join((*long, "", *free)).encode("utf-8", "surrogatepass")
        return strip_space(text).decode("utf-8", "surrogatepass").rstrip("\n")

    @property
    def author(self) -> str:
        """`Name <mail>` of the first From or Author, fit for a commit object."""
        told = next((field.folded for field in self.fields if field.key in ("from", "author")), "")
        return clean_author(told) if told else NOBODY

    @property
    def author_date(self) -> tuple[int, str] | None:
        """Seconds and offset of Date, else Last-Update's midnight UTC; None: the baseline's date is due."""
        return parse_date(self.get("date")) or parse_day(self.get("last-update"))

    @property
    def requires(self) -> tuple[str, ...]:
        """The patches that have to be selected and applied before this one."""
        return self._items("requires")

    @property
    def tests(self) -> tuple[str, ...]:
        """The CPU tests that prove the effect."""
        return self._items("tests")

    @property
    def allow_symlink(self) -> bool:
        """Whether the header says `Symlink: allowed`."""
        return self.get("symlink").lower() == "allowed"

    @property
    def origin(self) -> str:
        return self.get("origin")

    @property
    def forwarded(self) -> str:
        return self.get("forwarded")

    @property
    def last_update(self) -> str:
        return self.get("last-update")

    def message(self, patch_name: str) -> bytes:
        """The commit's message: subject, blank line, body, cleaned, and the trailer that names the patch."""
        joined = f"{self.subject}\n\n{self.body}\n"
        return with_trailer(joined.encode("utf-8", "replace"), patch_name)

    @cached_property
    def _title(self) -> Field | None:
        return next((field for field in self.fields if field.key in SUBJECTS and any(field.lines)), None)

    def _items(self, name: str) -> tuple[str, ...]:
        parts = (part.strip() for field in self.every(name) for part in ",".join(field.lines).split(","))
        return tuple(dict.fromkeys(part for part in parts if part))


def read_header(source: Source, end: int) -> Header:
    """Read the header in front of offset `end`; what is wrong is taken down in `source`."""
    raw = source.data[:end]
    if end > MAX_HEADER:
        source.refuse(f"the text above the diff has {end} bytes; at most {MAX_HEADER} are allowed", 0)
        return Header(raw, False, (), (), (), ())
    if b"\0" in raw:
        source.refuse("is not text: a NUL byte", raw.index(b"\0"), "save the patch without UTF-16 or packing")
        return Header(raw, False, (), (), (), ())
    parts = split_header(_lines(raw))
    _check_encoding(source, parts)
    expect, forbid = (_conditions(source, parts, name) for name in ("expect", "forbid"))
    return Header(raw, parts.is_mail, parts.fields, parts.text, expect, forbid)


def _lines(raw: bytes) -> list[str]:
    """The lines as text: UTF-8, and each byte that is not read as Latin-1."""
    text = raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").translate(_LOW_SURROGATES)
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def _check_encoding(source: Source, parts: Parts) -> None:
    for field in parts.fields:
        if field.key == "content-transfer-encoding" and field.folded.lower() in _ENCODED:
            what = f"the patch is still encoded as mail ({field.folded})"
            source.refuse_line(what, field.line, "save it decoded, as `git format-patch` writes it")
        elif field.key == "content-type" and field.folded.lower().startswith("multipart/"):
            what = "the patch is a mail of several parts"
            source.refuse_line(what, field.line, "`patchq import` takes it; or make it without --attach and --inline")


def _conditions(source: Source, parts: Parts, name: str) -> tuple[Condition, ...]:
    found: list[Condition] = []
    for field in parts.fields:
        if field.key != name:
            continue
        for offset, text in enumerate(field.lines):
            if len(found) == _MAX_CONDITIONS:
                source.refuse_line(f"more than {_MAX_CONDITIONS} {field.name}", field.line + offset)
                return tuple(found)
            condition = parse_condition(text.strip(), field.line + offset) if text.strip() else None
            if isinstance(condition, Condition):
                found.append(condition)
            elif condition:
                source.refuse_line(f"{field.name}: {condition}", field.line + offset)
    return tuple(found)


def _without_tags(line: str) -> str:
    while found := _PATCH_TAG.match(line):
        line = line[found.end() :]
    return line.strip()
