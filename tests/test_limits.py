"""Bundle files whose packs unpack to more than anybody would send: refused at once, and the store is as it was."""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from world import git_bytes

from patchq.errors import Refused
from patchq.store import Entry, Source, Store, fetch_commit, limits, read_bundle_file
from patchq.store.bundlefile import REF
from patchq.store.pack import pack_of
from patchq.store.trees import FOLDER, format_tree, object_id

TIME = b"1700000000 +0000"
BLOB = ("blob", b"x")
ZEROS = zlib.compress(bytes(100_000), 9)


def commit_of(*trees: bytes, more: Sequence[tuple[str, bytes]] = (BLOB,)) -> tuple[str, bytes]:
    """The id of a commit of the last of `trees`, and a pack with it, all of them, and `more`."""
    identity = object_id("tree", trees[-1]).encode()
    commit = b"tree %s\nauthor a <b@c> %s\ncommitter a <b@c> %s\n\nx\n" % (identity, TIME, TIME)
    objects = [("commit", commit), *(("tree", tree) for tree in trees), *more]
    return object_id("commit", commit), pack_of(objects)


def folders(depth: int, width: int) -> list[bytes]:
    """Trees, each of which has the one before `width` times."""
    trees = [format_tree({"f": Entry("100644", object_id(*BLOB))})]
    for _ in range(depth):
        below = Entry(FOLDER, object_id("tree", trees[-1]))
        trees.append(format_tree({f"d{number}": below for number in range(width)}))
    return trees


def signed(body: bytes) -> bytes:
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


def with_entries(*entries: bytes) -> tuple[str, bytes]:
    """A sound pack, and more behind it."""
    commit, pack = commit_of(*folders(0, 0))
    count = int.from_bytes(pack[8:12], "big") + len(entries)
    return commit, signed(pack[:8] + count.to_bytes(4, "big") + pack[12:-20] + b"".join(entries))


def delta(data: bytes, back: int) -> bytes:
    """A delta on the entry that begins `back` bytes before it."""
    return bytes([0x60 | len(data), back]) + zlib.compress(data)


def chain(length: int) -> tuple[str, bytes]:
    entries = [b"\x31" + zlib.compress(b"x")]
    for number in range(length):
        entries.append(delta(b"\1\1\1" + bytes([number % 256]), len(entries[-1])))
    return with_entries(*entries)


BLOB_ENTRY = b"\x31" + zlib.compress(b"x")
TOO_MUCH: dict[str, tuple[tuple[str, bytes], str]] = {
    "an object of 2 GiB": (with_entries(b"\xb0\x80\x80\x80\x40" + ZEROS), "has 2147483648 bytes; at most 134217728"),
    "an object of no size": (with_entries(b"\xbf" + b"\xff" * 30 + b"\x7f" + ZEROS), "an object of its pack has"),
    "more than it says": (with_entries(b"\x31" + ZEROS), "another size than it says"),
    "less than it says": (with_entries(b"\x39" + zlib.compress(b"x")), "another size than it says"),
    "a delta that grows": (
        with_entries(BLOB_ENTRY, delta(b"\x01\x80\x80\x80\x80\x08\x01", len(BLOB_ENTRY))), "has 2147483648 bytes"
    ),
    "a delta on nothing": (with_entries(delta(b"\1\1\1x", 1)), "a delta on an entry that is not there"),
    "a delta on itself": (with_entries(delta(b"\1\1\1x", 0)), "a delta on an entry that is not there"),
    "a chain of deltas": (chain(4096), "more than 4095 deltas"),
    "dense": (commit_of(*folders(0, 0), more=[BLOB, ("blob", bytes(400_000))]), "more than 200 times its size"),
    "unknown kind": (with_entries(b"\x51" + zlib.compress(b"x")), "unknown kind 5"),
    "garbled": (with_entries(b"\x31nothing"), "its pack is not sound"),
    "more promised": (("1" * 40, signed(b"PACK\0\0\0\2" + b"\xff" * 4 + b"\x31")), "it is cut off"),
    "more behind": (("1" * 40, signed(b"PACK\0\0\0\2" + bytes(4) + b"xx")), "more follows its last entry"),
    "no pack": (("1" * 40, b"PACK"), "it does not begin like one"),
    "ten thousand million files": (commit_of(*folders(10, 10)), "more than 500000 files"),
    "folders without end": (commit_of(*folders(200, 1)), "more than 200 folders"),
}  # fmt: skip


def bundle_of(folder: Path, commit: str, pack: bytes) -> Path:
    path = folder / "x.bundle"
    path.write_bytes(f"# v2 git bundle\n{commit} {REF}\n\n".encode() + pack)
    return path


@pytest.mark.parametrize("name", TOO_MUCH)
def test_too_much_is_refused_before_git_writes_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (commit, pack), said = TOO_MUCH[name]
    monkeypatch.setattr(limits, "RATIO_FLOOR", 50_000)
    store = Store.open(tmp_path / "store")
    before = sorted(store.folder.rglob("*"))
    started = time.process_time()
    with pytest.raises(Refused, match=rf"x\.bundle: .*{said}"):
        read_bundle_file(store, bundle_of(tmp_path, commit, pack), commit)
    assert sorted(store.folder.rglob("*")) == before
    assert time.process_time() - started < 2


def test_what_is_as_large_as_real_upstreams_goes_in(tmp_path: Path) -> None:
    commit, pack = commit_of(*folders(100, 1), more=[BLOB, ("blob", bytes(2 << 20))])
    store = Store.open(tmp_path / "store")
    read_bundle_file(store, bundle_of(tmp_path, commit, pack), commit)
    assert store.has(commit)


def test_a_source_with_too_many_files_is_refused(tmp_path: Path) -> None:
    source = Store.open(tmp_path / "source")
    commit, pack = commit_of(*folders(10, 10))
    git_bytes(source.folder, "index-pack", "--stdin", stdin=pack)
    git_bytes(source.folder, "update-ref", "refs/heads/main", commit)
    store = Store.open(tmp_path / "store")
    with pytest.raises(Refused, match="more than 500000 files"):
        fetch_commit(store, Source("up", str(source.folder)), commit)
    assert git_bytes(store.folder, "for-each-ref") == b""
