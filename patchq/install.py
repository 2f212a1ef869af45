"""Wheels into a training environment, between two snapshots of what must not change there.

pip does it, with neither dependencies nor an index; every file that it may touch is kept before, and put back byte
for byte where a protected distribution has changed in any file, or pip failed.
"""

from __future__ import annotations

import configparser
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name, parse_wheel_filename

from patchq.document import sha256_file
from patchq.errors import Prevented
from patchq.launch import Launch
from patchq.probe import ask
from patchq.process import Outcome, leashed
from patchq.proof import scratch
from patchq.sdist.wheel import open_wheel
from patchq.undo import begin, keep, put_back

PIP_SECONDS = 1800
_OPTIONS = (
    "--no-deps", "--no-index", "--no-compile", "--no-input", "--disable-pip-version-check",
    "--no-warn-script-location", "--root-user-action=ignore", "--progress-bar=off",
)  # fmt: skip
# What pip adds to a wheel's own files.
_ADDED = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")

Snapshot = Mapping[str, Mapping[str, str]]  # distribution → path → SHA-256 ("" where the file is not there)
Places = set[tuple[Path, str]]  # root, path below it


@dataclass(frozen=True)
class Result:
    """How an installation ended: `changed` names the files of protected distributions that were touched, `lost` those
    that are not as before even now; `put_back` counts the files that were restored."""

    pip: Outcome
    changed: Mapping[str, tuple[str, ...]]
    lost: tuple[str, ...] = ()
    put_back: int = 0

    @property
    def ok(self) -> bool:
        return self.pip.ok and not self.changed


@dataclass(frozen=True)
class Layout:
    """Where an interpreter installs to, and the files of distributions there, as its probe says."""

    paths: Mapping[str, str]
    distributions: Mapping[str, Sequence[Mapping[str, Any]]]

    def version(self, name: str) -> str | None:
        """The installed version of a distribution, the copy that counts."""
        copies = self.distributions.get(name, ())
        return str(copies[0]["version"]) if copies else None

    def files(self, name: str) -> Iterator[str]:
        """Every file of every copy of a distribution, as absolute paths."""
        for copy in self.distributions.get(name, ()):
            yield from map(str, copy["files"])

    def places(self, names: Sequence[str]) -> Places:
        """The files of distributions as places."""
        return {self._place(path) for name in names for path in self.files(name)}

    def snapshot(self, names: Sequence[str]) -> Snapshot:
        """The digests of every file of distributions."""
        return {name: {path: _digest(Path(path)) for path in self.files(name)} for name in names}

    def _place(self, path: str) -> tuple[Path, str]:
        for root in (self.paths["purelib"], self.paths["platlib"], self.paths["scripts"], self.paths["data"]):
            if path.startswith(f"{root}/"):
                return Path(root), path[len(root) + 1 :]
        return Path(path).parent, Path(path).name


def layout_of(launch: Launch, names: Sequence[str]) -> Layout:
    """Ask an environment's interpreter about distributions, work copies left aside. Raises `ProbeFailed`."""
    with scratch() as room:
        question = {"distributions": [canonicalize_name(name) for name in names]}
        answer = ask(replace(launch, import_roots=()), "layout", question, cwd=room)
    return Layout(answer["paths"], answer["distributions"])


def install_wheels(launch: Launch, wheels: Sequence[Path], protected: Sequence[str], journal: Path) -> Result:
    """Install `wheels`, whose digests were checked; `journal` is a folder for the way back, which stays where all is
    well. Raises `ProbeFailed` where the interpreter does not answer, with nothing changed or all put back."""
    names = [parse_wheel_filename(wheel.name)[0] for wheel in wheels]
    guarded = [canonicalize_name(name) for name in protected]
    before = layout_of(launch, [*names, *guarded])
    snapshot = before.snapshot(guarded)
    foreseen = before.places(names) | {place for wheel in wheels for place in destinations(wheel, before.paths)}
    foreseen |= {place for place in before.places(guarded) if ".dist-info/" in place[1]}
    begin(journal, f"install of {', '.join(names)}", foreseen)
    came: Places = set()
    try:
        outcome = _pip(launch, wheels)
        after = layout_of(launch, [*names, *guarded])
        came = {place for place in after.places(names) if place not in before.places(names)}
        changed = differences(snapshot, after.snapshot(guarded))
        if outcome.ok and not changed:
            keep(journal, came)
            return Result(outcome, {})
    except BaseException:
        put_back(journal, came)
        raise
    touched = put_back(journal, came)
    again = differences(snapshot, layout_of(launch, guarded).snapshot(guarded))
    return Result(outcome, changed, tuple(path for paths in again.values() for path in paths), len(touched))


def destinations(wheel: Path, paths: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    """Where each file of a wheel goes (PEP 427), with the scripts of its entry points and what pip adds."""
    for file in open_wheel(wheel):
        top, _, rest = file.path.partition("/")
        if top.endswith(".data"):
            key, _, inner = rest.partition("/")
            yield Path(paths.get({"headers": "include"}.get(key, key), paths["data"])), inner
            continue
        yield Path(paths["purelib"]), file.path
        yield Path(paths["platlib"]), file.path
        if top.endswith(".dist-info") and rest == "entry_points.txt":
            yield from ((Path(paths["scripts"]), name) for name in _script_names(file.data.decode("utf-8", "replace")))
        if top.endswith(".dist-info") and rest == "WHEEL":
            yield from ((Path(paths[lib]), f"{top}/{name}") for lib in ("purelib", "platlib") for name in _ADDED)


def differences(before: Snapshot, after: Snapshot) -> dict[str, tuple[str, ...]]:
    """The files of each distribution that are not as they were, gone and new ones among them."""
    changed = {}
    for name, old in before.items():
        new = after.get(name, {})
        paths = tuple(path for path in sorted({*old, *new}) if old.get(path, "") != new.get(path, ""))
        if paths:
            changed[name] = paths
    return changed


def _script_names(text: str) -> list[str]:
    parser = configparser.ConfigParser(delimiters=("=",), strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        parser.read_string(text)
    except configparser.Error:
        return []
    return [name for group in ("console_scripts", "gui_scripts") if parser.has_section(group) for name in parser[group]]


def _pip(launch: Launch, wheels: Sequence[Path]) -> Outcome:
    """patchq's own pip, which needs none in the environment, run by the environment's interpreter."""
    bare = ["env", "-u", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE=1"]  # its compiled files are beside it
    pip = [*bare, sys.executable, "-m", "pip", "--isolated", "--python", str(launch.python), "install"]
    argv = replace(launch, import_roots=()).argv([*pip, *_OPTIONS, *map(str, wheels)])
    with scratch() as room, leashed(argv, cwd=room) as running:
        return running.outcome(PIP_SECONDS)


def _digest(path: Path) -> str:
    try:
        return sha256_file(path)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise Prevented(f"cannot be read: {error.strerror}", where=str(path)) from error
