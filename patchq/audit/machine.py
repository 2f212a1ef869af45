"""The rules for the machine: its devices, and its driver against the toolkit that torch was built for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from patchq.audit.subject import Answer, Subject
from patchq.report import State, Step

_GIB = 1 << 30


def question(subject: Subject, settings: Any) -> dict[str, Any]:
    return {"query": subject.declared.device_query}


def steps(subject: Subject, settings: Any, answer: Answer) -> Iterator[Step]:
    found: Answer = answer["accelerators"]
    names = [f"{device['name']}" for device in found["devices"]]
    subject.keep("machine", {**{key: answer[key] for key in ("kernel", "system", "cpus")},
                             "driver": found.get("driver"), "limit": found.get("limit"), "devices": names,
                             "toolkit": answer["torch"].get("cuda") or answer["torch"].get("hip")})  # fmt: skip
    memory = answer["memory"]
    said = f"kernel {answer['kernel']}, {answer['cpus']} CPUs, {memory['total'] / _GIB:.0f} GiB"
    yield subject.step("machine", State.PASSED, f"{said}, {memory['shared'] / _GIB:.0f} GiB of shared memory")
    yield _devices(subject, found)
    yield from _foreign(subject, found)
    yield from _toolkit(subject, found, answer["torch"].get("cuda"))


def _devices(subject: Subject, found: Answer) -> Step:
    names = [str(device["name"]) for device in found["devices"]]
    wanted = subject.declared.devices
    if "command not found" in str(found.get("error")):
        return subject.step("devices", State.NOT_RUN, f"{found['by']} is not on this machine: no device was asked")
    if "error" in found:
        return subject.step("devices", State.FAILED, f"{found['by']}: {found['error']}", hint="is the driver loaded?")
    if not names and found.get("driver"):
        return subject.step("devices", State.PASSED, f"driver {found['driver']}, by {found['by']}")
    if not names:
        state = State.NOT_RUN if wanted else State.NOTE
        return subject.step("devices", state, f"no accelerator answers: {found.get('missing') or 'none is listed'}")
    counted = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
    said = f"{counted}, driver {found.get('driver')}, by {found['by']}"
    if wanted and len(names) != wanted:
        return subject.step("devices", State.FAILED, f"{said}; the target has {wanted}",
                            hint="a card fell off the bus, or CUDA_VISIBLE_DEVICES hides it")  # fmt: skip
    return subject.step("devices", State.PASSED, said)


def _foreign(subject: Subject, found: Answer) -> Iterator[Step]:
    """Processes that already compute on the cards."""
    rows = [
        f"device {device['index']}: process {one['pid']} {one['name'] or '(another container?)'}"
        for device in found["devices"]
        for one in device.get("processes") or ()
    ]
    if rows:
        yield subject.step("processes on devices", State.WARNING, f"{len(rows)} there already",
                           detail=tuple(rows[:20]), hint="what they hold is missing in the run")  # fmt: skip


def _toolkit(subject: Subject, found: Answer, toolkit: str | None) -> Iterator[Step]:
    """A driver older than the toolkit is not proof of failure: only a smoke on the device can tell."""
    limit = found.get("limit")
    if not (toolkit and limit):
        return
    built, able = (tuple(map(int, text.split(".")[:2])) for text in (toolkit, limit))
    said = f"torch was built for CUDA {toolkit}, driver {found['driver']} offers {limit}"
    if built <= able:
        yield subject.step("driver and toolkit", State.PASSED, said)
        return
    why = "minor versions are compatible within one major" if built[0] == able[0] else "another major version"
    yield subject.step("driver and toolkit", State.WARNING, f"{said} ({why})",
                       hint="only a smoke can tell: patchq smoke --from service --to service")  # fmt: skip
