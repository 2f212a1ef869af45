"""`bundle`: builds the folder that crosses the air gap."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from patchq.bundle import Following, build, place_bundle, read_old_lock, write_tar
from patchq.commands.place import Place
from patchq.errors import Invalid, Refused
from patchq.importing.model import slug
from patchq.lock import Lock, differences, load_lock
from patchq.manifest import Manifest
from patchq.queue.selection import selections
from patchq.rebase.candidate import find_candidates
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
    rebase_to: Sequence[str] = (),
    sources: dict[str, str] | None = None,
) -> Report:
    """Build the bundle of a target beside its place and move it there; raises `Refused` for a stale lock.

    `rebase_to` names baselines that it carries besides, so that a series can move to them without a network.
    """
    require_git(OLDEST_GIT, "bundle")
    queue = place.queue
    queue.target(target)
    lock = load_lock(queue)
    if stale := list(differences(queue, lock)):
        raise Refused(stale)
    _have_baselines(place, target, lock, history, sources)
    following = tuple(_following(place, target, rebase_to, sources))
    old = read_old_lock(since) if since else None
    folder = (
        out or place.root.parent / "bundles" / _name(queue.settings.name, target, lock, old, rebase_to)
    ).absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    room = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        manifest = build(queue, lock, target, place.store, room, since=old, history=history, following=following)
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


def _following(place: Place, target: str, names: Sequence[str], given: dict[str, str] | None) -> Iterator[Following]:
    """The commits of other baselines, submodules included; each name has to be one of some upstream's."""
    sources = place.sources(given)
    for name in names:
        found = 0
        for selection in selections(place.queue, [target], [None]):
            upstream, git = selection.upstream, selection.upstream.baseline.git
            if git is None:
                continue
            try:
                candidate = find_candidates(sources, upstream, name)[0]
            except Invalid:
                continue
            found += 1
            yield Following(upstream.name, name, candidate.base.commit, git.commit)
            links = place.store.submodules(candidate.base.tree)
            for path, module in git.submodules.items():
                if links.get(path, module.commit) != module.commit:
                    sources.bring(f"{upstream.name}.{path}", module.source, links[path], upstream)
                    yield Following(upstream.name, "", links[path], module.commit)
        if not found:
            raise Invalid(f"no upstream of {target} has {name!r}", hint="a tag, a branch or a full id")


def _name(queue: str, target: str, lock: Lock, old: Lock | None, rebase_to: Sequence[str]) -> str:
    more = [f"since-{old.digest[:12]}"] if old else []
    more += [f"to-{slug(name).removesuffix('.patch')}" for name in rebase_to]
    return "-".join([queue, target, lock.digest[:12], *more])


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
