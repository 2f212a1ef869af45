"""Wheels: a zip archive whose RECORD names each of its files with its digest."""

from __future__ import annotations

import base64
import csv
import hashlib
import re
from collections.abc import Mapping
from os import fsdecode
from pathlib import Path

from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from patchq.errors import Invalid, Problem
from patchq.sdist.tree import SourceFile, read_tree

_RECORD = r"(?P<name>[^/]+)-(?P<version>[^/-]+)\.dist-info/RECORD"
_ALGORITHMS = ("sha256", "sha384", "sha512")


def open_wheel(path: Path) -> tuple[SourceFile, ...]:
    """The files of a wheel, sorted by their paths' bytes, its RECORD checked in both directions.

    Source of the format: the wheel specification (PEP 427). Raises `Invalid` for every file that is missing,
    unlisted or different, for what `read_sdist` refuses, and for symbolic links, which wheels do not have.
    """
    files = {file.path: file for file in read_tree(path)}
    record = _record_of(path, files)
    listed = _listed(files[record].data, f"{path}:{record}")
    unsigned = {record, f"{record}.jws", f"{record}.p7s"}
    problems = [Problem(f"member {name!r} is a link", str(path)) for name, f in files.items() if f.mode == "120000"]
    problems += [
        Problem(f"{name!r} is listed in RECORD, but missing", str(path)) for name in listed if name not in files
    ]
    for name in sorted(files.keys() - unsigned):
        if name not in listed:
            problems.append(Problem(f"member {name!r} is not listed in RECORD", str(path)))
        elif not _agrees(files[name].data, *listed[name]):
            problems.append(Problem(f"member {name!r} is not what RECORD says", str(path)))
    if problems:
        raise Invalid(problems)
    return tuple(files.values())


def _record_of(path: Path, files: Mapping[str, SourceFile]) -> str:
    """The path of the RECORD that the wheel's own name asks for."""
    try:
        name, version, *_ = parse_wheel_filename(path.name)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise Invalid(str(error), where=str(path)) from None
    for file in files:
        found = re.fullmatch(_RECORD, file)
        if found and canonicalize_name(found["name"]) == name and _is_version(found["version"], version):
            return found[0]
    raise Invalid(f"has no RECORD of {name} {version}", where=str(path))


def _is_version(text: str, version: Version) -> bool:
    try:
        return Version(text.replace("_", "-")) == version
    except InvalidVersion:
        return False


def _listed(record: bytes, where: str) -> dict[str, tuple[str, str]]:
    """Path to digest (`sha256=…`) and size, as texts."""
    listed: dict[str, tuple[str, str]] = {}
    try:
        rows = [row for row in csv.reader(fsdecode(record).splitlines()) if row]
    except csv.Error as error:
        raise Invalid(f"is not a table of commas: {error}", where=where) from None
    for number, row in enumerate(rows, 1):
        if len(row) != 3 or row[0] in listed:
            raise Invalid("is not PATH,DIGEST,SIZE with a path of its own", where=f"{where}:{number}")
        listed[row[0]] = (row[1], row[2])
    return listed


def _agrees(data: bytes, digest: str, size: str) -> bool:
    algorithm, _, expected = digest.partition("=")
    if algorithm not in _ALGORITHMS:
        return False
    found = base64.urlsafe_b64encode(hashlib.new(algorithm, data).digest()).rstrip(b"=").decode()
    return found == expected.rstrip("=") and size in ("", str(len(data)))
