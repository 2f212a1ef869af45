"""Choosing wheels for another machine: pip resolves, as if it ran there."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from patchq.errors import Invalid, PatchqError, Prevented, Problem, Refused
from patchq.exclusive import scratch
from patchq.index.pin import Pin, Platform
from patchq.index.sources import Search
from patchq.process import Outcome, run

# pip takes tags and Requires-Python from its options, but evaluates markers for the interpreter that runs it.
_PIP_AS_IF_THERE = """
import json, runpy, sys
from pip._vendor.packaging import markers
target = json.loads(sys.argv.pop(1))
markers.default_environment = lambda: dict(target)
if not markers.Marker(f"python_full_version == '{target['python_full_version']}'").evaluate():
    sys.exit("this version of pip cannot evaluate markers for another Python")
runpy.run_module("pip", run_name="__main__", alter_sys=True)
"""
_UNREACHABLE = r"Retrying \(Retry\(|Could not fetch URL"
_UNMATCHED = r"(?m)No matching distribution found for (?P<requirement>.+?)(?: \(from .*)?$"


def resolve(requirements: Sequence[str], *, python: str, platform: Platform, deps: bool = True) -> tuple[Pin, ...]:
    """The wheels of `requirements`, and with `deps` of all they need, for another machine; sorted by name.

    `python` is that of the target, "3.12" or "3.12.7". The user's pip configuration and constraints hold.
    Raises `Invalid` for a wrong requirement, `Refused` where no set of wheels fits, and `Prevented` where pip
    or every package index is missing.
    """
    wanted = [_requirement(text) for text in requirements]
    if not re.fullmatch(r"3\.\d+(\.\d+)?", python):
        raise Invalid(f"{python!r} is not a version of Python", hint="such as 3.12")
    with scratch() as room:
        report = room / "report.json"
        argv = _argv(wanted, python, platform, deps, room, report)
        outcome = run(argv, env=_environ(), cwd=room)
        if not outcome.ok:
            raise _failure(outcome, python, platform)
        installed = json.loads(report.read_bytes())["install"]
    return tuple(sorted(map(_pin, installed), key=lambda pin: pin.name))


def _requirement(text: str) -> str:
    try:
        parsed = Requirement(text)
    except InvalidRequirement as error:
        raise Invalid(
            f"{text!r} is not a requirement: {str(error).splitlines()[0]}", hint="such as ray==2.60.0"
        ) from None
    if parsed.url:
        raise Invalid(f"{text!r} names an address", hint="name a version; pip's find-links can name the place")
    return text


def _argv(wanted: Sequence[str], python: str, platform: Platform, deps: bool, scratch: Path, report: Path) -> list[str]:
    return [
        *(sys.executable, "-c", _PIP_AS_IF_THERE, json.dumps(_markers(python, platform))),
        *("install", "--dry-run", "--ignore-installed", "--only-binary=:all:", "--no-input"),
        *("--disable-pip-version-check", "--progress-bar=off", "--implementation=cp"),
        *("--target", str(scratch / "target"), "--report", str(report), "--python-version", python),
        *(f"--platform={tag}" for tag in platform.tags),
        *(() if deps else ("--no-deps",)),
        *("--", *wanted),
    ]


def _environ() -> dict[str, str]:
    """The environment as it is, less what would send pip to another interpreter, venv or place."""
    environ = {name: value for name, value in os.environ.items() if name != "PIP_PYTHON"}
    return environ | {"PIP_REQUIRE_VIRTUALENV": "0", "PIP_USER": "0"}


def _markers(python: str, platform: Platform) -> dict[str, str]:
    """The environment of PEP 508 on the target: CPython on Linux."""
    major_minor = ".".join(python.split(".")[:2])
    full = python if python != major_minor else f"{python}.0"
    return {
        "implementation_name": "cpython",
        "implementation_version": full,
        "os_name": "posix",
        "platform_machine": platform.machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": full,
        "python_version": major_minor,
        "sys_platform": "linux",
    }


def _pin(item: dict[str, Any]) -> Pin:
    metadata, download = item["metadata"], item["download_info"]
    name, version = canonicalize_name(metadata["name"]), metadata["version"]
    digest = download.get("archive_info", {}).get("hashes", {}).get("sha256")
    if not digest:
        raise Refused(f"{name} {version}: the index gives no SHA-256 for it")
    filename = unquote(Path(urlsplit(download["url"]).path).name)
    return Pin(name=name, version=version, filename=filename, sha256=digest)


def _failure(outcome: Outcome, python: str, platform: Platform) -> PatchqError:
    """pip's complaint as an error of the right kind."""
    lines = outcome.error_text.splitlines()
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")] or lines[-1:]
    if re.search(_UNREACHABLE, outcome.error_text):
        return Prevented("the package index cannot be reached", hint="see `python -m pip config list`")
    if unmatched := re.search(_UNMATCHED, outcome.error_text):
        return _without_wheel(unmatched["requirement"], python, platform)
    if "ResolutionImpossible" in outcome.error_text or "conflict" in outcome.error_text:
        return Refused([Problem("no set of versions fits together"), *map(Problem, _conflict(outcome.text))])
    return Prevented([Problem(f"pip: {line}") for line in errors] or "pip failed without a word")


def _conflict(text: str) -> list[str]:
    start = text.find("The conflict is caused by:")
    return [line.strip() for line in text[start:].splitlines()[1:] if line.startswith("    ")] if start >= 0 else []


def _without_wheel(requirement: str, python: str, platform: Platform) -> PatchqError:
    """Say what there is of a project for which no wheel fits."""
    parsed = Requirement(requirement)
    target = f"CPython {python} on {platform.tag}"
    with Search(requirement) as search:
        packages = list(search.packages(canonicalize_name(parsed.name)))
    fitting = [p for p in packages if p.version and parsed.specifier.contains(p.version, prereleases=True)]
    if not packages:
        return search.nothing()
    if not fitting:
        known = ", ".join(dict.fromkeys(str(p.version) for p in packages[:8]))
        return Refused(f"{requirement}: the index has no such version", hint=f"newest first: {known}")
    if any(package.link.is_wheel for package in fitting):
        return Refused(f"{requirement}: no wheel fits {target}", hint="another version may have one")
    hint = "build a wheel on such a machine and name its folder in pip's find-links"
    return Refused(f"{requirement}: there is only a source distribution, and wheels are due for {target}", hint=hint)
