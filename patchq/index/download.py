"""Bringing a pinned file here, its digest checked; pinning a source distribution."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from patchq.document import sha256_file, sync_folder
from patchq.errors import Invalid, Prevented, Refused
from patchq.exclusive import room_in
from patchq.index.pin import Pin
from patchq.index.sources import Search

if TYPE_CHECKING:
    from unearth import Link


def fetch(pin: Pin, folder: Path) -> Path:
    """The file of `pin` in `folder`: downloaded, its SHA-256 checked, then moved there in one step.

    A file that is already there with the right digest is kept. Raises `Prevented` where no configured index
    has the file, or none can be reached, and `Refused` where what they have is another file.
    """
    place = folder / pin.filename
    try:
        if place.is_file() and sha256_file(place) == pin.sha256:
            return place
        folder.mkdir(parents=True, exist_ok=True)
        return _fetch(pin, place)
    except OSError as error:
        raise Prevented(f"{pin} cannot be written: {error.strerror or error}", where=str(place)) from error


def _fetch(pin: Pin, place: Path) -> Path:
    others: set[str] = set()
    with Search(str(pin)) as search:
        for package in search.packages(pin.name):
            if package.link.filename != pin.filename:
                continue
            digest = _known_digest(package.link)
            if digest in (None, pin.sha256):
                digest = _download(search, package.link, place, pin.sha256)
            if digest == pin.sha256:
                return place
            if digest:
                others.add(digest)
    if others:
        what = f"{pin}: expected SHA-256 {pin.sha256}, found {', '.join(sorted(others))}"
        raise Refused(what, hint="the index has another file under this name than the one that was locked")
    raise search.nothing()


def find_sdist(name: str, version: str) -> Pin:
    """The pin of a project's source distribution; the gzipped tar where there are several.

    Raises `Invalid` for what is no version, `Prevented` where no configured index has it or can be reached.
    """
    wanted, project = _version(name, version), canonicalize_name(name)
    with Search(f"{project} {version}, source distribution") as search:
        links = {p.link: Version(str(p.version)) for p in search.packages(project) if not p.link.is_wheel}
        matching = [link for link, found in links.items() if found == wanted]
        for link in sorted(matching, key=lambda link: not link.filename.endswith(".tar.gz")):
            if digest := _known_digest(link) or _digest(search, link):
                return Pin(name=project, version=str(wanted), filename=link.filename, sha256=digest)
    known = ", ".join(map(str, sorted(set(links.values()))[-8:]))
    raise search.nothing(f"it has {known}" if known else "")


def _version(name: str, text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise Invalid(f"{text!r} is not a version of {name}", hint="such as 0.18.4") from None


def _known_digest(link: Link) -> str | None:
    """The SHA-256 that the index itself gives, if any."""
    return next(iter((link.hash_option or {}).get("sha256", ())), None)


def _digest(search: Search, link: Link) -> str | None:
    digest = hashlib.sha256()
    return digest.hexdigest() if search.read(link, digest.update) else None


def _download(search: Search, link: Link, place: Path, expected: str) -> str | None:
    """The SHA-256 of what is behind `link`, kept at `place` if it is `expected`; None if it broke off."""
    digest = hashlib.sha256()
    with room_in(place.parent) as room:
        temporary = room / place.name
        with temporary.open("wb") as stream:

            def take(piece: bytes) -> None:
                digest.update(piece)
                stream.write(piece)

            if not search.read(link, take):
                return None
            stream.flush()
            os.fsync(stream.fileno())
        if digest.hexdigest() == expected:
            temporary.chmod(0o644)
            temporary.replace(place)
            sync_folder(place.parent)
        return digest.hexdigest()
