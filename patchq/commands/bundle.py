"""`bundle`: builds the folder that crosses the air gap."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from patchq.bundle import build, place_bundle, read_old_lock, write_tar
from patchq.commands.place import Place
from patchq.errors import Refused
from patchq.lock import Lock, differences, load_lock
from patchq.manifest import Manifest
from patchq.queue.selection import selections
from patchq.report import Report, State, Step
from patchq.store import require_git

OLDEST_GIT = (2, 38)


def bundle(
    place: Place,
    target: str,
    out: Path | None = None,
    *,
    since: Path | None = None,
    history: bool = False,
    tar: bool = False,
    sources: dict[str, str] | None = None,
) -> Report:
    """Build the bundle of a target beside its place and move it there; raises `Refused` for a stale lock."""
    require_git(OLDEST_GIT, "bundle")
    queue = place.queue
    queue.target(target)
    lock = load_lock(queue)
    if stale := list(differences(queue, lock)):
        raise Refused(stale)
    _have_baselines(place, target, lock, history, sources)
    old = read_old_lock(since) if since else None
    folder = (out or place.root.parent / "bundles" / _name(queue.settings.name, target, lock, old)).absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    room = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        manifest = build(queue, lock, target, place.store, room, since=old, history=history)
        is_new = place_bundle(room, folder)
    finally:
        shutil.rmtree(room, ignore_errors=True)
    steps = [_summary(folder, is_new)]
    steps += [_carried(folder, path) for path in _paths(manifest)]
    if manifest.requires:
        steps.append(Step("requires", State.NOTE, f"the receiver has lock {manifest.requires.lock[:12]}"))
    if tar:
        path = folder.with_name(f"{folder.name}.tar")
        write_tar(folder, path)
        steps.append(Step(path.name, State.PASSED, _size(path.stat().st_size)))
    return Report("bundle", tuple(steps), {"path": str(folder), "lock": lock.digest, "bytes": _bytes(folder)})


def _have_baselines(place: Place, target: str, lock: Lock, history: bool, given: dict[str, str] | None) -> None:
    """Every baseline of the target is in the store, and is the one that the lock names."""
    sources = place.sources(given)
    for selection in selections(place.queue, [target], [None]):
        base = sources.base(selection.upstream, selection.form)
        locked = lock.selections[selection.key]
        if (base.commit, base.tree) != (locked.base_commit, locked.base_tree):
            raise Refused(
                f"the baseline of {selection.upstream.name} is not the one in the lock",
                hint="run: patchq lock",
            )
        if history and selection.form == "git":
            sources.history(selection.upstream)


def _name(queue: str, target: str, lock: Lock, old: Lock | None) -> str:
    return f"{queue}-{target}-{lock.digest[:12]}" + (f"-since-{old.digest[:12]}" if old else "")


def _paths(manifest: Manifest) -> list[str]:
    return sorted([*(carried.path for carried in manifest.commits), *manifest.sdists, *manifest.wheels])


def _summary(folder: Path, is_new: bool) -> Step:
    state = State.PASSED if is_new else State.UNCHANGED
    return Step("bundle", state, f"{folder} ({_size(_bytes(folder))})")


def _carried(folder: Path, path: str) -> Step:
    return Step(path, State.PASSED, _size((folder / path).stat().st_size), group="carries")


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _size(count: int) -> str:
    return f"{count:,} bytes" if count < 100_000 else f"{count / 1e6:.2f} MB"
