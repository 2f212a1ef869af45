"""What a patch may touch, as far as the patch alone can tell: names, links, and each path once."""

from __future__ import annotations

import os
from collections.abc import Iterable

from patchq.patch.model import Change, Hunk
from patchq.patch.names import check_link, check_path
from patchq.patch.source import Source

LINK = "120000"
_FILE_OF_GIT = (".gitmodules", ".gitattributes", ".gitignore", ".mailmap")


def check_changes(source: Source, changes: tuple[Change, ...], links_allowed: bool) -> None:
    """Take down in `source` every name and link that is refused."""
    for change in changes:
        for path in dict.fromkeys(path for path in (change.old, change.new) if path is not None):
            if reason := check_path(path):
                source.refuse_line(f"the path {path!r} {reason}", change.line)
        if change.new_mode == LINK:
            _check_symlink(source, change, links_allowed)
    _check_once(source, changes)
    _check_through_links(source, changes)


def _check_symlink(source: Source, change: Change, allowed: bool) -> None:
    line = change.line
    path = change.new or ""
    if not allowed:
        what = f"{path!r} is a symbolic link"
        source.refuse_line(what, line, "if it has to be, say so in the header: `Symlink: allowed`")
    if path.rpartition("/")[2].lower() in _FILE_OF_GIT:
        source.refuse_line(f"{path!r} cannot be a symbolic link", line)
    if change.binary:
        source.refuse_line(f"the target of the symbolic link {path!r} cannot be read from binary data", line)
    elif change.hunks and (reason := check_link(path, _target(source.data, change.hunks))):
        source.refuse_line(f"the symbolic link {path!r} {reason}", line)


def _target(data: bytes, hunks: Iterable[Hunk]) -> str:
    """A link's text after the change: what its hunks keep or add."""
    lines = [
        line[1:] for hunk in hunks for line in data[hunk.start : hunk.end].split(b"\n")[1:] if line[:1] in (b"+", b" ")
    ]
    return os.fsdecode(b"\n".join(lines))


def _check_once(source: Source, changes: tuple[Change, ...]) -> None:
    """Git lists each old and each new name once in a diff; twice means that two diffs were put together."""
    seen: dict[tuple[str, str], int] = {}
    for change in changes:
        old = change.old if change.kind != "copy" else None
        for side, path in (("old", old), ("new", change.new)):
            first = seen.setdefault((side, path), change.line) if path else change.line
            if first != change.line:
                what = f"{path!r} is changed a second time; the first is on line {first}"
                source.refuse_line(what, change.line, "are these two patches in one file?")
                break


def _check_through_links(source: Source, changes: tuple[Change, ...]) -> None:
    links = {change.new for change in changes if change.new_mode == LINK}
    if not links:
        return
    for change in changes:
        parts = (change.new or "").split("/")
        through = {"/".join(parts[:n]) for n in range(1, len(parts))} & links
        if through:
            what = f"{change.new!r} would be written through the link {min(map(str, through))!r}"
            source.refuse_line(what, change.line)
