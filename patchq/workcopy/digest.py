"""One digest of a whole folder: the proof that a vendor's directory was left alone."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from patchq.document import sha256_file
from patchq.errors import Prevented, Problem


def digest_folder(path: Path) -> str:
    """The SHA-256, in hex, over everything below `path`, in the order of its paths' bytes.

    One record an entry: kind (`folder`, `file`, `program` for a file with the owner's x bit, `link`), path
    below the folder, and the content's SHA-256 or the link's target, each ended by NUL. Owners and times do
    not count.
    Raises `Prevented` that names everything which cannot be read or is neither file, folder nor link.
    """
    digest = hashlib.sha256()
    problems: list[Problem] = []
    for place in _walk(path, problems):
        try:
            kind, content = _content(place)
        except OSError as error:
            problems.append(Problem(f"cannot be read: {error.strerror}", str(place)))
            continue
        if not kind:
            problems.append(Problem("is neither a file nor a folder nor a link", str(place)))
        inside = os.fsencode(place.relative_to(path))
        digest.update(b"%s\0%s\0%s\0" % (kind, inside, content))
    if problems:
        raise Prevented(problems)
    return digest.hexdigest()


def _walk(folder: Path, problems: list[Problem]) -> Iterator[Path]:
    """Everything below `folder`, a folder before what is in it."""
    pending = [folder]
    while pending:
        place = pending.pop()
        if place is not folder:
            yield place
            if place.is_symlink() or not place.is_dir():
                continue
        try:
            below = sorted(place.iterdir(), key=os.fsencode, reverse=True)
        except OSError as error:
            problems.append(Problem(f"cannot be searched: {error.strerror}", str(place)))
            continue
        pending += below


def _content(place: Path) -> tuple[bytes, bytes]:
    """An entry's kind (empty: none that can be digested) and what stands for its content."""
    mode = place.lstat().st_mode
    if stat.S_ISLNK(mode):
        return b"link", os.readlink(os.fsencode(place))  # noqa: PTH115 - bytes, as they are
    if stat.S_ISDIR(mode):
        return b"folder", b""
    if stat.S_ISREG(mode):
        return b"program" if mode & stat.S_IXUSR else b"file", sha256_file(place).encode()
    return b"", b""
