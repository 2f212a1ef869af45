"""The rules for the interpreter: its version, its library, and what stands on its import path, and why."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchq.audit.subject import Answer, Subject
from patchq.report import State, Step

_VERSIONED = r"python(\d\.\d+)(?:/|$)"
_KNOWN_ZIP = r"/python\d+\.zip$"


def question(subject: Subject, settings: Any) -> dict[str, Any]:
    return {}


def steps(subject: Subject, settings: Any, answer: Answer) -> Iterator[Step]:
    subject.keep("interpreter", {**answer, "path": list(answer["path"])})
    yield _version(subject, answer)
    yield from _libraries(subject, answer)
    yield from _path(subject, answer)
    yield from _shell(subject, answer)


def _version(subject: Subject, answer: Answer) -> Step:
    name, wanted, version = f"interpreter {subject.name}", subject.declared.version, str(answer["version"])
    said = f"Python {version}, {answer['executable']}"
    if wanted is None or f"{version}.".startswith(f"{wanted}."):
        return subject.step(name, State.PASSED, said)
    hint = f"point `python` of the target at a Python {wanted}, or change its `version`"
    # A minor version chooses wheels; only an exact one is a demand, because only then was one interpreter proved.
    is_demand = wanted.count(".") > 1
    state, word = (State.FAILED, "demands") if is_demand else (State.WARNING, "is made for")
    return subject.step(name, state, f"{said}, and the target {word} {wanted}", hint=hint)


def _libraries(subject: Subject, answer: Answer) -> Iterator[Step]:
    """The libpython that is really loaded, and the Python that a virtual environment was made by."""
    minor = minor_of(answer)
    for path in answer["libpython"]:
        found = re.search(r"libpython(\d\.\d+)", path)
        if found and found[1] != minor:
            yield subject.step("libpython", State.FAILED, f"{path} is loaded into a Python {minor}",
                               hint="take its folder out of LD_LIBRARY_PATH")  # fmt: skip
        elif not _is_below(path, answer["base_prefix"]):
            what = f"{path} is loaded, and this interpreter's own lies below {answer['base_prefix']}"
            yield subject.step("libpython", State.WARNING, what, hint="does LD_LIBRARY_PATH lead there?")
    made = str(answer["venv"].get("version", answer["version"]))
    if made != answer["version"]:
        what = f"was made by Python {made} and now runs {answer['version']}"
        yield subject.step("virtual environment", State.WARNING, what, hint="make it anew where packages misbehave")


def _path(subject: Subject, answer: Answer) -> Iterator[Step]:
    found = [step for entry in answer["path"] for step in _entry(subject, answer, entry)]
    yield from found
    if "untraced" in answer:
        yield subject.step("import path", State.WARNING, f"its origins are unknown: {answer['untraced']}")
    for said in answer["complaints"]:
        yield subject.step("start-up", State.WARNING, f"{said.rstrip(':')}; Python went on without it",
                           hint=f"{subject.launch.python} -c '' shows the whole error")  # fmt: skip
    if not any(step.state is State.FAILED for step in found):
        kinds = ", ".join(dict.fromkeys(answer["sources"][entry] for entry in answer["path"]))
        yield subject.step("import path", State.PASSED, f"{len(answer['path'])} entries, from: {kinds}")


def _entry(subject: Subject, answer: Answer, entry: str) -> Iterator[Step]:
    source = answer["sources"][entry]
    other = re.findall(_VERSIONED, entry)
    minor = minor_of(answer)
    if other and other[-1] != minor:
        what = f"{entry} of Python {other[-1]} is on the import path of Python {minor}; {_put(source)}"
        yield subject.step("import path", State.FAILED, what, hint=_remedy(source, entry))
    elif source == "user site":
        yield subject.step("import path", State.FAILED, f"{entry}, the user site, is on the import path",
                           hint="export PYTHONNOUSERSITE=1")  # fmt: skip
    elif source not in ("standard library", "PYTHONPATH") and not Path(entry).exists():
        yield subject.step("import path", State.WARNING, f"{entry} is not there; {_put(source)}",
                           hint=_remedy(source, entry))  # fmt: skip
    elif _is_foreign(answer, entry, source):
        what = f"{entry} belongs to another environment; {_put(source)}"
        yield subject.step("import path", State.WARNING, what, hint=_remedy(source, entry))


def _is_foreign(answer: Answer, entry: str, source: str) -> bool:
    """Whether an entry is the packages folder of an environment that is neither this one nor its base."""
    is_packages = entry.rstrip("/").endswith(("/site-packages", "/dist-packages"))
    own = (answer["prefix"], answer["base_prefix"])
    return is_packages and source != "site-packages" and not any(_is_below(entry, prefix) for prefix in own)


def _put(source: str) -> str:
    return {"PYTHONPATH": "PYTHONPATH has it", "unknown": "nothing says why"}.get(source, f"put there by {source}")


def _remedy(source: str, entry: str) -> str:
    if source == "PYTHONPATH":
        return "find who sets PYTHONPATH (the profile?) and take the entry out"
    if source.endswith(".pth"):
        return f"remove the line from {source}"
    if "customize" in source:
        return f"filter {entry} in {source}"
    return "python -X importtime -v shows who adds it"


def _shell(subject: Subject, answer: Answer) -> Iterator[Step]:
    """What the shell of this verb has in PYTHONPATH: launched runs do not get it, but `ray start` typed there does."""
    minor = minor_of(answer)
    for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        other = re.findall(_VERSIONED, entry)
        if other and other[-1] != minor:
            what = f"PYTHONPATH of this shell holds {entry}, of Python {other[-1]}; this environment is Python {minor}"
            yield subject.step("PYTHONPATH", State.FAILED, what,
                               hint="unset PYTHONPATH: `ray start` in this shell would pass it on")  # fmt: skip


def minor_of(answer: Answer) -> str:
    """The interpreter's version as `3.N`."""
    return ".".join(str(answer["version"]).split(".")[:2])


def _is_below(path: str, folder: str) -> bool:
    return Path(path).resolve().is_relative_to(Path(folder).resolve())
