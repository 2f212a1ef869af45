"""Edited folders compared with a baseline: a copy of the sources, or a distribution as it is installed."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from patchq.document import read_regular
from patchq.errors import Invalid, Problem, Refused
from patchq.importing.clone import look, read_entry
from patchq.queue.baseline import Baseline
from patchq.store import Entry, Store

_NOISE = ("__pycache__", "*.pyc", "*.pyo", ".git", ".hg", ".svn", "*.egg-info", "*.dist-info", ".DS_Store",
          ".*_cache", "*.orig", "*.rej", "*~", ".pc", "*.swp")  # fmt: skip


@dataclass(frozen=True)
class Compared:
    """The tree of the edited files, and what was left out of account, in words."""

    tree: str
    notes: tuple[str, ...] = ()


def compare_folder(store: Store, folder: Path, base: str) -> Compared:
    """The baseline tree `base` as the files of `folder` have it.

    A file that is missing counts as removed if its own folder is there. What tools leave behind is passed over.
    """
    known = dict(store.walk(base))
    present = set(_walk(folder))
    changes: dict[str, Entry | None] = {}
    left_out = 0
    for path in sorted({*known, *present}):
        if path in present:
            entry = read_entry(store, folder / path, known.get(path))
            if entry != known.get(path) and entry:
                changes[path] = entry
        elif known[path].mode != "160000" and not _is_noise(path):
            if (folder / path).parent.is_dir():
                changes[path] = None
            else:
                left_out += 1
    notes = (
        (f"{left_out} files of the baseline lie in folders that are not there; left as they are",) if left_out else ()
    )
    return Compared(store.update_tree(base, changes), notes)


def is_site(folder: Path) -> bool:
    """Whether a folder is a site-packages, or a package in one."""
    return any(True for place in (folder, folder.parent) for _ in place.glob("*.dist-info"))


def metadata_of(folder: Path, baseline: Baseline) -> Path | None:
    """The `dist-info` of the baseline's installed distribution, in `folder` or beside it."""
    if not baseline.installed:
        return None
    wanted = _normal(baseline.installed.distribution)
    for place in (folder, folder.parent):
        for found in sorted(place.glob("*.dist-info")):
            if _normal(found.name.removesuffix(".dist-info").rpartition("-")[0]) == wanted:
                return found
    return None


def compare_installed(store: Store, metadata: Path, baseline: Baseline, base: str) -> Compared:
    """The baseline tree `base` as the files of an installed distribution have it.

    `RECORD` says what was installed: only files that are no longer so count, and new ones in the packages. Raises
    `Refused` where another version is installed, or a changed file was another one to begin with.
    """
    assert baseline.installed
    version = metadata.name.removesuffix(".dist-info").rpartition("-")[2]
    if version != baseline.installed.version:
        what = f"{baseline.installed.distribution} {version} is installed; the baseline is {baseline.installed.version}"
        raise Refused(what, where=str(metadata))
    known = dict(store.walk(base))
    recorded = _record(metadata / "RECORD")
    site, prefix = metadata.parent, "" if baseline.root == "." else f"{baseline.root}/"
    changes: dict[str, Entry | None] = {}
    problems: list[Problem] = []
    for path, digest in recorded.items():
        there = look(site / path)
        if there and digest in (None, _digest(there[1])):
            continue
        before = known.get(prefix + path)
        if before is None or digest != _digest(store.read(before.id, "blob")):
            if digest is not None and not _is_noise(path):
                problems.append(Problem("was changed, and is not the baseline's to begin with", str(site / path)))
            continue
        # Installers set modes of their own, so that only the bytes count.
        changes[prefix + path] = Entry(before.mode, store.write("blob", there[1])) if there else None
    if problems:
        raise Refused(problems)
    for path in _new_files(site, baseline, recorded):
        entry = None if prefix + path in known else read_entry(store, site / path)
        if entry:
            changes[prefix + path] = entry
    return Compared(store.update_tree(base, changes))


def _new_files(site: Path, baseline: Baseline, recorded: dict[str, str | None]) -> Iterator[str]:
    for package in baseline.packages:
        for path in _walk(site / package):
            if f"{package}/{path}" not in recorded:
                yield f"{package}/{path}"


def _record(path: Path) -> dict[str, str | None]:
    """Path → SHA-256 as `RECORD` writes it (PEP 376), None where it gives none."""
    text = read_regular(path, 64 << 20).decode("utf-8", "surrogateescape")
    try:
        rows = [row for row in csv.reader(io.StringIO(text)) if row]
    except csv.Error as error:
        raise Invalid(f"cannot be read: {error}", where=str(path)) from error
    digests = {row[0]: row[1].partition("sha256=")[2] or None for row in rows if len(row) > 1}
    return {name: digest for name, digest in digests.items() if not name.startswith(("..", "/"))}


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def _normal(name: str) -> str:
    return name.lower().replace("-", "_").replace(".", "_")


def _walk(folder: Path) -> Iterator[str]:
    """Every file and link below `folder` that a person may have put there, without following links."""
    for place, folders, names in os.walk(folder):
        inner = Path(place).relative_to(folder)
        linked = [name for name in folders if (Path(place) / name).is_symlink()]
        folders[:] = sorted(name for name in folders if not _is_noise(name) and name not in linked)
        for name in sorted([*names, *linked]):
            if not _is_noise(name):
                yield (inner / name).as_posix()


def _is_noise(path: str) -> bool:
    return any(fnmatchcase(part, pattern) for part in path.split("/") for pattern in _NOISE)
