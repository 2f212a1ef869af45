"""A thin index: only the paths that a patch names, written and read in this process.

Format: gitformat-index, version 2, without extensions. Stat fields are zero, which git reads as "look again"
and `apply --cached` never does.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from patchq.document import write_file
from patchq.errors import Prevented
from patchq.store.trees import Entry

_HEADER = struct.Struct(">4sLL")
_ENTRY = struct.Struct(">24xL12x20sH")
_MAX_NAME = 0xFFF
_STAGE = 0x3000
_EXTENDED = 0x4000
_ASSUME_UNCHANGED = 0x8000
_MORE = struct.Struct(">H")
_SKIP_WORKTREE = 0x4000


def write_index(path: Path, entries: Mapping[str, Entry]) -> None:
    """Write an index that holds `entries` at stage 0."""
    body = _HEADER.pack(b"DIRC", 2, len(entries))
    for name in sorted(map(os.fsencode, entries)):
        entry = entries[os.fsdecode(name)]
        packed = _ENTRY.pack(int(entry.mode, 8), bytes.fromhex(entry.id), min(len(name), _MAX_NAME)) + name
        body += packed + b"\0" * (8 - len(packed) % 8)
    write_file(path, body + hashlib.sha1(body, usedforsecurity=False).digest())


def read_index(path: Path) -> dict[str, Entry]:
    """The stage-0 entries of an index of version 2 or 3; raises `Prevented` for any other."""
    data = path.read_bytes() if path.exists() else _HEADER.pack(b"DIRC", 2, 0)
    return {
        os.fsdecode(name): Entry(f"{mode:o}", identity.hex())
        for name, mode, identity, flags, _ in _entries(data)
        if not flags & _STAGE
    }


def hidden_paths(index: bytes) -> dict[str, str]:
    """Path → flag, for the entries of an index at which `git status` is told not to look.

    Raises `Prevented` when it is no index of version 2 or 3.
    """
    try:
        read = list(_entries(index))
    except (ValueError, struct.error) as error:
        raise Prevented("the index is cut off") from error
    unchanged = {name: "assume-unchanged" for name, *_, flags, _ in read if flags & _ASSUME_UNCHANGED}
    skipped = {name: "skip-worktree" for name, *_, more in read if more & _SKIP_WORKTREE}
    return {os.fsdecode(name): flag for name, flag in (unchanged | skipped).items()}


def _entries(data: bytes) -> Iterator[tuple[bytes, int, bytes, int, int]]:
    """Name, mode, id, flags and extended flags of everything in an index."""
    magic, version, count = _HEADER.unpack_from(data)
    if magic != b"DIRC" or version not in (2, 3):
        raise Prevented(f"git wrote an index of version {version}; 2 or 3 was expected")
    at = _HEADER.size
    for _ in range(count):
        mode, identity, flags = _ENTRY.unpack_from(data, at)
        start = at + _ENTRY.size
        more = 0
        if flags & _EXTENDED:
            (more,) = _MORE.unpack_from(data, start)
            start += _MORE.size
        end = data.index(b"\0", start)
        yield data[start:end], mode, identity, flags, more
        at += (end - at) // 8 * 8 + 8
