"""`bundle`: builds the folder that crosses the air gap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from patchq.commands.place import Place
from patchq.document import read_regular
from patchq.errors import Invalid, PatchqError, Refused
from patchq.exclusive import room_in
from patchq.importing.model import slug
from patchq.lock import Lock, differences, load_lock
from patchq.queue.load import Queue
from patchq.queue.selection import selections
from patchq.rebase.candidate import find_candidates
from patchq.report import Report, State, Step
from patchq.store import require_git
from patchq.transfer.bundle import Following, build, place_bundle, read_old_lock, write_tar
from patchq.transfer.manifest import MANIFEST, SIGNATURE, Manifest
from patchq.transfer.signature import MAX_SIGNATURE, Signers, check_made, check_signature, refuse_no_key
from patchq.transfer.signature import sign as sign_manifest

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
    sign: Path | None = None,
    sources: dict[str, str] | None = None,
) -> Report:
    """Build the bundle of a target beside its place and move it there; raises `Refused` for a stale lock.

    `rebase_to` names baselines that it carries besides, so that a series can move to them without a network; `sign`
    is the key that signs its manifest.
    """
    if sign:
        refuse_no_key(sign)
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
    with room_in(folder.parent) as room:
        manifest = build(queue, lock, target, place.store, room, since=old, history=history, following=following)
        signature = sign_manifest(manifest.to_bytes(), sign) if sign else None
        is_new = place_bundle(room, folder, signature)
    steps = [_summary(folder, is_new)]
    steps += _origin(queue, target, manifest, folder)
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


def _origin(queue: Queue, target: str, manifest: Manifest, folder: Path) -> Iterator[Step]:
    """What a receiver can tell of where the bundle comes from, and of its age."""
    path = queue.target(target).allowed_signers
    signers = Signers(queue.files[path], f"the queue's {path}") if path else None
    signature = folder / SIGNATURE
    if signature.exists():
        yield from _signature(manifest, signature, signers)
    elif signers:
        yield Step("signature", State.WARNING, f"none, and {signers.where} asks for one", hint="say --sign KEY")
    if manifest.ancestry is None:
        yield Step("age", State.NOTE, "the queue is in no git repository: no host can tell whether the bundle is older")
    elif not manifest.ancestry.whole:
        yield Step("age", State.NOTE, "not all of the queue's git history is here, or too much of it: a host may not"
                   " know an older bundle for one")  # fmt: skip


def _signature(manifest: Manifest, path: Path, signers: Signers | None) -> Iterator[Step]:
    """What the signature that is there is worth: it may have been there before."""
    try:
        data = read_regular(path, MAX_SIGNATURE)
        found = check_made(manifest.to_bytes(), data, MANIFEST, SIGNATURE)
    except PatchqError as error:
        yield Step("signature", State.WARNING, str(error), hint="a host that asks for one will refuse it: --sign KEY")
        return
    yield Step("signature", State.PASSED, f"{SIGNATURE}, with {found.key}")
    try:
        if signers:
            check_signature(manifest.to_bytes(), data, signers, MANIFEST, SIGNATURE)
    except PatchqError as error:
        yield Step("allowed_signers", State.WARNING, str(error), hint="a host that has this list will refuse it")


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
