"""`record`: reads the evidence that was written."""

from __future__ import annotations

from patchq.commands.place import Place
from patchq.record import find_record, list_records, read_record
from patchq.report import Report, State, Step


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
    folder = find_record(place.area(target).records, identity)
    record = read_record(folder)
    steps = tuple(
        Step(
            step["name"],
            State.NOTE,
            f"{step['state']}  {step.get('summary', '')}".rstrip(),
            step.get("group", ""),
            tuple(step.get("detail", ())),
            step.get("hint", ""),
        )
        for step in record.steps
    )
    head = Step(
        record.id,
        State.PASSED,
        f"on {record.host}, {record.began} to {record.ended}, exit {record.exit}, digests hold",
    )
    return Report(
        "record",
        (head, *steps),
        {"path": str(folder), "record": record.model_dump(by_alias=True, mode="json")},
    )


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
