"""`Expect:` and `Forbid:`: what a file has to hold, or not, once the whole selection is applied."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from patchq.patch.names import check_path, unquote

_COUNT = re.compile(r"[0-9]{1,9}")
_SHOWN = 200
_LONGEST = 8192
_GAP = re.compile(r"[ \t]/")


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
    quoted, rest = _split_quoted(text.strip())
    gap = _GAP.search(rest)
    if not gap or not rest.endswith("/") or gap.end() >= len(rest) - 1 or len(rest) > _LONGEST:
        return f"{text[:_SHOWN]!r} is not `PATH [COUNT] /REGEX/`"
    left, regex = rest[: gap.start()].strip(), rest[gap.end() : -1]
    path, _, count = (quoted, "", left) if quoted else left.rpartition(" ")
    if not path or not _COUNT.fullmatch(count):
        path, count = quoted or left, ""
    if reason := check_path(path):
        return f"the path {path[:_SHOWN]!r} {reason}"
    try:
        re.compile(regex, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        return f"the expression {regex[:_SHOWN]!r} cannot be read: {error}"
    return Condition(path.strip(), int(count) if count else None, regex, line)


def _split_quoted(text: str) -> tuple[str, str]:
    """A C-quoted path at the start of `text` and what follows it, or nothing and all of it."""
    data = os.fsencode(text)
    quoted = unquote(data)
    return (os.fsdecode(quoted[0]), os.fsdecode(data[quoted[1] :])) if quoted else ("", text)
