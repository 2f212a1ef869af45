"""Where a training interpreter has a distribution, asked from that interpreter itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchq.document import Document, validate
from patchq.errors import Invalid, Prevented, Refused
from patchq.machine.probe import documents_of
from patchq.process import Outcome, leashed

PROBE = Path(__file__).parent.parent / "probes" / "installation.py"
SECONDS = 60.0
INSTEAD = "use a work copy instead (sink: work-copy)"


class NotInstalled(Refused):
    """The interpreter does not have the distribution at all: there is nothing to patch, and nothing runs unpatched."""


@dataclass(frozen=True)
class Installation:
    """A distribution in the site-packages of an interpreter.

    `root` is the folder that every path of a change is relative to; `record` its `RECORD`. `shadowed` names
    the top-level modules that this interpreter would import from another file, and that file.
    """

    distribution: str
    version: str
    root: Path
    record: Path
    editable: bool
    python: str
    shadowed: Mapping[str, str] = field(default_factory=dict)


class _Copy(Document):
    version: str | None
    root: str
    metadata: str
    record: str | None
    editable: bool
    shadowed: dict[str, str]


class _Answer(Document):
    copies: tuple[_Copy, ...]


def locate(python: Path, environment: Mapping[str, str], distribution: str) -> Installation:
    """Ask `python`, run in just `environment`, where it has `distribution`.

    Raises `Refused` where it cannot be patched in place (absent, editable, several copies, no `RECORD`) and
    `Prevented` where the interpreter cannot be run, hangs, or prints no answer.
    """
    with leashed([str(python), "-B", str(PROBE), distribution], env=environment, cwd=Path("/")) as running:
        answer = _parse(running.outcome(SECONDS), python)
    copy = _only(answer.copies, python, distribution)
    if copy.record is None or copy.version is None:
        lacks = "RECORD" if copy.version else "version"
        what = f"{distribution} has no {lacks}, so nothing says what was distributed"
        raise Refused(what, where=copy.metadata, hint=INSTEAD)
    root, record = Path(copy.root), Path(copy.record)
    return Installation(distribution, copy.version, root, record, copy.editable, str(python), copy.shadowed)


def _parse(outcome: Outcome, python: Path) -> _Answer:
    if outcome.timed_out:
        raise Prevented(f"did not answer within {SECONDS:.0f} seconds", where=str(python))
    if not outcome.ok:
        said = outcome.error_text.splitlines()[-1:] or ["nothing"]
        raise Prevented(f"ended with status {outcome.code} and said: {said[0]}", where=str(python))
    try:
        (answer,) = documents_of(outcome, "installation")
        return validate(answer, _Answer, str(python), {})
    except (Invalid, ValueError) as error:
        raise Prevented(
            f"printed {outcome.text[:80]!r} where one JSON document was due",
            where=str(python),
            hint="is that a Python?",
        ) from error


def _only(copies: Sequence[_Copy], python: Path, distribution: str) -> _Copy:
    if not copies:
        hint = f"install it, or {INSTEAD}"
        raise NotInstalled(f"{distribution} is not installed there", where=str(python), hint=hint)
    for copy in copies:
        if copy.editable:
            raise Refused(f"{distribution} is an editable install", where=copy.metadata, hint=INSTEAD)
    if len(copies) > 1:
        places = ", ".join(copy.metadata for copy in copies)
        raise Refused(
            f"{distribution} is there {len(copies)} times: {places}",
            where=str(python),
            hint=f"remove all but one, or {INSTEAD}",
        )
    return copies[0]
