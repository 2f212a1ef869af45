"""An undo journal: files as they were before somebody else's program may change them, and the way back.

A journal is a folder: `blobs/SHA256`, `images.json`, and `state`, which appears by a rename once all else is durable.
While it says `begun` the files may be anything between old and new, and whoever comes next puts them back; `kept`
means that the change stands and can still be taken back.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from pydantic import Field

from patchq.document import Document, One, load_json, sha256, sync_folder, to_json, write_atomic
from patchq.errors import Problem, Refused
from patchq.installed.files import found, machine, settle_file
from patchq.workarea import WorkArea

_IMAGES, _STATE, _BLOBS = "images.json", "state", "blobs"


class Image(Document):
    """One file below a root as it was: SHA-256 (None: not there), permission bits, modification time; `after` is the
    SHA-256 that it was left with."""

    root: str
    path: str
    before: str | None
    mode: int = 0o644
    mtime: int = 0
    after: str | None = None

    @property
    def place(self) -> Path:
        return Path(self.root, self.path)

    @property
    def now(self) -> str | None:
        """The SHA-256 of what is there now (None: nothing)."""
        return found(Path(self.root), self.path)


class Images(Document):
    """What a journal holds; `title` says whose change it is about."""

    schema_version: One = Field(default=1, alias="schema")
    title: str
    files: tuple[Image, ...]


@machine("the files cannot be kept")
def begin(folder: Path, title: str, files: Iterable[tuple[Path, str]]) -> None:
    """Keep every file (root, path below it) as it is now; from here on a crash leads back to this state."""
    images = []
    for root, path in sorted(set(files)):
        place = root / path
        if not place.is_file():
            images.append(Image(root=str(root), path=path, before=None))
            continue
        data, status = place.read_bytes(), place.stat()
        write_atomic(folder / _BLOBS / sha256(data), data)
        images.append(
            Image(
                root=str(root), path=path, before=sha256(data), mode=stat.S_IMODE(status.st_mode),
                mtime=status.st_mtime_ns,
            )
        )  # fmt: skip
    _write(folder, Images(title=title, files=tuple(images)))
    for made in (folder, folder.parent):
        sync_folder(made)
    write_atomic(folder / _STATE, b"begun")


@machine("the files cannot be kept")
def keep(folder: Path, more: Iterable[tuple[Path, str]] = ()) -> None:
    """The change stands: note what each file is now; `more` are files that came with it and were not foreseen."""
    images = load_json(folder / _IMAGES, Images)
    known = {image.place for image in images.files}
    new = [
        Image(root=str(root), path=path, before=None) for root, path in sorted(set(more)) if root / path not in known
    ]
    files = tuple(image.model_copy(update={"after": image.now}) for image in (*images.files, *new))
    _write(folder, images.model_copy(update={"files": files}))
    write_atomic(folder / _STATE, b"kept")


@machine("the files cannot be put back")
def put_back(folder: Path, more: Iterable[tuple[Path, str]] = ()) -> tuple[str, ...]:
    """`restore`, and drop the journal."""
    touched = restore(folder, more)
    drop(folder)
    return touched


@machine("the files cannot be put back")
def restore(folder: Path, more: Iterable[tuple[Path, str]] = ()) -> tuple[str, ...]:
    """Put every file back as it was, byte for byte, and remove those that are new (and `more`).

    The same when repeated after a crash at any point, as long as the journal is there. Returns the paths that were
    touched. Raises `Refused`, with nothing changed, for a kept change whose files somebody has changed since.
    """
    images = load_json(folder / _IMAGES, Images)
    if _state(folder) == "kept":
        _refuse_strangers(folder, images)
        write_atomic(folder / _STATE, b"begun")
    known = {image.place for image in images.files}
    new = [
        Image(root=str(root), path=path, before=None) for root, path in sorted(set(more)) if root / path not in known
    ]
    # A source first, because settling it removes what was compiled from it.
    todo = sorted((*images.files, *new), key=lambda image: (image.path.endswith(".pyc"), image.path))
    touched = [image for image in todo if image.now != image.before]
    compiled = [image for image in todo if image not in touched and image.path.endswith(".pyc") and image.before]
    for image in [*touched, *compiled]:
        data = None if image.before is None else (folder / _BLOBS / image.before).read_bytes()
        settle_file(Path(image.root), image.path, data, image.mode)
        if data is not None:
            os.utime(image.place, ns=(image.mtime, image.mtime))
    return tuple(str(image.place) for image in touched)


def drop(folder: Path) -> None:
    """Remove a journal; interrupted, it is one that had not begun."""
    (folder / _STATE).unlink(missing_ok=True)
    sync_folder(folder)
    shutil.rmtree(folder)


def unfinished(journals: Path) -> list[Path]:
    """The journals of changes that were cut short; nothing was touched yet where a journal says nothing."""
    return [folder for folder in _folders(journals) if _state(folder) == "begun"]


def newest(journals: Path) -> Path | None:
    """The journal of the last change that can be taken back: it stands, or it was cut short, or taking it back was."""
    begun = [folder for folder in _folders(journals) if _state(folder)]
    return begun[-1] if begun else None


def roll_back(journals: Path) -> tuple[str, ...]:
    """Put back what was cut short, one line for each, and remove the journals of what had not begun."""
    done = []
    for folder in reversed(unfinished(journals)):
        title = load_json(folder / _IMAGES, Images).title
        done.append(f"{title}: cut short, {len(put_back(folder))} files put back")
    for folder in _folders(journals):
        if not _state(folder):
            shutil.rmtree(folder)
    return tuple(done)


def roll_back_all(area: WorkArea) -> list[str]:
    """Put back every install of a work area that was cut short; one line for each."""
    return [line for part in sorted((area.root / "installs").glob("*")) for line in roll_back(part)]


def _write(folder: Path, images: Images) -> None:
    write_atomic(folder / _IMAGES, to_json(images.model_dump(by_alias=True, mode="json")))


def _folders(journals: Path) -> list[Path]:
    return sorted(path for path in journals.glob("*") if path.is_dir()) if journals.is_dir() else []


def _state(folder: Path) -> str:
    return (folder / _STATE).read_text() if (folder / _STATE).exists() else ""


def _refuse_strangers(folder: Path, images: Images) -> None:
    problems = [
        Problem("is no longer as it was left", str(image.place), f"to give the way back up, remove {folder}")
        for image in images.files
        if image.now not in (image.after, image.before)
    ]
    if problems:
        raise Refused(problems)
