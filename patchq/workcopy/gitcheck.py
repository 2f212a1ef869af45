"""Reading a work copy's `.git` as data, so that git never runs on something that patchq did not write."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from patchq.document import read_regular
from patchq.errors import PatchqError
from patchq.store.index import hidden_paths
from patchq.workcopy.drift import Drift
from patchq.workcopy.repository import Repository

# What patchq writes, and what plain git leaves when people look around, take worktrees or collect garbage.
_KNOWN = {
    "HEAD", "config", "index", "info", "objects", "refs", "shallow", "modules", "packed-refs", "logs",
    "worktrees", "ORIG_HEAD", "FETCH_HEAD", "COMMIT_EDITMSG", "REBASE_HEAD", "AUTO_MERGE", "gc.log",
}  # fmt: skip
_KNOWN_INFO = {"attributes", "refs"}
_LIMIT = 1 << 28
_EFFECTS = {
    "hooks": "git would run what is in it",
    "commondir": "git would look for everything elsewhere",
    "gitdir": "git would look for everything elsewhere",
    "config.worktree": "git would read further configuration",
    "index.lock": "a git is running here, or was killed",
    "info/grafts": "git would show another history",
    "info/exclude": "git would not show what is untracked",
    "info/sparse-checkout": "git would leave files out",
}


def check_git(repository: Repository) -> Iterator[Drift]:
    """One `git` drift for everything in a repository's git directory that is not as `create` left it."""
    inside, folder = repository.inside, repository.git_dir
    if folder.is_symlink() or not folder.is_dir():
        yield Drift(inside, "git", "is not the folder that patchq made")
        return
    yield from _unknown(folder, inside, "", _KNOWN)
    yield from _unknown(folder / "info", inside, "info/", _KNOWN_INFO)
    for path, expected in repository.fixed_files().items():
        if detail := _difference(path, _read(folder / path), expected):
            yield Drift(f"{inside}/{path}", "git", detail)
    if repository.path and _read(repository.work_tree / ".git") != repository.gitfile:
        yield Drift(f"{repository.path}/.git", "git", "leads to another git directory")
    yield from _replaced(folder, inside)
    yield from _hidden(folder, inside)


def _unknown(folder: Path, inside: str, prefix: str, known: set[str]) -> Iterator[Drift]:
    try:
        names = {item.name: item.is_symlink() for item in os.scandir(folder)}
    except OSError as error:
        yield Drift(f"{inside}/{prefix}".rstrip("/"), "git", f"cannot be read: {error.strerror}")
        return
    for name, is_link in names.items():
        path = f"{prefix}{name}"
        if is_link:
            yield Drift(f"{inside}/{path}", "git", "is a link; patchq makes none there")
        elif name not in known:
            yield Drift(f"{inside}/{path}", "git", _EFFECTS.get(path, "is not of patchq's making"))


def _difference(path: str, found: bytes | None, expected: bytes) -> str:
    if found == expected:
        return ""
    if found is None:
        return "is missing or not a plain file"
    if path == "HEAD":
        return f"is at {found.decode('utf-8', 'replace').strip()[:80]!r}, not at {expected.decode().strip()}"
    return "is not as patchq wrote it"


def _replaced(folder: Path, inside: str) -> Iterator[Drift]:
    """Replace refs, loose or packed: git would show other objects than the ids say."""
    loose = folder / "refs/replace"
    packed = _read(folder / "packed-refs") or b""
    if loose.is_symlink() or any(loose.glob("*")):
        yield Drift(f"{inside}/refs/replace", "git", "git would show other objects than the ids say")
    if re.search(rb"^\S+ refs/replace/", packed, re.MULTILINE):
        yield Drift(f"{inside}/packed-refs", "git", "holds replace refs")


def _hidden(folder: Path, inside: str) -> Iterator[Drift]:
    """Flags in the index that keep `git status` from looking at a file."""
    try:
        hidden = hidden_paths(read_regular(folder / "index", _LIMIT))
    except PatchqError as error:
        yield Drift(f"{inside}/index", "git", error.problems[0].what)
        return
    for path, flag in hidden.items():
        yield Drift(f"{inside}/index", "git", f"hides {path} from git status ({flag})")


def _read(path: Path) -> bytes | None:
    """The bytes of a plain file; None for anything else."""
    try:
        return read_regular(path, _LIMIT)
    except PatchqError:
        return None
