"""The series file: one ordered list of patches, a valid quilt series whose comments carry guards.

Grammar: `NAME [-pN] *( #±TRAIT ) [ # FREE ]`; blank lines and lines with `#` in column 0 are kept as they are.
Guards mean what Mercurial MQ's mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from patchq.errors import Invalid, Problem

LAYERS = ("backport", "device", "research")
TRAIT = r"[a-z0-9][a-z0-9.-]*"
_NAME = r"[A-Za-z0-9._+/-]+"
_STRIP = r"-p([0-9])"
MAX_LINES = 100_000


@dataclass(frozen=True)
class SeriesEntry:
    """One patch of a series: its path below the upstream's folder, `-pN`, guards (`+ppu`, `-a100`), comment."""

    name: str
    strip: int = 1
    guards: tuple[str, ...] = ()
    comment: str = ""
    line: int = 0
    text: str = field(default="", compare=False)

    @property
    def layer(self) -> str:
        return self.name.split("/", 1)[0]

    @property
    def required(self) -> tuple[str, ...]:
        """The traits of the positive guards."""
        return tuple(guard[1:] for guard in self.guards if guard[0] == "+")

    @property
    def forbidden(self) -> tuple[str, ...]:
        """The traits of the negative guards."""
        return tuple(guard[1:] for guard in self.guards if guard[0] == "-")

    def format(self) -> str:
        """The entry's line: the very text that was read, or the canonical form of a new entry."""
        if self.text:
            return self.text
        strip = [] if self.strip == 1 else [f"-p{self.strip}"]
        comment = [f"# {self.comment}"] if self.comment else []
        return " ".join([self.name, *strip, *(f"#{guard}" for guard in self.guards), *comment])


@dataclass(frozen=True)
class Series:
    """A whole series file: entries, and the lines between them (`str`), in order."""

    lines: tuple[SeriesEntry | str, ...]

    @property
    def entries(self) -> tuple[SeriesEntry, ...]:
        return tuple(line for line in self.lines if isinstance(line, SeriesEntry))

    def format(self) -> bytes:
        """The file's bytes; what was parsed comes back byte for byte."""
        lines = (line if isinstance(line, str) else line.format() for line in self.lines)
        return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


def parse_series(data: bytes, where: str) -> Series:
    """Read a series file; raises `Invalid` with every problem, each at its line."""
    problems: list[Problem] = []
    if data.startswith(b"\xef\xbb\xbf"):
        problems.append(Problem("begins with a byte order mark", f"{where}:1", "save it as plain UTF-8"))
    if data and not data.endswith(b"\n"):
        data += b"\n"
    rows = data.decode("utf-8", "surrogateescape").split("\n")[:-1]
    if len(rows) > MAX_LINES:
        raise Invalid(f"has {len(rows)} lines; at most {MAX_LINES} are allowed", where=where)
    lines = tuple(_parse_line(row, number, where, problems) for number, row in enumerate(rows, 1))
    problems += _repeated((line for line in lines if isinstance(line, SeriesEntry)), where)
    if problems:
        raise Invalid(problems)
    return Series(lines)


def _parse_line(row: str, number: int, where: str, problems: list[Problem]) -> SeriesEntry | str:
    if not row.strip(" \t") or row.startswith("#"):
        return row
    try:
        return _parse_entry(row, number)
    except ValueError as error:
        what, hint = error.args
        problems.append(Problem(what, f"{where}:{number}", hint))
        return row


def _parse_entry(row: str, number: int) -> SeriesEntry:
    """One entry; raises ValueError(what, hint)."""
    if row.endswith("\r"):
        raise ValueError("ends in a carriage return", "save the file with LF line ends")
    if row[0] in " \t":
        raise ValueError(
            "begins with white space", "quilt would take an indented comment for a patch; start in column 0"
        )
    body, comment = _split_comment(row)
    name, *options = re.split(r"[ \t]+", body.strip(" \t"))  # as quilt: no other white space parts anything
    _check_name(name)
    strip = 1
    guards: list[str] = []
    for option in options:
        if found := re.fullmatch(_STRIP, option):
            strip = int(found[1])
        elif option[0] == "#":
            guards.append(_check_guard(option))
        elif option == "-R":
            raise ValueError("-R is not supported", "store the patch in its forward direction")
        else:
            raise ValueError(f"cannot read {option!r}", "after the name come -pN, #+trait, #-trait and # comment")
    return SeriesEntry(name, strip, tuple(guards), comment, number, row)


def _split_comment(row: str) -> tuple[str, str]:
    """The part before a free comment, and the comment."""
    found = re.search(r"[ \t]#(?=[ \t]|$)", row)
    if not found:
        return row, ""
    comment = row[found.end() :].strip()
    if re.search(r"#[+-]", comment):
        raise ValueError("a guard stands inside a comment", "put guards before the comment, or write them without '#'")
    return row[: found.start()], comment


def _check_name(name: str) -> None:
    if "#" in name:
        raise ValueError("a guard needs white space before its '#'", f"{name.replace('#', ' #', 1)}")
    if not re.fullmatch(_NAME, name):
        bad = next(char for char in name if not re.fullmatch(_NAME, char))
        raise ValueError(f"the name {name!r} holds {bad!r}", "names are made of letters, digits and ._+-/")
    parts = name.split("/")
    if ".." in name or "" in parts or "." in parts or name.startswith("-"):
        raise ValueError(f"the name {name!r} is not a plain path", "write LAYER/NAME.patch")
    if parts[0] not in LAYERS or len(parts) != 2:
        raise ValueError(f"{name!r} is in no layer", f"write one of {', '.join(LAYERS)}, then /NAME.patch")


def _check_guard(option: str) -> str:
    guard = option[1:]
    if guard[:1] not in "+-" or not re.fullmatch(TRAIT, guard[1:]):
        hint = "write #+trait or #-trait, lower case, and a blank after the # of a comment"
        raise ValueError(f"cannot read the guard {option!r}", hint)
    return guard


def _repeated(entries: Iterable[SeriesEntry], where: str) -> list[Problem]:
    first: dict[str, int] = {}
    found = []
    for entry in entries:
        if entry.name in first:
            what = f"{entry.name} stands here a second time; first on line {first[entry.name]}"
            found.append(Problem(what, f"{where}:{entry.line}", "name every patch once"))
        first.setdefault(entry.name, entry.line)
    return found
