"""What Python could import that no tree accounts for.

Sources: importlib.machinery (the order extension, source, bytecode; suffixes of every platform), PEP 552 for
the header of a `.pyc`, site.py for `.pth`.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path

CACHE = "__pycache__"
_SUFFIXES = (".py", ".so", ".pyd")
_HEADER = struct.Struct("<4xLLL")
_HASHED = 1
_CACHED = r"(.+)\.[^.]+?(\.opt-[^.]*)?\.pyc"


def why_importable(name: str, siblings: Container[str]) -> str:
    """Why a file of that name could be imported, or nothing; `siblings` are the names beside it."""
    if name.endswith(".pth"):
        return "a path file that Python may execute"
    if name.endswith(_SUFFIXES):
        return "a module that no commit has"
    if name.endswith(".pyc") and name[:-1] not in siblings:
        return "compiled code without a source"
    return ""


def holds_modules(folder: Path) -> bool:
    """Whether a folder that a link leads to is a package or holds modules, itself or one level further down.

    It goes no deeper: such links lead to data sets, too. What cannot be read cannot be imported.
    """
    return _has_module(folder) or any(_has_module(place) for place in _folders(folder))


def _has_module(folder: Path) -> bool:
    with suppress(OSError):
        names = {place.name for place in folder.iterdir()}
        return any(why_importable(name, names) for name in names)
    return False


def _folders(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from (place for place in folder.iterdir() if place.is_dir())


def loadable(cache: int, name: str, sources: int) -> bool:
    """Whether Python could load the file `name` of the cache folder instead of its source.

    `cache` and `sources` are open folders. True for a timestamp `.pyc` that records the source's very time
    and size, for any that is bound to its source by a hash or by nothing, and for one that cannot be read.
    """
    found = re.fullmatch(_CACHED, name)
    if not found:
        return False
    try:
        source = os.stat(found[1] + ".py", dir_fd=sources)
        header = _header(cache, name)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    if len(header) < _HEADER.size:
        return False
    flags, time, size = _HEADER.unpack(header)
    recorded = (int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF)
    return bool(flags & _HASHED) or (time, size) == recorded


def _header(cache: int, name: str) -> bytes:
    descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=cache)
    try:
        return os.read(descriptor, _HEADER.size)
    finally:
        os.close(descriptor)
