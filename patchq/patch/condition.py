"""`Expect:` and `Forbid:`: what a file has to hold, or not, once the whole selection is applied."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

from patchq.patch.names import check_path, unquote

SECONDS = 2.0
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

    def matches(self, content: bytes) -> int | None:
        """How often the expression is found in a file's bytes (read as UTF-8, anything else as Latin-1).

        None where that takes longer than anybody means: an expression may go back and forth without end.
        """
        text = content.decode("utf-8", "surrogateescape")
        try:
            with _at_most(SECONDS):
                return sum(1 for _ in re.finditer(self.regex, text, re.MULTILINE))
        except TimeoutError:
            return None


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


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after so long, in the main thread: `re` looks for signals as it goes."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise TimeoutError

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _split_quoted(text: str) -> tuple[str, str]:
    """A C-quoted path at the start of `text` and what follows it, or nothing and all of it."""
    data = os.fsencode(text)
    quoted = unquote(data)
    return (os.fsdecode(quoted[0]), os.fsdecode(data[quoted[1] :])) if quoted else ("", text)
