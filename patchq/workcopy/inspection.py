"""Re-proving a work copy from its contents: every tracked byte hashed, everything importable accounted for.

No cache is trusted (no index, no times) and no git runs in the copy: what is due comes from the trees in the
store, each of which is known by its hash. One pass over the folders, through descriptors, so that no link
leads out of the copy.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from patchq.errors import Prevented
from patchq.store import Entry, Store, blob_id
from patchq.store.trees import FOLDER, GITLINK, SYMLINK
from patchq.workcopy.create import NO_SUBMODULES
from patchq.workcopy.drift import Drift, What
from patchq.workcopy.gitcheck import check_git
from patchq.workcopy.importable import CACHE, holds_modules, loadable, why_importable
from patchq.workcopy.repository import repositories

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DEEPEST = 100


@dataclass(frozen=True)
class Inspection:
    """What an inspection found: deviations, and untracked files that nothing could import.

    A folder without anything importable stands in `untracked` as one name that ends in `/`.
    """

    drift: tuple[Drift, ...]
    untracked: tuple[str, ...]


def inspect(
    store: Store,
    folder: Path,
    commit: str,
    submodules: Mapping[str, str] = NO_SUBMODULES,
    importable_roots: tuple[str, ...] = (".",),
) -> Inspection:
    """Compare the work copy at `folder` with `commit` and its `submodules` (path → commit).

    `importable_roots` are folders below the copy that stand on the import path; the copy's top level counts
    always. Raises `Prevented` or `Refused` when the store lacks or has damaged what is due.
    """
    if folder.is_symlink():  # who made it a link can lead it elsewhere once it has been looked at
        return Inspection((Drift("", "type", "a folder is due here, and not a link"),), ())
    folder = folder.resolve()
    expected = tuple(repositories(store, folder, commit, submodules))
    walk = _Walk(store, folder, submodules, importable_roots)
    try:
        descriptor = os.open(folder, _OPEN_FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return Inspection((Drift("", "missing", "there is no such work copy"),), ())
    except OSError as error:
        raise Prevented(f"cannot be searched: {error.strerror}", where=str(folder)) from error
    try:
        walk.folder(descriptor, "", store.commit(commit).tree)
    finally:
        os.close(descriptor)
    walk.drift += [drift for repository in expected for drift in check_git(repository)]
    return Inspection(tuple(sorted(walk.drift)), tuple(sorted(walk.untracked)))


class _Walk:
    """One pass over a work copy."""

    def __init__(self, store: Store, top: Path, submodules: Mapping[str, str], roots: tuple[str, ...]) -> None:
        self._store = store
        self._top = top
        self._submodules = submodules
        self._roots = tuple(os.path.normpath(root).rstrip("/") + "/" for root in roots)
        self.drift: list[Drift] = []
        self.untracked: list[str] = []

    def note(self, path: str, what: What, detail: str = "") -> None:
        self.drift.append(Drift(path, what, detail))

    def folder(self, descriptor: int, prefix: str, tree: str) -> None:
        """Compare one open folder, and all below it, with its tree."""
        entries = self._store.folder_entries(tree) if tree else {}
        with os.scandir(descriptor) as listing:
            found = {item.name: item for item in listing}
        if not prefix or prefix[:-1] in self._submodules:
            found.pop(".git", None)
        elif entries and ".git" in found:
            del found[".git"]
            self.note(f"{prefix}.git", "git", "git would take this folder for a repository of its own")
        names = frozenset(found)
        for name, entry in entries.items():
            item = found.pop(name, None)
            if item is not None:
                self._tracked(descriptor, prefix + name, item, entry)
            elif entry.mode != GITLINK or prefix + name in self._submodules:
                self.note(prefix + name, "missing", "the whole folder" if entry.mode == FOLDER else "")
        for item in found.values():
            self._untracked(descriptor, prefix, item, names)

    def _tracked(self, parent: int, path: str, item: os.DirEntry[str], entry: Entry) -> None:
        is_folder = item.is_dir(follow_symlinks=False)
        if entry.mode in (FOLDER, GITLINK):
            if not is_folder:
                self.note(path, "type", "a folder is due here")
                return
            with self._opened(parent, path) as descriptor:
                if descriptor is not None:
                    self.folder(descriptor, path + "/", self._tree(path, entry))
        elif entry.mode == SYMLINK:
            if not item.is_symlink():
                self.note(path, "type", "a symbolic link is due here")
            elif blob_id(os.readlink(os.fsencode(item.name), dir_fd=parent)) != entry.id:
                self.note(path, "modified", "the link leads elsewhere")
        elif not item.is_file(follow_symlinks=False):
            self.note(path, "type", "a plain file is due here")
        else:
            self._file(parent, path, item.name, entry)

    def _tree(self, path: str, entry: Entry) -> str:
        """The tree that is due below a folder; none (everything is untracked) in a submodule left empty."""
        if entry.mode == FOLDER:
            return entry.id
        commit = self._submodules.get(path)
        return self._store.commit(commit).tree if commit else ""

    def _file(self, parent: int, path: str, name: str, entry: Entry) -> None:
        # Plain calls, because this runs for every file of the copy.
        try:
            descriptor = os.open(name, _OPEN_FILE, dir_fd=parent)
        except OSError as error:
            self.note(path, "modified", f"cannot be read: {error.strerror}")
            return
        try:
            status = os.fstat(descriptor)
            data = _read_all(descriptor, status.st_size)
        except OSError as error:
            self.note(path, "modified", f"cannot be read: {error.strerror}")
            return
        finally:
            os.close(descriptor)
        if blob_id(data) != entry.id:
            self.note(path, "modified")
        is_executable = bool(status.st_mode & 0o100)
        if is_executable != (entry.mode == "100755"):
            self.note(path, "mode", f"is {'' if is_executable else 'not '}executable")

    def _untracked(self, parent: int, prefix: str, item: os.DirEntry[str], siblings: frozenset[str]) -> None:
        path = prefix + item.name
        if item.name == CACHE and self._is_importable(prefix + "x"):
            self._cache(parent, path, item)
        elif item.is_dir(follow_symlinks=False):
            self._search(parent, path)
        elif why := self._is_importable(path) and self._why(path, item, siblings):
            self.note(path, "added", why)
        else:
            self.untracked.append(path)

    def _why(self, path: str, item: os.DirEntry[str], siblings: frozenset[str]) -> str:
        if item.is_symlink() and item.is_dir() and holds_modules(self._top / path):
            return "a link to a folder with modules that no commit has"
        return why_importable(item.name, siblings)

    def _is_importable(self, path: str) -> bool:
        """Whether a module there could be imported: below a root, at top level, or as a top-level package."""
        folder, _, name = path.rpartition("/")
        is_top = not folder or ("/" not in folder and name.startswith("__init__."))
        return is_top or any(root == "./" or path.startswith(root) for root in self._roots)

    def _search(self, parent: int, path: str) -> None:
        """Look through an untracked folder; without anything importable it is listed as one name."""
        if path.count("/") > _DEEPEST:
            self.note(path, "added", "is nested too deep to be searched")
            return
        drifts, listed = len(self.drift), len(self.untracked)
        with self._opened(parent, path) as descriptor:
            if descriptor is not None:
                self.folder(descriptor, path + "/", "")
        if len(self.drift) == drifts:
            self.untracked[listed:] = [path + "/"]

    def _cache(self, parent: int, path: str, item: os.DirEntry[str]) -> None:
        top = shlex.quote(str(self._top))
        remedy = f"remove all of them with: find {top} -name {CACHE} -prune -exec rm -r {{}} +"
        if not item.is_dir(follow_symlinks=False):
            self.note(path, "bytecode", f"is not a folder; {remedy}")
            return
        with self._opened(parent, path) as descriptor:
            if descriptor is None:
                return
            names = os.listdir(descriptor)  # noqa: PTH208 - Path takes no descriptor
            count = sum(loadable(descriptor, name, parent) for name in names)
        if count:
            self.note(path, "bytecode", f"Python could load {count} files of it instead of the sources; {remedy}")
        odd = [name for name in names if not name.endswith(".pyc") and why_importable(name, names)]
        for name in odd:
            self.note(f"{path}/{name}", "added", "a module that no commit has")

    @contextmanager
    def _opened(self, parent: int, path: str) -> Iterator[int | None]:
        """The folder at `path`, whose parent is open as `parent`; None, noted, if it cannot be."""
        try:
            descriptor = os.open(path.rpartition("/")[2], _OPEN_FOLDER, dir_fd=parent)
        except OSError as error:
            self.note(path, "type", f"cannot be searched: {error.strerror}")
            yield None
            return
        try:
            yield descriptor
        finally:
            os.close(descriptor)


def _read_all(descriptor: int, size: int) -> bytes:
    """The bytes of an open file, in one call where it has the `size` it said."""
    data = os.read(descriptor, size + 1)
    if len(data) == size:
        return data
    pieces = [data]
    while piece := os.read(descriptor, 1 << 20):
        pieces.append(piece)
    return b"".join(pieces)
