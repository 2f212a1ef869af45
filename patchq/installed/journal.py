"""Write-ahead journals: all that a change to an installation needs in order to be completed or taken back.

A journal is a folder: `blobs/SHA256` (old and new bytes), `journal.json` (the plan), and `commit`, which
appears by a rename once the rest is durable and says how far things are. Without `commit` nothing was
touched.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from pydantic import Field

from patchq.document import Document, One, load_json, read_regular, sha256, sync_folder, to_json, write_atomic
from patchq.errors import Invalid, Problem, Refused
from patchq.installed.files import Link, found, machine, settle_file

PLAN, COMMIT, BLOBS = "journal.json", "commit", "blobs"
Phase = Literal["placing", "placed", "taking back"]


class Entry(Document):
    """One file before and after: SHA-256 (None: not there), permission bits, and how it was shared before."""

    path: str
    old: str | None
    new: str | None
    old_mode: int
    new_mode: int
    link: Link = ""


class Plan(Document):
    """What is changed where. Paths of `files` are relative to `root`; the last one is the `RECORD`."""

    schema_version: One = Field(default=1, alias="schema")
    distribution: str
    version: str
    root: str
    files: tuple[Entry, ...] = Field(min_length=1)

    @property
    def record(self) -> Path:
        return Path(self.root, self.files[-1].path)

    @property
    def changes(self) -> dict[str, str | None]:
        """The digest that each file gets, `RECORD` aside."""
        return {entry.path: entry.new for entry in self.files[:-1]}


def write(folder: Path, plan: Plan, contents: Mapping[str, bytes]) -> None:
    """Write a journal and commit it; `contents` holds bytes by their SHA-256."""
    for digest, data in contents.items():
        write_atomic(folder / BLOBS / digest, data)
    write_atomic(folder / PLAN, to_json(plan.model_dump(by_alias=True, mode="json")))
    for made in (folder, folder.parent, folder.parent.parent):
        sync_folder(made)
    mark(folder, "placing")


def mark(folder: Path, phase: Phase) -> None:
    """Say durably how far things are."""
    write_atomic(folder / COMMIT, phase.encode())


def phase_of(folder: Path) -> Phase | None:
    """How far things are; None for a journal that was not committed."""
    if not (folder / COMMIT).exists():
        return None
    text = read_regular(folder / COMMIT).decode("ascii", "replace")
    for phase in get_args(Phase):
        if text == phase:
            return phase  # type: ignore[no-any-return]
    raise Invalid(f"says {text[:40]!r}, which patchq never writes", where=str(folder / COMMIT))


def load(folder: Path) -> Plan:
    """The plan of a committed journal."""
    return load_json(folder / PLAN, Plan)


def drop(folder: Path) -> None:
    """Remove a journal; interrupted, it is one that was not committed."""
    (folder / COMMIT).unlink(missing_ok=True)
    sync_folder(folder)
    shutil.rmtree(folder)
    sync_folder(folder.parent)


def settle(folder: Path) -> str:
    """Complete what a journal began; the answer says what that was, and is empty if there was nothing to do.

    Raises `Refused`, with nothing written, where a file is neither old nor new, and `Invalid` for a folder
    that is no journal.
    """
    phase = phase_of(folder)
    if phase is None:
        _drop_leftover(folder)
        return f"{folder.name}: dropped, it had not begun"
    if phase == "placed":
        return ""
    plan = load(folder)
    refuse_strangers(folder, plan)
    for entry in plan.files:
        _settle_entry(folder, plan, entry, is_forward=phase == "placing")
    if phase == "placing":
        mark(folder, "placed")
    else:
        drop(folder)
    count = len(plan.files) - 1
    return f"{plan.distribution} {plan.version}: {count} {'file' if count == 1 else 'files'} {_DONE[phase]}"


_DONE = {"placing": "placed", "taking back": "taken back"}


def refuse_strangers(folder: Path, plan: Plan) -> None:
    """Raise `Refused` naming each file that is neither as it was before the journal nor as it leaves it."""
    problems = []
    for entry in plan.files:
        now = found(Path(plan.root), entry.path)
        if now not in (entry.old, entry.new):
            expected = f"{entry.old or 'nothing'} or {entry.new or 'nothing'}"
            what = f"is neither old nor new: expected {expected}, found {now or 'nothing'}"
            hint = f"what belongs there is in {folder / BLOBS}; to give the journal up, remove {folder}"
            problems.append(Problem(what, str(Path(plan.root, entry.path)), hint))
    if problems:
        raise Refused(problems)


def placed_bytes(folder: Path) -> dict[str, tuple[str | None, bytes | None]]:
    """What a journal put in place, `RECORD` aside: path → (digest before, bytes after; None: not there)."""
    return {
        entry.path: (entry.old, None if entry.new is None else _blob(folder, entry.new))
        for entry in load(folder).files[:-1]
    }


@machine("a journal cannot be completed")
def roll_forward(journals: Path) -> tuple[str, ...]:
    """Complete every committed journal below `journals`, drop the others; one line for each that needed it.

    Raises `Refused` where a file is neither old nor new.
    """
    folders = sorted(path for path in journals.iterdir() if path.is_dir()) if journals.is_dir() else []
    return tuple(filter(None, map(settle, folders)))


def _settle_entry(folder: Path, plan: Plan, entry: Entry, *, is_forward: bool) -> None:
    digest, mode = (entry.new, entry.new_mode) if is_forward else (entry.old, entry.old_mode)
    settle_file(Path(plan.root), entry.path, None if digest is None else _blob(folder, digest), mode)


def _blob(folder: Path, digest: str) -> bytes:
    path = folder / BLOBS / digest
    data = path.read_bytes()
    if sha256(data) != digest:
        raise Refused("is not what its name says; the journal is damaged", where=str(path))
    return data


def _drop_leftover(folder: Path) -> None:
    ours = re.compile(rf"{BLOBS}|{re.escape(PLAN)}|\.({COMMIT}|{re.escape(PLAN)})\..*")
    strange = sorted(path.name for path in folder.iterdir() if not ours.fullmatch(path.name))
    if strange:
        raise Invalid(f"is not a journal of patchq: {strange[0]} is in it", where=str(folder))
    drop(folder)
