"""`patchq.lock`: what every declared selection resolves to, so that two machines agree before they meet."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import Field

from patchq.document import Document, One, parse_json, read_regular, sha256, to_json
from patchq.engine import Base, Engine, Placed
from patchq.engine.conditions import broken
from patchq.errors import DoesNotApply, Invalid, Prevented, Problem, Refused
from patchq.index import Pin
from patchq.queue.baseline import BaselineForm, CommitId, FilePath, Name, Sha256
from patchq.queue.load import Queue
from patchq.queue.selection import Selection, selections
from patchq.queue.target import Environment
from patchq.queuejournal import LOCK_NAME, MAX_FILE, write_queue
from patchq.sources import Sources
from patchq.store import Store


class LockedPatch(Document):
    """One chosen patch: its digest, and the tree and commit after it."""

    name: str
    sha256: Sha256
    strip: int
    tree: CommitId
    commit: CommitId


class LockedFile(Document):
    """A file of an installed distribution: SHA-256 before and after the selection (None: not there)."""

    before: Sha256 | None
    after: Sha256 | None


class LockedSelection(Document):
    """One selection, from its baseline to its final tree and commit."""

    target: Name
    variant: Name | None
    upstream: Name
    baseline: BaselineForm
    version: str
    base_commit: CommitId
    base_tree: CommitId
    submodules: dict[FilePath, CommitId] = {}
    patches: tuple[LockedPatch, ...]
    tree: CommitId
    commit: CommitId
    files: dict[FilePath, LockedFile] = {}


class LockedWheels(Document):
    """Wheels for one Python: what was asked for, and the files that answer it."""

    request: tuple[str, ...]
    python: str
    platform: str
    pins: tuple[Pin, ...]


class Lock(Document):
    """The lock. `files` are the digests of every file of the queue; `tools` the wheels of patchq itself by
    Python version; `wheels` what environments want installed, by `TARGET/ENV`."""

    schema_version: One = Field(default=1, alias="schema")
    queue: str
    files: dict[FilePath, Sha256]
    selections: dict[str, LockedSelection]
    tools: dict[str, LockedWheels] = {}
    wheels: dict[str, LockedWheels] = {}

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        return to_json(self.model_dump(by_alias=True, mode="json"))

    @property
    def digest(self) -> str:
        """The SHA-256 of the file's bytes: the lock's name wherever it is referred to."""
        return sha256(self.to_bytes())

    def of(self, target: str, variant: str | None) -> dict[str, LockedSelection]:
        """The selections of a target and variant by upstream; raises `Refused` when the lock has none."""
        found = {
            locked.upstream: locked
            for locked in self.selections.values()
            if locked.target == target and locked.variant == variant
        }
        if not found:
            scope = f"{target}+{variant}" if variant else target
            raise Refused(f"the lock has no selection for {scope}", hint="run: patchq lock")
        return found


def python_of(environment: Environment) -> str:
    """The Python that wheels are chosen for, as `3.12`."""
    return environment.minor or f"3.{sys.version_info.minor}"


def tools_key(environment: Environment) -> str:
    """The key of an environment's Python and platform among the lock's `tools`."""
    return f"{python_of(environment)}-{environment.platform}"


def lock_path(queue: Queue) -> Path:
    """Where a queue's lock is."""
    return queue.root / LOCK_NAME


def load_lock(queue: Queue) -> Lock:
    """The queue's lock; raises `Refused` where there is none and `Invalid` where it is not one."""
    data, where = queue.files.get(LOCK_NAME), str(lock_path(queue))
    if data is None:
        raise Refused("the queue has no lock", where=where, hint="run: patchq lock")
    lock = parse_lock(data, where)
    if lock.to_bytes() != data:
        raise Invalid("is not in the form that patchq writes", where=where, hint="run: patchq lock")
    return lock


def parse_lock(data: bytes, where: str) -> Lock:
    """A lock from bytes."""
    return parse_json(data, Lock, where)


def locked_file(path: Path, digest: str, limit: int = MAX_FILE) -> bytes:
    """The bytes of a file that somebody gave a digest for; raises `Refused` if it has another."""
    data = read_regular(path, limit)
    if sha256(data) != digest:
        raise Refused("does not have the digest that the lock names", where=str(path))
    return data


def save_lock(queue: Queue, lock: Lock) -> None:
    """Write the lock in one step."""
    write_queue(queue.root, {LOCK_NAME: lock.to_bytes()})


def differences(queue: Queue, lock: Lock) -> Iterator[Problem]:
    """What the queue holds that the lock does not say, and the other way round."""
    for path in sorted({*queue.digests, *lock.files}):
        now, then = queue.digests.get(path), lock.files.get(path)
        if now == then:
            continue
        what = (
            "is new since the lock"
            if then is None
            else "is gone since the lock"
            if now is None
            else "differs from the lock"
        )
        yield Problem(what, path, "run: patchq lock")


@dataclass(frozen=True)
class Resolution:
    """What selections resolve to, by key; `kept` are those that nothing here could prove again, and why."""

    selections: dict[str, LockedSelection]
    kept: tuple[str, ...] = ()


def resolve(queue: Queue, engine: Engine, sources: Sources, before: Lock | None = None) -> Resolution:
    """Resolve every declared selection. One whose baseline can't be had here is kept as in the lock `before`, if
    neither its baseline nor its patches have changed since.

    Raises `DoesNotApply` with every patch that does not, `Refused` where what a patch expects or forbids does not hold.
    """
    resolved: dict[str, LockedSelection] = {}
    problems: list[Problem] = []
    unmet: list[Problem] = []
    kept: list[str] = []
    for selection in selections(queue):
        try:
            base = sources.base(selection.upstream, selection.form)
        except Prevented as error:
            known = _still_locked(queue, selection, before)
            if known is None:
                raise
            resolved[selection.key] = known
            kept.append(f"{selection.key}: {error.problems[0].what}")
            continue
        placed = engine.apply(base, selection.chosen)
        problems += [
            Problem(f"{step.queued.name}: {step.state.value}", selection.scope) for step in placed if not step.ok
        ]
        if all(step.ok for step in placed):
            resolved[selection.key] = lock_selection(engine.store, selection, base, placed)
            tree = resolved[selection.key].tree
            unmet += [replace(one, where=f"{selection.key}: {one.where}")
                      for one in broken(engine.store, tree, selection.chosen)]  # fmt: skip
    if problems:
        raise DoesNotApply([*problems, Problem("nothing was written", hint="patchq check says why")])
    if unmet:
        raise Refused(unmet)
    return Resolution(resolved, tuple(kept))


def _still_locked(queue: Queue, selection: Selection, before: Lock | None) -> LockedSelection | None:
    """What the lock says of a selection, if its inputs are those of the lock."""
    known = before.selections.get(selection.key) if before else None
    baseline = f"{selection.upstream.name}/baseline.yaml"
    if before is None or known is None or before.files.get(baseline) != queue.digests.get(baseline):
        return None
    now = [(one.name, one.patch and one.patch.sha256, one.entry.strip) for one in selection.chosen]
    then = [(patch.name, patch.sha256, patch.strip) for patch in known.patches]
    return known if (now, selection.form) == (then, known.baseline) else None


def lock_selection(store: Store, selection: Selection, base: Base, placed: tuple[Placed, ...]) -> LockedSelection:
    """What a selection that applied resolves to."""
    baseline = selection.upstream.baseline
    tree, commit = (placed[-1].tree, placed[-1].commit) if placed else (base.tree, base.commit)
    submodules = {path: module.commit for path, module in baseline.git.submodules.items()} if baseline.git else {}
    return LockedSelection(
        target=selection.target,
        variant=selection.variant,
        upstream=selection.upstream.name,
        baseline=selection.form,
        version=baseline.installed.version
        if selection.form == "installed" and baseline.installed
        else baseline.version,
        base_commit=base.commit,
        base_tree=base.tree,
        submodules=submodules if selection.form == "git" else {},
        patches=tuple(_lock_patch(step) for step in placed),
        tree=tree,
        commit=commit,
        files=_installed_files(store, base.tree, tree, placed) if selection.form == "installed" else {},
    )


def _lock_patch(step: Placed) -> LockedPatch:
    patch = step.queued.patch
    assert patch
    return LockedPatch(name=patch.name, sha256=patch.sha256, strip=patch.strip, tree=step.tree, commit=step.commit)


def touched_files(
    store: Store, before: str, after: str, paths: Mapping[str, None]
) -> dict[str, tuple[bytes | None, bytes | None]]:
    """The bytes of each path in two trees (None: not there), for the paths whose bytes differ."""
    old, new = store.entries(before, paths), store.entries(after, paths)
    found = {}
    for path in sorted({*old, *new}):
        pair = tuple(store.read(side[path].id, "blob") if path in side else None for side in (old, new))
        if pair[0] != pair[1]:
            found[path] = (pair[0], pair[1])
    return found


def _installed_files(store: Store, before: str, after: str, placed: tuple[Placed, ...]) -> dict[str, LockedFile]:
    paths = dict.fromkeys(path for step in placed if step.queued.patch for path in sorted(step.queued.patch.paths))
    return {
        path: LockedFile(before=None if old is None else sha256(old), after=None if new is None else sha256(new))
        for path, (old, new) in touched_files(store, before, after, paths).items()
    }
