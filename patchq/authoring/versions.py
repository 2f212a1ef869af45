"""Which version a source tree says that it is."""

from __future__ import annotations

import re

from packaging.version import InvalidVersion, Version

from patchq.authoring.relations import read_file
from patchq.store import Store

_TAG = r"v?(\d+(?:\.\d+)+(?:[-.]?(?:a|b|rc|dev|post)\d*)*)"
_NAMES = r"(?:[^/]+/){0,2}(?:version|version\.txt|_version\.py|version\.py|__init__\.py|VERSION)"
_ASSIGNED = rb"(?m)^\s*(?:__version__|VERSION|version)\s*=\s*[\"']([0-9][A-Za-z0-9.+!-]*)[\"']"
_FILE = rb"(?m)^\s*version\s*=\s*\{\s*file\s*=\s*\[?\s*[\"']([^\"']+)[\"']"
_BARE = rb"\s*([0-9]+(?:\.[A-Za-z0-9+!]+)+)\s*"


def version_in(store: Store, tree: str, name: str) -> str:
    """The version of a tree that somebody calls `name`: a release tag's, else what its files say, else `0`."""
    tag = re.fullmatch(_TAG, name)
    return _normal(tag[1] if tag else _told(store, tree))


def _told(store: Store, tree: str) -> str:
    text = read_file(store, tree, "pyproject.toml")
    project, named = (
        re.search(_ASSIGNED, _table(text, b"project")),
        re.search(_FILE, _table(text, b"tool.setuptools.dynamic")),
    )
    told = project or (re.fullmatch(_BARE, read_file(store, tree, named[1].decode())) if named else None)
    if told:
        return told[1].decode()
    for path, entry in sorted(store.walk(tree), key=lambda item: (item[0].count("/"), item[0])):
        if entry.mode.startswith("100") and re.fullmatch(_NAMES, path):
            data = store.read(entry.id, "blob")
            found = re.fullmatch(_BARE, data) if not path.endswith(".py") else re.search(_ASSIGNED, data)
            if found:
                return found[1].decode()
    return "0"


def _table(text: bytes, name: bytes) -> bytes:
    """The lines of a table of a TOML file: a version elsewhere in it is another project's."""
    found = re.search(rb"^\[" + re.escape(name) + rb"\][^\n]*\n(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL)
    return found[1] if found else b""


def _normal(version: str) -> str:
    """The version as the package index writes it (PEP 440), where it is one."""
    try:
        return str(Version(version))
    except InvalidVersion:
        return version
