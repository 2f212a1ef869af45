"""Packs written by patchq's own hand: whole objects, no deltas.

Format: gitformat-pack, version 2.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Collection

_TYPES = {"commit": 1, "tree": 2, "blob": 3}


def pack_of(objects: Collection[tuple[str, bytes]]) -> bytes:
    """The bytes of a pack that holds `objects` (kind, content)."""
    parts = [struct.pack(">4sLL", b"PACK", 2, len(objects))]
    for kind, data in objects:
        parts += (_head(_TYPES[kind], len(data)), zlib.compress(data, 1))
    body = b"".join(parts)
    return body + hashlib.sha1(body, usedforsecurity=False).digest()


def _head(kind: int, size: int) -> bytes:
    """Type and size: four bits of the size in the first byte, seven in each that follows, lowest first."""
    head = bytearray([kind << 4 | size & 0xF])
    size >>= 4
    while size:
        head[-1] |= 0x80
        head.append(size & 0x7F)
        size >>= 7
    return bytes(head)
