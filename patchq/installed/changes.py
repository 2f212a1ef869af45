"""What is to be changed in a distribution, and whether its files are as distributed or as we leave them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from patchq.document import sha256
from patchq.errors import Invalid, Problem, Refused
from patchq.installed.files import found, machine
from patchq.installed.installation import Installation

_UNRECORDABLE = "[\0\r\n\ud800-\udfff]"

State = Literal["as distributed", "ours"]


@dataclass(frozen=True)
class FileChange:
    """One file of a distribution, `path` relative to its root.

    `before` is the SHA-256 that it has as distributed (None: a new file), `after` the bytes that it gets
    (None: it goes). Of `mode` only the owner's x bit counts (0o644 or 0o755, as in git); None keeps what is
    there.
    """

    path: str
    before: str | None
    after: bytes | None
    mode: int | None = None

    @property
    def digest(self) -> str | None:
        """The SHA-256 of `after`."""
        return None if self.after is None else sha256(self.after)

    def mode_over(self, old: int) -> int:
        """The permission bits of a file that had `old`: x for all who may read it, or for nobody."""
        if self.mode is None:
            return old
        return old | (old & 0o444) >> 2 if self.mode & 0o100 else old & ~0o111


@machine("the installation cannot be read")
def state(installation: Installation, changes: Sequence[FileChange]) -> State:
    """Whether all files of `changes` are as we leave them, or all as distributed.

    Raises `Refused` naming each that is neither (where they are mixed: each that is not as distributed), and
    `Invalid` for a path that may not be changed.
    """
    check_paths(installation, changes)
    now = {change.path: found(installation.root, change.path) for change in changes}
    if all(_is_ours(installation.root, change, now[change.path]) for change in changes):
        return "ours"
    other = [change for change in changes if now[change.path] != change.before]
    if other:
        raise Refused([_problem(change, now[change.path], installation) for change in other])
    return "as distributed"


def check_paths(installation: Installation, changes: Sequence[FileChange]) -> None:
    """Raise `Invalid` for paths that leave the root, name its `RECORD`, or stand there twice."""
    record = installation.record.relative_to(installation.root).as_posix()
    counts = Counter(change.path for change in changes)
    problems = [Problem(what, path) for path in counts for what in _path_faults(path, record)]
    problems += [Problem("is changed twice", path) for path, count in counts.items() if count > 1]
    if problems:
        raise Invalid(problems)


def _path_faults(path: str, record: str) -> Iterator[str]:
    pure = PurePosixPath(path)
    if path != str(pure) or path == "." or pure.is_absolute() or ".." in pure.parts:
        yield "is not a plain path below the distribution's root"
    elif path == record or path.startswith(f"{record}."):
        yield "is patchq's to rewrite, not a patch's"
    elif re.search(_UNRECORDABLE, path):
        yield "has characters that RECORD cannot hold"


def _is_ours(root: Path, change: FileChange, now: str | None) -> bool:
    if now != change.digest:
        return False
    if now is None or change.mode is None:
        return True
    return bool((root / change.path).stat().st_mode & 0o100) == bool(change.mode & 0o100)


def _problem(change: FileChange, now: str | None, installation: Installation) -> Problem:
    expected = " or ".join(digest or "nothing" for digest in (change.before, change.digest))
    if now is not None and now == change.digest:
        what = "is as patchq leaves it, while other files are not"
        hint = f"{installation.distribution} partly reinstalled?"
    else:
        what = "is neither as distributed nor as patchq leaves it"
        hint = f"edited by hand? {installation.distribution} upgraded by pip?"
    what = f"{what}: expected {expected}, found {now or 'nothing'}"
    return Problem(what, str(installation.root / change.path), hint)
