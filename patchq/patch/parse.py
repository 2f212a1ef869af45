"""Reading a patch file: the one way in."""

from __future__ import annotations

from patchq.errors import Invalid
from patchq.patch.diff import find_diff, read_changes
from patchq.patch.header import read_header
from patchq.patch.model import Patch
from patchq.patch.rules import check_changes
from patchq.patch.source import Source


def parse_patch(name: str, data: bytes, where: str, strip: int = 1) -> Patch:
    """Read the patch `name` from `data`, as `git apply -p strip` would, and more strictly.

    `where` is the file's path for messages. Raises `Invalid` with every problem, each with its FILE:LINE.
    """
    source = Source(data, where)
    start = find_diff(data)
    header = read_header(source, start)
    changes = read_changes(source, start, strip)
    check_changes(source, changes, header.allow_symlink)
    if source.problems:
        raise Invalid(source.problems)
    return Patch(name, data, where, strip, header, changes, start)
