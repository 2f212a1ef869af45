"""What a verb answers: frozen steps in named states, counted, with one exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

SCHEMA = 1


class State(str, Enum):
    """The named states in which a step ends; `code` is what each contributes to the exit code."""

    PASSED = "passed"
    APPLIED = "applied"
    UNCHANGED = "unchanged"
    EXCLUDED = "excluded"
    NOTE = "note"
    WARNING = "warning"
    FAILED = "failed"
    EDITED = "edited"
    UPSTREAMED = "upstreamed"
    CONFLICT = "conflict"
    MALFORMED = "malformed"
    PREVENTED = "prevented"
    NOT_RUN = "not run"

    @property
    def code(self) -> int:
        return _CODES.get(self, 0)


_CODES = {
    State.FAILED: 1,
    State.EDITED: 1,
    State.UPSTREAMED: 1,
    State.CONFLICT: 3,
    State.MALFORMED: 2,
    State.PREVENTED: 5,
    State.NOT_RUN: 4,
}
_PRECEDENCE = (70, 2, 5, 3, 1, 4)


@dataclass(frozen=True)
class Step:
    """One check or action in its final state.

    `group` names what the step belongs to (a target, an upstream), `detail` holds further lines for people,
    `data` the same facts for programs (JSON types only), `seconds` the wall time where it was measured. A step that
    is not `required` and was not run leaves the exit code alone.
    """

    name: str
    state: State
    summary: str = ""
    group: str = ""
    detail: tuple[str, ...] = ()
    hint: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None
    required: bool = True

    @property
    def code(self) -> int:
        """What the step contributes to the exit code."""
        return self.state.code if self.required or self.state is not State.NOT_RUN else 0

    def as_json(self) -> dict[str, Any]:
        """The step as JSON types; empty fields are left out."""
        full = {
            "name": self.name,
            "state": self.state.value,
            "summary": self.summary,
            "group": self.group,
            "detail": list(self.detail),
            "hint": self.hint,
            "data": dict(self.data),
            "seconds": None if self.seconds is None else round(self.seconds, 3),
            "required": None if self.required else False,
        }
        return {key: value for key, value in full.items() if value not in ("", [], {}, None)}


@dataclass(frozen=True)
class Report:
    """The one answer of a verb; `output` is data for stdout (shell lines, a patch) where that is its job.

    `become` is the command that this process is to be replaced by once the report is shown, where it is good.
    """

    verb: str
    steps: tuple[Step, ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    output: str = ""
    become: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return worst(step.code for step in self.steps)

    @property
    def counts(self) -> dict[str, int]:
        """How many steps ended in each state, in the order in which `State` names them."""
        seen = Counter(step.state for step in self.steps)
        return {state.value: seen[state] for state in State if seen[state]}

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "verb": self.verb,
            "exit": self.exit_code,
            "counts": self.counts,
            "steps": [step.as_json() for step in self.steps],
            "data": dict(self.data),
            **({"output": self.output} if self.output else {}),
        }


def worst(codes: Iterable[int]) -> int:
    """The exit code that wins where several hold: 70, 2, 5, 3, 1, 4, then 0."""
    seen = set(codes)
    return next((code for code in _PRECEDENCE if code in seen), 0)
