"""Records: write-once evidence. One folder each, written aside and renamed, never rewritten."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from pydantic import Field

from patchq.document import (
    Document,
    One,
    load_json,
    nearest,
    read_regular,
    sha256,
    sha256_file,
    sync_folder,
    to_json,
    writing,
)
from patchq.errors import Invalid, Prevented, Refused
from patchq.exclusive import room_in
from patchq.mask import mask, mask_values
from patchq.printable import storable
from patchq.report import Report, State

_STAMP, _STAMP_FORM = re.compile(r"\d{8}T\d{6}\.\d{3}Z"), "%Y%m%dT%H%M%S.%fZ"
_SUM = re.compile(r"[0-9a-f]{64}  [^\n]+")


class Record(Document):
    """`record.json`. `steps` are a report's steps as JSON; `facts` what was found out about the machine."""

    schema_version: One = Field(default=1, alias="schema")
    id: str
    verb: str
    target: str
    variant: str | None
    lock: str
    host: str
    began: str
    ended: str
    exit: int
    counts: dict[str, int]
    steps: list[dict[str, Any]]
    facts: dict[str, Any]

    def not_run(self) -> list[str]:
        """The names of the steps that were required and not run."""
        missing = [step for step in self.steps if step["state"] == State.NOT_RUN.value]
        return [str(step["name"]) for step in missing if step.get("required", True)]


@dataclass
class Evidence:
    """What a verb gathers for its record while it works."""

    began: datetime = field(default_factory=lambda: datetime.now(timezone.utc))
    facts: dict[str, Any] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    freeze: dict[str, str] = field(default_factory=dict)
    attachments: dict[str, bytes] = field(default_factory=dict)


def write_record(
    records: Path, report: Report, evidence: Evidence, *, target: str, variant: str | None, lock: str
) -> Path:
    """Write the record of a verb that has ended and return its folder."""
    ended = datetime.now(timezone.utc)
    stamp = next_stamp(evidence.began, (folder.name for folder in record_folders(records)))
    identity = f"{stamp}-{report.verb}-{target}-{os.getpid()}"
    answer = report.as_json()
    record = Record(
        id=identity,
        verb=report.verb,
        target=target,
        variant=variant,
        lock=lock,
        host=socket.gethostname(),
        began=_stamp(evidence.began),
        ended=_stamp(ended),
        exit=report.exit_code,
        counts=report.counts,
        steps=storable(answer["steps"]),
        facts=storable(evidence.facts),
    )
    texts = {f"logs/{name}": text for name, text in evidence.logs.items()}
    texts |= {f"pip-freeze-{env}.txt": text for env, text in evidence.freeze.items()}
    files = {name: mask(text).encode("utf-8", "backslashreplace") for name, text in texts.items()}
    files |= {f"attachments/{name}": data for name, data in evidence.attachments.items()}
    files |= {
        f"pip-freeze-{env}.txt": mask(text).encode("utf-8", "backslashreplace") for env, text in evidence.freeze.items()
    }
    files["record.json"] = to_json(mask_values(record.model_dump(by_alias=True, mode="json")))
    files["SHA256SUMS"] = "".join(f"{sha256(data)}  {name}\n" for name, data in sorted(files.items())).encode()
    return _place(records, identity, files)


def next_stamp(moment: datetime, taken: Iterable[str]) -> str:
    """`moment` as the beginning of a name, or where a name of `taken` begins later, the millisecond after that: names
    keep the order in which things happened, also on a clock that jumped back."""
    for stamp in (found[0] for name in taken if (found := _STAMP.match(name))):
        with contextlib.suppress(ValueError, OverflowError):  # a name of somebody else's
            then = datetime.strptime(stamp, _STAMP_FORM).replace(tzinfo=timezone.utc)
            moment = max(moment, then + timedelta(milliseconds=1))
    return f"{moment:%Y%m%dT%H%M%S}.{moment.microsecond // 1000:03d}Z"


def _place(records: Path, identity: str, files: Mapping[str, bytes]) -> Path:
    with room_in(records) as folder:
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with writing(folder / name), (folder / name).open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        folder.chmod(0o755)
        final = folder.rename(records / identity)
    sync_folder(records)
    return final


def list_records(records: Path) -> list[Record]:
    """Every record below `records`, oldest first."""
    return [load_json(path / "record.json", Record) for path in record_folders(records)]


def record_folders(records: Path) -> list[Path]:
    """The folders of the records, oldest first. Raises `OSError` or `Prevented` where that cannot be told.

    What is in force follows from them: from none, that nothing is, and that nobody's signature counts.
    """
    try:
        names = sorted(os.listdir(records))  # noqa: PTH208 - `glob` takes a folder that cannot be read for an empty one
    except (FileNotFoundError, NotADirectoryError):
        if records.is_symlink():
            raise Prevented("leads nowhere now", where=str(records), hint="mount what it leads to") from None
        return []
    return [records / name for name in names if not name.startswith(".") and _is_record(records / name)]


def _is_record(folder: Path) -> bool:
    try:
        (folder / "record.json").stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def find_record(records: Path, identity: str) -> Path:
    """The folder of the record whose id is, or begins with, `identity`; raises `Invalid` for none or several."""
    folders = record_folders(records)
    found = [folder for folder in folders if folder.name.startswith(identity)]
    if len(found) != 1:
        what = "no record" if not found else f"{len(found)} records"
        raise Invalid(f"{what} with the id {identity!r}", where=str(records),
                      hint=nearest(identity, [folder.name for folder in folders]))  # fmt: skip
    return found[0]


def read_record(folder: Path) -> Record:
    """A record, with its digests checked; raises `Refused` naming the file that is not as it was written."""
    for name, digest in _sums(folder / "SHA256SUMS").items():
        if not (folder / name).is_file() or sha256_file(folder / name) != digest:
            raise Refused("is not as it was written", where=str(folder / name))
    return load_json(folder / "record.json", Record)


@contextlib.contextmanager
def reading_record(folder: Path) -> Iterator[None]:
    """Around what reads a record's steps and facts, which another host may have written: another shape is `Invalid`."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        what = f"holds what patchq would not have written: {type(error).__name__}: {error}"
        raise Invalid(what[:300], where=str(folder / "record.json")) from error


def _sums(path: Path) -> dict[str, str]:
    """Name → digest; raises `Refused` where the list is not one that patchq wrote, with the record itself in it."""
    try:
        rows = read_regular(path).decode("utf-8", "surrogateescape").removesuffix("\n").split("\n")
    except Invalid:
        rows = []
    found = {row[66:]: row[:64] for row in rows if _SUM.fullmatch(row)}
    if len(found) != len(rows) or "record.json" not in found:
        raise Refused("is not as it was written", where=str(path))
    return found


def attachments_of(records: Path, identity: str) -> list[Path]:
    """The folders of the records that attach a file to the record `identity`, oldest first."""
    folders = [folder for folder in record_folders(records) if "-attach-" in folder.name]
    return [one for one in folders if load_json(one / "record.json", Record).facts.get("attaches") == identity]


def open_record(records: Path, given: str) -> Path:
    """The folder of a record that is named by its id (or its beginning), or by its path: it may be another host's."""
    path = Path(given)
    return path.absolute() if (path / "record.json").is_file() else find_record(records, given)


def last_record(records: Path, verb: str, target: str, variant: str | None, lock: str) -> Record | None:
    """The newest record of a verb for one target, variant and lock."""
    for folder in reversed(record_folders(records)):
        if f"-{verb}-{target}-" in folder.name:
            record = load_json(folder / "record.json", Record)
            if (record.verb, record.target, record.variant, record.lock) == (verb, target, variant, lock):
                return record
    return None


def _stamp(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
