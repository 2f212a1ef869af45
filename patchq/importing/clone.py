"""A clone that belongs to somebody: commits, objects and the state of its work tree, read and never written."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.authoring.newdiff import make_diff
from patchq.authoring.newheader import new_header
from patchq.errors import Invalid, Refused
from patchq.importing.model import Incoming
from patchq.store import Entry, Git, Store, blob_id
from patchq.store.git import last_line
from patchq.store.trees import GITLINK

_RANGE = r"(?P<old>[^.\s]\S*?)(?P<dots>\.{2,3})(?P<new>\S*)"
_TRAILER = r"(?mi)^Patchq-Patch: *(\S+)\n?"
_FORMAT = "--format=%H%x00%P%x00%an <%ae>%x00%at%x00%B"


@dataclass(frozen=True)
class Clone:
    """A repository at `folder`, with a work tree or bare; `store` is where objects that are needed go."""

    folder: Path
    store: Store

    @property
    def git(self) -> Git:
        """Hermetic git on the clone, which writes nothing there."""
        inner = self.folder / ".git"
        return Git(inner if inner.exists() else self.folder, self.store.git.home,
                   (("GIT_WORK_TREE", str(self.folder)),) if inner.exists() else ())  # fmt: skip

    def resolve(self, name: str) -> str:
        """The full id of the commit that `name` means; raises `Invalid` where there is none."""
        if name.startswith("-"):
            raise Invalid(f"{name!r} looks like an option", where=str(self.folder))
        for form in (name, f"refs/remotes/origin/{name}"):
            found = self.git.try_run(("rev-parse", "--verify", "--quiet", "--end-of-options", f"{form}^{{commit}}"))
            if found.ok:
                return found.text.strip().splitlines()[-1]
        raise Invalid(f"there is no commit {name!r}", where=str(self.folder))

    def bring(self, trees: Sequence[str]) -> None:
        """Copy trees with all that is below them into the store."""
        missing = [name for name in trees if not self.store.has(name)]
        if not missing:
            return
        listing = self.git.run(("rev-list", "--objects", "--no-walk", "--stdin"), stdin=_lines(missing))
        names = b"".join(row[:40] + b"\n" for row in listing.splitlines())
        pack = self.git.run(("pack-objects", "--stdout", "--quiet", "--threads=1"), stdin=names)
        done = self.store.git.try_run(("index-pack", "--stdin", "--strict", "--threads=1"), stdin=pack)
        if not done.ok:
            raise Refused(f"its objects are not sound: {last_line(done)}", where=str(self.folder))

    def blob(self, identity: str) -> bytes | None:
        """A blob by its id, full or short; None where the clone lacks it or has several."""
        found = self.git.try_run(("cat-file", "blob", identity))
        return found.stdout if found.ok else None

    def commits(self, span: str) -> Iterator[Incoming]:
        """`A..B`: a patch a commit, oldest first; `A...B`: one patch, what B changed since it left A."""
        found = re.fullmatch(_RANGE, span)
        if not found:
            raise Invalid(f"{span!r} is no range", hint="A..B: a patch a commit; A...B: all of them in one patch")
        old, new = self.resolve(found["old"]), self.resolve(found["new"] or "HEAD")
        if found["dots"] == "...":
            base = self.git.line(("merge-base", old, new))
            title = (found["new"] or "changes").removeprefix("refs/").removesuffix("/head")
            yield Incoming(title, self._diff(base, new), f"{self.folder} {span}", 1, origin=f"other, commit:{new}")
            return
        listed = self.git.run(("rev-list", "--reverse", "--topo-order", f"{old}..{new}")).decode().split()
        if not listed:
            raise Invalid(f"the range {span} is empty", where=str(self.folder))
        for identity in listed:
            yield self._commit(identity)

    def _commit(self, identity: str) -> Incoming:
        text = self.git.run(("log", "-1", _FORMAT, identity)).decode("utf-8", "replace")
        name, parents, author, seconds, message = text.split("\0", 4)
        if len(parents.split()) != 1:
            what = "is a merge" if parents else "has no parent"
            raise Invalid(f"{name[:12]} {what}; a patch is made from one parent", hint="A...B makes one patch of all")
        told = re.search(_TRAILER, message)
        subject, _, body = re.sub(_TRAILER, "", message).strip().partition("\n")
        header = new_header(subject, body.strip(), author, int(seconds))
        origin = f"\nOrigin: other, commit:{name}\nLast-Update: ".encode()
        data = header.replace(b"\nLast-Update: ", origin) + self._diff(parents, identity)
        return Incoming(told[1] if told else subject, data, f"{self.folder} {name[:12]}", 1)

    def _diff(self, old: str, new: str) -> bytes:
        trees = [self.git.line(("rev-parse", f"{name}^{{tree}}")) for name in (old, new)]
        self.bring(trees)
        text = make_diff(self.store, *trees)
        if not text:
            raise Invalid(f"nothing changes from {old[:12]} to {new[:12]}", where=str(self.folder))
        return text

    def dirty_trees(self) -> tuple[str, str]:
        """The tree of HEAD and the tree of what stands in the work tree now, byte for byte.

        New files count unless git ignores them. Both trees are in the store.
        """
        head = self.git.line(("rev-parse", "HEAD^{tree}"))
        self.bring([head])
        known = dict(self.store.walk(head))
        skipped = {row[2:] for row in self._names(("ls-files", "-z", "-t")) if row.startswith("S ")}
        tracked = set(self._names(("ls-files", "-z")))
        new = set(self._names(("ls-files", "-z", "--others", "--exclude-standard")))
        changes: dict[str, Entry | None] = {}
        for path in sorted({*known, *tracked, *new} - skipped):
            there = known.get(path)
            if there and there.mode == GITLINK:
                continue
            entry = read_entry(self.store, self.folder / path, there)
            if entry != there:
                changes[path] = entry
        return head, self.store.update_tree(head, changes)

    def _names(self, args: Sequence[str]) -> list[str]:
        return [name for name in os.fsdecode(self.git.run(args, cwd=self.folder)).split("\0") if name]


def read_entry(store: Store, path: Path, known: Entry | None = None) -> Entry | None:
    """A file or link as an entry whose blob is in the store; None where there is none, or a folder.

    `known` is an entry whose blob is in the store already, which is what most files still are.
    """
    there = look(path)
    if there is None:
        return None
    mode, data = there
    identity = blob_id(data)
    is_known = known is not None and known.id == identity
    return Entry(mode, identity if is_known else store.write("blob", data))


def look(path: Path) -> tuple[str, bytes] | None:
    """The mode and bytes of a file, or of a link its target; None for anything else."""
    try:
        status = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISLNK(status.st_mode):
        return "120000", os.readlink(os.fsencode(path))  # noqa: PTH115 - bytes
    if not stat.S_ISREG(status.st_mode):
        return None
    return "100755" if status.st_mode & 0o100 else "100644", path.read_bytes()


def _lines(names: Sequence[str]) -> bytes:
    return "".join(f"{name}\n" for name in names).encode()
