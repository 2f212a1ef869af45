"""`Expect:` and `Forbid:`: what a file has to hold, or not, once the whole selection is applied."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from patchq.patch.names import check_path, unquote

_LINE = re.compile(r"(?P<path>.+?)(?:\s+(?P<count>\d{1,9}))?\s+/(?P<regex>.+)/\s*$")


@dataclass(frozen=True)
class Condition:
    """`PATH [COUNT] /REGEX/`. The expression is Python's; `^` and `$` match at lines."""

    path: str
    count: int | None
    regex: str
    line: int = 0

    def matches(self, content: bytes) -> int:
        """How often the expression is found in a file's bytes (read as UTF-8, anything else as Latin-1)."""
        text = content.decode("utf-8", "surrogateescape")
        return sum(1 for _ in re.finditer(self.regex, text, re.MULTILINE))


def parse_condition(text: str, line: int) -> Condition | str:
    """Read one condition; a string says what is wrong with it.

    A path with ` /` in it, or one that ends in a blank and digits, is written in git's C quotes.
    """
    path, rest = _split_quoted(text)
    found = _LINE.match(f"{'q' if path else ''}{rest}")
    if not found:
        return f"{text!r} is not `PATH [COUNT] /REGEX/`"
    path = path or found["path"]
    if reason := check_path(path):
        return f"the path {path!r} {reason}"
    try:
        re.compile(found["regex"], re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        return f"the expression {found['regex']!r} cannot be read: {error}"
    return Condition(path, int(found["count"]) if found["count"] else None, found["regex"], line)


def _split_quoted(text: str) -> tuple[str, str]:
    """A C-quoted path at the start of `text` and what follows it, or nothing and all of it."""
    data = os.fsencode(text)
    quoted = unquote(data)
    return (os.fsdecode(quoted[0]), os.fsdecode(data[quoted[1] :])) if quoted else ("", text)
