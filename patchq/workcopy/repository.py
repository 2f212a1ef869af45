"""The `.git` of a work copy, and of each of its submodules: which bytes patchq writes there.

Formats: gitrepository-layout, git-config, gitattributes. Everything is written by patchq itself, so that no
template and no hook gets in, and `inspect` can tell each byte that somebody else wrote.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from patchq.errors import Invalid, Problem
from patchq.store import Git, Store
from patchq.store.trees import GITLINK

# Above every attributes file of the tree and of the user: a file's bytes are the blob's.
ATTRIBUTES = b"* -text -eol -ident -filter -working-tree-encoding !diff\n"
_CORE = (
    "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n"
    "\tfsmonitor = false\n"
)


@dataclass(frozen=True)
class Repository:
    """One repository of the work copy at `folder`: the copy's own (`path` empty) or a submodule's.

    `submodules` maps path → name in `.gitmodules`; only the copy's own has any.
    """

    store: Store
    folder: Path
    path: str
    commit: str
    submodules: Mapping[str, str]

    @property
    def inside(self) -> str:
        """The git directory, relative to the work copy."""
        return f".git/modules/{self.path}" if self.path else ".git"

    @cached_property
    def git_dir(self) -> Path:
        return self.folder / self.inside

    @cached_property
    def work_tree(self) -> Path:
        return self.folder / self.path

    @property
    def git(self) -> Git:
        """Hermetic git on this repository."""
        return Git(self.git_dir, self.store.git.home, (("GIT_WORK_TREE", str(self.work_tree)),))

    def fixed_files(self) -> dict[str, bytes]:
        """Path below the git directory → the bytes that have to be there for as long as the copy lives."""
        return {
            "HEAD": f"{self.commit}\n".encode(),
            "config": os.fsencode(self._config()),
            "info/attributes": ATTRIBUTES,
            "objects/info/alternates": os.fsencode(alternates(self.git_dir, self.store.folder)),
        }

    def first_files(self, baseline: str) -> dict[str, bytes]:
        """Further files of a new copy, which git may rewrite: names for people, and where history ends."""
        files = {
            "refs/heads/patchq": f"{self.commit}\n".encode(),
            "refs/tags/baseline": f"{baseline}\n".encode(),
        }
        if baseline in self.store.shallow():
            files["shallow"] = f"{baseline}\n".encode()
        return files

    @property
    def gitfile(self) -> bytes:
        """The content of a submodule's `.git`."""
        return os.fsencode(f"gitdir: {os.path.relpath(self.git_dir, self.work_tree)}\n")

    def _config(self) -> str:
        if self.path:
            return f"{_CORE}\tworktree = {_quote(os.path.relpath(self.work_tree, self.git_dir))}\n"
        sections = (
            f"[submodule {_quote(name)}]\n\tactive = true\n\turl = {_quote(f'./.git/modules/{path}')}\n"
            for path, name in sorted(self.submodules.items())
        )
        return _CORE + "".join(sections)


def repositories(store: Store, folder: Path, commit: str, submodules: Mapping[str, str]) -> Iterator[Repository]:
    """The copy's own repository, then one for each of `submodules` (path → commit).

    Raises `Invalid` where `commit` has no such submodule at that very commit.
    """
    tree = store.commit(commit).tree
    pinned = store.entries(tree, submodules)
    wrong = [
        Problem(f"{path!r} is no submodule at {identity} in {commit}")
        for path, identity in submodules.items()
        if path not in pinned or (pinned[path].mode, pinned[path].id) != (GITLINK, identity)
    ]
    if wrong:
        raise Invalid(wrong)
    names = _names(store, tree) if submodules else {}
    yield Repository(store, folder, "", commit, {path: names[path] for path in submodules if path in names})
    for path, identity in submodules.items():
        yield Repository(store, folder, path, identity, {})


def alternates(git_dir: Path, store: Path) -> str:
    """The line that borrows the store's objects, relative, because work areas move."""
    return os.path.relpath((store / "objects").resolve(), git_dir.resolve() / "objects") + "\n"


def _names(store: Store, tree: str) -> dict[str, str]:
    """Path → name of the submodules that `.gitmodules` lists."""
    listed = store.git.try_run(
        ("config", "--blob", f"{tree}:.gitmodules", "--null", "--get-regexp", r"^submodule\..*\.path$")
    )
    pairs = (record.partition("\n") for record in os.fsdecode(listed.stdout).split("\0") if record)
    return {path: key[len("submodule.") : -len(".path")] for key, _, path in pairs}


def _quote(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'
