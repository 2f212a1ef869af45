"""git bundle files, written with a header of our own and read without `git bundle`.

Format: gitformat-bundle, version 2. `git bundle create` packs what a repository happens to hold, in three
different ways from three packings; a pack made afresh from a list of objects is the same everywhere.
"""

from __future__ import annotations

import re
from pathlib import Path

from patchq.document import write_atomic
from patchq.errors import Refused
from patchq.store.fetch import keep_ref
from patchq.store.git import last_line
from patchq.store.objects import Store

REF = "refs/heads/base"
_SIGNATURE = b"# v2 git bundle\n"
_PACKING = ("--no-reuse-delta", "--no-reuse-object", "--threads=1", "--window=250", "--depth=50",
            "--compression=9", "--delta-base-offset", "--stdout", "--quiet", "--revs")  # fmt: skip
_MAX_HEADER = 1 << 16


def write_bundle_file(
    store: Store, path: Path, commit: str, *, since: str | None = None, history: bool = False
) -> None:
    """Write `commit` with its true id: alone (shallow), on top of `since`, or with its whole `history`."""
    revisions = [] if history else [f"--shallow {commit}"]
    revisions += [f"--shallow {since}", f"^{since}"] if since else []
    thin = ("--thin", "--shallow") if since else ()
    pack = store.git.run(
        ("-c", "core.compression=9", "-c", "pack.writeBitmaps=false", "-c", "pack.packSizeLimit=0",
         "pack-objects", *_PACKING, *thin),
        stdin="".join(f"{line}\n" for line in [*revisions, commit]).encode(),
    )  # fmt: skip
    prerequisite = f"-{since}\n" if since else ""
    write_atomic(path, _SIGNATURE + f"{prerequisite}{commit} {REF}\n\n".encode() + pack)


def read_bundle_file(store: Store, path: Path, commit: str, *, history: bool = False) -> None:
    """Take the objects of a bundle file that has to hold exactly `commit` under `REF`.

    The pack enters through `index-pack --strict --fsck-objects`. Raises `Refused` when the header or the pack is
    not what it should be; the store then holds nothing that a ref names.
    """
    prerequisites, refs, pack = _split(path)
    if refs != {REF: commit}:
        raise Refused(f"holds {refs or 'no ref'}; {REF} at {commit} was expected", where=str(path))
    missing = [identity for identity in prerequisites if not store.has(identity)]
    if missing:
        raise Refused(f"builds on {missing[0]}, which is not here", where=str(path), hint="take the full bundle first")
    if not history:
        _mark_shallow(store, commit)
    indexed = store.git.try_run(
        ("index-pack", "--strict", "--fsck-objects", "--fix-thin", "--stdin", "--threads=1"), stdin=pack
    )
    if not indexed.ok or not store.has(commit):
        raise Refused(f"its pack is not sound: {last_line(indexed)}", where=str(path))
    connected = store.git.try_run(("rev-list", "--objects", "--quiet", commit))
    if not connected.ok:
        raise Refused(f"its pack lacks objects: {last_line(connected)}", where=str(path))
    store.git.run(("update-ref", keep_ref(commit), commit))


def _split(path: Path) -> tuple[list[str], dict[str, str], bytes]:
    data = path.read_bytes()
    end = data.find(b"\n\n", 0, _MAX_HEADER)
    if not data.startswith(_SIGNATURE) or end < 0:
        raise Refused("is not a git bundle of version 2", where=str(path))
    prerequisites: list[str] = []
    refs: dict[str, str] = {}
    for line in data[len(_SIGNATURE) : end].decode("ascii", "replace").splitlines():
        found = re.fullmatch(r"(-?)([0-9a-f]{40})(?: (\S+))?", line)
        if not found or (not found[1] and not found[3]):
            raise Refused(f"has a header line that cannot be read: {line[:80]!r}", where=str(path))
        if found[1]:
            prerequisites.append(found[2])
        else:
            refs[found[3]] = found[2]
    return prerequisites, refs, data[end + 2 :]


def _mark_shallow(store: Store, commit: str) -> None:
    """Say that the commit's parents are not here, before anything walks to them."""
    shallow = store.folder / "shallow"
    known = shallow.read_text().split() if shallow.exists() else []
    if commit not in known:
        write_atomic(shallow, "".join(f"{identity}\n" for identity in sorted({*known, commit})).encode())
