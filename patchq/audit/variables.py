"""The rules for variables as children see them, for launchers, and for the room that Ray's socket names have."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from patchq.audit.subject import Answer, Subject
from patchq.report import State, Step
from patchq.workarea import RAY_BYTES, SOCKET_BYTES

LAUNCHERS = ("torchrun", "ray", "llamafactory-cli", "deepspeed", "accelerate", "vllm")
_SEEN = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "HF_HOME",
         "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "RAY_ADDRESS", "RAY_TMPDIR", "TMPDIR")  # fmt: skip
_PROCESS = ("the process that the shell starts", "its child", "its grandchild")


def question(subject: Subject, settings: Any) -> dict[str, Any]:
    declared = subject.declared
    return {"names": sorted({*declared.require, *declared.forbid, *expected(subject), *_SEEN}), "launchers": LAUNCHERS}


def expected(subject: Subject) -> dict[str, str]:
    """The values that the launch lines set."""
    return dict(subject.launch.variables)


def steps(subject: Subject, settings: Any, answer: Answer) -> Iterator[Step]:
    generations = answer["generations"]
    last: Mapping[str, str] = generations[-1]["python"]
    subject.keep("variables", dict(last))
    subject.keep("launchers", {name: found["path"] for name, found in answer["launchers"].items() if found["path"]})
    launched = {"RAY_TMPDIR": str(subject.launch.ray_folder), **expected(subject)}
    other = {name: value for name, value in launched.items() if last.get(name) != value}
    missing = [name for name in subject.declared.require if not last.get(name)]
    wrong = [
        *(
            [_no_profile(subject, missing)]
            if missing and _lacks_profile(subject)
            else [_step(subject, generations, name, None) for name in missing]
        ),
        *(_step(subject, generations, name, value) for name, value in other.items()),
        *(_forbidden(subject, generations, name) for name in subject.declared.forbid if name in last),
    ]
    yield from wrong
    if not wrong:
        count = len({*subject.declared.require, *subject.declared.forbid, *expected(subject)})
        yield subject.step("variables", State.PASSED, f"{count} as demanded, down to a grandchild")
    yield from _launchers(subject, answer["launchers"])
    yield from ray_budget(subject, last.get("RAY_TMPDIR", ""))


def _lacks_profile(subject: Subject) -> bool:
    """Whether the target has a vendor profile, and this host names none."""
    return bool(subject.declared.profile) and not subject.launch.profile


def _no_profile(subject: Subject, missing: list[str]) -> Step:
    """Without the profile nobody can know what it exports; `env` and `run` stop all the same."""
    what = f"{', '.join(missing)}: {subject.declared.profile} names no vendor profile on this host"
    return subject.step("vendor profile", State.NOT_RUN, what, hint="set the variable to the profile's path")


def _step(subject: Subject, generations: list[Answer], name: str, value: str | None) -> Step:
    """A variable that the last generation lacks, or has with another value than `value`."""
    where, why = _lost(subject, generations, name, value)
    if value is None:
        what = f"{name}, which the target requires, is not set in {where}"
    else:
        now = generations[-1]["python"].get(name)
        what = f"{name} is {'not set' if now is None else repr(now)} in {where}; the target sets {value!r}"
    return subject.step(name, State.FAILED, what, hint=why)


def _lost(subject: Subject, generations: list[Answer], name: str, value: str | None) -> tuple[str, str]:
    """The first process that lacks a variable, and what to look at."""
    for process, seen in zip(_PROCESS, generations, strict=False):
        if not _holds(seen["given"], name, value):
            if process != _PROCESS[0]:
                return process, "what Python runs at its start takes it out of what children get"
            profile = subject.launch.profile
            return process, (f"{profile} has to set it, with `export`" if profile
                             else "set it in the shell or in `set`, or name a `profile` that exports it")  # fmt: skip
        if not _holds(seen["python"], name, value):
            changed = subject.answers.get("interpreter", {}).get("environ", {})
            culprit = next(
                (source for source, names in changed.items() if name in names), "sitecustomize or a .pth file"
            )
            return process, f"Python's start-up takes it away: look at {culprit}"
    return _PROCESS[-1], ""


def _holds(seen: Mapping[str, str], name: str, value: str | None) -> bool:
    return bool(seen.get(name)) if value is None else seen.get(name) == value


def _forbidden(subject: Subject, generations: list[Answer], name: str) -> Step:
    is_given = name in generations[0]["given"]
    culprit = "the launch lines unset it: is it in `set`?" if is_given else "look at sitecustomize and .pth files"
    what = f"{name}, which the target forbids, is set to {generations[-1]['python'][name]!r} in {_PROCESS[-1]}"
    return subject.step(name, State.FAILED, what, hint=culprit)


def _launchers(subject: Subject, launchers: Mapping[str, Answer]) -> Iterator[Step]:
    ours = []
    for name, found in launchers.items():
        if found["path"] is None:
            continue
        if found["ours"] is False:
            what = f"{name} on PATH is {found['path']}, which runs {found['interpreter']}, not {subject.launch.python}"
            hint = f"install it into this environment, so that {subject.launch.python.parent / name} is there"
            yield subject.step(name, State.FAILED, what, hint=hint)
        else:
            ours.append(name)
    if ours:
        yield subject.step("launchers", State.PASSED, f"{', '.join(ours)} run this environment's Python")


def ray_budget(subject: Subject, folder: str) -> Iterator[Step]:
    """Whether Ray's longest socket name fits below `RAY_TMPDIR`, in bytes of the path that Ray resolves."""
    if not folder:
        return
    room = SOCKET_BYTES - RAY_BYTES
    length = max(len(os.fsencode(path)) for path in (folder, os.path.realpath(folder)))
    if length > room:
        what = f"RAY_TMPDIR has {length} bytes, and Ray's socket names leave room for {room}: {folder}"
        yield subject.step("RAY_TMPDIR", State.FAILED, what, hint="set a shorter path on a local disk, e.g. /tmp/r")
    else:
        yield subject.step("RAY_TMPDIR", State.PASSED, f"{length} of {room} bytes: {folder}")
