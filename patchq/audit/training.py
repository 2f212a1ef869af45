"""The rules for what training reads and leaves: data, a step's log, a checkpoint and its copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from patchq.audit.subject import Answer, Subject
from patchq.document import Document
from patchq.report import State, Step


class StepLog(Document):
    """A log and what it has to show. `limits` maps a gate (`kl`, `entropy`, `response length`) or any metric that the
    log names to its lowest and highest value (None: no bound); `exit` is the status that the command ended with."""

    log: str
    kind: Literal["grpo", "sft"] = "grpo"
    step: int = Field(default=1, gt=0)
    exit: int | None = None
    limits: dict[str, tuple[float | None, float | None]] = {}
    loss_sign: Literal["", "positive", "negative"] = ""


class Checkpoint(Document):
    """A checkpoint's folder, how many ranks wrote it (None: as its names say), and of which step it has to be."""

    folder: str
    ranks: int | None = Field(default=None, gt=0)
    step: int | None = Field(default=None, ge=0)


class Copy(Document):
    """A folder on a local disk, and the persistent place that it is copied to."""

    source: str
    target: str


class Data(Document):
    """Parquet files; the columns they have to have, those that may not be empty in any row, and the fewest rows."""

    files: tuple[str, ...] = Field(min_length=1)
    columns: tuple[str, ...] = ("data_source", "prompt", "reward_model")
    filled: tuple[str, ...] = ("prompt", "reward_model.ground_truth", "reward")
    rows: int = Field(default=1, ge=0)


def as_given(subject: Subject, settings: Document) -> dict[str, Any]:
    """The settings themselves are the question."""
    return settings.model_dump(mode="json")


def log_steps(subject: Subject, settings: StepLog, answer: Answer) -> Iterator[Step]:
    """One step a gate, so that the one that failed is named with its line."""
    for gate in answer["gates"]:
        place = f"{settings.log}:{gate['line']}" if gate["line"] else settings.log
        state = State.PASSED if gate["passed"] else State.FAILED
        hint = "" if gate["passed"] else place
        yield subject.step(f"gate {gate['gate']}", state, gate["said"], hint=hint, data={"line": gate["line"]})


def checkpoint_steps(subject: Subject, settings: Checkpoint, answer: Answer) -> Iterator[Step]:
    problems = answer["problems"]
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        yield subject.step("checkpoint", State.FAILED, f"{problems[0]}{more}", detail=tuple(problems[1:20]),
                           hint="resume from the checkpoint before it")  # fmt: skip
    else:
        said = f"{settings.folder}: step {answer['step']}, {answer['files']} files, {answer['bytes']:,} bytes"
        yield subject.step("checkpoint", State.PASSED, said)


def copy_steps(subject: Subject, settings: Copy, answer: Answer) -> Iterator[Step]:
    if "error" in answer:
        what = f"{answer['failed']}: {answer['error']} (after {answer['files']} of {answer['of']} files)"
        yield subject.step("copy", State.FAILED, what, hint="run it again: what is there and the same is kept")
    else:
        size = f"{answer['files']} files, {answer['bytes']:,} bytes"
        said = f"{size} at {settings.target}, the same by SHA-256; {answer['written']} written now"
        yield subject.step("copy", State.PASSED, said)


def data_steps(subject: Subject, settings: Data, answer: Answer) -> Iterator[Step]:
    for file in answer["files"]:
        problems = file["problems"]
        if problems:
            yield subject.step("data", State.FAILED, f"{file['path']} {problems[0]}", detail=tuple(problems[1:]),
                               hint="prepare the file again, and look at a row of it")  # fmt: skip
        else:
            yield subject.step(
                "data", State.PASSED, f"{file['path']}: {file['rows']} rows, {len(file['columns'])} columns"
            )
