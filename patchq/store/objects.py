"""The store: a bare repository of patchq's own, read and written in this process."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from patchq.document import writing
from patchq.errors import PatchqError, Prevented, Refused
from patchq.exclusive import Use
from patchq.store.git import Git, make_home
from patchq.store.leftovers import clear_leftovers
from patchq.store.pack import pack_of
from patchq.store.trees import FOLDER, GITLINK, Entry, Tree, format_tree, grow, object_id, parse_tree

if TYPE_CHECKING:
    from patchq.store.gitpython import GitCmdObjectDB

IDENTITY = "patchq <patchq@invalid>"
_REMEMBERED = 1024
# As git itself decides whether what it fetched stays a pack (`fetch.unpackLimit`).
_PACKED_FROM = 100


@dataclass(frozen=True)
class Commit:
    """The parts of a commit object that patchq reads: ids, and the committer's time as `SECONDS ZONE`."""

    id: str
    tree: str
    parents: tuple[str, ...]
    committed: str


class Store:
    """Objects below `folder`, a bare SHA-1 repository that only patchq writes to.

    Trees and blobs are addressed by id; every write is idempotent, so two processes may share a store.
    """

    def __init__(self, folder: Path) -> None:
        # git children work elsewhere, so that a relative path would lead them astray.
        self.folder = folder.absolute()
        self.git = Git(self.folder, self.folder / "home")
        self._trees: dict[str, Mapping[str, Entry]] = {}
        self._held: dict[str, tuple[str, bytes]] | None = None
        self._stored: set[str] = set()

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Open the store at `folder`, making it if it is not there; raises `Prevented` where that fails."""
        store = cls(folder)
        try:
            make_home(store.git.home)
            if not (folder / "HEAD").exists():
                store.git.run(("init", "--quiet", "--bare", "--template=", str(store.folder)))
        except OSError as error:
            raise Prevented(f"the store cannot be made: {error.strerror}", where=str(folder)) from error
        with contextlib.suppress(OSError):  # one that cannot be written has nothing half done
            use = Use(store.folder / ".in-use", partial(clear_leftovers, store.folder))
            store.git = replace(store.git, use=use)
        return store

    @cached_property
    def _objects(self) -> GitCmdObjectDB:
        """GitPython's view of the objects: one `cat-file --batch` that answers all reads, and loose writes.

        Not its `Repo`, which lets `GIT_*` of the caller decide what a repository is.
        """
        from patchq.store.gitpython import GitCmdObjectDB, GitCommand

        command = GitCommand(self.folder)
        command.update_environment(**self.git.overriding())
        return GitCmdObjectDB(str(self.folder / "objects"), command)

    def read(self, identity: str, kind: str) -> bytes:
        """The content of an object, hashed again.

        Raises `Prevented` when the store lacks it or it is of another kind, `Refused` when it is damaged.
        """
        found, content = (self._held or {}).get(identity) or self._raw(identity, kind)
        if object_id(found, content) != identity:
            raise self._damaged(identity, kind)
        if found != kind:
            raise Prevented(f"{identity} is a {found}, not a {kind}", where=str(self.folder))
        return content

    def _raw(self, identity: str, kind: str) -> tuple[str, bytes]:
        """The kind and content of an object as they stand on the disk; no kind where they are garbled."""
        from patchq.store.gitpython import GitCommandNotFound

        try:
            found = self._objects.stream(bytes.fromhex(identity))
            return found.type.decode(), found.read()
        except GitCommandNotFound as error:
            raise Prevented("cannot start git: there is none on PATH") from error
        except ValueError as error:
            if "missing" in str(error) and not self._loose(identity).exists():
                raise Prevented(f"the store has no {kind} {identity}", where=str(self.folder)) from None
        except OSError:
            pass
        self.__dict__.pop("_objects", None)  # git ends where an object is garbled; the next read starts another
        return "", b""

    def _loose(self, identity: str) -> Path:
        return self.folder / "objects" / identity[:2] / identity[2:]

    def _damaged(self, identity: str, kind: str) -> PatchqError:
        """Git never writes what it has, so that a damaged object stays until somebody removes its file.

        That is not to be advised for a sound one, where it is git that does not answer.
        """
        loose = self._loose(identity)
        with contextlib.suppress(OSError, zlib.error):
            whole = zlib.decompress(loose.read_bytes())
            if hashlib.sha1(whole, usedforsecurity=False).hexdigest() == identity:
                return Prevented(f"git does not answer for the {kind} {identity}, which is sound", where=str(loose))
        hint = "remove this file, and run it again" if loose.exists() else "remove the store, and run it again"
        where = str(loose if loose.exists() else self.folder)
        return Refused(f"the store's {kind} {identity} is damaged", where=where, hint=hint)

    def has(self, identity: str) -> bool:
        """Whether the store holds the object."""
        return self.git.try_run(("cat-file", "-e", identity)).ok

    def shallow(self) -> frozenset[str]:
        """The commits whose parents are not here: where history ends."""
        listed = self.folder / "shallow"
        return frozenset(listed.read_text().split()) if listed.exists() else frozenset()

    def write(self, kind: str, data: bytes) -> str:
        """Store an object and return its id. What is there already is not written again."""
        identity = object_id(kind, data)
        if self._held is None:
            self._write_loose(identity, kind, data)
        else:
            self._held[identity] = (kind, data)
        return identity

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Hold what is written in the block, and store it when the block ends well: many objects as one pack.

        Until then this store reads them, and no other process does.
        """
        held: dict[str, tuple[str, bytes]] = {}
        self._held = held
        try:
            yield
        finally:
            self._held = None
        new = {identity: held[identity] for identity in held if identity not in self._stored}
        new = self._missing(new) if len(new) >= _PACKED_FROM else new
        if len(new) >= _PACKED_FROM:
            self.git.run(("index-pack", "--stdin", "--threads=1"), stdin=pack_of(new.values()))
        else:
            for identity, (kind, data) in new.items():
                self._write_loose(identity, kind, data)
        self._stored.update(held)

    def _missing(self, held: Mapping[str, tuple[str, bytes]]) -> dict[str, tuple[str, bytes]]:
        """Those objects that the store lacks."""
        asked = "".join(f"{identity}\n" for identity in held).encode()
        answer = self.git.run(("cat-file", "--batch-check"), stdin=asked).splitlines()
        return {row[:40].decode(): held[row[:40].decode()] for row in answer if row.endswith(b" missing")}

    def _write_loose(self, identity: str, kind: str, data: bytes) -> None:
        place = str(self._loose(identity))
        if not os.path.exists(place):  # noqa: PTH110 - plain strings, because this runs for every object
            _write_loose(place, zlib.compress(b"%s %d\0" % (kind.encode(), len(data)) + data, 1))

    def commit(self, identity: str) -> Commit:
        """Parse a commit object."""
        headers = self.read(identity, "commit").partition(b"\n\n")[0].decode("utf-8", "surrogateescape")
        pairs = [line.partition(" ")[::2] for line in headers.splitlines() if not line.startswith(" ")]
        fields = dict(reversed(pairs))
        seconds, zone = fields["committer"].rsplit(" ", 2)[-2:]
        parents = tuple(value for key, value in pairs if key == "parent")
        return Commit(identity, fields["tree"], parents, f"{seconds} {zone}")

    def write_commit(
        self, tree: str, parents: Iterable[str], author: str, authored: str, committed: str, message: bytes
    ) -> str:
        """Write a commit by patchq's own hand: `author` is `NAME <MAIL>`, times are `SECONDS ZONE`."""
        lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
        lines += [f"author {author} {authored}", f"committer {IDENTITY} {committed}", "", ""]
        return self.write("commit", "\n".join(lines).encode("utf-8", "surrogateescape") + message)

    def folder_entries(self, tree: str) -> dict[str, Entry]:
        """The direct entries of a tree."""
        return dict(self._tree(tree))

    def _tree(self, tree: str) -> Mapping[str, Entry]:
        """The entries of a tree, which was hashed when it was read or written; the latest ones are remembered."""
        entries = self._trees.pop(tree, None)
        return self._remember(tree, parse_tree(self.read(tree, "tree")) if entries is None else entries)

    def _remember(self, tree: str, entries: Mapping[str, Entry]) -> Mapping[str, Entry]:
        if len(self._trees) >= _REMEMBERED:
            del self._trees[next(iter(self._trees))]
        self._trees[tree] = entries
        return entries

    def entries(self, tree: str, paths: Iterable[str]) -> dict[str, Entry]:
        """What stands in `tree` at each of `paths`: the entry itself, a file where a parent folder was meant,
        or all that is below it if it is a folder. Paths that are free are left out."""
        found: dict[str, Entry] = {}
        for path in paths:
            self._entries_at(tree, "", path.split("/"), found)
        return found

    def _entries_at(self, tree: str, prefix: str, parts: list[str], found: dict[str, Entry]) -> None:
        entry = self._tree(tree).get(parts[0])
        if entry is None:
            return
        here = prefix + parts[0]
        if entry.mode != FOLDER:
            found[here] = entry
        elif len(parts) > 1:
            self._entries_at(entry.id, here + "/", parts[1:], found)
        else:
            found.update((f"{here}/{path}", below) for path, below in self.walk(entry.id))

    def walk(self, tree: str) -> Iterator[tuple[str, Entry]]:
        """Every path below `tree` that is not a folder, with its entry."""
        for name, entry in self._tree(tree).items():
            if entry.mode == FOLDER:
                yield from ((f"{name}/{path}", below) for path, below in self.walk(entry.id))
            else:
                yield name, entry

    def write_tree(self, files: Iterable[tuple[str, Entry]]) -> str:
        """Write the trees that hold `files` and return the root's id."""
        return self._close(grow(files), None)

    def update_tree(self, tree: str, changes: Mapping[str, Entry | None]) -> str:
        """The tree after `changes` (None: the path goes); folders that become empty go too."""
        removed = {path for path, entry in changes.items() if entry is None}
        grown = grow((path, entry) for path, entry in changes.items() if entry is not None)
        for path in removed:
            folder = grown
            *parents, name = path.split("/")
            for parent in parents:
                folder = folder.folders.setdefault(parent, Tree())
            folder.entries.setdefault(name, _GONE)
        return self._close(grown, tree)

    def _close(self, folder: Tree, base: str | None) -> str:
        entries = self.folder_entries(base) if base else {}
        for name, entry in folder.entries.items():
            entries[name] = entry
        for name, child in folder.folders.items():
            before = entries.get(name)
            below = before.id if before and before.mode == FOLDER else None
            closed = self._close(child, below)
            if closed != _EMPTY_TREE:
                entries[name] = Entry(FOLDER, closed)
            elif name not in folder.entries:
                entries[name] = _GONE
        kept = {name: entry for name, entry in entries.items() if entry is not _GONE}
        tree = self.write("tree", format_tree(kept))
        self._remember(tree, kept)
        return tree

    def submodules(self, tree: str) -> dict[str, str]:
        """Path → commit of every submodule in a tree."""
        return {path: entry.id for path, entry in self.walk(tree) if entry.mode == GITLINK}


def _write_loose(place: str, packed: bytes) -> None:
    """Write a loose object (gitrepository-layout, objects/) as git does: beside its place, then by one rename."""
    folder = place.rpartition("/")[0]
    temporary = f"{folder}/tmp_obj_{secrets.token_hex(6)}"
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)  # noqa: PTH102
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
    try:
        with writing(Path(place)), os.fdopen(descriptor, "wb") as stream:
            stream.write(packed)  # buffered: a raw write on a disk that fills up writes a part and says nothing
        os.rename(temporary, place)  # noqa: PTH104
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        raise


_GONE = Entry("0", "0" * 40)
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
