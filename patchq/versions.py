"""Which version a source tree says that it is."""

from __future__ import annotations

import re

from patchq.relations import read_file
from patchq.store import Store

_TAG = re.compile(r"v?(\d+(?:\.\d+)+(?:[-.]?(?:a|b|rc|dev|post)\d*)*)")
_NAMES = re.compile(r"(?:[^/]+/){0,2}(?:version|version\.txt|_version\.py|version\.py|__init__\.py|VERSION)")
_ASSIGNED = re.compile(rb"^\s*(?:__version__|VERSION|version)\s*=\s*[\"']([0-9][A-Za-z0-9.+!-]*)[\"']", re.MULTILINE)
_BARE = re.compile(rb"\s*([0-9]+(?:\.[A-Za-z0-9+!]+)+)\s*")


def version_in(store: Store, tree: str, name: str) -> str:
    """The version of a tree that somebody calls `name`: a release tag's, else what its files say, else `0`."""
    tag = _TAG.fullmatch(name)
    if tag:
        return tag[1]
    project = _ASSIGNED.search(read_file(store, tree, "pyproject.toml"))
    if project:
        return project[1].decode()
    for path, entry in sorted(store.walk(tree), key=lambda item: (item[0].count("/"), item[0])):
        if entry.mode.startswith("100") and _NAMES.fullmatch(path):
            data = store.read(entry.id, "blob")
            found = _BARE.fullmatch(data) if not path.endswith(".py") else _ASSIGNED.search(data)
            if found:
                return found[1].decode()
    return "0"
