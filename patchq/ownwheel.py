"""patchq itself as a wheel, for hosts that no package index reaches."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import patchq
from patchq.errors import Prevented

_EPOCH = (1980, 1, 1, 0, 0, 0)
_FIX = "install it: `python -m pip install .`, or `python -m pip install -e .` in a checkout"


def own_wheel() -> tuple[str, bytes]:
    """The file name and the bytes of a wheel of the patchq that runs.

    The same code, licence and requirements give the same bytes, however and with whatever tools patchq was
    installed: what installers and build tools say about themselves is left out. Raises `Prevented` where
    there is no metadata of this patchq, as in a bare checkout.
    """
    info = f"patchq-{patchq.__version__}.dist-info"
    files = _package(Path(patchq.__file__).parent) | _metadata(_installed(), info)
    return f"patchq-{patchq.__version__}-py3-none-any.whl", _pack(files, f"{info}/RECORD")


def own_requirements() -> tuple[str, ...]:
    """What patchq needs to run, without its extras, sorted; each as a requirement of PEP 508."""
    return _requirements(_installed())


def _installed() -> Distribution:
    try:
        found = distribution("patchq")
    except PackageNotFoundError:
        raise Prevented("patchq runs from a bare checkout and has no metadata", hint=_FIX) from None
    if found.version != patchq.__version__:
        what = f"patchq {patchq.__version__} runs, but the metadata beside it is of {found.version}"
        raise Prevented(what, hint=_FIX)
    return found


def _requirements(installed: Distribution) -> tuple[str, ...]:
    parsed = [Requirement(text) for text in installed.requires or ()]
    needed = [item for item in parsed if not item.marker or "extra" not in str(item.marker)]
    for item in needed:
        item.name = canonicalize_name(item.name)
    return tuple(sorted(map(str, needed)))


def _package(folder: Path) -> dict[str, bytes]:
    """The files of the package by their paths in the wheel, less caches and hidden files."""
    found = {}
    for path in folder.rglob("*"):
        parts = path.relative_to(folder.parent).parts
        is_cache = path.suffix == ".pyc" or any(part[0] == "." or part == "__pycache__" for part in parts)
        if path.is_file() and not is_cache:
            found["/".join(parts)] = path.read_bytes()
    return found


def _metadata(installed: Distribution, info: str) -> dict[str, bytes]:
    """The files of the dist-info folder, made anew from what does not depend on who built or installed it."""
    headers = [
        "Metadata-Version: 2.1",
        f"Name: {installed.metadata['Name']}",
        f"Version: {installed.version}",
        f"Summary: {installed.metadata['Summary']}",
        f"License: {installed.metadata['License-Expression'] or installed.metadata['License']}",
        f"Requires-Python: {installed.metadata['Requires-Python']}",
        *(f"Requires-Dist: {requirement}" for requirement in _requirements(installed)),
    ]
    entry_points = installed.read_text("entry_points.txt") or ""
    wheel = ["Wheel-Version: 1.0", "Generator: patchq", "Root-Is-Purelib: true", "Tag: py3-none-any"]
    return {
        f"{info}/METADATA": _text(headers),
        f"{info}/WHEEL": _text(wheel),
        f"{info}/entry_points.txt": entry_points.encode(),
        **_licenses(installed, info),
    }


def _licenses(installed: Distribution, info: str) -> dict[str, bytes]:
    folder = Path(str(installed.locate_file(f"{info}/licenses")))
    found = (path for path in folder.rglob("*") if path.is_file())
    return {f"{info}/licenses/{path.relative_to(folder).as_posix()}": path.read_bytes() for path in found}


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _pack(files: Mapping[str, bytes], record: str) -> bytes:
    """A zip archive of `files` and of `record` last, in the order of their paths, nothing packed."""
    names = sorted(files, key=lambda name: (name.startswith(record.partition("/")[0]), name))
    rows = [*(f"{name},{_digest(files[name])},{len(files[name])}" for name in names), f"{record},,"]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in (*((name, files[name]) for name in names), (record, _text(rows))):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system, entry.external_attr = 3, 0o100644 << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def _digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
