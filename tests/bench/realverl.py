"""The files of verl: from the clone in `VERL_SOURCE` where there is one, else from an sdist of the package index."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from generated import Tree, blobs, git, import_tree

from patchq.index.download import fetch, find_sdist
from patchq.sdist import read_sdist

BASELINE = "1bf9d2d76c244238e8219531c582819a6b407d47"
OLDER = "v0.8.0"
_SDIST = ("verl", "0.9.0")


def verl_source() -> Path | None:
    """The clone, which nobody writes to."""
    named = os.environ.get("VERL_SOURCE")
    return Path(named) if named else None


def verl_tree(folder: Path) -> Tree:
    """A repository with verl's files in one commit, without its submodule."""
    source = verl_source()
    return import_tree("verl", folder, _of_clone(source) if source else _of_sdist())


def _of_clone(source: Path) -> Iterator[tuple[str, str, bytes]]:
    listed = git(source, "ls-tree", "-r", "-z", BASELINE).decode().split("\0")
    rows = [(row.partition("\t")[2], *row.partition("\t")[0].split(" ")) for row in listed if row]
    files = [(path, mode, identity) for path, mode, kind, identity in rows if kind == "blob"]
    datas = blobs(source, [identity for _, _, identity in files])
    yield from ((path, mode, data) for (path, mode, _), data in zip(files, datas, strict=True))


def _of_sdist() -> Iterator[tuple[str, str, bytes]]:
    with tempfile.TemporaryDirectory() as folder:
        for file in read_sdist(fetch(find_sdist(*_SDIST), Path(folder))):
            yield file.path, file.mode, file.data
