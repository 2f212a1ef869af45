"""The message of a patch's commit: cleaned as `git stripspace` does, and ended by patchq's trailer."""

from __future__ import annotations

import re

TRAILER = "Patchq-Patch"

_BLANKS = b" \t\r\n"
_TOKEN_LINE = re.compile(rb"[A-Za-z0-9][A-Za-z0-9-]*: ?\S")


def strip_space(text: bytes) -> bytes:
    """What `git stripspace` makes of `text`: no blanks at line ends, no empty lines at the ends or in a row.

    Blanks are git's (space, tab, CR, LF), not all of Unicode's or C's.
    """
    kept: list[bytes] = []
    for line in (part.rstrip(_BLANKS) for part in text.split(b"\n")):
        if line or (kept and kept[-1]):
            kept.append(line)
    while kept and not kept[-1]:
        kept.pop()
    return b"".join(line + b"\n" for line in kept)


def with_trailer(text: bytes, patch_name: str) -> bytes:
    """The cleaned `text` and the trailer that names its patch, which is how `refresh` finds it again.

    A message that already ends in a paragraph of trailers gets one more line there, so that git still sees
    all of them; any other gets a paragraph of its own. A message of nothing is the trailer alone.
    """
    cleaned = strip_space(text)
    gap = b"" if not cleaned or _ends_in_trailers(cleaned) else b"\n"
    return cleaned + gap + f"{TRAILER}: {patch_name}\n".encode("utf-8", "surrogateescape")


def _ends_in_trailers(cleaned: bytes) -> bool:
    _, blank, last = cleaned.rstrip(b"\n").rpartition(b"\n\n")
    if not blank or last[:1] in (b" ", b"\t"):
        return False
    return all(line[:1] in (b" ", b"\t") or _TOKEN_LINE.match(line) for line in last.split(b"\n"))
