"""Which applies of a target are in force: what the records of a work area say of applies and reverts."""

from __future__ import annotations

from pathlib import Path

from patchq.evidence.record import Record, list_records


def applies_in_force(records: Path, target: str) -> list[Record]:
    """The good applies of a target that were not taken back, oldest first; one repeated at once counts once."""
    stack: list[Record] = []
    for record in list_records(records):
        if record.target != target:
            continue
        if record.verb == "apply" and record.exit in (0, 4):
            if stack and (stack[-1].lock, stack[-1].variant) == (record.lock, record.variant):
                stack.pop()
            stack.append(record)
        elif record.verb == "revert" and stack and record.facts.get("reverted") == stack[-1].id:
            stack.pop()
    return stack


def last_apply(records: Path, target: str) -> Record | None:
    """The apply of a target that is in force, whichever its variant and lock."""
    return next(reversed(applies_in_force(records, target)), None)
