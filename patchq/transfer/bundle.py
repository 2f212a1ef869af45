"""Building a bundle: the queue, objects, sdists and wheels in one folder, the same bytes from the same lock."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq import __version__
from patchq.document import read_regular, sha256, sync_folder, write_atomic, write_file
from patchq.errors import Invalid, Refused
from patchq.exclusive import room_in
from patchq.index import Pin
from patchq.index.download import fetch
from patchq.lock import Lock, LockedSelection, parse_lock, tools_key
from patchq.ownwheel import own_wheel
from patchq.progress import tell
from patchq.queue.load import Queue
from patchq.queuejournal import LOCK_NAME
from patchq.sources import pin_of, sdist_folder
from patchq.store import BundleFile, Store, write_bundle_files
from patchq.transfer.ancestry import ancestry_of
from patchq.transfer.instructions import instructions
from patchq.transfer.manifest import (
    MANIFEST,
    SIGNATURE,
    SUMS,
    CarriedCommit,
    Manifest,
    Requires,
    check_bundle,
    digests_of,
    write_sums,
)


@dataclass(frozen=True)
class Carried:
    """One commit that a bundle brings, as `git/NAME.bundle`; `upstream` is empty for a submodule's."""

    name: str
    commit: str

    @property
    def path(self) -> str:
        return f"git/{self.name}.bundle"


@dataclass(frozen=True)
class Following:
    """A commit of a baseline that a series may move to. It is packed on top of `since`, which the receiver has.

    `name` is what the baseline is called (empty for a submodule's commit).
    """

    upstream: str
    name: str
    commit: str
    since: str


def build(
    queue: Queue,
    lock: Lock,
    target: str,
    store: Store,
    folder: Path,
    *,
    since: Lock | None = None,
    history: bool = False,
    following: Sequence[Following] = (),
) -> Manifest:
    """Fill the empty `folder` with the bundle of a target. Baselines are in `store` already."""
    commits = (*_carried(store, lock, target, since, history), *_carried_to_follow(following))
    _pack(store, folder, commits)
    manifest = Manifest(
        patchq=__version__,
        queue=queue.settings.name,
        target=target,
        lock=lock.digest,
        commits=commits,
        sdists=tuple(_copy_sdists(store, folder, lock, queue, target, since)),
        wheels=tuple(_write_wheels(store, folder, lock, queue, target, since)),
        requires=_requires(queue, lock, target, since) if since else None,
        ancestry=ancestry_of(queue.root, lock, store),
    )
    _copy_queue(queue, lock, folder, since)
    write_file(folder / "INSTRUCTIONS.txt", instructions(queue, lock, target, manifest).encode())
    manifest = manifest.model_copy(update={"files": digests_of(folder)})
    write_file(folder / MANIFEST, manifest.to_bytes())
    write_sums(folder)
    return manifest


def commits_of(lock: Lock, target: str) -> list[Carried]:
    """The commits that a target's git baselines need, submodules included, each once."""
    found: dict[str, Carried] = {}
    for locked in _selections(lock, target):
        if locked.baseline == "git":
            found[locked.base_commit] = Carried(locked.upstream, locked.base_commit)
            for path, commit in locked.submodules.items():
                found[commit] = Carried(f"{locked.upstream}.{path.replace('/', '.')}", commit)
    return list(found.values())


def sdists_of(queue: Queue, lock: Lock, target: str) -> dict[str, Pin]:
    """The sdists that a target's baselines come from, `installed` ones included, by their base commit."""
    pins: dict[str, Pin] = {}
    for locked in _selections(lock, target):
        baseline = queue.upstream(locked.upstream).baseline
        like = baseline.installed.like if locked.baseline == "installed" and baseline.installed else locked.baseline
        if like == "sdist" and baseline.sdist:
            pins[locked.base_commit] = pin_of(baseline.sdist)
    return pins


def wheel_pins(queue: Queue, lock: Lock, target: str) -> list[Pin]:
    """patchq's own dependencies for the target's Pythons, and what its environments want installed."""
    pins: dict[str, Pin] = {}
    for name, environment in queue.target(target).environments.items():
        tools = lock.tools.get(tools_key(environment))
        wanted = lock.wheels.get(f"{target}/{name}")
        for locked in filter(None, (tools, wanted)):
            pins.update((pin.filename, pin) for pin in locked.pins)
    return [pins[filename] for filename in sorted(pins)]


def write_tar(folder: Path, path: Path) -> None:
    """One uncompressed tar of a bundle, with nothing of this machine in it."""
    with room_in(path.parent) as room:
        with tarfile.open(room / path.name, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                member = tarfile.TarInfo(f"{folder.name}/{file.relative_to(folder).as_posix()}")
                member.size, member.mode = file.stat().st_size, 0o644
                with file.open("rb") as content:
                    archive.addfile(member, content)
        (room / path.name).chmod(0o644)
        (room / path.name).replace(path)


def place_bundle(built: Path, folder: Path, signature: bytes | None = None) -> bool:
    """Move a built bundle to its place; False when the very same bundle is there already, which is signed then, too.

    Raises `Refused` for a folder that holds anything else.
    """
    if not folder.exists():
        if signature:
            write_file(built / SIGNATURE, signature)
        folder.parent.mkdir(parents=True, exist_ok=True)
        built.chmod(0o755)
        built.rename(folder)
        return True
    if (folder / SUMS).is_file() and (folder / SUMS).read_bytes() == (built / SUMS).read_bytes():
        check_bundle(folder)
        if signature:
            write_atomic(built / SIGNATURE, signature)  # what a kill leaves in the bundle itself would be one file more
            (built / SIGNATURE).replace(folder / SIGNATURE)
            sync_folder(folder)
        shutil.rmtree(built)
        return False
    raise Refused("is there already and holds something else", where=str(folder), hint="remove it, or choose --out")


def read_old_lock(path: Path) -> Lock:
    """The lock that `--since` names; a bundle's or a queue's folder stands for the lock in it."""
    for inner in (path, path / LOCK_NAME, path / "series" / LOCK_NAME):
        if inner.is_file():
            return parse_lock(read_regular(inner, 64 << 20), str(inner))
    raise Invalid("there is no lock here", where=str(path))


def _selections(lock: Lock, target: str) -> list[LockedSelection]:
    return [locked for locked in lock.selections.values() if locked.target == target]


def _carried(store: Store, lock: Lock, target: str, since: Lock | None, history: bool) -> Iterator[CarriedCommit]:
    old = {carried.name: carried.commit for carried in commits_of(since, target)} if since else {}
    for carried in commits_of(lock, target):
        if carried.commit in old.values():
            continue
        base = old.get(carried.name)
        base = base if base and store.has(base) else None
        yield CarriedCommit(path=carried.path, commit=carried.commit, since=base, history=history)


def _pack(store: Store, folder: Path, commits: Sequence[CarriedCommit]) -> None:
    if commits:
        tell(f"packing {', '.join(Path(carried.path).stem for carried in commits)}")
        (folder / "git").mkdir()
    files = [BundleFile(folder / one.path, one.commit, one.since, one.history) for one in commits]
    write_bundle_files(store, files)


def _copy_sdists(
    store: Store, folder: Path, lock: Lock, queue: Queue, target: str, since: Lock | None
) -> Iterator[str]:
    known = _bases(since, target)
    for commit, pin in sdists_of(queue, lock, target).items():
        if commit not in known:
            (folder / "sdist").mkdir(exist_ok=True)
            shutil.copyfile(fetch(pin, sdist_folder(store)), folder / "sdist" / pin.filename)
            yield f"sdist/{pin.filename}"


def _carried_to_follow(following: Sequence[Following]) -> Iterator[CarriedCommit]:
    for number, one in enumerate(following, 1):
        path = f"git/{one.upstream}.next-{number}.bundle"
        yield CarriedCommit(path=path, commit=one.commit, since=one.since, upstream=one.upstream, name=one.name)


def _bases(lock: Lock | None, target: str) -> set[str]:
    return {locked.base_commit for locked in _selections(lock, target)} if lock else set()


def _write_wheels(
    store: Store, folder: Path, lock: Lock, queue: Queue, target: str, since: Lock | None
) -> Iterator[str]:
    known = _known_wheels(since)
    for pin in wheel_pins(queue, lock, target):
        if pin.sha256 not in known:
            (folder / "wheels").mkdir(exist_ok=True)
            tell(f"fetching {pin.filename}")
            shutil.copyfile(fetch(pin, store.folder / "wheels"), folder / "wheels" / pin.filename)
            yield f"wheels/{pin.filename}"
    filename, data = own_wheel()
    if since is None:
        write_file(folder / "wheels" / filename, data)
        yield f"wheels/{filename}"


def _known_wheels(lock: Lock | None) -> set[str]:
    groups = [*lock.tools.values(), *lock.wheels.values()] if lock else []
    return {pin.sha256 for group in groups for pin in group.pins}


def _copy_queue(queue: Queue, lock: Lock, folder: Path, since: Lock | None) -> None:
    for path, digest in lock.files.items():
        if _is_known(path, digest, since):
            continue
        data = queue.files.get(path)
        if data is None or sha256(data) != digest:
            raise Refused("differs from the lock", where=str(queue.root / path), hint="run: patchq lock")
        place = folder / "series" / path
        write_file(place, data)
    write_file(folder / "series" / LOCK_NAME, lock.to_bytes())


def _requires(queue: Queue, lock: Lock, target: str, since: Lock) -> Requires:
    had = {carried.commit for carried in commits_of(since, target)}
    known = _known_wheels(since)
    bases = _bases(since, target)
    return Requires(
        lock=since.digest,
        commits=tuple(sorted(carried.commit for carried in commits_of(lock, target) if carried.commit in had)),
        sdists=tuple(pin.filename for commit, pin in sdists_of(queue, lock, target).items() if commit in bases),
        wheels=tuple(pin.filename for pin in wheel_pins(queue, lock, target) if pin.sha256 in known),
        files=tuple(path for path, digest in sorted(lock.files.items()) if _is_known(path, digest, since)),
    )


def _is_known(path: str, digest: str, since: Lock | None) -> bool:
    """Whether the receiver has the file; targets always travel, because they say where the work area is."""
    return since is not None and since.files.get(path) == digest and not path.startswith("targets/")
