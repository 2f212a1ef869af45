"""Series files of quilt, Debian and Mercurial, read as those tools do and turned into our narrower grammar."""

from __future__ import annotations

import re
from pathlib import Path

from patchq.document import read_regular
from patchq.errors import Invalid, Problem
from patchq.importing.model import Incoming
from patchq.queue.load import MAX_PATCH
from patchq.series import TRAIT

# quilt: `#` begins a comment at the start of a line or behind white space. MQ: `\s?#([-+][^-+# \t\r\n\f][^# …]*)`.
_GUARD = r"\s?#([-+][^-+# \t\r\n\f][^# \t\r\n\f]*)"
_COMMENT = r"(?:^|\s)#(?![-+][^-+# \t\r\n\f])(.*)$"
_PLACES = ("series", "patches/series", "debian/patches/series", ".hg/patches/series", ".pc/series")


def series_in(folder: Path) -> Path | None:
    """The series file of a folder of patches, or of a source package."""
    return next((folder / name for name in _PLACES if (folder / name).is_file()), None)


def read_foreign_series(path: Path) -> list[Incoming]:
    """Every patch that a foreign series lists; raises `Invalid` with every line that cannot be taken over."""
    found: list[Incoming] = []
    problems: list[Problem] = []
    above: list[str] = []
    for number, row in enumerate(read_regular(path).decode("utf-8", "replace").splitlines(), 1):
        if not row.strip() or row.lstrip().startswith("#"):
            if row.strip():
                above.append("#" + row.strip().lstrip("#"))
            continue
        try:
            found.append(_read_line(row, path, tuple(above)))
        except Invalid as error:
            problems += [Problem(one.what, one.where or f"{path}:{number}", one.hint) for one in error.problems]
        above = []
    if problems:
        raise Invalid(problems)
    return found


def _read_line(row: str, path: Path, above: tuple[str, ...]) -> Incoming:
    notes: list[str] = []
    guards = tuple(_trait(guard, notes) for guard in re.findall(_GUARD, row))
    bare = re.sub(_GUARD, "", row)
    comment = re.search(_COMMENT, bare)
    name, *options = re.sub(_COMMENT, "", bare).split()
    strip, reverse = 1, False
    for option in options:
        if option == "-R":
            reverse = True
        elif option in ("-pab", "-p1"):
            strip = 1
        elif re.fullmatch(r"-p\d", option):
            strip = int(option[2])
        else:
            raise Invalid(f"cannot read {option!r} behind {name}")
    if name.startswith("/") or ".." in name.split("/"):
        raise Invalid(f"the name {name!r} leads out of the folder")
    data = read_regular(path.parent / name, MAX_PATCH)
    if row != row.strip() or "\t" in row:
        notes.append("white space put right")
    text = comment[1].strip() if comment else ""
    return Incoming(name, data, str(path.parent / name), strip, guards, text.replace("#", ""), f"other, {name}",
                    above, reverse, tuple(notes))  # fmt: skip


def _trait(guard: str, notes: list[str]) -> str:
    plain = guard[0] + re.sub(r"[^a-z0-9.-]+", "-", guard[1:].lower()).strip("-.")
    if not re.fullmatch(TRAIT, plain[1:]):
        raise Invalid(f"the guard #{guard} has no name that can be kept", hint="rename it to #+trait, lower case")
    if plain != guard:
        notes.append(f"guard #{guard} became #{plain}")
    return plain
