"""The rules for what needs a device: memory, the allocator in force, arithmetic, and sums over all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from patchq.audit.subject import Answer, Subject
from patchq.document import Document
from patchq.report import State, Step

_GIB = 1 << 30
_WHOLE = 0.9  # the largest block against all that is free, below which memory is in pieces
_NEW = "backend:native,expandable_segments:False,max_split_size_mb:512"
# Old name, new name: which of them this torch reads, and which wins. pytorch#183387: 2.9 ignores the new one.
_COMBINATIONS = (
    {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
    {"PYTORCH_ALLOC_CONF": "expandable_segments:True"},
    {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTORCH_ALLOC_CONF": _NEW},
    {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False", "PYTORCH_ALLOC_CONF": "expandable_segments:True"},
    {"PYTORCH_ALLOC_CONF": _NEW},
)


class Memory(Document):
    """GiB that have to be free on each device, and that a single block has to reach."""

    free: float = 0
    block: float = 0


class Allocator(Document):
    """`launcher`: the words before the script, as the training launcher starts its ranks (torchrun and its options)."""

    launcher: tuple[str, ...] = ()


class Arithmetic(Document):
    """The type to compute in, the matrices' side, and the largest relative errors of loss and gradients."""

    dtype: str = "bfloat16"
    device: str = "cuda"
    size: int = Field(default=1024, gt=0)
    tolerance: float = 0.02


class AllReduce(Document):
    """How many ranks (None: one a device, two on CPUs) and which backend (empty: NCCL on devices, gloo on CPUs)."""

    ranks: int | None = Field(default=None, gt=0)
    backend: str = ""


def as_given(subject: Subject, settings: Document) -> dict[str, Any]:
    """The settings themselves are the question."""
    return settings.model_dump()


def memory_steps(subject: Subject, settings: Memory, answer: Answer) -> Iterator[Step]:
    subject.keep("memory", answer["devices"])
    for device in answer["devices"]:
        name = f"memory {device['index']}"
        free, block, total = (device[key] / _GIB for key in ("free", "largest", "total"))
        said = f"{device['name']}: {free:.1f} of {total:.1f} GiB free, the largest block {block:.1f}"
        if free < settings.free or block < settings.block:
            wanted = f"{settings.free:g} free and a block of {settings.block:g} GiB are due"
            yield subject.step(
                name, State.FAILED, f"{said}; {wanted}", hint="who holds it: nvidia-smi, fuser -v /dev/nvidia*"
            )
        elif block < _WHOLE * free:
            yield subject.step(
                name, State.WARNING, f"{said}: it is in pieces", hint="end what is left over on the card"
            )
        else:
            yield subject.step(name, State.PASSED, said)


def allocator_question(subject: Subject, settings: Allocator) -> dict[str, Any]:
    return {"launcher": list(settings.launcher), "combinations": _COMBINATIONS}


def allocator_steps(subject: Subject, settings: Allocator, answer: Answer) -> Iterator[Step]:
    subject.keep("allocator", answer)
    mine, rows = answer["in_force"], tuple(_combination(one) for one in answer["combinations"])
    if "error" in mine:
        yield subject.step(
            "allocator", State.FAILED, str(mine["error"]), hint="start torch by hand in this environment"
        )
        return
    wanted = demanded(dict(subject.launch.variables))
    found = {name: mine["settings"].get(name) for name in wanted}
    said = f"torch {mine['torch']} uses {_words(mine['settings'])}"
    if wrong := {name: value for name, value in wanted.items() if found[name] != value}:
        told = ", ".join(f"{name} is {found[name]} and {value} is demanded" for name, value in wrong.items())
        seen = ", ".join(f"{name}={value}" for name, value in mine["seen"].items() if value is not None)
        what = f"{told}; the child sees {seen or 'neither variable'}"
        hint = "the rows say which name this torch reads: set that one, forbid the other"
        yield subject.step("allocator", State.FAILED, what, detail=rows, hint=hint)
    else:
        yield subject.step("allocator", State.PASSED, said, detail=rows)


def demanded(variables: Mapping[str, str]) -> dict[str, Any]:
    """What the target's own variables ask of the allocator, as torch's snapshot would name it."""
    text = variables.get("PYTORCH_ALLOC_CONF") or variables.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    pairs = dict(part.split(":", 1) for part in text.split(",") if ":" in part)
    wanted: dict[str, Any] = {}
    if "expandable_segments" in pairs:
        wanted["expandable_segments"] = pairs["expandable_segments"].strip() == "True"
    if "max_split_size_mb" in pairs:
        wanted["max_split_size"] = int(pairs["max_split_size_mb"]) << 20
    return wanted


def _combination(one: Mapping[str, Any]) -> str:
    given = " ".join(f"{name}={value}" for name, value in one["given"].items())
    return f"{given}: {one['error'] if 'error' in one else _words(one['settings'])}"


def _words(settings: Mapping[str, Any]) -> str:
    split = settings.get("max_split_size")
    limit = f"{split >> 20} MiB" if isinstance(split, int) and 0 < split < 1 << 50 else "none"
    return f"expandable_segments {settings.get('expandable_segments')}, split size {limit}"


def arithmetic_steps(subject: Subject, settings: Arithmetic, answer: Answer) -> Iterator[Step]:
    subject.keep("bf16", answer)
    errors = answer["errors"]
    off = f"loss off by {errors['loss']:.1e}, gradients by {errors['gradients']:.1e}"
    said = f"{answer['dtype']} on {answer['device']}: {off}"
    if not answer["finite"]:
        yield subject.step(
            "bf16", State.FAILED, f"{said}; not every number is finite", hint="the card, its driver, or this torch"
        )
    elif max(errors.values()) > settings.tolerance:
        yield subject.step(
            "bf16", State.FAILED, f"{said}; {settings.tolerance:g} is allowed", hint="against float64 on the CPU"
        )
    else:
        yield subject.step("bf16", State.PASSED, f"{said}, against float64")


def all_reduce_steps(subject: Subject, settings: AllReduce, answer: Answer) -> Iterator[Step]:
    subject.keep("all_reduce", answer)
    world, due = answer["world"], answer["world"] * (answer["world"] + 1) / 2
    right = [one["rank"] for one in answer["sums"] if one["sum"] == due]
    said = f"{len(right)} of {world} ranks got 1+…+{world} = {due:g} over {answer['backend']}"
    if len(right) == world:
        yield subject.step("all_reduce", State.PASSED, said)
        return
    rows = [f"rank {rank}: {text}" for rank, text in answer["errors"].items()]
    rows += [f"rank {one['rank']}: got {one['sum']:g}" for one in answer["sums"] if one["sum"] != due]
    rows += [f"rank {rank}: did not end" for rank in answer["stuck"]]
    yield subject.step(
        "all_reduce", State.FAILED, said, detail=tuple(rows), hint="NCCL_DEBUG=INFO shows how the ranks meet"
    )
