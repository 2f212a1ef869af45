"""One file's change in git's own form: `diff --git`, extended headers, names, then hunks or binary data.

Git's apply.c (`parse_git_diff_header`) is the judge of what the names are; where git takes lines in any order
and forgives, this asks for the order and the agreement that `git diff` writes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from patchq.patch import diffnames
from patchq.patch.binary import MARK, read_binary
from patchq.patch.hunks import read_hunks
from patchq.patch.model import Change, Hunk, Kind
from patchq.patch.source import Broken, Source

GIT = b"diff --git "
_EXTENDED = re.compile(
    rb"(old mode |new mode |deleted file mode |new file mode |copy from |copy to |rename from |rename to "
    rb"|similarity index |dissimilarity index |index )"
)
_INDEX = re.compile(rb"([0-9a-f]{4,64})\.\.([0-9a-f]{4,64})(?: (\d+))?\s*\Z")
_EMPTY_BLOB = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
_FULL_ID = (40, 64)
MODES = ("100644", "100755", "120000")
_PAIRED = (b"rename", b"copy")
_KINDS: tuple[tuple[bytes, Kind], ...] = (
    (b"new file mode ", "add"), (b"deleted file mode ", "delete"), (b"rename from ", "rename"), (b"copy from ", "copy"),
)  # fmt: skip

Names = tuple[bytes | None, bytes | None]


@dataclass(frozen=True)
class _Head:
    """The lines above the content: extended headers by keyword, their offsets, and the `---`/`+++` lines."""

    at: int
    git: bytes
    values: dict[bytes, bytes]
    places: dict[bytes, int]
    named: tuple[bytes, bytes] | None
    end: int


def read_git_change(source: Source, at: int, strip: int) -> tuple[Change, int]:
    """Read the change at `at`, and the offset behind it; raises `Broken` where it cannot be read."""
    head = _read_head(source, at)
    _check_head(head)
    old, new = _names(head, strip)
    _check_agreement(head, old, new, strip)
    old_mode, new_mode = _modes(source, head)
    hunks, binary, end = _read_content(source, head)
    old_id, new_id = _ids(head)
    kind = _kind(head, old_mode, new_mode)
    _check_content(head, kind, old_id, new_id, old_mode != new_mode, hunks, binary)
    change = Change(
        diffnames.decode(old) if old is not None else None,
        diffnames.decode(new) if new is not None else None,
        old_mode, new_mode, old_id, new_id,
        kind, binary, hunks, source.line_number(at),
    )  # fmt: skip
    return change, end


def _read_head(source: Source, at: int) -> _Head:
    position = source.after_line(at)
    git = source.data[at + len(GIT) : position - 1]
    values: dict[bytes, bytes] = {}
    places: dict[bytes, int] = {}
    while found := _EXTENDED.match(source.data, position):
        keyword = found[0]
        if keyword in values:
            raise Broken(f"a second `{keyword.decode().strip()}` line", position)
        after = source.after_line(position)
        places[keyword] = position
        values[keyword] = source.data[found.end() : after - 1]
        position = after
    if not source.data.startswith(b"--- ", position):
        return _Head(at, git, values, places, None, position)
    old, new, position = read_name_lines(source, position)
    return _Head(at, git, values, places, (old, new), position)


def read_name_lines(source: Source, at: int) -> tuple[bytes, bytes, int]:
    """What follows `---` and `+++` on the two lines at `at`, and where the hunks begin; raises `Broken`."""
    middle = source.after_line(at)
    if not source.data.startswith(b"+++ ", middle):
        raise Broken("a `+++` line is due below the `---` line", middle)
    end = source.after_line(middle)
    if not source.data.startswith(b"@@ -", end):
        raise Broken("the names of a file, but no hunk below them", at, "was the patch cut off?")
    return source.data[at + 4 : middle - 1], source.data[middle + 4 : end - 1], end


def _check_head(head: _Head) -> None:
    values = head.values
    for word in _PAIRED:
        if (b"%s from " % word in values) != (b"%s to " % word in values):
            name = word.decode()
            raise Broken(f"a {name} needs both its `{name} from` and its `{name} to` line", head.at)
    if (b"old mode " in values) != (b"new mode " in values):
        raise Broken("a change of mode needs both its `old mode` and its `new mode` line", head.at)
    told = [word for word, _ in _KINDS if word in values]
    if len(told) > 1 or (told and told[0] in (b"new file mode ", b"deleted file mode ") and b"old mode " in values):
        raise Broken("the lines contradict each other: new, deleted, renamed, copied or of another mode", head.at)


def stripped(raw: bytes | None, strip: int, at: int) -> bytes:
    """A name as it stands in the patch, without its first `strip` components; raises `Broken`."""
    if raw is None or not raw or b"\0" in raw:
        raise Broken("a name that cannot be read", at)
    if raw.startswith(b"/"):
        raise Broken(f"the path {diffnames.decode(raw)!r} is absolute", at)
    name = diffnames.strip_components(raw, strip)
    if name is None:
        hint = f"is -p{strip} right?"
        raise Broken(f"nothing is left of the name {diffnames.decode(raw)!r} under -p{strip}", at, hint)
    return name


def _names(head: _Head, strip: int) -> Names:
    values = head.values
    is_new, is_deleted = b"new file mode " in values, b"deleted file mode " in values
    old: bytes | None = None
    new: bytes | None = None
    pair = next((word for word in _PAIRED if b"%s from " % word in values), None)
    if pair:
        old, new = (_rename_name(head, b"%s %s " % (pair, side), strip) for side in (b"from", b"to"))
        if old == new:
            raise Broken(f"a {pair.decode()} of {diffnames.decode(old)!r} to itself changes nothing", head.at)
    if head.named:
        old = _side(head, head.named[0], old, is_new, strip)
        new = _side(head, head.named[1], new, is_deleted, strip)
        if old and new and old != new and not pair:
            raise Broken(
                f"the old name {diffnames.decode(old)!r} and the new name {diffnames.decode(new)!r} differ "
                "without a rename", head.at, f"is -p{strip} right?"
            )  # fmt: skip
    elif old is None:
        twice = diffnames.pair_on_git_line(head.git, strip)
        if twice is None:
            raise Broken(f"the `diff --git` line does not name one file twice under -p{strip}", head.at)
        old, new = (None if is_new else twice), (None if is_deleted else twice)
    return old, new


def _rename_name(head: _Head, keyword: bytes, strip: int) -> bytes:
    raw = diffnames.name_on_line(head.values[keyword], ends_at_tab=False)
    return stripped(raw, max(strip - 1, 0), head.places[keyword])


def _side(head: _Head, text: bytes, renamed: bytes | None, is_absent: bool, strip: int) -> bytes | None:
    """The name on a `---` or `+++` line, checked against what the lines above it said."""
    is_null = diffnames.DEV_NULL.match(text) is not None
    if is_null != is_absent:
        missing = "`new file mode` or `deleted file mode`"
        what = f"/dev/null without {missing}" if is_null else "/dev/null is due where a file is not there"
        raise Broken(what, head.at)
    if is_null:
        return None
    name = stripped(diffnames.name_on_line(text, ends_at_tab=True), strip, head.at)
    if renamed is not None and name != renamed:
        raise Broken("the names on the `---` and `+++` lines are not those of the rename or copy", head.at)
    return name


def _check_agreement(head: _Head, old: bytes | None, new: bytes | None, strip: int) -> None:
    first, second = old if old is not None else new, new if new is not None else old
    assert first is not None and second is not None
    if not diffnames.names_agree(head.git, first, second, strip):
        raise Broken(
            f"the `diff --git` line does not name {diffnames.decode(first)!r} and "
            f"{diffnames.decode(second)!r}, as the lines below it do", head.at
        )  # fmt: skip


def _modes(source: Source, head: _Head) -> tuple[str | None, str | None]:
    def told(keyword: bytes) -> str | None:
        value = head.values.get(keyword)
        return value.strip().decode("latin-1") if value is not None else None

    index = _INDEX.match(head.values.get(b"index ", b""))
    common = index[3].decode() if index and index[3] else None
    old = told(b"old mode ") or told(b"deleted file mode ") or common
    new = told(b"new mode ") or told(b"new file mode ") or common
    if b"new file mode " in head.values:
        old = None
    if b"deleted file mode " in head.values:
        new = None
    for mode in {old, new} - {None, *MODES}:
        what = "is a submodule's" if mode == "160000" else "is not one of " + ", ".join(MODES[:2])
        source.refuse(f"the mode {mode} {what}", head.at)
    return old, new


def _ids(head: _Head) -> tuple[str | None, str | None]:
    if b"index " not in head.values:
        return None, None
    found = _INDEX.match(head.values[b"index "])
    if not found:
        raise Broken("the `index` line cannot be read", head.places[b"index "])
    old, new = (part.decode() for part in found.groups()[:2])
    return old if old.strip("0") else None, new if new.strip("0") else None


def _read_content(source: Source, head: _Head) -> tuple[tuple[Hunk, ...], bool, int]:
    data, at = source.data, head.end
    if head.named:
        hunks, end = read_hunks(source, at)
        return hunks, False, end
    if data.startswith(MARK, at):
        return (), True, read_binary(source, at)
    if data.startswith((b"Binary files ", b"Files "), at):
        raise Broken("a binary file without its data", at, "make the patch with `git diff --binary`")
    if data.startswith(MARK[:-1], at):
        raise Broken("the line endings of the binary data were changed", at)
    if data.startswith((b"@@ -", b"+++ "), at):
        raise Broken("a hunk without the `---` and `+++` lines above it", at)
    return (), False, at


def _kind(head: _Head, old_mode: str | None, new_mode: str | None) -> Kind:
    for keyword, kind in _KINDS:
        if keyword in head.values:
            return kind
    return "mode" if old_mode != new_mode and b"index " not in head.values and not head.named else "modify"


def _check_content(
    head: _Head,
    kind: Kind,
    old_id: str | None,
    new_id: str | None,
    is_chmod: bool,
    hunks: tuple[Hunk, ...],
    binary: bool,
) -> None:
    """Whether what follows the headers is what they promise; raises `Broken`."""
    if binary:
        lengths = {len(part.strip()) for part in head.values.get(b"index ", b"").split(b" ")[0].split(b"..")}
        if len(lengths) != 1 or not lengths <= set(_FULL_ID):
            raise Broken("binary data needs full ids on an `index` line", head.at, "use `git diff --binary`")
    if kind == "add" and any(hunk.old_count for hunk in hunks):
        raise Broken("a new file cannot have old lines", head.at)
    if kind == "delete" and any(hunk.new_count for hunk in hunks):
        raise Broken("a deleted file cannot keep lines", head.at)
    if hunks or binary:
        return
    content = {"add": new_id, "delete": old_id}.get(kind, "")
    if content and not _EMPTY_BLOB.startswith(content):
        raise Broken(f"the content of the file to {kind} is missing", head.at, "was the patch cut off?")
    if content == "" and old_id != new_id:
        raise Broken("the `index` line tells of a change that is missing", head.at, "was the patch cut off?")
    if kind == "modify" and not is_chmod:
        raise Broken("a `diff --git` line without a change below it", head.at)
