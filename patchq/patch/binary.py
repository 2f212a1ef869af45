"""Binary hunks: `GIT binary patch`, then `literal N` or `delta N` and lines of base 85 (git's apply.c).

Structure and sizes are checked here. Whether the data inflates is left to git, which does it in C anyway:
decoding base 85 in Python would take longer than applying the patch.
"""

from __future__ import annotations

import base64
import re
import zlib

from patchq.patch.source import Broken, Source

MARK = b"GIT binary patch\n"
MAX_BINARY = 64 << 20

_METHOD = re.compile(rb"(literal|delta) (\d{1,18})\n")
_LINE = re.compile(rb"([A-Za-z])((?:[0-9A-Za-z!#$%&()*+\-;<=>?@^_`{|}~]{5}){1,13})\n")
_HEAD_LINES = 10
_HEAD_BYTES = 20


def read_binary(source: Source, at: int) -> int:
    """Check the one or two binary hunks behind `MARK` at `at`; the offset behind them. Raises `Broken`."""
    at = _read_data(source, at + len(MARK), "forward")
    return _read_data(source, at, "reverse") if _METHOD.match(source.data, at) else at


def _read_data(source: Source, at: int, what: str) -> int:
    method = _METHOD.match(source.data, at)
    if not method:
        raise Broken("binary data is missing: `literal N` or `delta N` is due here", at)
    _check_size(int(method[2]), at)
    head: list[re.Match[bytes]] = []
    position = method.end()
    while not source.data.startswith(b"\n", position):
        found = _LINE.match(source.data, position)
        if not found or not _length_fits(found):
            raise Broken(f"the {what} binary data is corrupt or cut off here", position)
        if len(head) < _HEAD_LINES:
            head.append(found)
        position = found.end()
    if not head:
        raise Broken(f"the {what} binary data is missing", at)
    if method[1] == b"delta":
        _check_size(_result_size(head, at), at)
    return position + 1


def _length_fits(line: re.Match[bytes]) -> bool:
    """Whether the letter that tells the number of bytes (A-Z 1-26, a-z 27-52) goes with the digits."""
    room = len(line[2]) // 5 * 4
    return room - 4 < _byte_count(line) <= room


def _byte_count(line: re.Match[bytes]) -> int:
    letter = line[1][0]
    return letter - ord("A") + 1 if letter <= ord("Z") else letter - ord("a") + 27


def _check_size(size: int, at: int) -> None:
    if size > MAX_BINARY:
        raise Broken(f"binary data of {size} bytes; at most {MAX_BINARY} are allowed", at)


def _result_size(lines: list[re.Match[bytes]], at: int) -> int:
    """How large a delta's result is: the second of the two sizes at its head."""
    try:
        packed = b"".join(base64.b85decode(line[2])[: _byte_count(line)] for line in lines)
        plain = zlib.decompressobj().decompress(packed, _HEAD_BYTES)
    except (ValueError, zlib.error):
        raise Broken("the binary data is corrupt", at) from None
    return _varint(plain, _varint(plain, 0)[1])[0]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number in git's little-endian base 128 at `at`, and the offset behind it."""
    value = shift = 0
    for byte in data[at:]:
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if not byte & 0x80:
            break
    return value, at
