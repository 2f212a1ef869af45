"""The rules for folders and caches: on which file system each lies, whether it can be written, what is free there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from patchq.audit.subject import Answer, Subject
from patchq.exclusive import temporary
from patchq.queue.target import Folder
from patchq.report import State, Step

_GIB = 1 << 30
_FEW = 1 << 30  # bytes below which a folder is as good as full
_KINDS = {"network": "a network file system", "fuse": "a FUSE mount"}
# These hold sockets, locks or compiled code that many processes write at once.
_LOCAL_CACHES = ("triton", "torch inductor", "torch extensions")


def question(subject: Subject, settings: Any) -> dict[str, Any]:
    return {"folders": {name: folder.path for name, folder in demands(subject).items()}, "caches": True}


def demands(subject: Subject) -> dict[str, Folder]:
    """What the target demands of folders by name, with those that every target has."""
    settings = dict(subject.launch.variables)
    usual = {
        "work area": Folder(path=str(subject.work), local=True),
        "RAY_TMPDIR": Folder(path=settings.get("RAY_TMPDIR", str(subject.launch.ray_folder)), local=True),
        "TMPDIR": Folder(path=settings.get("TMPDIR") or os.environ.get("TMPDIR") or str(temporary()), local=True),
    }
    return {**usual, **{name: folder for name, folder in subject.declared.folders.items() if folder.path}}


def steps(subject: Subject, settings: Any, answer: Answer) -> Iterator[Step]:
    wanted = demands(subject)
    found: Answer = answer["folders"]
    subject.keep("mounts", {name: mount_of(place) for name, place in found.items()})
    wrong = [step for name, place in found.items() for step in _folder(subject, name, place, wanted[name])]
    yield from wrong
    if not wrong:
        shown = ", ".join(f"{name} on {place['filesystem']}" for name, place in found.items())
        yield subject.step("folders", State.PASSED, shown)
    yield from cache_steps(subject, settings, answer)


def _folder(subject: Subject, name: str, place: Answer, wanted: Folder) -> Iterator[Step]:
    is_declared = name in subject.declared.folders
    strict = State.FAILED if is_declared else State.WARNING
    if wanted.local and place["kind"] != "local":
        what = f"{place['path']} is on {_KINDS[place['kind']]} ({place['filesystem']} {place['source']})"
        yield subject.step(f"folder {name}", strict, what,
                           hint="large and concurrent writes fail there: use a local disk")  # fmt: skip
    if wanted.writable and not place["writable"]:
        yield subject.step(f"folder {name}", State.FAILED, f"{place['path']} cannot be written: {place['error']}",
                           hint="choose another folder, or have its permissions changed")  # fmt: skip
    if is_declared and not wanted.writable and not place["exists"]:
        yield subject.step(
            f"folder {name}", State.FAILED, f"{place['path']} is not there", hint="mount it, or correct the path"
        )
    yield from _room(subject, f"folder {name}", place, wanted.free, is_declared)


def _room(subject: Subject, name: str, place: Answer, wanted: float, is_declared: bool) -> Iterator[Step]:
    free = place["free"] / _GIB
    if free < wanted:
        what = f"{place['path']} has {free:.1f} GiB free, and the target demands {wanted:g}"
        yield subject.step(name, State.FAILED, what, hint=f"make room on {place['mount']}")
    elif place["free"] < _FEW and place["writable"]:
        yield subject.step(
            name, State.WARNING, f"{place['path']} has {free:.2f} GiB free", hint=f"make room on {place['mount']}"
        )
    if place["inodes"] and place["free_inodes"] < place["inodes"] / 100:
        what = f"{place['mount']} has {place['free_inodes']} of {place['inodes']} inodes left"
        yield subject.step(name, State.FAILED if is_declared else State.WARNING, what,
                           hint="many small files fill it, whatever space is free: remove some")  # fmt: skip


def mount_of(place: Answer) -> str:
    """A mount in words, the same for as long as nothing is mounted elsewhere."""
    return f"{place['filesystem']} {place['source']} at {place['mount']}"


def cache_question(subject: Subject, settings: Any) -> dict[str, Any]:
    return {"caches": True}


def cache_steps(subject: Subject, settings: Any, answer: Answer) -> Iterator[Step]:
    caches: Answer = answer["caches"]
    subject.keep("caches", {name: place["path"] for name, place in caches.items()})
    wrong = [step for name, place in caches.items() for step in _cache(subject, name, place)]
    two = {caches[name]["real"] for name in ("transformers", "huggingface hub") if name in caches}
    if len(two) > 1:
        wrong.append(subject.step("cache transformers", State.WARNING,
                                  f"TRANSFORMERS_CACHE and the hub's cache differ: {' and '.join(sorted(two))}",
                                  hint="tokenizers and weights end in two places: set HF_HOME alone"))  # fmt: skip
    yield from wrong
    if not wrong:
        said = f"{caches['huggingface']['path']} and {len(caches) - 1} more can be written"
        yield subject.step("caches", State.PASSED, said, detail=tuple(f"{n}: {p['path']}" for n, p in caches.items()))


def _cache(subject: Subject, name: str, place: Answer) -> Iterator[Step]:
    source = place["variable"] or "by default"
    if not place["writable"]:
        what = f"{place['path']} ({source}) cannot be written: {place['error']}"
        yield subject.step(f"cache {name}", State.FAILED if place["variable"] else State.WARNING, what,
                           hint="libraries fall back to others without a word: name another")  # fmt: skip
    elif name in _LOCAL_CACHES and place["kind"] != "local":
        what = f"{place['path']} ({source}) is on {_KINDS[place['kind']]}"
        yield subject.step(
            f"cache {name}", State.WARNING, what, hint="ranks that compile at once trip there: use a local disk"
        )
    elif place["free"] < _FEW:
        what = f"{place['path']} ({source}) has {place['free'] / _GIB:.2f} GiB free"
        yield subject.step(f"cache {name}", State.WARNING, what, hint=f"make room on {place['mount']}")
