"""What each probe may answer: its shape, and that all that was asked is in it.

An answer comes from a foreign interpreter, and of a list that is no list nobody would say what is wrong with it: so one
of another shape is no answer. The scripts in `probes/` say what each key means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

# A shape is a type, None, a list of one shape, a dictionary from `str` to one shape or of named keys ("?": may be
# missing, "*": others may be there), or a tuple of alternatives. `int` is never negative; `complex` stands for a number
# that may be NaN or infinite, as what a device computes may be.
Shape = Any
_LARGEST = 1 << 100  # bytes of a disk, as some file systems say; a float still holds it
_DISTRIBUTION: Shape = {"name": str, "version": str, "root": str, "metadata": str, "requires": [str], "editable": bool,
                        "frozen": str}  # fmt: skip
_RECORD: Shape = (
    {"record": False, "extras?": [str]},
    {"record": True, "files": int, "wrong": [[str]], "count": int, "digest?": str, "extras?": [str]},
)
_PLACE: Shape = {"path": str, "kind": str}
_COPY: Shape = {"version": str, "metadata": str, "source": (str, None)}
_SPEC: Shape = {"origin": (str, None), "folders": [str]}
_SURVEYED: Shape = {"candidates": [_PLACE], "distributions": [_COPY]}
_FOLDER: Shape = {"path": str, "real": str, "exists": bool, "mount": str, "filesystem": str, "kind": str, "source": str,
                  "size": int, "free": int, "inodes": int, "free_inodes": int}  # fmt: skip
_WRITTEN: Shape = {"writable": True, "seconds": float}
_UNWRITTEN: Shape = {"writable": False, "error": str, "seconds?": float}
_DEVICE: Shape = {"index": int, "name": str, "uuid?": str, "capability?": str, "total?": int, "free?": int,
                  "processes?": ([{"pid": int, "used": int, "name": str}], None)}  # fmt: skip
_FOUND: Shape = {"by": str, "driver": (str, None), "limit?": (str, None), "devices": [_DEVICE], "output?": str}
_SEEN: Shape = {"host": str, "executable": str, "version": str, "path": [str], "origins": {str: (str, None)},
                "variables": {str: str}}  # fmt: skip
_RAY: Shape = {"origin": (str, None), "lacking": [], "version": str, "address": str, "mine": _SEEN, "unreachable?": ""}
_RANK: Shape = {"rank": int, "stage": str, "stages": int, "*": object}
_SUMMED: Shape = {
    "device": str, "sum": complex, "group_sum?": complex, "*": object,
    "random": {"error": complex, "bound": complex, "mib": complex, "*": object},
    "timed?": {"mib": float, "seconds": float, "bus": float, "*": object},
}  # fmt: skip
_STEPPED: Shape = {
    "loss": complex, "after": [complex], "*": object,
    "errors": {"loss": complex, "gradients": complex, "step": complex},
}  # fmt: skip


def _ranks(answer: Shape) -> Shape:
    return [({**_RANK, "answer": answer, "error": str}, {**_RANK, "answer": None, "error": str})]


_WORLD: Shape = {"world": int, "backend": str, "torch?": str, "*": object}
_SETTINGS: Shape = {str: (str, complex, bool)}
_RESULT: Shape = ({"state": "passed"}, {"state": "failed", "text": str},
                  {"state": "not run", "missing": [str], "text?": str})  # fmt: skip

SHAPES: Mapping[str, Shape] = {
    "interpreter": {
        "executable": str, "real": str, "prefix": str, "base_prefix": str, "version": str, "platform": str,
        "libpython": [str], "venv": {str: str}, "finders": [str], "path": [str], "sources": {str: str},
        "customized": {str: str}, "complaints": [str], "environ": {str: [str]}, "untraced?": str,
    },
    "variables": {
        "executable": str, "generations": [{"given": {str: str}, "python": {str: str}}],
        "launchers": {str: ({"path": None}, {"path": str, "interpreter": str, "ours": bool},
                            {"path": str, "interpreter": None, "ours": None})},
    },
    "origins": {
        "located": {str: ({"error": str}, _SPEC)},
        "imported": {str: ({"missing?": str, "error": str, "trace": str}, {"file": (str, None), "version": str})},
        "surveyed": {str: (
            {"error": str, **_SURVEYED}, {"origin": None, "folders": [str], **_SURVEYED},
            {"origin": str, "folders": [str], "sourceless": [str], **_SURVEYED},
        )},
        "bytecode": {"stale": [str], "unchecked": int},
        "start": {str: {str: _PLACE}},
    },
    "packages": {
        "markers": {str: str}, "distributions": {str: _DISTRIBUTION}, "records": {str: _RECORD},
        "doubles": {str: [str]}, "unread": {str: str},
    },
    "pairs": ({"flash_attn": None}, {"flash_attn": str, "torch": str, "extension": (str, None)},
              {"flash_attn": str, "torch?": str, "extension?": (str, None), "error": str}),
    "machine": {
        "kernel": str, "system": str, "cpus": int, "memory": {"total": int, "available": int, "shared": int},
        "container": bool, "torch": {str: str},
        "accelerators": ({"devices": [], "missing": str}, _FOUND, {**_FOUND, "error": str}),
    },
    "folders": {
        "folders": {str: ({**_FOLDER, **_WRITTEN}, {**_FOLDER, **_UNWRITTEN})},
        "caches": {str: ({"variable": str, **_FOLDER, **_WRITTEN}, {"variable": str, **_FOLDER, **_UNWRITTEN})},
    },
    "layout": {
        "paths": {"purelib": str, "platlib": str, "scripts": str, "data": str, "include": str},
        "distributions": {str: [{"version": (str, None), "root": str, "files": [str]}]},
    },
    "installation": {"copies": [{"version": (str, None), "root": str, "metadata": str, "record": (str, None),
                                 "editable": bool, "shadowed": {str: str}}]},
    "cpu_tests": ({"code": int, "results": {str: _RESULT}, "pytest": str, "output": str},
                  {"code": int, "results": {str: _RESULT}, "error": str}),
    "memory": {"devices": [{"index": int, "name": str, "total": int, "free": int, "largest": int}]},
    "allocator": {
        "ranks": [({"error": str}, {"torch": str, "seen": {str: (str, None)}, "settings": _SETTINGS},
                   {"torch": str, "seen": {str: (str, None)}, "settings": _SETTINGS, "rank": int, "world": int})],
        "combinations": [({"given": {str: str}, "error": str}, {"given": {str: str}, "not_run": str, "torch": str},
                          {"given": {str: str}, "torch": str, "seen": {str: (str, None)}, "settings": _SETTINGS,
                           "rank?": int, "world?": int})],
    },
    "bf16": {"device": str, "torch": str, "dtype": str, "finite": bool, "loss": [complex],
             "errors": {"loss": complex, "gradients": complex}},
    "ranks": ({**_WORLD, "ranks": _ranks(_SUMMED), "link": (float, None)},
              {**_WORLD, "ranks": _ranks(_STEPPED), "resumed?": _ranks({"after": [complex], "*": object})}),
    "generate": {"text": str, "tokens": [int], "executable": str, "torch": [(str, None)], "vllm": [(str, None)]},
    "embedding": ({"health": str}, {"health": "", "error": str},
                  {"health": "", "model": (str, None), "dimension": int, "norm": float}),
    "ray_cluster": (
        {"origin": (str, None), "lacking": [str]}, {**_RAY, "unreachable": str},
        {**_RAY, "resources": {str: float}, "actors": [_SEEN]},
        {**_RAY, "error": str, "asks_token": bool, "resources?": {str: float}},
    ),
    "step_log": {"gates": [{"gate": str, "passed": bool, "said": str, "line": (int, None)}], "metrics": int},
    "checkpoint": ({"layout": None, "problems": [str]},
                   {"layout": str, "step": (int, None), "files": int, "bytes": int, "roles": [str], "problems": [str]}),
    "copy_files": ({"files": int, "of": int, "failed": str, "error": str},
                   {"files": int, "of": int, "written": int, "bytes": int}),
    "data": {"pyarrow": str, "files": [({"path": str, "problems": [str]},
                                        {"path": str, "rows": int, "columns": [str], "problems": [str]})]},
}  # fmt: skip
# Probes whose need may be missing say so instead.
_NOT_RUN: Shape = {"not_run": str}
_NEEDY = frozenset({"memory", "allocator", "bf16", "ranks", "generate", "ray_cluster", "step_log", "checkpoint",
                    "copy_files", "data"})  # fmt: skip


def can_be(probe: str, document: Mapping[str, Any]) -> bool:
    """Whether JSON can be a probe's answer, and is not what others print: it has the keys that all of those have."""
    keys = [{key for key in shape if key[-1:] not in ("?", "*")} for shape in _alternatives(SHAPES[probe])]
    return set.intersection(*keys) <= document.keys() or (probe in _NEEDY and document.keys() == _NOT_RUN.keys())


def misfit(probe: str, answer: Any, question: Mapping[str, Any]) -> str:
    """What of an answer is of another shape, or missing from it though it was asked; empty where it is whole."""
    if probe in _NEEDY and "not_run" in answer:
        return _misfit(answer, _NOT_RUN, "")
    return _misfit(answer, SHAPES[probe], "") or next(_lacking(probe, answer, question), "")


def _alternatives(shape: Shape) -> tuple[Shape, ...]:
    return shape if isinstance(shape, tuple) else (shape,)


def _misfit(value: Any, shape: Shape, at: str) -> str:
    """Where and how `value` does not fit; of alternatives the one that it comes nearest to speaks."""
    if isinstance(shape, tuple):
        return min((_misfit(value, one, at) for one in shape), key=lambda said: (bool(said), -said.count(".")))
    if isinstance(shape, dict):
        return _keyed(value, shape, at) if isinstance(value, dict) else f"{at or 'it'} is {_word(value)}, not an object"
    if isinstance(shape, list):
        if not isinstance(value, list) or (value and not shape):
            return f"{at} is {_word(value)}, not a list{'' if shape else ' without entries'}"
        return next(filter(None, (_misfit(item, shape[0], f"{at}.{number}") for number, item in enumerate(value))), "")
    fits = _PLAIN.get(shape) if isinstance(shape, type) else lambda given: type(given) is type(shape) and given == shape
    assert fits
    return "" if fits(value) else f"{at} is {_word(value)}, not {_NAMES.get(shape, repr(shape))}"


def _keyed(value: Mapping[str, Any], shape: Shape, at: str) -> str:
    inside = f"{at}." if at else ""
    if str in shape:
        return next(filter(None, (_misfit(item, shape[str], f"{inside}{key}") for key, item in value.items())), "")
    known = {key.rstrip("?"): one for key, one in shape.items()}
    if lacking := [key for key in shape if key[-1:] not in ("?", "*") and key not in value]:
        return f"{inside}{lacking[0]} is not there"
    if "*" not in shape and (more := [key for key in value if key not in known]):
        return f"{inside}{more[0]} is there, which nobody asked for"
    return next(filter(None, (_misfit(value[key], known[key], f"{inside}{key}") for key in value if key in known)), "")


_PLAIN: Mapping[type, Callable[[Any], bool]] = {
    str: lambda value: type(value) is str,
    bool: lambda value: type(value) is bool,
    int: lambda value: type(value) is int and 0 <= value < _LARGEST,
    float: lambda value: type(value) in (int, float) and 0 <= value < _LARGEST,
    complex: lambda value: type(value) is float or (type(value) is int and abs(value) < _LARGEST),
    object: lambda value: True,
}  # fmt: skip
_NAMES = {str: "text", bool: "true or false", int: "a whole number that is not negative", float: "a number",
          complex: "a number", None: "null", True: "true", False: "false"}  # fmt: skip
_WORDS = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}


def _word(value: Any) -> str:
    return _WORDS.get(type(value), "null")


# Of these probes every name in a part of the question stands in a part of the answer, and no other.
_ASKED: Mapping[str, Sequence[tuple[str, str]]] = {
    "folders": (("folders", "folders"),),
    "variables": (("launchers", "launchers"),),
    "origins": (("locate", "located"), ("import", "imported"), ("survey", "surveyed"), ("start", "start")),
    "layout": (("distributions", "distributions"),),
}


def _lacking(probe: str, answer: Mapping[str, Any], question: Mapping[str, Any]) -> Iterator[str]:
    for asked, part in _ASKED.get(probe, ()):
        for name in sorted({*question.get(asked, ())} ^ {*answer[part]}):
            yield f"{part}.{name} is {'not there' if name not in answer[part] else 'there, which nobody asked for'}"
    if probe == "variables" and len(answer["generations"]) != GENERATIONS:
        yield f"generations are {len(answer['generations'])}, not {GENERATIONS}"
    elif probe == "interpreter" and not {*answer["path"]} <= {*answer["sources"]}:
        yield "sources lack an entry of path"
    elif probe == "packages":
        yield from _unvouched(answer, question)
    elif probe == "data" and [file["path"] for file in answer["files"]] != list(question.get("files", ())):
        yield "files are not those that were asked for"
    elif probe in _NEVER_EMPTY and not answer[_NEVER_EMPTY[probe]]:
        yield f"{_NEVER_EMPTY[probe]} are none"
    elif probe == "ranks" and [one["rank"] for one in answer["ranks"]] != list(range(answer["world"])):
        yield f"ranks are not the {answer['world']} of its world"


GENERATIONS = 3
_NEVER_EMPTY = {"step_log": "gates", "memory": "devices", "allocator": "ranks"}


def _unvouched(answer: Mapping[str, Any], question: Mapping[str, Any]) -> Iterator[str]:
    if question.get("files", True):
        yield from (f"records.{name} is not there" for name in answer["distributions"] if name not in answer["records"])
    for name, record in answer["records"].items():
        told, count = len(record.get("wrong", ())), record.get("count", 0)
        if name not in answer["distributions"]:
            yield f"records.{name} is of no distribution"
        elif count < told or bool(count) != bool(told):
            yield f"records.{name}.count is not that of what is wrong"
