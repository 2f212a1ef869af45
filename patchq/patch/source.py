"""The bytes of one patch file: its lines by offset, where things are, and what was found wrong."""

from __future__ import annotations

from patchq.errors import Invalid, Problem

MAX_PROBLEMS = 100
MAX_LINE = 16 << 10
MAX_PARTS = 150_000


class Broken(Exception):
    """The text cannot be read on from here; `at` is the byte offset of what is wrong."""

    def __init__(self, what: str, at: int, hint: str = "") -> None:
        super().__init__(what)
        self.what, self.at, self.hint = what, at, hint


class Source:
    """The patch's bytes, never copied or split as a whole: offsets go around, not lines."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data = data
        self.where = where
        self.problems: list[Problem] = []
        self._seen = (0, 1)
        self._parts = 0

    def line_number(self, at: int) -> int:
        """The 1-based line of offset `at`; cheap near the offset that was asked for last."""
        offset, line = self._seen
        line += self.data.count(b"\n", offset, at) if at >= offset else -self.data.count(b"\n", at, offset)
        self._seen = (at, line)
        return line

    def after_line(self, at: int) -> int:
        """The offset of the line after the one at `at`; raises `Broken` where no newline ends it."""
        end = self.data.find(b"\n", at) + 1
        if not end:
            raise Broken("the patch ends in the middle of a line", at, "was it cut off?")
        if end - at > MAX_LINE:
            raise Broken(f"a line of the diff's header has more than {MAX_LINE} bytes", at)
        return end

    def count_part(self, at: int) -> None:
        """Count one more file or hunk at `at`; raises `Invalid` where nobody could mean so many."""
        self._parts += 1
        if self._parts > MAX_PARTS:
            self.refuse(f"more than {MAX_PARTS} files and hunks in one patch", at)
            raise Invalid(self.problems)

    def refuse(self, what: str, at: int, hint: str = "") -> None:
        """Take down a problem at offset `at`."""
        self.refuse_line(what, self.line_number(at), hint)

    def refuse_line(self, what: str, line: int, hint: str = "") -> None:
        """Take down a problem on a line, up to a number that nobody would read."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(what, f"{self.where}:{line}", hint))
