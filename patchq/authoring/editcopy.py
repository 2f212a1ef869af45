"""Edit copies: ordinary git repositories with a selection's commits on the branch `patchq`, for people to change.

What the copy is for stands in `.git/patchq/edit.json`. Its objects are its own, so that it can be moved, collected
and checked like any other repository; history ends at the baseline.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import Field

from patchq.document import Document, One, load_json, sha256, to_json, write_atomic
from patchq.errors import Invalid, Prevented, Refused
from patchq.exclusive import scratch
from patchq.queue.baseline import CommitId, Sha256
from patchq.store import Git, Store
from patchq.store.git import last_line, own_identity
from patchq.store.objects import IDENTITY
from patchq.workcopy.places import building

BRANCH = "patchq"
_REF = f"refs/heads/{BRANCH}"
_CANONICAL = "refs/patchq/canonical"
_STATE = Path(".git/patchq/edit.json")
# A file's bytes are the blob's, whatever the tree or the user says about line ends and filters.
_ATTRIBUTES = b"* -text -eol -ident -filter -working-tree-encoding\n"
_UNDER_WAY = {
    "rebase-merge": "a rebase is under way",
    "rebase-apply": "a rebase or `git am` is under way",
    "MERGE_HEAD": "a merge is under way",
    "CHERRY_PICK_HEAD": "a cherry-pick is under way",
    "REVERT_HEAD": "a revert is under way",
}


class KnownPatch(Document):
    """A patch that the copy has a commit of: its name, and its file's digest when the two last agreed."""

    name: str
    sha256: Sha256


class Agreement(Document):
    """A point at which the branch and the queue said the same: the tip, and the patches in their order."""

    tip: CommitId
    patches: tuple[KnownPatch, ...]

    def knows(self, name: str) -> str | None:
        """The digest that a patch had then; None where it was not there."""
        return next((patch.sha256 for patch in self.patches if patch.name == name), None)


class Pending(Document):
    """A refresh that was about to write the queue: it counts as soon as the queue has `files` (path → SHA-256, None:
    gone). The branch then moves from the tip `before`, and the index follows where `is_folded`."""

    before: CommitId
    agreed: Agreement
    files: dict[str, Sha256 | None]
    is_folded: bool


class EditState(Document):
    """`edit.json`. `queue` is the `series/` folder, relative to the copy."""

    schema_version: One = Field(default=1, alias="schema")
    queue: str
    target: str
    variant: str | None
    upstream: str
    base: CommitId
    agreed: Agreement
    pending: Pending | None = None

    @property
    def scope(self) -> str:
        return self.target + (f"+{self.variant}" if self.variant else "")


@dataclass(frozen=True)
class EditCopy:
    """The edit copy at `folder`; its git runs hermetically, with the home of patchq's own store."""

    store: Store
    folder: Path

    @cached_property
    def state(self) -> EditState:
        return load_json(self.folder / _STATE, EditState)

    @property
    def git(self) -> Git:
        variables = (("GIT_WORK_TREE", str(self.folder)), *_committer())
        return Git(self.folder / ".git", self.store.git.home, variables)

    def save(self, state: EditState) -> None:
        """Write what the copy is for and where it stands."""
        write_atomic(self.folder / _STATE, to_json(state.model_dump(by_alias=True, mode="json")))
        self.__dict__["state"] = state

    def tip(self) -> str:
        """The commit of the branch `patchq`, which has to be the one that is checked out, with nothing under way."""
        for name, what in _UNDER_WAY.items():
            if (self.folder / ".git" / name).exists():
                raise Refused(what, where=str(self.folder), hint="finish it, or take it back with --abort")
        head = self.git.try_run(("symbolic-ref", "--quiet", "HEAD"))
        if head.text.strip() != _REF:
            raise Refused(f"the branch {BRANCH} is not checked out", where=str(self.folder),
                          hint=f"run: git switch {BRANCH}")  # fmt: skip
        return self.git.line(("rev-parse", "--verify", f"{_REF}^{{commit}}"))

    def dirty(self) -> tuple[list[str], list[str]]:
        """The tracked paths with uncommitted changes, and the untracked ones that are not ignored."""
        told = self.git.run(("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all"), cwd=self.folder)
        rows = [row for row in os.fsdecode(told).split("\0") if row]
        return [row[3:] for row in rows if row[:2] != "??"], [row[3:] for row in rows if row[:2] == "??"]

    def bring(self, commit: str) -> None:
        """Take a commit of the copy, with what the store lacks, into the store."""
        fetch = ("-c", "protocol.version=2", "fetch", "--quiet", "--no-tags", "--no-recurse-submodules",
                 "--update-shallow", str(self.folder), f"+{commit}:{self._kept}")  # fmt: skip
        outcome = self.store.git.try_run(fetch)
        if not outcome.ok:
            raise Prevented(f"its commits cannot be read: {last_line(outcome)}", where=str(self.folder))

    @property
    def _kept(self) -> str:
        """The ref of the store for what came from this copy; two copies at once do not meet there."""
        return f"refs/patchq/copy/{sha256(os.fsencode(self.folder))[:16]}"

    def work_tree(self, *, untracked: Sequence[str] = ()) -> str:
        """The tree of what stands in the work tree: every tracked file, and `untracked` ones; in the store."""
        with self._scratch_index() as git:
            git.run(("add", "--update", "."), cwd=self.folder)
            if untracked:
                names = b"".join(os.fsencode(path) + b"\0" for path in untracked)
                git.run(("update-index", "--add", "-z", "--stdin"), cwd=self.folder, stdin=names)
            tree = git.line(("write-tree",))
            commit = git.line(("commit-tree", "-m", "uncommitted", "-p", self.tip(), tree))
        self.bring(commit)
        return tree

    def receive(self, commit: str) -> None:
        """Take a commit of the store into the copy."""
        fetch = ("-c", "protocol.version=2", "fetch", "--quiet", "--no-tags", "--no-recurse-submodules",
                 "--update-shallow", str(self.store.folder), f"+{commit}:{_CANONICAL}")  # fmt: skip
        self.git.run(fetch)

    def move(self, commit: str, before: str, why: str) -> None:
        """Let the branch name `commit`, which the copy holds; the reflog keeps `before`."""
        self.git.run(("update-ref", "-m", f"patchq: {why}", _REF, commit, before))

    def set_index(self, tree: str) -> None:
        """Let the index hold `tree`; the work tree stays as it is."""
        self.git.run(("read-tree", tree), cwd=self.folder)
        self.git.try_run(("update-index", "-q", "--refresh"), cwd=self.folder)

    def holds(self, commit: str) -> bool:
        """Whether the index and the tracked files are those of `commit`, whatever the branch names."""
        return self.git.try_run(("diff-index", "--quiet", commit, "--"), cwd=self.folder).ok

    def check_out(self, commit: str, before: str, why: str) -> None:
        """Move the branch, the index and a clean work tree from `before` to `commit`; the branch comes last."""
        self.receive(commit)
        self.git.try_run(("update-index", "-q", "--refresh"), cwd=self.folder)  # a copy may have been moved or restored
        self.git.run(("read-tree", "-m", "-u", before, commit), cwd=self.folder)
        self.move(commit, before, why)

    def settle(self, digests: Mapping[str, str]) -> None:
        """Finish a refresh that was about to write the queue, or forget it if the queue was not written.

        `digests` are those of the queue's files now. Raises `Refused` where the branch has moved on since.
        """
        pending = self.state.pending
        if pending is None:
            return None
        if any(digests.get(path) != digest for path, digest in pending.files.items()):
            return self.save(self.state.model_copy(update={"pending": None}))
        tip, canonical = self.tip(), pending.agreed.tip
        if tip == pending.before:
            self.move(canonical, tip, "refresh")
        elif not self.git.try_run(("merge-base", "--is-ancestor", canonical, tip)).ok:
            raise Refused("a refresh was interrupted, and the branch has moved on since", where=str(self.folder),
                          hint=f"run: git rebase --onto {_CANONICAL} {pending.before[:12]}")  # fmt: skip
        if pending.is_folded:
            self.set_index(self.git.line(("rev-parse", f"{canonical}^{{tree}}")))
        return self.save(self.state.model_copy(update={"agreed": pending.agreed, "pending": None}))

    @contextmanager
    def _scratch_index(self) -> Iterator[Git]:
        with scratch() as room:
            index = room / "index"
            # With the index's own time: git compares it with the files' times to find edits of the same second.
            shutil.copy2(self.folder / ".git" / "index", index)
            yield self.git.with_variables({"GIT_INDEX_FILE": str(index)})


def create(store: Store, folder: Path, state: EditState) -> EditCopy:
    """Make the edit copy of `state` at `folder`, which is not there yet, in one step."""
    with building(folder.absolute()) as room:
        copy = EditCopy(store, room)
        git = copy.git
        Git(room / ".git", store.git.home).run(("init", "--quiet", "--template=", str(room)))
        for setting in (("core.autocrlf", "false"), ("core.fileMode", "true"), ("rebase.autoSquash", "true")):
            git.run(("config", *setting))
        write_atomic(room / ".git/info/attributes", _ATTRIBUTES)
        git.run(("symbolic-ref", "HEAD", _REF))
        depth = f"--depth={len(state.agreed.patches) + 1}"
        git.run(("-c", "protocol.version=2", "fetch", "--quiet", "--no-tags", "--no-recurse-submodules", depth,
                 "--update-shallow", str(store.folder), f"+{state.agreed.tip}:{_CANONICAL}"))  # fmt: skip
        git.run(("update-ref", "refs/tags/baseline", state.base))
        git.run(("update-ref", "-m", "patchq: edit", _REF, state.agreed.tip))
        git.run(("read-tree", "--reset", "-u", state.agreed.tip), cwd=room)
        copy.save(state)
        (room / ".git/FETCH_HEAD").unlink(missing_ok=True)
    return EditCopy(store, folder.absolute())


def find_copy(start: Path) -> Path | None:
    """The edit copy that `start` is in, looking upwards."""
    return next((folder for folder in (start, *start.parents) if is_copy(folder)), None)


def copy_meant(given: Path | None) -> Path:
    """The edit copy at or around `given`, else around the current folder, else the only one of the queue here.

    Raises `Invalid` where there is none or more than one.
    """
    start = (given or Path.cwd()).absolute()
    found = find_copy(start)
    if found:
        return found
    if given:
        raise Invalid("there is no edit copy here", where=str(given), hint="make one with: patchq edit --target TARGET")
    several = sorted(state.parents[2] for state in start.glob(f"edit/*/*/{_STATE}"))
    if len(several) != 1:
        shown = ", ".join(str(folder.relative_to(start)) for folder in several)
        hint = f"say which: {shown}" if several else "make one with: patchq edit --target TARGET"
        what = "which edit copy is meant?" if several else "there is no edit copy here"
        raise Invalid(what, where=str(start), hint=hint)
    return several[0]


def is_copy(folder: Path) -> bool:
    """Whether an edit copy stands at `folder`."""
    return (folder / _STATE).is_file()


def queue_of(folder: Path) -> Path:
    """The `series/` folder that the edit copy at `folder` is for, read without a store."""
    return Path(os.path.normpath(folder / load_json(folder / _STATE, EditState).queue))


def person(folder: Path) -> tuple[str, str]:
    """Who commits in `folder` as the person's own git has it: `Name <mail>` and `SECONDS ZONE`; else patchq, now."""
    found = re.fullmatch(r"(.*>) (\d+ [+-]\d{4})", own_identity(folder))
    return (found[1], found[2]) if found else (IDENTITY, f"{int(time.time())} +0000")


def refuse_if_missing(folder: Path) -> None:
    """Raise `Refused` where `folder` is there but is no edit copy."""
    if folder.exists() and not is_copy(folder):
        raise Refused("is there already, and is no edit copy", where=str(folder), hint="say --out ANOTHER")


def _committer() -> tuple[tuple[str, str], ...]:
    name, _, mail = IDENTITY.partition(" <")
    pairs = {"NAME": name, "EMAIL": mail.rstrip(">")}
    return tuple((f"GIT_{who}_{key}", value) for who in ("AUTHOR", "COMMITTER") for key, value in pairs.items())
