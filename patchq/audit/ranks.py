"""The rules for several ranks at once: their sums, and a small model's step under FSDP, saved and resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import Field, model_validator

from patchq.audit.subject import Answer, Subject
from patchq.document import Document
from patchq.report import State, Step

_STEP = 1e-5  # of a parameter, in float32
_SAME = 1e-3  # of a resumed run's losses: the same kernels, but atomics on devices add in any order


class _Ranks(Document):
    """How many ranks (None: one a device, two on CPUs), over which backend (empty: NCCL on devices, gloo on CPUs), and
    the seconds that all of them together may take."""

    ranks: int | None = Field(default=None, gt=0)
    backend: str = ""
    seconds: int = Field(default=300, gt=0, le=1200)


class AllReduce(_Ranks):
    """`groups`: how many ranks form a process group that sums as well (None: no groups). `mib` of random bf16 are
    compared with float64 (None: 64 on devices, 1 on CPUs), `timed_mib` timed (None: 1024 on several devices)."""

    groups: int | None = Field(default=None, gt=0)
    mib: float | None = Field(default=None, gt=0)
    timed_mib: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _groups_divide(self) -> AllReduce:
        if self.groups and (self.ranks is None or self.ranks % self.groups):
            raise ValueError("groups has to divide ranks")
        return self


class Fsdp(_Ranks):
    """`folder` keeps the shards, as VERL lays them out below `global_step_1` (empty: they are not kept); `tolerance` is
    the largest relative error of loss and gradients in bf16."""

    folder: str = ""
    tolerance: float = 0.05


def all_reduce_question(subject: Subject, settings: AllReduce) -> dict[str, Any]:
    return {"work": "all_reduce", **settings.model_dump()}


def fsdp_question(subject: Subject, settings: Fsdp) -> dict[str, Any]:
    return {"work": "fsdp", **settings.model_dump()}


def all_reduce_steps(subject: Subject, settings: AllReduce, answer: Answer) -> Iterator[Step]:
    subject.keep("all_reduce", answer)
    world, due = answer["world"], answer["world"] * (answer["world"] + 1) / 2
    wrong = _silent(answer["ranks"])
    wrong |= _each(answer["ranks"], lambda one: _wrong_sums(one, due, settings.groups))
    right = sum(one["rank"] not in wrong and bool(one["answer"]) for one in answer["ranks"])
    said = f"{right} of {world} ranks got 1+…+{world} = {due:g} over {answer['backend']}"
    if wrong:
        yield _failed(subject, "all_reduce", said, wrong, "NCCL_DEBUG=INFO shows how the ranks meet")
        return
    answers = [one["answer"] for one in answer["ranks"]]
    worst = max(one["random"]["error"] for one in answers)
    said += f"; groups of {settings.groups} theirs" if settings.groups else ""
    said += f"; {answers[0]['random']['mib']:g} MiB of random bf16 off by {worst:.1e}"
    yield subject.step("all_reduce", State.PASSED, said, detail=tuple(_time(answers, answer.get("link"))))


def _each(ranks: Sequence[Answer], wrong: Callable[[Answer], Iterator[str]]) -> dict[int, str]:
    """What is wrong with the answers, by rank; who gave none is told elsewhere."""
    found = {one["rank"]: "; ".join(wrong(one)) for one in ranks if one["answer"]}
    return {rank: text for rank, text in found.items() if text}


def _wrong_sums(one: Answer, due: float, size: int | None) -> Iterator[str]:
    found = one["answer"]
    if found["sum"] != due:
        yield f"got {found['sum']:g}"
    random = found["random"]
    if not random["error"] <= random["bound"]:  # NaN is not <= anything
        yield f"random bf16 is off by {random['error']:.1e}, rounding explains {random['bound']:.1e}"
    if size:
        start = one["rank"] // size * size
        group_due = size * start + size * (size + 1) / 2
        if found["group_sum"] != group_due:
            yield f"got {found['group_sum']:g} in its group, {group_due:g} is due"


def _time(answers: Sequence[Answer], link: float | None) -> Iterator[str]:
    timed = [one["timed"] for one in answers if "timed" in one]
    if timed:
        slowest = max(timed, key=lambda one: one["seconds"])
        of = f", {slowest['bus'] / link:.0%} of the link's {link:.0f} GB/s" if link else ""
        yield f"{slowest['mib']:g} MiB in {slowest['seconds'] * 1e3:.1f} ms: {slowest['bus']:.1f} GB/s on the bus{of}"


def fsdp_steps(subject: Subject, settings: Fsdp, answer: Answer) -> Iterator[Step]:
    """One step for the training, one for what fresh processes made of its shards."""
    subject.keep("fsdp", answer)
    wrong = _silent(answer["ranks"])
    wrong |= _each(answer["ranks"], lambda one: _wrong_step(one["answer"], settings.tolerance))
    said = f"{answer['world']} rank{'s' * (answer['world'] > 1)} over {answer['backend']}"
    if wrong:
        yield _failed(subject, "fsdp", f"{said}: no sound step", wrong, "against float64 on one CPU")
        return
    errors = answer["ranks"][0]["answer"]["errors"]
    yield subject.step("fsdp", State.PASSED, f"{said}: loss off by {errors['loss']:.1e}, gradients by "
                       f"{errors['gradients']:.1e}, AdamW's step by {errors['step']:.1e}")  # fmt: skip
    due = answer["ranks"][0]["answer"]["after"]
    wrong = _silent(answer["resumed"])
    wrong |= _each(answer["resumed"], lambda one: _wrong_resume(one["answer"], due))
    if wrong:
        yield _failed(subject, "resume", f"{said}: not the same run", wrong, "shards or optimizer state are lost")
    else:
        losses = ", ".join(f"{loss:.4f}" for loss in due)
        yield subject.step("resume", State.PASSED, f"fresh ranks went on from step 1: the same losses {losses}")


def _wrong_step(found: Answer, tolerance: float) -> Iterator[str]:
    errors = found["errors"]
    for name, most in (("loss", tolerance), ("gradients", tolerance), ("step", _STEP)):
        if not errors[name] <= most:
            yield f"{name} off by {errors[name]:.1e}, {most:g} is allowed"


def _wrong_resume(found: Answer, due: Sequence[float]) -> Iterator[str]:
    for number, (loss, wanted) in enumerate(zip(found["after"], due, strict=True), start=2):
        if not abs(loss - wanted) <= _SAME * abs(wanted):
            yield f"loss {loss:.4f} at step {number}, {wanted:.4f} without a stop"


def _silent(ranks: Sequence[Answer]) -> dict[int, str]:
    """The ranks that failed, first the one that is to blame: who was killed, else who got least far.

    Ranks wait for each other, so that one which hangs or dies stops them all.
    """
    failed = sorted(
        (one for one in ranks if one["error"]),
        key=lambda one: (not one["error"].startswith("killed"), one["stages"], one["rank"]),
    )
    return {one["rank"]: f"{one['error']}; it got as far as: {one['stage']}" for one in failed}


def _failed(subject: Subject, name: str, said: str, wrong: Mapping[int, str], hint: str) -> Step:
    rows = tuple(f"rank {rank}: {text}" for rank, text in wrong.items())
    return subject.step(name, State.FAILED, f"{said}; {rows[0]}", detail=rows[1:], hint=hint)
