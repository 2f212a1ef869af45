"""The members of a tar or zip archive, one by one and within limits; their names are not judged here.

Formats: POSIX `pax` with the GNU extensions for long names (tar(5)), and APPNOTE (zip). The standard library
reads single headers and entries; the walk over a tar is ours, since the library's ends silently at a damaged
header, follows chains of headers by recursion and takes sizes at their word.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import stat
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import fsdecode, fsencode
from pathlib import Path
from typing import IO, Any, Literal

from patchq.document import read_regular
from patchq.errors import Invalid, PatchqError
from patchq.exclusive import unnamed

MAX_BYTES = 512 << 20
MAX_MEMBERS = 50_000
MAX_RATIO = 200
# Below this an archive may be as dense as it likes: even an empty file of 10 MiB shrinks a thousandfold.
RATIO_FLOOR = 32 << 20
MAX_EXTENSION = 64 << 10

Kind = Literal["file", "folder", "link"]

_KEYS: tuple[str, ...] = ("path", "linkpath", "size")
_BLOCK = tarfile.BLOCKSIZE
_RECORD = rb"([1-9][0-9]{0,5}) "
_EXTENSIONS = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_OPENERS: dict[bytes, Callable[[IO[bytes]], Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
_KINDS: dict[bytes, Kind] = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.DIRTYPE: "folder",
    tarfile.SYMTYPE: "link",
}
_REFUSED_KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a character device",
    tarfile.BLKTYPE: "a block device",
    tarfile.FIFOTYPE: "a FIFO",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


@dataclass(frozen=True)
class Member:
    """One entry as the archive has it; `data` is the content of a file or the target of a link."""

    name: str
    kind: Kind
    executable: bool
    data: bytes


def members(path: Path) -> Iterator[Member]:
    """The entries of a tar (plain, gzip, bzip2, xz) or zip archive, known by its first bytes, in their order.

    Raises `Invalid` for whatever is damaged, too large, or neither file, folder nor symbolic link.
    """
    data = read_regular(path, MAX_BYTES)
    budget = _Budget(len(data), str(path))
    try:
        if data.startswith(b"PK\x03\x04"):
            yield from _zip_members(data, budget)
        else:
            with unnamed() as unpacked:
                _decompress(data, unpacked, budget)
                yield from _tar_members(unpacked, budget)
    except (PatchqError, GeneratorExit):
        raise
    except Exception as error:  # a damaged archive makes the readers raise nearly anything
        raise Invalid(f"is not a readable archive: {error or type(error).__name__}", where=str(path)) from error


class _Budget:
    """What an archive of `size` bytes may still become."""

    def __init__(self, size: int, where: str) -> None:
        self.where = where
        self._size = size
        self._bytes = self._members = 0

    def spend(self, amount: int) -> None:
        self._bytes += amount
        if self._bytes > MAX_BYTES:
            raise Invalid(f"unpacks to more than {MAX_BYTES >> 20} MiB", where=self.where)
        if self._bytes > RATIO_FLOOR and self._bytes > MAX_RATIO * self._size:
            raise Invalid(f"unpacks to more than {MAX_RATIO} times its size", where=self.where)

    def count(self) -> None:
        self._members += 1
        if self._members > MAX_MEMBERS:
            raise Invalid(f"has more than {MAX_MEMBERS} members", where=self.where)

    def refuse(self, name: str, what: str) -> Invalid:
        return Invalid(f"member {name!r} {what}", where=self.where)


def _decompress(data: bytes, unpacked: IO[bytes], budget: _Budget) -> None:
    opener = next((opener for magic, opener in _OPENERS.items() if data.startswith(magic)), None)
    if opener is None and data[257:262] != b"ustar":
        raise Invalid("is neither a tar nor a zip archive", where=budget.where)
    packed = io.BytesIO(data)
    with opener(packed) if opener else packed as stream:
        while piece := stream.read(1 << 18):
            budget.spend(len(piece))
            unpacked.write(piece)
    unpacked.seek(0)


def _tar_members(stream: IO[bytes], budget: _Budget) -> Iterator[Member]:
    names: dict[str, str] = {}
    while (block := stream.read(_BLOCK)) != bytes(_BLOCK):
        budget.count()
        if len(block) < _BLOCK:
            raise Invalid("is cut off", where=budget.where)
        header = tarfile.TarInfo.frombuf(block, sys.getfilesystemencoding(), "surrogateescape")
        if header.type in _EXTENSIONS:
            names |= _extension(header, stream, budget)
            continue
        header.size = int(names.get("size", header.size))
        name, target = names.get("path", header.name), names.get("linkpath", header.linkname)
        yield _tar_member(header, name, target, stream, budget)
        names = {}
    if names:
        raise Invalid("ends between a long name and the member that it names", where=budget.where)
    while piece := stream.read(1 << 18):
        if piece.strip(b"\0"):
            raise Invalid("has data after its end", where=budget.where)


def _tar_member(header: tarfile.TarInfo, name: str, target: str, stream: IO[bytes], budget: _Budget) -> Member:
    kind = _KINDS.get(header.type)
    if kind is None:
        raise budget.refuse(name, f"is {_REFUSED_KINDS.get(header.type, f'of the unknown type {header.type!r}')}")
    if kind != "file" and header.size:
        raise budget.refuse(name, f"is a {kind} with {header.size} bytes of content")
    data = _content(name, header.size, stream, budget)
    executable = kind == "file" and bool(header.mode & stat.S_IXUSR)
    return Member(name, kind, executable, fsencode(target) if kind == "link" else data)


def _extension(header: tarfile.TarInfo, stream: IO[bytes], budget: _Budget) -> dict[str, str]:
    """What a header that only describes others says: of all keys the path, the link's target and the size."""
    if header.size > MAX_EXTENSION:
        raise budget.refuse(header.name, f"is a header of {header.size} bytes")
    data = _content(header.name, header.size, stream, budget)
    if header.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
        key = "path" if header.type == tarfile.GNUTYPE_LONGNAME else "linkpath"
        return {key: fsdecode(data.partition(b"\0")[0])}
    said = dict(_pax_records(data, budget))
    if any(key.startswith("GNU.sparse.") for key in said):
        raise budget.refuse(header.name, "is a sparse file")
    known = {key: said[key] for key in _KEYS if key in said}
    if known and header.type == tarfile.XGLTYPE:
        raise budget.refuse(header.name, f"gives one {' and '.join(known)} to all members")
    if not known.get("size", "0").isdecimal():
        raise budget.refuse(header.name, f"has the size {known['size']!r}")
    return known


def _pax_records(data: bytes, budget: _Budget) -> Iterator[tuple[str, str]]:
    """Records `LENGTH KEY=VALUE\\n`, in which LENGTH counts the whole record."""
    while data:
        match = re.match(_RECORD, data)
        length = int(match[1]) if match else 0
        record = data[:length]
        key, equals, value = record[match.end() if match else 0 : -1].partition(b"=")
        if len(record) < length or not (equals and record.endswith(b"\n")) or b"\0" in value:
            raise Invalid("has a damaged extended header", where=budget.where)
        yield fsdecode(key), fsdecode(value)
        data = data[len(record) :]


def _content(name: str, size: int, stream: IO[bytes], budget: _Budget) -> bytes:
    here = stream.tell()
    padded = -(-size // _BLOCK) * _BLOCK
    if size < 0 or here + padded > stream.seek(0, io.SEEK_END):
        raise budget.refuse(name, "is cut off")
    stream.seek(here)
    block = stream.read(padded)
    if block[size:].strip(b"\0"):
        raise budget.refuse(name, "is damaged behind its content")
    return block[:size]


def _zip_members(data: bytes, budget: _Budget) -> Iterator[Member]:
    # An entry that is not read yet costs memory too.
    if data.count(b"PK\x01\x02") > MAX_MEMBERS:
        raise Invalid(f"has more than {MAX_MEMBERS} members", where=budget.where)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            budget.count()
            budget.spend(entry.file_size)
            yield _zip_member(archive, entry, budget)


def _zip_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, budget: _Budget) -> Member:
    name = entry.filename
    if name != entry.orig_filename:
        raise budget.refuse(entry.orig_filename, "has a NUL in its name")
    if entry.flag_bits & 1 or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise budget.refuse(name, "is encrypted, or packed in an unusual way")
    mode = entry.external_attr >> 16 if entry.create_system == 3 else 0
    content = archive.read(entry)
    if name.endswith("/"):
        if content:
            raise budget.refuse(name, f"is a folder with {len(content)} bytes of content")
        return Member(name, "folder", False, b"")
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFLNK):
        raise budget.refuse(name, f"has the unusual mode {mode:o}")
    return Member(name, "link" if stat.S_ISLNK(mode) else "file", bool(mode & stat.S_IXUSR), content)
