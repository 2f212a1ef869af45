"""`record`: reads the evidence that was written, adds to it, compares it, and carries it out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchq.commands.place import Place
from patchq.document import read_regular, sha256, write_file
from patchq.errors import Invalid, Refused
from patchq.evidence.diff import COLUMNS, compare
from patchq.evidence.page import cause, page
from patchq.evidence.record import (
    Evidence,
    attachments_of,
    find_record,
    list_records,
    open_record,
    read_record,
    reading_record,
    record_folders,
    write_record,
)
from patchq.exclusive import room_in
from patchq.mask import mask
from patchq.report import Report, State, Step
from patchq.transfer.manifest import write_sums

MAX_ATTACHMENT = 64 << 20
# What a log keeps of its beginning and of its end when it is carried out, in bytes.
LOG_HEAD, LOG_TAIL = 8 << 10, 56 << 10
MAX_CARRIED = 1 << 20


def list_all(place: Place, target: str) -> Report:
    """Every record of the target's work area, oldest first."""
    records = list_records(place.area(target).records)
    steps = tuple(
        Step(
            record.id,
            State.NOTE,
            f"{record.verb} {record.target} exit {record.exit}: {_counts(record.counts)}",
        )
        for record in records
    )
    return Report(
        "record",
        steps,
        {"records": [record.model_dump(by_alias=True, exclude={"steps", "facts"}) for record in records]},
    )


def show(place: Place, target: str, identity: str) -> Report:
    """One record; raises `Refused` if a file of it is not as it was written."""
    records = place.area(target).records
    folder = find_record(records, identity)
    record = read_record(folder)
    with reading_record(folder):
        steps = tuple(map(_told, record.steps))
    head = Step(
        record.id,
        State.PASSED,
        f"on {record.host}, {record.began} to {record.ended}, exit {record.exit}, digests hold",
    )
    attached = [
        Step(path.name, State.NOTE, f"{read_record(one).facts['kind']}: {path}", "attached")
        for one in attachments_of(records, record.id)
        for path in sorted((one / "attachments").iterdir())
    ]
    data = {"path": str(folder), "record": record.model_dump(by_alias=True, mode="json")}
    return Report("record", (head, *steps, *attached), data)


def _told(step: dict[str, Any]) -> Step:
    """A step of a record, as one of this report."""
    summary = f"{step['state']}  {step.get('summary', '')}".rstrip()
    detail = tuple(map(str, step.get("detail", ())))
    return Step(str(step["name"]), State.NOTE, summary, str(step.get("group", "")), detail, str(step.get("hint", "")))


def attach(place: Place, target: str, file: Path, kind: str, identity: str | None = None) -> Report:
    """Keep a file beside a record (None: the newest), in a record of its own: what was written stays as it is.

    Secrets in a text are masked. Raises `Invalid` for a file that is none, and for a kind that is no plain word.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", kind):
        raise Invalid(f"{kind!r} is not a kind", hint="plain words, such as resolved-config")
    records = place.area(target).records
    folder = find_record(records, identity) if identity else _newest(records, target)
    record = read_record(folder)
    data = read_regular(file, MAX_ATTACHMENT)
    kept = _masked(data)
    facts = {"attaches": record.id, "kind": kind, "name": file.name, "sha256": sha256(data), "masked": kept != data}
    what = f"{file.name} ({len(kept)} bytes, {kind}) is kept beside {record.id}"
    report = Report("attach", (Step(file.name, State.PASSED, what + (", secrets masked" if kept != data else "")),))
    evidence = Evidence(facts=facts, attachments={file.name: kept})
    made = write_record(records, report, evidence, target=target, variant=record.variant, lock=record.lock)
    return Report("record", report.steps, {**facts, "record": str(made)})


def diff(place: Place, target: str, first: str, second: str) -> Report:
    """Two records side by side, named by id or by folder; raises `Refused` for one that is not as it was written."""
    records = place.area(target).records
    folders = (open_record(records, first), open_record(records, second))
    a, b = (read_record(folder) for folder in folders)
    rows = compare(folders[0], a, folders[1], b)
    steps = [
        Step(name, State.NOTE, f"{one.id}: {one.verb} {one.target} on {one.host}, {one.began}, exit {one.exit}")
        for name, one in (("A", a), ("B", b))
    ]
    summary = f"{len(rows)} things differ" if rows else "nothing differs"
    data: dict[str, Any] = {"a": str(folders[0]), "b": str(folders[1]), "differences": [list(row) for row in rows]}
    if rows:
        data["table"] = {"title": summary, "columns": list(COLUMNS), "rows": [list(row) for row in rows]}
    return Report("record", (*steps, Step("differences", State.NOTE, summary)), data)


def export(place: Place, target: str, out: Path, identity: str | None = None) -> Report:
    """Write a record (None: the newest) as one page and one folder small enough to carry out of a closed room.

    Raises `Invalid` where `out` is there already.
    """
    if out.exists():
        raise Invalid("is there already", where=str(out), hint="name a folder that is not there yet")
    records = place.area(target).records
    folder = open_record(records, identity) if identity else _newest(records, target)
    record = read_record(folder)
    with reading_record(folder), room_in(out.absolute().parent) as room:
        notes = list(_carried(folder, records, record.id, room))
        attached = [path.relative_to(room).as_posix() for path in sorted((room / "attachments").glob("*"))]
        step, error = cause(folder, record)
        notes += [Step("first effective error", State.NOTE, f"{error['kind']}: {error['message']}")] if error else []
        write_file(room / "RECORD.md", page(folder, record, attached).encode("utf-8", "backslashreplace"))
        write_sums(room)
        room.rename(out)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    steps = [Step(str(out), State.PASSED, f"{record.id}: RECORD.md and what it names, {size} bytes"), *notes]
    return Report("record", tuple(steps), {"path": str(out), "bytes": size, "first_step": step, "first_error": error})


def _carried(folder: Path, records: Path, identity: str, room: Path) -> Iterator[Step]:
    """Copy what travels: all of it, but long logs without their middle and large attachments by name only."""
    sources = [(path, path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file()]
    for one in attachments_of(records, identity):
        sources += [(path, Path("attachments", f"{one.name}-{path.name}")) for path in (one / "attachments").iterdir()]
    for path, inner in sources:
        data = path.read_bytes()
        if inner.name == "SHA256SUMS":
            continue
        if inner.parts[0] == "logs" and len(data) > LOG_HEAD + LOG_TAIL:
            data = (
                data[:LOG_HEAD]
                + b"\n[... %d bytes are left out ...]\n" % (len(data) - LOG_HEAD - LOG_TAIL)
                + data[-LOG_TAIL:]
            )
            yield Step(inner.as_posix(), State.NOTE, f"of {path.stat().st_size} bytes the beginning and the end")
        elif len(data) > MAX_CARRIED:
            yield Step(inner.as_posix(), State.NOTE, f"stays here: {len(data)} bytes, SHA-256 {sha256(data)}")
            continue
        write_file(room / inner, data)


def _newest(records: Path, target: str) -> Path:
    """The newest record of a target that is not itself an attachment."""
    for folder in reversed(record_folders(records)):
        if f"-{target}-" in folder.name and "-attach-" not in folder.name:
            return folder
    raise Refused(f"there is no record of {target} yet", where=str(records))


def _masked(data: bytes) -> bytes:
    try:
        return mask(data.decode("utf-8")).encode()
    except UnicodeDecodeError:
        return data


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
