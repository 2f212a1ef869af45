"""The rules for what gets imported: from the work copy, from one place, from source, and from nowhere by accident."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchq.audit.subject import Answer, Subject
from patchq.report import State, Step

# The modules that matter to training, with the distributions that bring them.
MODULES = {
    "verl": "verl",
    "llamafactory": "llamafactory",
    "deepspeed": "deepspeed",
    "torch": "torch",
    "ray": "ray",
    "vllm": "vllm",
    "transformers": "transformers",
    "pyarrow": "pyarrow",
    "numpy": "numpy",
    "triton": "triton",
    "flash_attn": "flash-attn",
    "accelerate": "accelerate",
    "peft": "peft",
    "tensordict": "tensordict",
    "transfer_queue": "TransferQueue",
}
# What a stray folder beside the training script must never be called.
UPSTREAMS = ("verl", "llamafactory", "deepspeed")


def question(subject: Subject, settings: Any) -> dict[str, Any]:
    names = {**MODULES, **{name: name for name in subject.copies}}
    return {"survey": names, "fresh": sorted({*subject.copies, *UPSTREAMS, "transformers", "vllm"}),
            "start": [str(folder) for folder in subject.start]}  # fmt: skip


def steps(subject: Subject, settings: Any, answer: Answer) -> Iterator[Step]:
    surveyed: Answer = answer["surveyed"]
    subject.keep("origins", {name: found.get("origin") for name, found in surveyed.items() if "error" not in found})
    yield from _shadows(subject, answer["start"])
    found = [step for name, one in surveyed.items() for step in _module(subject, name, one)]
    yield from found
    yield from _bytecode(subject, answer["bytecode"])
    if not any(step.state is State.FAILED for step in found):
        names = [name for name, one in surveyed.items() if "error" not in one and name not in subject.copies]
        yield subject.step("origins", State.PASSED, f"each from one place: {', '.join(names) or 'nothing'}")


def _shadows(subject: Subject, start: Answer) -> Iterator[Step]:
    """Packages in the folders that training starts from; Ray too puts those first in every worker."""
    for folder, places in start.items():
        for name, place in places.items():
            is_copy = name in subject.copies and _is_inside(place["path"], subject.copies[name])
            if place["kind"] == "namespace" or is_copy or not {name} & {*UPSTREAMS, *subject.copies}:
                continue
            what = f"{place['path']} in the working directory {folder} would be imported as {name}"
            hint = f"start from a folder without {name}/: the working directory comes before PYTHONPATH"
            yield subject.step(f"working directory {name}", State.FAILED, what, hint=hint)


def _module(subject: Subject, name: str, found: Answer) -> Iterator[Step]:
    candidates = found["candidates"]
    namespaces = [place["path"] for place in candidates if place["kind"] == "namespace"]
    if "error" in found:
        yield from _unfound(subject, name, found)
        return
    if found["origin"] is None:
        what = f"{name} is a namespace without code: {', '.join(found['folders'] or namespaces)}"
        hint = f"a leftover of an uninstalled {name}: remove that folder, then install {name} again if it is due"
        yield subject.step(f"origin {name}", State.FAILED, what, hint=hint)
        return
    for path in namespaces:
        what = f"{path} has no __init__.py: the leftover of an uninstalled {name}"
        yield subject.step(f"origin {name}", State.WARNING, what, hint="remove it, lest it be imported one day")
    for path in found["sourceless"][:3]:
        what = f"{path} is compiled code without a source, and would be imported"
        yield subject.step(f"origin {name}", State.FAILED, what, hint="remove it")
    if name in subject.copies:
        yield _from_copy(subject, name, found)
    else:
        yield from _one_installation(subject, name, found)


def _unfound(subject: Subject, name: str, found: Answer) -> Iterator[Step]:
    if name in subject.copies:
        hint = f"the work copy is {subject.copies[name]}"
        yield subject.step(f"origin {name}", State.FAILED, f"{name}: {found['error']}", hint=hint)
    elif found["distributions"]:
        copy = found["distributions"][0]
        what = f"{copy['metadata']} says that {name} {copy['version']} is installed, but nothing is to be imported"
        yield subject.step(f"origin {name}", State.FAILED, what, hint=f"install {name} {copy['version']} again")
    elif found["error"] != "not found":
        yield subject.step(f"origin {name}", State.FAILED, f"{name}: {found['error']}")


def _from_copy(subject: Subject, name: str, found: Answer) -> Step:
    copy = subject.copies[name]
    places = [found["origin"], *found["folders"]]
    others = [place for place in places if not _is_inside(place, copy)]
    if others:
        what = f"{name} would be imported from {', '.join(dict.fromkeys(others))}, not from the work copy"
        return subject.step(f"origin {name}", State.FAILED, what, hint=f"the work copy is {copy}")
    told = {copy["version"] for copy in found["distributions"]}
    said = f"; metadata of an installed {name} says {', '.join(sorted(told))}, which does not decide" if told else ""
    return subject.step(f"origin {name}", State.PASSED, f"{found['origin']}{said}")


def _one_installation(subject: Subject, name: str, found: Answer) -> Iterator[Step]:
    """That the module and the metadata are of one installation, and that there is no second one."""
    origin = found["origin"]
    roots = [copy["source"] or str(Path(copy["metadata"]).parent) for copy in found["distributions"]]
    real = [place["path"] for place in found["candidates"] if place["kind"] != "namespace"]
    if origin in ("built-in", "frozen"):
        return
    if roots and not _is_inside(origin, Path(roots[0])):
        what = f"{name} is imported from {origin}, but its metadata lies in {found['distributions'][0]['metadata']}"
        hint = f"two installations of {name} are mixed: remove both, install one"
        yield subject.step(f"origin {name}", State.FAILED, what, hint=hint)
    elif len(real) > 1:
        what = f"{name} is on the import path {len(real)} times; {real[0]} hides {', '.join(real[1:])}"
        yield subject.step(f"origin {name}", State.WARNING, what, hint="remove the hidden one")
    if len(roots) > 1:
        what = f"the metadata of {name} is there {len(roots)} times: {', '.join(roots)}"
        yield subject.step(f"origin {name}", State.WARNING, what, hint="remove all but one")


def _bytecode(subject: Subject, found: Answer) -> Iterator[Step]:
    for path in found["stale"][:5]:
        what = f"Python would load an older {path} from its compiled form"
        yield subject.step("bytecode", State.FAILED, what, hint=f"python -m compileall -f {path}")
    if found["unchecked"]:
        what = f"{found['unchecked']} compiled files that are older than their sources could not be compared in time"
        yield subject.step("bytecode", State.WARNING, what, hint="python -m compileall -f over the environment")


def _is_inside(path: str, folder: Path) -> bool:
    return Path(path).resolve().is_relative_to(folder.resolve())
