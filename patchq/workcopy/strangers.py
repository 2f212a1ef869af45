"""What an interpreter would import from a work copy by itself, and nobody put there by a commit."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from patchq.store import Store
from patchq.store.trees import FOLDER
from patchq.workcopy.importable import why_importable

_AT_START = frozenset({"sitecustomize", "usercustomize", *sys.stdlib_module_names})


def strangers(store: Store, folder: Path, commit: str, root: str = ".") -> tuple[str, ...]:
    """Names below `root` of the copy at `folder` that `commit` has not and that come before the standard library.

    No interpreter may be started with the copy on its path as long as there are any: they would run before the first
    question is asked. One listing, no file is read.
    """
    tree = store.commit(commit).tree
    for part in root.split("/") if root != "." else ():
        entry = store.folder_entries(tree).get(part)
        if entry is None or entry.mode != FOLDER:
            return ()
        tree = entry.id
    tracked = store.folder_entries(tree)
    with suppress(OSError):
        found = {item.name: item for item in os.scandir(folder / root)}
        return tuple(sorted(name for name, item in found.items() if name not in tracked and _starts(item, found)))
    return ()


def _starts(item: os.DirEntry[str], siblings: dict[str, os.DirEntry[str]]) -> bool:
    if item.name.split(".")[0] not in _AT_START:
        return False
    if not item.is_dir():
        return bool(why_importable(item.name, siblings))
    with suppress(OSError):
        return any(place.name.startswith("__init__.") for place in Path(item.path).iterdir())
    return True
