"""Real git for the tests of patches: trees from nothing, their diffs, and what `git apply` reads in them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

Tree = Mapping[bytes, tuple[str, bytes]]  # path -> (mode, content)

_ENVIRONMENT = {
    "PATH": os.environ["PATH"],
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "LC_ALL": "C",
}


def git(folder: Path, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    environment = {**_ENVIRONMENT, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    argv = ["git", *arguments]
    return subprocess.run(argv, cwd=folder, env=environment, input=stdin, capture_output=True, check=False)


def diff_trees(folder: Path, old: Tree, new: Tree, *options: str) -> bytes:
    """The diff of two trees, by way of one `fast-import` into the bare repository at `folder`."""
    stream = b"".join(
        b"commit refs/heads/%s\ncommitter a <a> 0 +0000\ndata 0\ndeleteall\n%s\n" % (name, _entries(tree))
        for name, tree in ((b"old", old), (b"new", new))
    )
    made = git(folder, "fast-import", "--quiet", "--force", stdin=stream)
    assert made.returncode == 0, made.stderr
    shown = git(folder, "diff-tree", "-p", "-r", "--binary", *options, "old", "new")
    assert shown.returncode == 0, shown.stderr
    return shown.stdout


def _entries(tree: Tree) -> bytes:
    return b"".join(
        b'M %s inline "%s"\ndata %d\n%s\n'
        % (mode.encode(), b"".join(b"\\%03o" % byte for byte in path), len(content), content)
        for path, (mode, content) in tree.items()
    )


def numstat(folder: Path, data: bytes, strip: int = 1) -> list[tuple[bytes, bytes, bytes]] | None:
    """(added, deleted, name) of each file as `git apply` reads the patch; None where it refuses."""
    seen = git(folder, "apply", "--numstat", "--allow-empty", "-z", f"-p{strip}", "-", stdin=data)
    if seen.returncode:
        return None
    rows = (row.split(b"\t", 2) for row in seen.stdout.split(b"\0") if row)
    return [(added, deleted, name) for added, deleted, name in rows]
