"""What every reader gives: a patch that is not in the queue yet."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = r"^\d{2,4}[-_]"
_OUTSIDE = r"[^A-Za-z0-9._+-]+"
_ENDINGS = (".patch", ".diff", ".txt", ".mbox", ".eml")


@dataclass(frozen=True)
class Incoming:
    """One patch. `name` is what it was called or its subject, `data` header and diff, `where` its place in words.

    `strip` is the `-pN` that it was listed with (None: to be found out), `origin` what an `Origin` field can say,
    `above` the comment lines above it in a foreign series, `notes` what was changed on the way.
    """

    name: str
    data: bytes
    where: str
    strip: int | None = None
    guards: tuple[str, ...] = ()
    comment: str = ""
    origin: str = ""
    above: tuple[str, ...] = ()
    reverse: bool = False
    notes: tuple[str, ...] = ()


def slug(text: str) -> str:
    """`text` as the name of a patch file: what series lines allow, with `.patch` at the end."""
    for ending in _ENDINGS:
        text = text.removesuffix(ending)
    plain = re.sub(_OUTSIDE, "-", re.sub(_NUMBER, "", text)).replace("..", ".").strip("-.")
    return f"{plain[:80].rstrip('-.') or 'patch'}.patch"


def words(name: str) -> str:
    """A patch file's name as the words of a subject."""
    text = slug(name.rpartition("/")[2]).removesuffix(".patch").replace("-", " ").replace("_", " ")
    return text[:1].upper() + text[1:]
