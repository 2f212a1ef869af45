"""git bundle files, written with a header of our own and read without `git bundle`.

Format: gitformat-bundle, version 2. `git bundle create` packs what a repository happens to hold, in three
different ways from three packings; a pack made afresh from a list of objects is the same everywhere.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.document import read_regular, write_atomic, write_file
from patchq.errors import Refused
from patchq.exclusive import room_in
from patchq.store.fetch import keep_ref
from patchq.store.git import last_line
from patchq.store.limits import check_pack, check_tree
from patchq.store.objects import Store

REF = "refs/heads/base"
_SIGNATURE = b"# v2 git bundle\n"
_PACKING = ("-c", "core.compression=9", "-c", "pack.writeBitmaps=false", "-c", "pack.packSizeLimit=0", "pack-objects",
            "--no-reuse-delta", "--no-reuse-object", "--threads=1", "--window=250", "--depth=50",
            "--compression=9", "--delta-base-offset", "--stdout", "--quiet", "--revs")  # fmt: skip
_MAX_HEADER = 1 << 16
_MAX_BYTES = 2 << 30


@dataclass(frozen=True)
class BundleFile:
    """A bundle file at `path` that holds `commit` with its true id: alone (shallow), on top of the commit `since`, or
    with its whole `history`."""

    path: Path
    commit: str
    since: str | None = None
    history: bool = False

    @property
    def packing(self) -> tuple[Sequence[str], bytes]:
        """git's arguments and stdin that give the pack."""
        revisions = [] if self.history else [f"--shallow {self.commit}"]
        revisions += [f"--shallow {self.since}", f"^{self.since}"] if self.since else []
        thin = ("--thin", "--shallow") if self.since else ()
        asked = "".join(f"{line}\n" for line in [*revisions, self.commit])
        return (*_PACKING, *thin), asked.encode()

    @property
    def header(self) -> bytes:
        prerequisite = f"-{self.since}\n" if self.since else ""
        return _SIGNATURE + f"{prerequisite}{self.commit} {REF}\n\n".encode()


def write_bundle_files(store: Store, files: Sequence[BundleFile]) -> None:
    """Write them from `store`; each pack is made by one thread, so that it is the same everywhere, and all at once."""
    for file, pack in zip(files, store.git.run_together([file.packing for file in files]), strict=True):
        write_atomic(file.path, file.header + pack)


def read_bundle_file(store: Store, path: Path, commit: str, *, history: bool = False) -> None:
    """Take the objects of a bundle file that has to hold exactly `commit` under `REF`.

    The pack enters through `index-pack --strict --fsck-objects`, into a folder beside the store's objects, and from
    there once it is found whole. Raises `Refused` when the header or the pack is not what it should be, or unpacks to
    more than `limits` allow; the store is then as it was.
    """
    prerequisites, refs, pack = _split(path)
    if refs != {REF: commit}:
        raise Refused(f"holds {refs or 'no ref'}; {REF} at {commit} was expected", where=str(path))
    missing = [identity for identity in prerequisites if not store.has(identity)]
    if missing:
        raise Refused(f"builds on {missing[0]}, which is not here", where=str(path), hint="take the full bundle first")
    check_pack(memoryview(pack), str(path), history=history)
    with room_in(store.folder) as room:
        apart = _beside(store, room / "apart", () if history else (commit,))
        indexed = apart.git.try_run(
            ("index-pack", "--strict", "--fsck-objects", "--fix-thin", "--stdin", "--threads=1"), stdin=pack
        )
        if not indexed.ok or not apart.has(commit):
            raise Refused(f"its pack is not sound: {last_line(indexed)}", where=str(path))
        connected = apart.git.try_run(("rev-list", "--objects", "--quiet", commit))
        if not connected.ok:
            raise Refused(f"its pack lacks objects: {last_line(connected)}", where=str(path))
        check_tree(apart, commit, str(path))
        _let_in(store, apart)
    store.git.run(("update-ref", keep_ref(commit), commit))


def _beside(store: Store, folder: Path, cut: tuple[str, ...]) -> Store:
    """A store of its own that has all that `store` has, and knows that the commits `cut` have no parents here."""
    apart = Store.open(folder)
    shallow = store.shallow().union(cut)
    if shallow:
        write_file(apart.folder / "shallow", _listed(shallow))
    theirs = os.path.relpath(store.folder / "objects", apart.folder / "objects")
    write_file(apart.folder / "objects/info/alternates", f"{theirs}\n".encode())
    return apart


def _let_in(store: Store, apart: Store) -> None:
    """Move what was found sound into the store; first the list, before anything walks to what it cuts off."""
    if shallow := apart.shallow() - store.shallow():
        write_atomic(store.folder / "shallow", _listed(shallow | store.shallow()))
    # A pack without its index is not seen, so the index comes last.
    made = sorted((apart.folder / "objects/pack").iterdir(), key=lambda file: file.suffix == ".idx")
    for file in made:
        file.rename(store.folder / "objects/pack" / file.name)


def _listed(commits: Iterable[str]) -> bytes:
    """The content of git's file `shallow`."""
    return "".join(f"{identity}\n" for identity in sorted(commits)).encode()


def _split(path: Path) -> tuple[list[str], dict[str, str], bytes]:
    data = read_regular(path, _MAX_BYTES)
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
