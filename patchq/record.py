"""Records: write-once evidence. One folder each, written aside and renamed, never rewritten."""

from __future__ import annotations

import os
import re
import shutil
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from patchq.document import Document, load_json, nearest, read_regular, sha256, sha256_file, sync_folder, to_json
from patchq.errors import Invalid, Refused
from patchq.mask import mask, mask_values
from patchq.report import Report, State

_SUM = re.compile(r"[0-9a-f]{64}  [^\n]+")


class Record(Document):
    """`record.json`. `steps` are a report's steps as JSON; `facts` what was found out about the machine."""

    schema_version: Literal[1] = Field(default=1, alias="schema")
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
    began = f"{evidence.began:%Y%m%dT%H%M%S}.{evidence.began.microsecond // 1000:03d}Z"
    identity = f"{began}-{report.verb}-{target}-{os.getpid()}"
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
        steps=answer["steps"],
        facts=evidence.facts,
    )
    files = {f"logs/{name}": mask(text).encode("utf-8", "backslashreplace") for name, text in evidence.logs.items()}
    files |= {f"attachments/{name}": data for name, data in evidence.attachments.items()}
    files |= {f"pip-freeze-{env}.txt": text.encode() for env, text in evidence.freeze.items()}
    files["record.json"] = to_json(mask_values(record.model_dump(by_alias=True, mode="json")))
    files["SHA256SUMS"] = "".join(f"{sha256(data)}  {name}\n" for name, data in sorted(files.items())).encode()
    return _place(records, identity, files)


def _place(records: Path, identity: str, files: Mapping[str, bytes]) -> Path:
    records.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".new-", dir=records))
    try:
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with (folder / name).open("wb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        folder.chmod(0o755)
        final = folder.rename(records / identity)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    sync_folder(records)
    return final


def list_records(records: Path) -> list[Record]:
    """Every record below `records`, oldest first."""
    return [load_json(path / "record.json", Record) for path in record_folders(records)]


def record_folders(records: Path) -> list[Path]:
    """The folders of the records, oldest first."""
    return sorted(path.parent for path in records.glob("[!.]*/record.json")) if records.is_dir() else []


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
