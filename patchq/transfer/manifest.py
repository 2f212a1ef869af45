"""What a bundle folder holds, and the check that comes before anything else looks at it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from patchq.document import Document, One, load_json, read_regular, sha256, sha256_file, to_json, write_file
from patchq.errors import Invalid, Prevented, Problem, Refused
from patchq.patch import check_path
from patchq.queue.baseline import CommitId, FilePath, Name, Sha256
from patchq.transfer.ancestry import Ancestry

MANIFEST, SUMS, SIGNATURE = "MANIFEST.json", "SHA256SUMS", "MANIFEST.json.sig"
_LINE = r"([0-9a-f]{64})  ([^\n\\]+)"


class CarriedCommit(Document):
    """A git bundle file: `since` is the commit that it builds on, `history` says that nothing is cut off.

    `upstream` and `name` are set where it is not needed for this lock: a baseline, called so, to move to later.
    """

    path: FilePath
    commit: CommitId
    since: CommitId | None = None
    history: bool = False
    upstream: str = ""
    name: str = ""


class Requires(Document):
    """What an incremental bundle leaves out because the receiver of an earlier lock has it."""

    lock: Sha256
    commits: tuple[CommitId, ...] = ()
    sdists: tuple[FilePath, ...] = ()
    wheels: tuple[FilePath, ...] = ()
    files: tuple[FilePath, ...] = ()


class Manifest(Document):
    """`MANIFEST.json`. It holds nothing that differs between two builds of one lock with one history before it.

    `files` are the digests of every other file, so that who signs the manifest signs the whole bundle; `ancestry`
    says which locks came before (None: the queue was in no git repository).
    """

    schema_version: One = Field(default=1, alias="schema")
    patchq: str
    queue: str
    target: Name
    lock: Sha256
    commits: tuple[CarriedCommit, ...] = ()
    sdists: tuple[FilePath, ...] = ()
    wheels: tuple[FilePath, ...] = ()
    requires: Requires | None = None
    ancestry: Ancestry | None = None
    files: dict[str, Sha256] = {}

    def to_bytes(self) -> bytes:
        """The file's bytes."""
        return to_json(self.model_dump(by_alias=True, mode="json"))


def digests_of(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file of a bundle by its path, but of those that speak about the others."""
    about = (MANIFEST, SUMS, SIGNATURE)
    return {path: sha256_file(folder / path) for path in sorted(_files(folder, [])) if path not in about}


def write_sums(folder: Path) -> None:
    """Write `SHA256SUMS` over every file of the folder, but a signature: that may come later."""
    sums = {path: sha256_file(folder / path) for path in _files(folder, []) if path not in (SUMS, SIGNATURE)}
    write_file(folder / SUMS, format_sums(sums))


def format_sums(sums: dict[str, str]) -> bytes:
    """The text that `sha256sum -c` reads, in the one order that patchq writes."""
    return "".join(f"{sums[path]}  {path}\n" for path in sorted(sums)).encode("utf-8", "surrogateescape")


def check_bundle(folder: Path) -> Manifest:
    """Hold a bundle against its digests, in both directions, and return its manifest.

    Raises `Refused` with every file that is missing, not listed, different, or not a plain file; nothing is read
    by git, extracted or written before this has passed.
    """
    if not folder.is_dir():
        raise Invalid("is not a bundle: there is no such folder", where=str(folder))
    if not os.path.lexists(folder / SUMS):
        raise Refused("is missing", where=str(folder / SUMS), hint="is this a bundle?")
    problems: list[Problem] = []
    present = set(_files(folder, problems)) - {SUMS, SIGNATURE}
    listed = _read_sums(folder / SUMS, problems)
    problems += [Problem("is listed but not there", path) for path in sorted(listed.keys() - present)]
    problems += [Problem("is there but not listed", path) for path in sorted(present - listed.keys())]
    for path in sorted(listed.keys() & present):
        if sha256_file(folder / path) != listed[path]:
            problems.append(Problem("does not have the SHA-256 that is listed", path, "transfer it again"))
    if MANIFEST not in listed and not problems:
        problems.append(Problem("is missing", MANIFEST))
    if problems:
        raise Refused(problems)
    manifest = load_json(folder / MANIFEST, Manifest)
    if sha256(manifest.to_bytes()) != listed[MANIFEST]:
        raise Refused("is not in the form that patchq writes", where=MANIFEST)
    _check_contents(manifest, present)
    _check_digests(manifest, listed)
    return manifest


def _read_sums(path: Path, problems: list[Problem]) -> dict[str, str]:
    try:
        data = read_regular(path, 64 << 20)
    except Invalid as error:
        problems.extend(Problem(problem.what, SUMS) for problem in error.problems)
        return {}
    sums: dict[str, str] = {}
    for number, row in enumerate(data.decode("utf-8", "surrogateescape").removesuffix("\n").split("\n"), 1):
        found = re.fullmatch(_LINE, row)
        if not found or found[2] in sums or check_path(found[2]):
            problems.append(Problem(f"cannot read the line {row[:80]!r}", f"{SUMS}:{number}"))
        else:
            sums[found[2]] = found[1]
    if not problems and format_sums(sums) != data:
        problems.append(Problem("is not in the form that patchq writes", SUMS))
    return sums


def _files(folder: Path, problems: list[Problem]) -> Iterator[str]:
    """Paths of the regular files below `folder`; anything else, and names that differ only in case, is a problem."""
    lowered: dict[str, str] = {}
    for here, folders, names in os.walk(folder, onerror=_raise):
        for name in sorted([*folders, *names]):
            path = Path(here, name)
            inner = path.relative_to(folder).as_posix()
            mode = path.lstat().st_mode
            twin = lowered.setdefault(inner.lower(), inner)
            if twin != inner:
                problems.append(Problem(f"differs from {twin} in case only", inner))
            if stat.S_ISREG(mode):
                yield inner
            elif not stat.S_ISDIR(mode):
                problems.append(Problem("is not a plain file", inner))


def _raise(error: OSError) -> None:
    raise Prevented(f"cannot be searched: {error.strerror}", where=str(error.filename)) from error


def _check_contents(manifest: Manifest, present: set[str]) -> None:
    """What the manifest lists, and nothing else, is in the folders that it is responsible for."""
    listed = {*(carried.path for carried in manifest.commits), *manifest.sdists, *manifest.wheels}
    carried = {path for path in present if path.split("/")[0] in ("git", "sdist", "wheels")}
    odd = sorted(listed ^ carried)
    if odd:
        raise Refused([Problem(f"{MANIFEST} and the folder do not agree on it", path) for path in odd])


def _check_digests(manifest: Manifest, listed: dict[str, str]) -> None:
    """The manifest, which can be signed, says the same of every file as the sums."""
    sums = {path: digest for path, digest in listed.items() if path != MANIFEST}
    odd = sorted({path for path, _ in sums.items() ^ manifest.files.items()})
    if odd:
        raise Refused([Problem(f"{MANIFEST} and {SUMS} do not agree on it", path) for path in odd])
