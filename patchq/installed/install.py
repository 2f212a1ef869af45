"""Wheels into a training environment, between two snapshots of what must not change there.

pip does it, with neither dependencies nor an index; every file that it may touch is kept before, and put back byte
for byte where a protected distribution has changed in any file, or pip failed.
"""

from __future__ import annotations

import configparser
import errno
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from patchq.document import sha256_file
from patchq.errors import Prevented
from patchq.exclusive import scratch
from patchq.installed.undo import begin, keep, put_back
from patchq.machine.launch import Launch
from patchq.machine.probe import ask
from patchq.process import Outcome, leashed
from patchq.sdist.wheel import open_wheel

PIP_SECONDS = 1800
_OPTIONS = (
    "--no-deps", "--no-index", "--no-compile", "--no-input", "--disable-pip-version-check",
    "--no-warn-script-location", "--root-user-action=ignore", "--progress-bar=off",
)  # fmt: skip
_MACHINE = (errno.EPERM, errno.EIO, errno.ENOMEM, errno.EACCES, errno.ENFILE, errno.EMFILE, errno.ENOSPC, errno.EROFS,
            errno.EDQUOT)  # fmt: skip
# What pip adds to a wheel's own files.
_ADDED = ("INSTALLER", "REQUESTED", "RECORD", "direct_url.json")

Snapshot = Mapping[str, Mapping[str, str]]  # distribution → path → SHA-256 ("" where the file is not there)
Places = set[tuple[Path, str]]  # root, path below it


@dataclass(frozen=True)
class Result:
    """How an installation ended: `changed` names the files of protected distributions that were touched, `lost` those
    that are not as before even now; `put_back` counts the files that were restored; `absent` names what pip
    said to have installed and the interpreter does not have."""

    pip: Outcome
    changed: Mapping[str, tuple[str, ...]]
    lost: tuple[str, ...] = ()
    put_back: int = 0
    absent: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.pip.ok and not self.changed and not self.absent

    @property
    def prevented(self) -> str:
        """What of the machine kept pip from its work; empty where it said no for another reason, or did it."""
        if self.pip.ok:
            return ""
        if self.pip.timed_out:
            return f"no end within {PIP_SECONDS} s"
        if self.pip.code < 0:
            return f"was killed by signal {-self.pip.code}"
        if found := re.search(r"\[Errno (\d+)\] ([^\n]+)", self.pip.error_text):
            return found[2] if int(found[1]) in _MACHINE else ""
        return self.pip.last_words if "No module named pip" in self.pip.last_words else ""


@dataclass(frozen=True)
class Layout:
    """Where an interpreter installs to, and the files of distributions there, as its probe says."""

    paths: Mapping[str, str]
    distributions: Mapping[str, Sequence[Mapping[str, Any]]]

    def version(self, name: str) -> str | None:
        """The installed version of a distribution, the copy that counts; "?" where its metadata is broken."""
        copies = self.distributions.get(name, ())
        return str(copies[0]["version"] or "?") if copies else None

    def has(self, name: str, version: Version) -> bool:
        """Whether that version is the copy that counts."""
        try:
            return Version(self.version(name) or "") == version
        except InvalidVersion:
            return False

    def files(self, name: str) -> Iterator[str]:
        """Every file of every copy of a distribution, as absolute paths."""
        for copy in self.distributions.get(name, ()):
            yield from map(str, copy["files"])

    def places(self, names: Sequence[str]) -> Places:
        """The files of distributions as places; what a RECORD lists outside the environment is nobody's to restore."""
        found = (self._place(path) for name in names for path in self.files(name))
        return {place for place in found if place}

    def snapshot(self, names: Sequence[str]) -> Snapshot:
        """The digests of every file of distributions."""
        return {name: {path: _digest(Path(path)) for path in self.files(name)} for name in names}

    def _place(self, path: str) -> tuple[Path, str] | None:
        for root in (self.paths["purelib"], self.paths["platlib"], self.paths["scripts"], self.paths["data"]):
            if path.startswith(f"{root}/"):
                return Path(root), path[len(root) + 1 :]
        return None


def layout_of(launch: Launch, names: Sequence[str]) -> Layout:
    """Ask an environment's interpreter about distributions, work copies left aside. Raises `ProbeFailed`."""
    with scratch() as room:
        question = {"distributions": [canonicalize_name(name) for name in names]}
        answer = ask(replace(launch, import_roots=()), "layout", question, cwd=room)
    return Layout(answer["paths"], answer["distributions"])


def install_wheels(launch: Launch, wheels: Sequence[Path], protected: Sequence[str], journal: Path) -> Result:
    """Install `wheels`, whose digests were checked; `journal` is a folder for the way back, which stays where all is
    well. Raises `ProbeFailed` where the interpreter does not answer, with nothing changed or all put back."""
    wanted = dict(parse_wheel_filename(wheel.name)[:2] for wheel in wheels)
    names = list(wanted)
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
        absent = tuple(name for name, version in wanted.items() if outcome.ok and not after.has(name, version))
        if outcome.ok and not changed and not absent:
            keep(journal, came)
            return Result(outcome, {})
    except BaseException:
        put_back(journal, came)
        raise
    touched = put_back(journal, came)
    again = differences(snapshot, layout_of(launch, guarded).snapshot(guarded))
    lost = tuple(path for paths in again.values() for path in paths)
    return Result(outcome, changed, lost, len(touched), absent)


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
    # Its compiled files are beside it; `--isolated` alone still reads the file that PIP_CONFIG_FILE names.
    bare = ["env", "-u", "PYTHONPYCACHEPREFIX", "-u", "_PIP_RUNNING_IN_SUBPROCESS",
            "PYTHONDONTWRITEBYTECODE=1", f"PIP_CONFIG_FILE={os.devnull}"]  # fmt: skip
    pip = [*bare, sys.executable, "-m", "pip", "--isolated", "--python", str(launch.python), "install"]
    argv = replace(launch, import_roots=()).argv([*pip, *_OPTIONS, *map(str, wheels)])
    with scratch() as room, leashed(argv, cwd=room) as running:
        return running.outcome(PIP_SECONDS)


def _digest(path: Path) -> str:
    if path.exists() and not path.is_file():
        return "(not a plain file)"  # a FIFO would be waited for, and a device has no end
    try:
        return sha256_file(path)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise Prevented(f"cannot be read: {error.strerror}", where=str(path)) from error
