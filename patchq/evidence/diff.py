"""What differs between two records: two machines, or two days of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from patchq.evidence.record import Record, reading_record

ABSENT = "–"
COLUMNS = ("what", "A", "B")
Row = tuple[str, str, str]

# Facts that name moments, places and processes rather than the state of a machine.
_FLEETING = ("pid", "queue", "probes")
_FACTS, _STEPS = "", "step "


def compare(first: Path, a: Record, second: Path, b: Record) -> list[Row]:
    """The rows that differ: the head, the facts, what `pip freeze` said, and the states of steps."""
    left, right = _sections(first, a), _sections(second, b)
    freezes = sorted({*left, *right} - {_FACTS, _STEPS})
    return [
        *_rows("", _head(a), _head(b)),
        *(row for name in (_FACTS, *freezes, _STEPS) for row in _rows(name, left.get(name, {}), right.get(name, {}))),
    ]


def _sections(folder: Path, record: Record) -> dict[str, dict[str, str]]:
    """The lines of a record by what stands before each. Raises `Invalid` where patchq would not have written it."""
    with reading_record(folder):
        freezes = {f"{path.stem.removeprefix('pip-')} ": _freeze(path) for path in folder.glob("pip-freeze-*.txt")}
        return {_FACTS: _flat(_lasting(record.facts)), **freezes, _STEPS: _states(record)}


def _head(record: Record) -> dict[str, str]:
    names = ("verb", "target", "variant", "lock", "host", "exit")
    return {name: str(getattr(record, name)) for name in names}


def _lasting(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in facts.items() if name not in _FLEETING}


def _flat(value: Any, at: str = "") -> dict[str, str]:
    """JSON types as one line each: keys joined by dots, lists whole."""
    if isinstance(value, dict):
        found: dict[str, str] = {}
        for key, item in value.items():
            found |= _flat(item, f"{at}.{key}" if at else str(key))
        return found
    return {at: str(value)}


def _freeze(path: Path) -> dict[str, str]:
    found = {}
    for line in path.read_text("utf-8").splitlines():
        name, separator, version = line.partition("==")
        if not separator:
            name, _, version = line.partition(" @ ")
        found[name.strip()] = version.strip() or line.strip()
    return found


def _states(record: Record) -> dict[str, str]:
    return {f"{step.get('group', '')} {step['name']}".strip(): str(step["state"]) for step in record.steps}


def _rows(prefix: str, a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[Row]:
    for key in sorted({*a, *b}):
        if a.get(key) != b.get(key):
            yield f"{prefix}{key}", a.get(key, ABSENT), b.get(key, ABSENT)
