"""A rebase under way: what is decided, where it stopped, and the scratch copy in which a person decides."""

from __future__ import annotations

import base64
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from patchq.authoring.merging import Merged
from patchq.document import Document, One, load_json, to_json, write_atomic
from patchq.errors import Problem, Refused
from patchq.importing.clone import Clone
from patchq.queue.baseline import BaselineForm, CommitId, Sha256
from patchq.queuejournal import journal_folder
from patchq.rebase.candidate import Candidate
from patchq.rebase.carry import Fate
from patchq.store import Store
from patchq.store.objects import IDENTITY
from patchq.store.trees import Entry
from patchq.workcopy import create

_MARKER = rb"(?m)^(?:<{7}|>{7}|\|{7})(?: |$)"
_LABELS = rb"(?m)^(<{7}|>{7}) [0-9a-f]{40}(?=[:\r\n]|$)"


class Decided(Document):
    """What became of one patch; `diff` is its new text in base64 (None: the old bytes stay)."""

    name: str
    fate: Fate = Field(strict=False)
    diff: str | None = None
    left_out: bool = False
    findings: tuple[str, ...] = ()

    @property
    def text(self) -> bytes | None:
        return None if self.diff is None else base64.b64decode(self.diff)


class Stopped(Document):
    """Where a person has to decide: the patch, its fate, the tree it goes on, and the one put into the scratch copy."""

    name: str
    fate: Fate = Field(strict=False)
    ours: CommitId
    shown: CommitId
    conflicts: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()


class Session(Document):
    """The state of a rebase. `seen` are the digests of the queue's files when it began, `commits` the baseline in each
    form, `written` those of the files that the queue was about to be written with (None: gone)."""

    schema_version: One = Field(default=1, alias="schema")
    upstream: str
    to: str
    alias: str
    seen: dict[str, Sha256]
    commits: dict[BaselineForm, CommitId] = {}
    written: dict[str, Sha256 | None] = {}
    decided: tuple[Decided, ...] = ()
    stopped: Stopped | None = None

    def with_decision(self, decided: Decided) -> Session:
        """The session with one more patch decided."""
        return self.model_copy(update={"decided": (*self.decided, decided), "stopped": None})

    def is_written(self, digests: Mapping[str, str]) -> bool:
        """Whether the queue, whose files have these digests now, was written by this rebase."""
        return bool(self.written) and all(digests.get(path) == digest for path, digest in self.written.items())


@dataclass(frozen=True)
class Desk:
    """Where the rebase of an upstream keeps its state and its scratch copy."""

    root: Path
    upstream: str

    @property
    def state(self) -> Path:
        return journal_folder(self.root) / f"rebase-{self.upstream}.json"

    @property
    def copy(self) -> Path:
        """The scratch copy, beside the edit copies."""
        return self.root.parent / "edit" / "rebase" / self.upstream

    def load(self) -> Session | None:
        """The rebase under way, if there is one."""
        return load_json(self.state, Session) if self.state.exists() else None

    def settle(self, digests: Mapping[str, str]) -> bool:
        """Put away a rebase that was interrupted when the queue, whose files have these digests now, was written;
        returns whether there was one."""
        session = self.load()
        if session is None or not session.is_written(digests):
            return False
        self.clear()
        return True

    def save(self, session: Session) -> None:
        write_atomic(self.state, to_json(session.model_dump(by_alias=True, mode="json")))

    def clear(self) -> None:
        """Forget the rebase and its scratch copy."""
        self._remove_copy()
        self.state.unlink(missing_ok=True)

    def _remove_copy(self) -> None:
        if self.copy.exists():
            shutil.rmtree(self.copy)

    def show(self, store: Store, candidate: Candidate, ours: str, merged: Merged, name: str) -> str:
        """Make the scratch copy: `ours` is committed, the merged files lie in the work tree, conflicts with markers.

        Returns the tree that lies there.
        """
        self._remove_copy()
        shown = _relabelled(store, merged, candidate.label, name)
        time = candidate.base.committed
        message = f"{self.upstream} {candidate.label}, with what comes before {name}\n".encode()
        head = store.write_commit(ours, [candidate.base.commit], IDENTITY, time, time, message)
        _hide(self.copy.parent.parent)
        create(store, head, candidate.base.commit, self.copy)
        git = Clone(self.copy, store).git
        git.run(("read-tree", "-m", "-u", ours, shown), cwd=self.copy)
        if merged.stages:
            rows = [f"0 {'0' * 40}\t{path}" for path in merged.conflicts]
            rows += [f"{mode} {identity} {stage}\t{path}" for mode, identity, stage, path in merged.stages]
            text = "".join(f"{row}\0" for row in rows)
            git.run(("update-index", "-z", "--index-info"), stdin=os.fsencode(text), cwd=self.copy)
        return shown

    def resolved(self, store: Store, stopped: Stopped) -> str:
        """The tree of the scratch copy's files; raises `Refused` where conflict markers are left."""
        if not (self.copy / ".git").exists():
            raise Refused("the scratch copy is gone", where=str(self.copy), hint="start again after --abort")
        _, tree = Clone(self.copy, store).dirty_trees()
        entries = store.entries(tree, stopped.conflicts)
        left = [Problem("conflict markers are left", where) for path in entries for where in self._markers(path)]
        if left:
            raise Refused([*left, Problem("nothing was decided", hint="resolve them, then --continue")])
        return tree

    def _markers(self, path: str) -> list[str]:
        data = (self.copy / path).read_bytes()
        found = re.search(_MARKER, data)
        return [f"{self.copy / path}:{data.count(bytes([10]), 0, found.start()) + 1}"] if found else []


def _hide(folder: Path) -> None:
    """Keep the folder of edit copies out of the repository that the queue is in."""
    if not (folder / ".gitignore").exists():
        write_atomic(folder / ".gitignore", b"*\n")


def _relabelled(store: Store, merged: Merged, ours: str, theirs: str) -> str:
    """The merged tree with names in its conflict markers, where git has commit ids."""
    labels = {b"<<<<<<<": ours.encode(), b">>>>>>>": theirs.encode()}
    changes: dict[str, Entry | None] = {}
    for path, entry in _files(store, merged).items():
        data = store.read(entry.id, "blob")
        new = re.sub(_LABELS, lambda found: found[1] + b" " + labels[found[1]], data)
        if new != data:
            changes[path] = Entry(entry.mode, store.write("blob", new))
    return store.update_tree(merged.tree, changes)


def _files(store: Store, merged: Merged) -> Mapping[str, Entry]:
    found = store.entries(merged.tree, merged.conflicts)
    return {path: entry for path, entry in found.items() if entry.mode.startswith("100")}
