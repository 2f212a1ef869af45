"""Tree objects as values: parse, build, and the ids that git gives to blobs and trees.

The format is git's own (gitformat-pack, "tree" objects): `MODE SP NAME NUL ID`, sorted as if the name of a
folder ended in `/`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

FOLDER = "40000"
GITLINK = "160000"
SYMLINK = "120000"
_ENTRY = rb"(?s)(\d+) ([^\0]+)\0(.{20})"


class Entry(NamedTuple):
    """What a path is in a tree: its git mode ("100644", "100755", "120000", "160000", "40000") and object id."""

    mode: str
    id: str


@dataclass
class Tree:
    """A folder while it is being built: entries that are known by id, and folders still open."""

    entries: dict[str, Entry] = field(default_factory=dict)
    folders: dict[str, Tree] = field(default_factory=dict)


def object_id(kind: str, data: bytes) -> str:
    """The SHA-1 object id that git gives to `data` as an object of `kind`."""
    digest = hashlib.sha1(b"%s %d\0" % (kind.encode(), len(data)), usedforsecurity=False)
    digest.update(data)
    return digest.hexdigest()


def blob_id(data: bytes) -> str:
    """The object id of a file's bytes, unfiltered."""
    return object_id("blob", data)


def parse_tree(data: bytes) -> dict[str, Entry]:
    """A tree object's bytes as name → entry, names decoded with surrogateescape."""
    return {
        os.fsdecode(name): Entry(mode.decode(), identity.hex()) for mode, name, identity in re.findall(_ENTRY, data)
    }


def format_tree(entries: Mapping[str, Entry]) -> bytes:
    """The bytes of the tree object that holds `entries`."""

    def order(name: str) -> bytes:
        return os.fsencode(name) + (b"/" if entries[name].mode == FOLDER else b"")

    return b"".join(
        b"%s %s\0%s" % (entries[name].mode.encode(), os.fsencode(name), bytes.fromhex(entries[name].id))
        for name in sorted(entries, key=order)
    )


def grow(files: Iterable[tuple[str, Entry]]) -> Tree:
    """Nest `path → entry` pairs into folders."""
    root = Tree()
    for path, entry in files:
        folder = root
        *parents, name = path.split("/")
        for parent in parents:
            folder = folder.folders.setdefault(parent, Tree())
        folder.entries[name] = entry
    return root


def tree_id_of_files(files: Iterable[tuple[str, Entry]]) -> str:
    """The id of the root tree that holds `files`, computed without a repository."""

    def close(folder: Tree) -> str:
        entries = dict(folder.entries)
        for name, child in folder.folders.items():
            entries[name] = Entry(FOLDER, close(child))
        return object_id("tree", format_tree(entries))

    return close(grow(files))
