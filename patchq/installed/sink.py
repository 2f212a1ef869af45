"""The two verbs of this room: put changes into an installation, and take them back."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from patchq.document import sha256
from patchq.errors import Problem, Refused
from patchq.installed import recordfile
from patchq.installed.changes import FileChange, state
from patchq.installed.files import found, link_of, machine
from patchq.installed.installation import INSTEAD, Installation
from patchq.installed.journal import Entry, Plan, drop, load, mark, phase_of, refuse_strangers, settle, write

NEW_FILE_MODE = 0o644


@machine("the installation cannot be changed")
def place(installation: Installation, changes: Sequence[FileChange], journal: Path) -> None:
    """Make every file of `changes` ours, or none. `journal` is a folder of its own among its like.

    Raises `Refused` before anything is written where a file is neither as distributed nor ours, `RECORD` does
    not vouch for it, its place cannot be written, the interpreter imports another file, or another journal
    beside this one is in force; `Prevented` where the machine fails: the next call, or `roll_forward`, makes
    that good.
    """
    if journal.exists():
        settle(journal)
    _refuse(_in_force(installation, changes, journal))
    if state(installation, changes) == "ours":
        return
    plan, contents = _plan(installation, changes)
    if journal.exists():
        drop(journal)
    write(journal, plan, contents)
    settle(journal)


@machine("the installation cannot be restored")
def take_back(journal: Path) -> tuple[str, ...]:
    """Restore bytes, modes and `RECORD` from a journal, then drop it; the paths that it had changed.

    Empty where there is no journal (any more). Raises `Refused` before anything is written, naming each file
    that is no longer ours. A place that was cut short is taken back too.
    """
    if not journal.exists():
        return ()
    phase = phase_of(journal)
    if phase is None:
        settle(journal)
        return ()
    plan = load(journal)
    if phase == "placed":
        _refuse_foreign(journal, plan)
    else:
        refuse_strangers(journal, plan)
    mark(journal, "taking back")
    settle(journal)
    return tuple(plan.changes)


def _refuse_foreign(journal: Path, plan: Plan) -> None:
    """Refuse unless all files are ours, or all are back already."""
    now = {entry.path: found(Path(plan.root), entry.path) for entry in plan.files}
    if all(now[entry.path] == entry.old for entry in plan.files):
        return
    hint = f"edited by hand? {plan.distribution} upgraded by pip? To give the journal up, remove {journal}"
    _refuse(
        Problem(
            f"is no longer ours: expected {entry.new or 'nothing'}, found {now[entry.path] or 'nothing'}",
            str(Path(plan.root, entry.path)),
            hint,
        )
        for entry in plan.files
        if now[entry.path] != entry.new
    )


def _in_force(installation: Installation, changes: Sequence[FileChange], journal: Path) -> Iterator[Problem]:
    """Other changes to the same installation that were not taken back: they would stay, unseen."""
    wanted = {change.path: change.digest for change in changes}
    folders = sorted(journal.parent.iterdir()) if journal.parent.is_dir() else []
    for folder in folders:
        if not folder.is_dir() or phase_of(folder) is None:
            continue
        plan = load(folder)
        if plan.record != installation.record or plan.changes == wanted:
            continue
        for entry in plan.files[:-1]:
            if entry.new != entry.old and found(Path(plan.root), entry.path) == entry.new:
                what = "still has the change of another journal"
                yield Problem(what, str(Path(plan.root, entry.path)), f"take {folder.name} back first")


def _plan(installation: Installation, changes: Sequence[FileChange]) -> tuple[Plan, dict[str, bytes]]:
    """The plan and the bytes that it needs; raises `Refused` with all that speaks against it."""
    root, record = installation.root, installation.record.read_bytes()
    rows = recordfile.parse(record, str(installation.record))
    old = {change.path: _read(root / change.path) for change in changes}
    _refuse(_obstacles(installation, rows, old))
    path = installation.record.relative_to(root).as_posix()
    new_record = recordfile.rewritten(rows, {change.path: change.after for change in changes})
    every, old = (*changes, FileChange(path, sha256(record), new_record)), {**old, path: record}
    plan = Plan(
        distribution=installation.distribution,
        version=installation.version,
        root=str(root),
        files=tuple(_entry(root, change, old[change.path]) for change in every),
    )
    contents = [*old.values(), *(change.after for change in every)]
    return plan, {sha256(data): data for data in contents if data is not None}


def _obstacles(
    installation: Installation, rows: Sequence[recordfile.Row], old: Mapping[str, bytes | None]
) -> Iterator[Problem]:
    for path, data in old.items():
        where = str(installation.root / path)
        what = recordfile.complaint(rows, path, data)
        if what:
            yield Problem(what, where, INSTEAD)
        top = path.split("/")[0].removesuffix(".py")
        if top in installation.shadowed:
            yield Problem(f"{installation.python} imports {installation.shadowed[top]} instead", where)
    folders = {_nearest_folder(installation.root / path) for path in old} | {installation.record.parent}
    for folder in sorted(folders):
        if not os.access(folder, os.W_OK | os.X_OK):
            yield Problem("is a folder that cannot be written", str(folder), INSTEAD)


def _entry(root: Path, change: FileChange, data: bytes | None) -> Entry:
    path = root / change.path
    old_mode = NEW_FILE_MODE if data is None else _mode(path)
    return Entry(
        path=change.path,
        old=None if data is None else sha256(data),
        new=change.digest,
        old_mode=old_mode,
        new_mode=change.mode_over(old_mode),
        link="" if data is None else link_of(path),
    )


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _nearest_folder(path: Path) -> Path:
    return next(folder for folder in path.parents if folder.is_dir())


def _refuse(problems: Iterator[Problem]) -> None:
    if found_problems := list(problems):
        raise Refused(found_problems)
