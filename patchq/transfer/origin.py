"""Where a bundle comes from: whose signature counts on this host, and whether it would turn the clock back.

A bundle's own list of signers proves nothing, because whoever forges a bundle forges the list. What counts is what
this host trusts already: the user's own list, else the one that `host.yaml` of the work area names, else the list of
the queue in use.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from platformdirs import user_config_path

from patchq.document import load_json, parse_yaml, read_regular, write_atomic
from patchq.errors import Invalid, Prevented, Refused
from patchq.evidence.inforce import last_apply
from patchq.lock import Lock, locked_file, parse_lock
from patchq.queue.host import HOST_FILE, Host, read_host_file
from patchq.queue.target import Target
from patchq.queuejournal import LOCK_NAME
from patchq.report import State, Step
from patchq.transfer.ancestry import Point, Relation, relation
from patchq.transfer.manifest import MANIFEST, SIGNATURE, Manifest
from patchq.transfer.signature import MAX_SIGNATURE, Signers, check_signature
from patchq.workarea import WorkArea, known_areas

_MAX_LOCK = 64 << 20


def trusted_signers(area: WorkArea, target: str) -> Signers | None:
    """The signers whom this host trusts for a target; None where nobody ever said so.

    A bundle names the work area itself: so one that leads elsewhere is held against the area that the target was
    applied in before. Raises `Prevented` or `Refused` where a list is declared and cannot be read.
    """
    if found := _users_own() or _of_area(area, target):
        return found
    known = known_areas(certain=True).get(target)
    return _of_area(WorkArea(Path(known)), target) if known and Path(known) != area.root else None


def signers_of(lock: Lock, target: str, read: Callable[[str, str], bytes]) -> Signers | None:
    """The list that a queue's target names; `read` gives each file of the queue by path and digest."""
    inner = f"targets/{target}.yaml"
    path = parse_yaml(read(inner, lock.files[inner]), Target, inner).allowed_signers if inner in lock.files else None
    if path is None:
        return None
    if path not in lock.files:
        raise Refused(f"names the signers {path!r}, which the lock does not have", where=inner)
    return Signers(read(path, lock.files[path]), f"the queue's {path}")


def signed(folder: Path, manifest: Manifest, trusted: Signers | None, own: Callable[[], Signers | None]) -> Step:
    """Hold the signature of the bundle in `folder` against the list that this host trusts; `own` is the bundle's.

    Raises `Refused` for a bundle that is not signed, or not by one of them, where a list asks for it.
    """
    signature = _signature(folder)
    signers = trusted or own()
    if signers is None:
        said = "there is one, and no list on this host says whom to believe" if signature else "none, and none is due"
        return Step("signature", State.NOTE, said)
    if signature is None:
        raise Refused(f"is not signed, and {signers.where} asks for a signature", where=MANIFEST,
                      hint="build it with: patchq bundle --sign KEY")  # fmt: skip
    who, found = check_signature(manifest.to_bytes(), signature, signers, MANIFEST, SIGNATURE)
    data = {"signer": who, "key": found.key, "list": signers.where}
    said = f"by {who} with {found.key}"
    if not trusted:
        return Step("signature", State.WARNING, f"{said}, for whom only the bundle itself vouches",
                    hint=f"compare the key, then keep the list as {_users_file()}", data=data)  # fmt: skip
    if trusted.is_open:
        return Step("signature", State.WARNING, f"{said}, allowed by {trusted.where}, which anybody here can write",
                    hint="chmod o-w", data=data)  # fmt: skip
    return Step("signature", State.PASSED, f"{said}, allowed by {trusted.where}", data=data)


def follows(manifest: Manifest, area: WorkArea, target: str, *, allow_older: bool) -> Step | None:
    """How the bundle's lock stands to the one in use; None where none is.

    Raises `Refused` where it came before the one in use, unless that is allowed.
    """
    applied = last_apply(area.records, target)
    if applied is None:
        return None
    used = Point(applied.lock, kept.ancestry if (kept := _kept(area, applied.lock)) else None)
    new = Point(manifest.lock, manifest.ancestry)
    found = relation(new, used)
    said = f"lock {new.lock[:12]} is {found.value}"
    if found is not Relation.SAME:
        said = said.replace("in use", f"{used.lock[:12]} in use since {applied.ended}")
    if found is Relation.OLDER and not allow_older:
        raise Refused(said, where=MANIFEST, hint="--allow-older takes it all the same")
    if found is Relation.UNKNOWN:
        which = "the bundle's" if new.ancestry is None or not new.ancestry.whole else "that"
        return Step("age", State.NOTE, f"{said}: {which} queue has no git history, or not all of it")
    state = State.PASSED if found in (Relation.SAME, Relation.NEWER) else State.WARNING
    return Step("age", state, said, data={"relation": found.name.lower()})


def keep_manifest(manifest: Manifest, area: WorkArea) -> None:
    """Keep what a bundle says of its lock's past beside its queue; of two, the one with the longer history."""
    kept = _kept(area, manifest.lock)
    if kept is None or _generation(kept) < _generation(manifest):
        write_atomic(area.queue(manifest.lock) / MANIFEST, manifest.to_bytes())


def _generation(manifest: Manifest) -> int:
    return manifest.ancestry.generation if manifest.ancestry else 0


def _kept(area: WorkArea, lock: str) -> Manifest | None:
    path = area.queue(lock) / MANIFEST
    return load_json(path, Manifest) if path.exists() else None


def _signature(folder: Path) -> bytes | None:
    try:
        return read_regular(folder / SIGNATURE, MAX_SIGNATURE)
    except Invalid as error:
        if (folder / SIGNATURE).exists():
            raise Refused(error.problems) from None
        return None


def _users_file() -> Path:
    return user_config_path("patchq") / "allowed_signers"


def _users_own() -> Signers | None:
    path = _users_file()
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        if lost := next((one for one in path.parents if one.is_symlink() and not one.exists()), None):
            what = "leads nowhere now, so that nobody knows whom this user trusts"
            raise Prevented(what, where=str(lost), hint="mount what it leads to, or remove the link") from None
        return None
    except OSError as error:
        hint = "set XDG_CONFIG_HOME to a folder that can be read"
        raise Prevented(f"cannot be read: {error.strerror}", where=str(path), hint=hint) from error
    return _list_at(path)


def _list_at(path: Path) -> Signers:
    return Signers(read_regular(path), str(path), is_open=bool(path.stat().st_mode & stat.S_IWOTH))


def _of_area(area: WorkArea, target: str) -> Signers | None:
    if named := read_host_file(area.root).allowed_signers:
        return _list_at(Host.here(area.root).path(named, str(area.root / HOST_FILE), area.root))
    applied = last_apply(area.records, target)
    return _of_queue(area, applied.lock, target) if applied else None


def _of_queue(area: WorkArea, digest: str, target: str) -> Signers | None:
    """The list of the queue in use, each file as its lock says."""
    root = area.queue(digest) / "series"
    lock = parse_lock(read_regular(root / LOCK_NAME, _MAX_LOCK), str(root / LOCK_NAME))
    if lock.digest != digest:
        raise Refused("is not the lock that was applied", where=str(root / LOCK_NAME))

    found = signers_of(lock, target, lambda path, digest: locked_file(root / path, digest))
    return replace(found, where=f"{found.where} of the lock {digest[:12]} in use") if found else None
