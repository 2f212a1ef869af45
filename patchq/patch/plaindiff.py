"""One file's change in a unified diff that is not git's: `---`, `+++` and hunks."""

from __future__ import annotations

from patchq.patch import diffnames
from patchq.patch.gitdiff import read_name_lines, stripped
from patchq.patch.hunks import read_hunks
from patchq.patch.model import Change, Hunk, Kind
from patchq.patch.source import Broken, Source


def read_plain_change(source: Source, at: int, strip: int) -> tuple[Change, int]:
    """Read the change at `at`, and the offset behind it; raises `Broken` where it cannot be read."""
    first, second, position = read_name_lines(source, at)
    name, kind = _name_and_kind(first, second, at, strip)
    hunks, end = read_hunks(source, position)
    _check_content(kind, hunks, at)
    path = diffnames.decode(name)
    old, new = (None if kind == "add" else path), (None if kind == "delete" else path)
    change = Change(old, new, None, None, None, None, kind, False, hunks, source.line_number(at))
    return change, end


def _name_and_kind(first: bytes, second: bytes, at: int, strip: int) -> tuple[bytes, Kind]:
    no_old, no_new = (diffnames.DEV_NULL.match(text) is not None for text in (first, second))
    if no_old and no_new:
        raise Broken("both names are /dev/null", at)
    if no_old:
        return _name(second, at, strip), "add"
    if no_new:
        return _name(first, at, strip), "delete"
    old, new = _name(first, at, strip), _name(second, at, strip)
    name = diffnames.same_file(old, new)
    if name is None:
        what = f"the names {diffnames.decode(old)!r} and {diffnames.decode(new)!r} are not of one file"
        raise Broken(what, at, f"is -p{strip} right?")
    if diffnames.has_epoch_stamp(first):
        return name, "add"
    return name, "delete" if diffnames.has_epoch_stamp(second) else "modify"


def _name(text: bytes, at: int, strip: int) -> bytes:
    return stripped(diffnames.name_on_plain_line(text), strip, at)


def _check_content(kind: Kind, hunks: tuple[Hunk, ...], at: int) -> None:
    if kind == "add" and any(hunk.old_count for hunk in hunks):
        raise Broken("a new file cannot have old lines", at)
    if kind == "delete" and any(hunk.new_count for hunk in hunks):
        raise Broken("a deleted file cannot keep lines", at)
