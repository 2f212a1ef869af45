"""How much a pack unpacks to, and what a commit's files come to, found before git writes any of it.

Format: gitformat-pack. Each entry's data is inflated and thrown away, and never beyond a limit. A small pack can hold
a large tree: one in which each folder is many times the next.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from patchq.errors import Refused
from patchq.store.objects import Store
from patchq.store.trees import FOLDER, GITLINK, Entry

MAX_OBJECT = 128 << 20
MAX_TREE = 1 << 30
MAX_FILES = 500_000
MAX_FOLDERS = 200  # one in the other
MAX_RATIO = 200
# Below this a pack may be as dense as it likes.
RATIO_FLOOR = 64 << 20
MAX_DEPTH = 4095  # git's own limit for what it writes

_HEAD, _TRAILER = 12, 20
_VERSIONS = (b"PACK\0\0\0\2", b"PACK\0\0\0\3")
_COMMIT, _TAG, _OFFSET_DELTA, _BASE_DELTA = 1, 4, 6, 7
_ID = 20
_WINDOW = 1 << 20
_PIECE = 64 << 10
_DELTA_HEAD = 20


@dataclass
class _Walk:
    """Through the entries of a pack; `where` names it in messages."""

    pack: memoryview
    where: str
    is_history: bool
    unpacked: int = 0
    inflated: int = 0
    depths: dict[int, int] = field(default_factory=dict)

    def entry(self, at: int) -> int:
        """Judge the entry at offset `at`; the offset behind it."""
        kind, size, position = self._head(at)
        depth = 0
        if kind == _OFFSET_DELTA:
            back, position = self._back(position)
            depth = self.depths.get(at - back, -1) + 1
            if not depth:
                raise self.unsound("a delta on an entry that is not there")
        elif kind == _BASE_DELTA:
            depth, position = 1, position + _ID
        elif not _COMMIT <= kind <= _TAG:
            raise self.unsound(f"an entry of the unknown kind {kind}")
        if depth > MAX_DEPTH:
            raise Refused(f"its pack has a chain of more than {MAX_DEPTH} deltas", where=self.where)
        self.depths[at] = depth
        self._limit(size)
        head, end = self._inflate(position, size)
        self.inflated += size
        result = _result_size(head) if depth else size
        self._limit(result)
        self.unpacked += result
        self._limit_together()
        return end

    def unsound(self, what: str) -> Refused:
        return Refused(f"its pack is not sound: {what}", where=self.where)

    def _limit(self, size: int) -> None:
        if size > MAX_OBJECT:
            what = f"an object of its pack has {size} bytes; at most {MAX_OBJECT} are allowed"
            raise Refused(what, where=self.where)

    def _limit_together(self) -> None:
        if not self.is_history and self.unpacked > MAX_TREE:
            raise Refused(f"its pack unpacks to more than {MAX_TREE >> 20} MiB", where=self.where)
        most = max(RATIO_FLOOR, MAX_RATIO * len(self.pack))
        if self.unpacked > most or self.inflated > most:
            raise Refused(f"its pack unpacks to more than {MAX_RATIO} times its size", where=self.where)

    def _head(self, at: int) -> tuple[int, int, int]:
        """Kind and size of an entry, and where what follows them begins."""
        byte = self._byte(at)
        kind, size, shift = byte >> 4 & 7, byte & 15, 4
        while byte & 0x80:
            at += 1
            byte = self._byte(at)
            size |= (byte & 0x7F) << shift
            shift += 7
        return kind, size, at + 1

    def _back(self, at: int) -> tuple[int, int]:
        """How far before its entry a delta's base begins, and the offset behind that number."""
        byte = self._byte(at)
        back = byte & 0x7F
        while byte & 0x80:
            at += 1
            byte = self._byte(at)
            back = back + 1 << 7 | byte & 0x7F
        return back, at + 1

    def _byte(self, at: int) -> int:
        if at >= len(self.pack) - _TRAILER:
            raise self.unsound("it is cut off")
        return self.pack[at]

    def _inflate(self, at: int, size: int) -> tuple[bytes, int]:
        """The first bytes of the data at `at`, which has to have `size` bytes, and the offset behind it."""
        stream, head, length = zlib.decompressobj(), b"", 0
        piece = min(size + size // 100 + 32, _PIECE)
        rest: bytes | memoryview = b""
        end = len(self.pack) - _TRAILER
        while not stream.eof:
            if not rest:
                rest, at = self.pack[at : min(at + piece, end)], min(at + piece, end)
                if not rest:
                    raise self.unsound("it is cut off")
            try:
                part = stream.decompress(rest, _WINDOW)
            except zlib.error as error:
                raise self.unsound(str(error)) from error
            rest = stream.unconsumed_tail
            length += len(part)
            head = head or bytes(part[:_DELTA_HEAD])
            if length > size:
                break
        if length != size:
            raise self.unsound("an entry has another size than it says")
        return head, at - len(stream.unused_data)


def check_pack(pack: memoryview, where: str, *, history: bool) -> None:
    """Raise `Refused` where a pack is cut off, or unpacks to more than anybody would send.

    An object has at most `MAX_OBJECT` bytes, and all together `MAX_TREE`, without `history`, and `MAX_RATIO` times
    the size of the pack.
    """
    walk = _Walk(pack, where, history)
    if len(pack) < _HEAD + _TRAILER or bytes(pack[:8]) not in _VERSIONS:
        raise walk.unsound("it does not begin like one")
    at = _HEAD
    for _ in range(int.from_bytes(pack[8:_HEAD], "big")):
        at = walk.entry(at)
    if at != len(pack) - _TRAILER:
        raise walk.unsound("more follows its last entry")


def check_tree(store: Store, commit: str, where: str) -> None:
    """Raise `Refused` where the files of a commit are more, deeper or larger together than anybody would send."""
    folders = _folders_of(store, store.commit(commit).tree, where)
    blobs = {entry.id for entries in folders.values() for entry in entries if entry.mode not in (FOLDER, GITLINK)}
    asked = "".join(f"{identity}\n" for identity in sorted(blobs)).encode()
    told = store.git.run(("cat-file", "--batch-check=%(objectname) %(objectsize)"), stdin=asked).decode()
    sizes = {identity: int(size) for identity, size in (row.split() for row in told.splitlines())}
    files: dict[str, int] = {}
    together: dict[str, int] = {}
    for tree, entries in reversed(folders.items()):
        below = [entry for entry in entries if entry.mode == FOLDER]
        files[tree] = len(entries) - len(below) + sum(files[entry.id] for entry in below)
        together[tree] = sum(together[entry.id] for entry in below) + sum(sizes.get(entry.id, 0) for entry in entries)
        if files[tree] > MAX_FILES or together[tree] > MAX_TREE:
            what = f"{commit} has more than {MAX_FILES} files, or more than {MAX_TREE >> 20} MiB in them"
            raise Refused(what, where=where)


def _folders_of(store: Store, root: str, where: str) -> dict[str, tuple[Entry, ...]]:
    """Every folder below a tree by its id, each before those in it."""
    found: dict[str, tuple[Entry, ...]] = {}
    level = {root}
    for _ in range(MAX_FOLDERS):
        for tree in level:
            # One that lies deeper, too, comes later, so that what is in it comes after it.
            found[tree] = found.pop(tree, ()) or tuple(store.folder_entries(tree).values())
        level = {entry.id for tree in level for entry in found[tree] if entry.mode == FOLDER}
        if not level:
            return found
    raise Refused(f"has more than {MAX_FOLDERS} folders one in the other", where=where)


def _result_size(head: bytes) -> int:
    """How large a delta's result is: the second of the two little-endian base 128 numbers at its head."""
    numbers, value, shift = [], 0, 0
    for byte in head:
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            numbers.append(value)
            value = shift = 0
    return numbers[1] if len(numbers) > 1 else 0
