"""Taking a bundle in: checked as a whole first, then the queue, the objects and the wheels into the work area."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from patchq.document import load_yaml, read_regular, sha256, sync_folder, write_file
from patchq.errors import Invalid, Prevented, Problem, Refused
from patchq.exclusive import room_in, scratch
from patchq.lock import Lock, locked_file, parse_lock
from patchq.queue.host import Host
from patchq.queue.load import Queue, load_queue
from patchq.queue.target import Target
from patchq.queuejournal import LOCK_NAME
from patchq.report import State, Step
from patchq.sdist import read_tree
from patchq.sources import import_sdist, sdist_folder
from patchq.store import Store, read_bundle_file
from patchq.store.fetch import is_complete, next_ref
from patchq.transfer.bundle import commits_of, sdists_of
from patchq.transfer.manifest import Manifest, check_bundle
from patchq.transfer.origin import follows, keep_manifest, signed, signers_of, trusted_signers
from patchq.transfer.signature import Signers
from patchq.workarea import WorkArea


def receive(
    bundle: Path, target: str, wait: float = 0, *, allow_older: bool = False
) -> tuple[WorkArea, str, list[Step]]:
    """Take in what the bundle at `bundle` (a folder or a tar of one) brings for `target`.

    Returns the work area, the lock's digest and the steps. Raises `Refused` before anything is written when the
    bundle is not, byte for byte, what was sent, or not signed by whom this host trusts; and before anything of it is
    taken in when it is older than the lock in use.
    """
    with _folder_of(bundle) as folder:
        manifest = check_bundle(folder)
        if manifest.target != target:
            raise Invalid(f"the bundle is for the target {manifest.target!r}, not {target!r}", where=str(bundle))
        area = _area(folder, target)
        trusted = trusted_signers(area, target)
        signature = signed(folder, manifest, trusted, partial(_own_signers, folder, manifest, area))
        with area.locked("apply", wait):
            age = follows(manifest, area, target, allow_older=allow_older)
            lock, queue = _take_queue(folder, manifest, area)
            store = Store.open(area.store)
            _take_commits(folder, manifest, lock, target, store)
            _take_sdists(folder, manifest, lock, queue, target, store)
            _take_wheels(folder, manifest, area)
            keep_manifest(manifest, area)
    summary = f"{bundle}: every file as listed, lock {manifest.lock[:12]}"
    arrived = Step("bundle", State.PASSED, summary, data={"lock": manifest.lock})
    return area, manifest.lock, [arrived, signature, *([age] if age else [])]


@contextlib.contextmanager
def _folder_of(bundle: Path) -> Iterator[Path]:
    """The bundle as a folder; a tar is unpacked, by the rules for archives, into one that goes again."""
    if not bundle.is_file():
        yield bundle
        return
    with scratch() as room:
        try:
            files = read_tree(bundle)
        except Invalid as error:
            raise Refused(error.problems) from None
        tops = {file.path.split("/")[0] for file in files}
        if len(tops) != 1:
            raise Refused("is not a tar of one folder", where=str(bundle))
        for file in files:
            path = room / file.path
            if file.mode != "100644":
                raise Refused(f"{file.path} is not a plain file", where=str(bundle))
            write_file(path, file.data)
        yield room / tops.pop()


def _area(folder: Path, target: str) -> WorkArea:
    path = folder / "series" / "targets" / f"{target}.yaml"
    work = Host.here().path(load_yaml(path, Target).work, f"targets/{target}.yaml", Path.cwd())
    return WorkArea(work)


def _own_signers(folder: Path, manifest: Manifest, area: WorkArea) -> Signers | None:
    return signers_of(_lock_of(folder, manifest), manifest.target, partial(_queue_file, folder, manifest, area))


def _lock_of(folder: Path, manifest: Manifest) -> Lock:
    lock = parse_lock(read_regular(folder / "series" / LOCK_NAME, 64 << 20), LOCK_NAME)
    if lock.digest != manifest.lock:
        raise Refused("is not the lock that the manifest names", where=LOCK_NAME)
    return lock


def _take_queue(folder: Path, manifest: Manifest, area: WorkArea) -> tuple[Lock, Queue]:
    lock = _lock_of(folder, manifest)
    root = keep_queue(lock, area, partial(_queue_file, folder, manifest, area))
    return lock, load_queue(root)


def keep_queue(lock: Lock, area: WorkArea, read: Callable[[str, str], bytes]) -> Path:
    """Put a queue below `queue/LOCK/series` of a work area; `read` gives each file by path and digest."""
    place = area.queue(lock.digest)
    if not place.exists():
        with room_in(place.parent) as room:
            for path, digest in lock.files.items():
                write_file(room / "series" / path, read(path, digest))
            write_file(room / "series" / LOCK_NAME, lock.to_bytes())
            room.chmod(0o755)
            room.rename(place)
        sync_folder(place.parent)
    return place / "series"


def _queue_file(folder: Path, manifest: Manifest, area: WorkArea, path: str, digest: str) -> bytes:
    here = folder / "series" / path
    if not here.exists() and manifest.requires:
        here = area.queue(manifest.requires.lock) / "series" / path
        if not here.exists():
            raise Prevented(f"this bundle builds on lock {manifest.requires.lock[:12]}, which was not applied here",
                            where=str(area.root), hint="apply the full bundle first")  # fmt: skip
    return locked_file(here, digest)


def _take_commits(folder: Path, manifest: Manifest, lock: Lock, target: str, store: Store) -> None:
    wanted = {carried.path: carried.commit for carried in commits_of(lock, target)}
    for carried in manifest.commits:
        if not carried.upstream and wanted.get(carried.path) != carried.commit:
            raise Refused("is not what the lock names", where=carried.path)
        if not is_complete(store, carried.commit):
            read_bundle_file(store, folder / carried.path, carried.commit, history=carried.history)
        if carried.name:
            store.git.run(("update-ref", next_ref(carried.upstream, carried.name), carried.commit))
    missing = [path for path, commit in wanted.items() if not is_complete(store, commit)]
    if missing:
        raise Refused([Problem("is needed, and neither in the bundle nor here", path) for path in missing])


def _take_sdists(folder: Path, manifest: Manifest, lock: Lock, queue: Queue, target: str, store: Store) -> None:
    pins = {f"sdist/{pin.filename}": pin for pin in sdists_of(queue, lock, target).values()}
    for path in manifest.sdists:
        pin = pins.get(path)
        data = read_regular(folder / path, 1 << 30)
        if pin is None or sha256(data) != pin.sha256:
            raise Refused("is not what the queue names", where=path)
        kept = sdist_folder(store) / pin.filename
        write_file(kept, data)
        for upstream in queue.upstreams.values():
            if upstream.baseline.sdist and upstream.baseline.sdist.sha256 == pin.sha256:
                import_sdist(store, kept, upstream.baseline.sdist)


def _take_wheels(folder: Path, manifest: Manifest, area: WorkArea) -> None:
    """Keep the wheels, so that no later verb needs the bundle."""
    for path in manifest.wheels:
        write_file(area.root / path, locked_file(folder / path, manifest.files[path], 1 << 30))
