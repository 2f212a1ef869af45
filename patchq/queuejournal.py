"""Writing the queue so that, as patchq sees it, it is always the old one or the new one.

A write is one journal file first: a line of JSON that names every file with its digests before and after, then
the new bytes. The rename that gives it its name commits it; then the files follow one by one, the lock last.
Whoever finds a committed journal reads the queue through it, or completes it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from patchq.document import Document, One, parse_json, read_regular, sha256, sync_folder, write_atomic
from patchq.errors import Invalid, PatchqError, Prevented, Problem, Refused
from patchq.exclusive import exclusive

LOCK_NAME = "patchq.lock"
MAX_FILE = 64 << 20
_MAX_JOURNAL = 1 << 31
_COMMIT, _DONE, _ALONE = "commit", "done", "alone"
_WAIT = 60.0
_ATTEMPTS = 20


class _File(Document):
    """One file of a write: its path below the queue, its SHA-256 before and after (None: not there), new size."""

    path: str
    old: str | None
    new: str | None
    size: int


class _Plan(Document):
    schema_version: One = Field(default=1, alias="schema")
    files: tuple[_File, ...]


@dataclass(frozen=True)
class _Journal:
    plan: _Plan
    contents: Mapping[str, bytes | None]


def journal_folder(root: Path) -> Path:
    """Where the journal of the queue at `root` is: what `git rev-parse --git-path patchq` says, or `.patchq` beside
    the queue where there is no git. Each queue of a repository has its own folder there."""
    root = root.resolve()
    folder = repository_of(root)
    git_dir = _git_dir(folder) if folder else None
    if folder and git_dir:
        return git_dir / "patchq" / f"queue-{_name_of(os.path.relpath(root, folder))}"
    return root.parent / ".patchq" / f"queue-{_name_of(root.name)}"


def repository_of(root: Path) -> Path | None:
    """The top of the git work tree that the queue at `root` lies in."""
    return next((folder for folder in root.resolve().parents if _git_dir(folder)), None)


def write_queue(
    root: Path, changes: Mapping[str, bytes | None], *, seen: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Write files of the queue at `root`, all or nothing; returns the paths that really changed.

    `changes` maps a path below `root` to its new bytes (None: the file goes); the lock comes last. `seen` are the
    digests with which the caller read the queue: raises `Refused` where a file of `changes` is another by now.
    """
    root = root.resolve()
    for path in changes:
        _check_inside(root, path)
    with _alone(root) as folder, _named_errors(root):
        _roll_forward(root, folder)
        journal = _prepare(root, changes, seen)
        if journal.plan.files:
            write_atomic(folder / _COMMIT, _pack(journal))
            _roll_forward(root, folder)
        return tuple(file.path for file in journal.plan.files)


def settle(root: Path) -> bool:
    """Complete a committed write that was interrupted; returns whether there was one.

    Raises `Refused` where a file is neither as before nor as after the write, `Prevented` where the machine says no.
    """
    root = root.resolve()
    if not (journal_folder(root) / _COMMIT).exists():
        return False
    with _alone(root) as folder, _named_errors(root):
        return _roll_forward(root, folder)


def read_queue(root: Path) -> tuple[dict[str, bytes], tuple[Problem, ...]]:
    """Every plain file below `root` by its path, as patchq sees it, and what is wrong with the others.

    A committed write counts as done, and one that goes on meanwhile is read as a whole or not at all. Folders and
    files whose names begin with a dot are no part of a queue.
    """
    root = root.resolve()
    folder = journal_folder(root)
    for _ in range(_ATTEMPTS):
        before = _mark(folder)
        files, problems = _read_files(root)
        pending = _pending(root, folder)
        if _mark(folder) == before:
            files.update({path: data for path, data in pending.items() if data is not None})
            kept = {path: data for path, data in files.items() if pending.get(path, data) is not None}
            return dict(sorted(kept.items())), problems
    raise Prevented("the queue is being written all the time", where=str(root))


def _git_dir(folder: Path) -> Path | None:
    """The git directory whose work tree begins at `folder`, also that of a linked work tree or a submodule."""
    place = folder / ".git"
    if (place / "HEAD").exists():
        return place
    if place.is_file():
        line = place.read_text("utf-8", "surrogateescape").strip()
        return (folder / line.removeprefix("gitdir:").strip()).resolve() if line.startswith("gitdir:") else None
    return None


def _name_of(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]


def _check_inside(root: Path, path: str) -> None:
    parts = path.split("/")
    if path.startswith("/") or any(part in ("", ".", "..") for part in parts):
        raise Invalid(f"{path!r} is not a path below the queue", where=str(root))
    if (root / path).parent.resolve() != root.joinpath(*parts[:-1]):
        raise Refused("would be written through a link", where=str(root / path))


@contextlib.contextmanager
def _alone(root: Path) -> Iterator[Path]:
    """The journal's folder, for the one process that may write the queue; another waits."""
    folder = journal_folder(root)
    held = contextlib.ExitStack()
    with _named_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        what = "patchq, writing the queue"
        held.enter_context(exclusive(folder / _ALONE, what, free=f"the queue {root}", wait=_WAIT))
    with held:
        yield folder


@contextlib.contextmanager
def _named_errors(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = str(error.filename or place)
        raise Prevented(f"cannot be written: {error.strerror or error}", where=where) from error


def _prepare(root: Path, changes: Mapping[str, bytes | None], seen: Mapping[str, str] | None) -> _Journal:
    files, moved = [], []
    for path in sorted(changes, key=lambda path: (path == LOCK_NAME, path)):
        data, old = changes[path], _digest(root / path)
        if seen is not None and path != LOCK_NAME and old != seen.get(path):
            moved.append(Problem("was changed while this ran; nothing was written", str(root / path), "run it again"))
        new = None if data is None else sha256(data)
        if new != old:
            files.append(_File(path=path, old=old, new=new, size=len(data or b"")))
    if moved:
        raise Refused(moved)
    return _Journal(_Plan(files=tuple(files)), changes)


def _pack(journal: _Journal) -> bytes:
    head = journal.plan.model_dump_json(by_alias=True).encode()
    return b"\n".join([head, b"".join(journal.contents[file.path] or b"" for file in journal.plan.files)])


def _unpack(path: Path) -> _Journal:
    head, _, rest = read_regular(path, _MAX_JOURNAL).partition(b"\n")
    plan = parse_json(head, _Plan, str(path))
    contents: dict[str, bytes | None] = {}
    at = 0
    for file in plan.files:
        data = rest[at : at + file.size]
        at += file.size
        if file.new is not None and sha256(data) != file.new:
            raise Refused("the journal is damaged", where=str(path), hint=f"{file.path} is not what it says")
        contents[file.path] = None if file.new is None else data
    return _Journal(plan, contents)


def _roll_forward(root: Path, folder: Path) -> bool:
    """Bring every file to its new state, then put the journal away; False where none is committed."""
    for leftover in folder.glob(f".{_COMMIT}.*"):
        leftover.unlink()
    if not (folder / _COMMIT).exists():
        return False
    journal = _unpack(folder / _COMMIT)
    for file in _unfinished(root, folder, journal.plan):
        _place(root / file.path, journal.contents[file.path])
    (folder / _COMMIT).replace(folder / _DONE)
    sync_folder(folder)
    return True


def _unfinished(root: Path, folder: Path, plan: _Plan) -> list[_File]:
    """The files that are still old; raises `Refused` where one is neither old nor new."""
    now = {file.path: _digest(root / file.path) for file in plan.files}
    strange = [
        Problem("is neither as before nor as after an interrupted write", str(root / file.path),
                f"put back what it was, or give the write up by removing {folder / _COMMIT}")
        for file in plan.files if now[file.path] not in (file.old, file.new)
    ]  # fmt: skip
    if strange:
        raise Refused(strange)
    return [file for file in plan.files if now[file.path] != file.new]


def _digest(path: Path) -> str | None:
    try:
        return sha256(read_regular(path, MAX_FILE))
    except PatchqError:
        if os.path.lexists(path):
            raise
        return None


def _place(path: Path, data: bytes | None) -> None:
    """Replace one file in one step; its mode stays."""
    if data is not None:
        return write_atomic(path, data, stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644)
    path.unlink()
    return sync_folder(path.parent)


def _mark(folder: Path) -> tuple[object, ...]:
    """Which journal is committed and which was the last: two equal marks have no write between them."""
    return _identity(folder / _COMMIT), _identity(folder / _DONE)


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _pending(root: Path, folder: Path) -> Mapping[str, bytes | None]:
    """What a committed journal has to say, whether or not it is written out."""
    try:
        journal = _unpack(folder / _COMMIT)
    except Invalid:
        if (folder / _COMMIT).exists():
            raise
        return {}
    try:
        _unfinished(root, folder, journal.plan)
    except Refused:
        if (folder / _COMMIT).exists():
            raise
    return journal.contents


def _read_files(root: Path) -> tuple[dict[str, bytes], tuple[Problem, ...]]:
    files: dict[str, bytes] = {}
    problems: list[Problem] = []
    for inner in sorted(_inner_paths(root)):
        path = root / inner
        try:
            mode = path.lstat().st_mode
            if stat.S_ISREG(mode):
                files[inner] = read_regular(path, MAX_FILE)
            elif not stat.S_ISDIR(mode):
                problems.append(Problem("is not a plain file; a queue holds nothing else", str(path)))
        except FileNotFoundError:
            continue
        except PatchqError as error:
            if os.path.lexists(path):
                problems.extend(error.problems)
    return files, tuple(problems)


def _inner_paths(root: Path) -> Iterator[str]:
    """What lies below `root`, folders too, without what is no part of a queue and without following a link."""
    for folder, names, others in os.walk(root):
        names[:] = [name for name in names if _belongs(name)]
        prefix = "" if folder == str(root) else f"{os.path.relpath(folder, root)}/"
        yield from (prefix + name for name in (*names, *others) if _belongs(name))


def _belongs(name: str) -> bool:
    return not name.startswith(".") and name != "__pycache__"
