"""The rules for what needs a device: memory, the allocator in force, and arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    rows = tuple(_combination(one) for one in answer["combinations"])
    wanted = demanded(dict(subject.launch.variables))
    ranks = answer["ranks"]
    wrong = {_rank(one): told for one in ranks if (told := _wrong(one, wanted))}
    mine = ranks[0]
    if "error" in mine:
        yield subject.step(
            "allocator", State.FAILED, str(mine["error"]), hint="start torch by hand in this environment"
        )
    elif missing := _missing(ranks):
        what = f"no answer from rank {', '.join(map(str, missing))} of {mine['world']}"
        yield subject.step("allocator", State.FAILED, what, hint="start the launcher by hand in this environment")
    elif wrong:
        more = tuple(f"{rank}{told}" for rank, told in wrong.items()) if len(ranks) > 1 else ()
        hint = "the rows say which name this torch reads: set that one, forbid the other"
        name, told = next(iter(wrong.items()))
        yield subject.step("allocator", State.FAILED, f"{name}{told}", detail=(*more[1:], *rows), hint=hint)
    elif odd := [one for one in ranks if one["settings"] != mine["settings"]]:
        what = f"{_rank(odd[0])}uses {_words(odd[0]['settings'])}, {_rank(mine)}{_words(mine['settings'])}"
        yield subject.step("allocator", State.FAILED, what, detail=rows, hint=f"{_seen(odd[0])}; {_seen(mine)}")
    else:
        on = f" on {len(ranks)} ranks" if len(ranks) > 1 else ""
        said = f"torch {mine['torch']} uses {_words(mine['settings'])}{on}"
        yield subject.step("allocator", State.PASSED, said, detail=rows)


def _rank(one: Mapping[str, Any]) -> str:
    return f"rank {one['rank']}: " if "rank" in one else ""


def _missing(ranks: Sequence[Mapping[str, Any]]) -> list[int]:
    worlds = [one["world"] for one in ranks if "world" in one]
    return sorted(set(range(max(worlds, default=0))) - {one["rank"] for one in ranks if "rank" in one})


def _wrong(one: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """What of the settings that are demanded a child does not use, and what it saw; empty where all are in force."""
    found = {name: one.get("settings", {}).get(name) for name in wanted}
    told = ", ".join(f"{name} is {found[name]} and {value} is demanded" for name, value in wanted.items()
                     if found[name] != value)  # fmt: skip
    return f"{told}; {_seen(one)}" if told else ""


def _seen(one: Mapping[str, Any]) -> str:
    seen = ", ".join(f"{name}={value}" for name, value in one.get("seen", {}).items() if value is not None)
    return f"the child sees {seen or 'neither variable'}"


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
    elif not all(0 <= error <= settings.tolerance for error in errors.values()):  # NaN is not <= anything
        yield subject.step(
            "bf16", State.FAILED, f"{said}; {settings.tolerance:g} is allowed", hint="against float64 on the CPU"
        )
    else:
        yield subject.step("bf16", State.PASSED, f"{said}, against float64")
