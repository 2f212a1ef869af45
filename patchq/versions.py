"""Which version a source tree says that it is."""

from __future__ import annotations

import re

from packaging.version import InvalidVersion, Version

from patchq.relations import read_file
from patchq.store import Store

_TAG = re.compile(r"v?(\d+(?:\.\d+)+(?:[-.]?(?:a|b|rc|dev|post)\d*)*)")
_NAMES = re.compile(r"(?:[^/]+/){0,2}(?:version|version\.txt|_version\.py|version\.py|__init__\.py|VERSION)")
_ASSIGNED = re.compile(rb"^\s*(?:__version__|VERSION|version)\s*=\s*[\"']([0-9][A-Za-z0-9.+!-]*)[\"']", re.MULTILINE)
_BARE = re.compile(rb"\s*([0-9]+(?:\.[A-Za-z0-9+!]+)+)\s*")


def version_in(store: Store, tree: str, name: str) -> str:
    """The version of a tree that somebody calls `name`: a release tag's, else what its files say, else `0`."""
    tag = _TAG.fullmatch(name)
    return _normal(tag[1] if tag else _told(store, tree))


def _told(store: Store, tree: str) -> str:
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


def _normal(version: str) -> str:
    """The version as the package index writes it (PEP 440), where it is one."""
    try:
        return str(Version(version))
    except InvalidVersion:
        return version
