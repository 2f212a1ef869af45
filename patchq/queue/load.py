"""Reading a whole queue: every file of it, every problem at once."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from patchq.document import load_yaml, nearest, read_regular, sha256
from patchq.errors import Invalid, Problem
from patchq.patch import Patch, parse_patch
from patchq.queue.baseline import Baseline
from patchq.queue.target import QueueSettings, Target, Variant
from patchq.series import LAYERS, Series, SeriesEntry, parse_series

LOCK_NAME = "patchq.lock"
MAX_PATCH = 64 << 20
_FILES = ("queue.yaml", LOCK_NAME)
_FOLDERS = ("targets", "variants")


@dataclass(frozen=True)
class QueuedPatch:
    """A patch in its place: the series entry, and the patch itself or what is wrong with its file."""

    upstream: str
    entry: SeriesEntry
    patch: Patch | None
    problems: tuple[Problem, ...] = ()

    @property
    def name(self) -> str:
        """`UPSTREAM/LAYER/NAME`."""
        return f"{self.upstream}/{self.entry.name}"


@dataclass(frozen=True)
class Upstream:
    """One upstream of the queue."""

    name: str
    folder: Path
    baseline: Baseline
    series: Series
    patches: tuple[QueuedPatch, ...]


@dataclass(frozen=True)
class Queue:
    """A queue that was read: `root` is the `series/` folder, `digests` the SHA-256 of each of its files."""

    root: Path
    settings: QueueSettings
    upstreams: dict[str, Upstream]
    targets: dict[str, Target]
    variants: dict[str, Variant]
    digests: dict[str, str] = field(default_factory=dict)

    def target(self, name: str) -> Target:
        """The target called `name`; raises `Invalid` with the nearest name."""
        if name not in self.targets:
            raise Invalid(f"there is no target {name!r}", where=str(self.root / "targets"),
                          hint=nearest(name, list(self.targets)))  # fmt: skip
        return self.targets[name]

    def variant_name(self, name: str | None) -> str | None:
        """`name` if it is a declared variant (None passes); raises `Invalid` otherwise."""
        if name is not None and name not in self.variants:
            raise Invalid(f"there is no variant {name!r}", where=str(self.root / "variants"),
                          hint=nearest(name, list(self.variants)))  # fmt: skip
        return name

    def upstream(self, name: str) -> Upstream:
        """The upstream called `name`; raises `Invalid` with the nearest name."""
        if name not in self.upstreams:
            raise Invalid(
                f"there is no upstream {name!r}",
                where=str(self.root),
                hint=nearest(name, list(self.upstreams)),
            )
        return self.upstreams[name]


def find_root(start: Path) -> Path | None:
    """The `series/` folder of the queue that `start` is in, looking upwards."""
    for folder in (start, *start.parents):
        if (folder / "series" / "queue.yaml").is_file():
            return folder / "series"
        if folder.name == "series" and (folder / "queue.yaml").is_file():
            return folder
    return None


def load_queue(root: Path) -> Queue:
    """Read the queue at `root`. Raises `Invalid` with every problem of every file.

    What is wrong inside a patch file does not stop the queue: that patch is `malformed`, the others go on.
    """
    problems: list[Problem] = []
    root = root.resolve()
    if not (root / "queue.yaml").is_file():
        raise Invalid("is not a queue: it has no queue.yaml", where=str(root), hint="start one with: patchq init")
    digests = dict(_digests(root, problems))
    settings = _collect(problems, lambda: load_yaml(root / "queue.yaml", QueueSettings))
    targets = _load_folder(root / "targets", Target, problems)
    variants = _load_folder(root / "variants", Variant, problems)
    upstreams = {}
    for folder in sorted(root.iterdir()):
        if folder.is_dir() and folder.name not in _FOLDERS and not folder.name.startswith("."):
            upstream = _load_upstream(folder, problems)
            if upstream:
                upstreams[folder.name] = upstream
    if problems or settings is None:
        raise Invalid(problems)
    return Queue(root, settings, upstreams, targets, variants, digests)


Loaded = TypeVar("Loaded")
Yaml = TypeVar("Yaml", Target, Variant)


def _collect(problems: list[Problem], load: Callable[[], Loaded]) -> Loaded | None:
    try:
        return load()
    except Invalid as error:
        problems.extend(error.problems)
        return None


def _load_folder(folder: Path, model: type[Yaml], problems: list[Problem]) -> dict[str, Yaml]:
    loaded = {}
    for path in sorted(folder.glob("*.yaml")):
        document = _collect(problems, partial(load_yaml, path, model))
        if document:
            loaded[path.stem] = document
    return loaded


def _load_upstream(folder: Path, problems: list[Problem]) -> Upstream | None:
    path = folder / "baseline.yaml"
    baseline = _collect(problems, lambda: load_yaml(path, Baseline))
    listing = folder / "series"
    series = _collect(problems, lambda: parse_series(read_regular(listing), str(listing)))
    if baseline is None or series is None:
        return None
    if baseline.upstream != folder.name:
        problems.append(Problem(f"upstream is {baseline.upstream!r}, the folder {folder.name!r}", str(path)))
    patches = tuple(_load_patch(folder, entry) for entry in series.entries)
    problems += _strays(folder, {entry.name for entry in series.entries})
    return Upstream(folder.name, folder, baseline, series, patches)


def _load_patch(folder: Path, entry: SeriesEntry) -> QueuedPatch:
    path = folder / entry.name
    name = f"{folder.name}/{entry.name}"
    try:
        return QueuedPatch(folder.name, entry, parse_patch(name, read_regular(path, MAX_PATCH), str(path), entry.strip))
    except Invalid as error:
        if not path.exists():
            place = f"{folder / 'series'}:{entry.line}"
            return QueuedPatch(folder.name, entry, None, (Problem(f"{entry.name} is listed but not there", place),))
        return QueuedPatch(folder.name, entry, None, error.problems)


def _strays(folder: Path, listed: set[str]) -> Iterator[Problem]:
    """Patch files that no series line names: they would silently never apply."""
    for layer in LAYERS:
        for path in sorted((folder / layer).glob("*")):
            if f"{layer}/{path.name}" not in listed and not path.name.startswith("."):
                yield Problem("is in no series line", str(path), f"list it in {folder.name}/series, or remove it")


def _digests(root: Path, problems: list[Problem]) -> Iterator[tuple[str, str]]:
    for path in sorted(root.rglob("*")):
        inner = path.relative_to(root)
        if "__pycache__" in inner.parts or any(part.startswith(".") for part in inner.parts):
            continue
        mode = path.lstat().st_mode
        if stat.S_ISDIR(mode) or inner.as_posix() == LOCK_NAME:
            continue
        if not stat.S_ISREG(mode):
            problems.append(Problem("is not a plain file; a queue holds nothing else", str(path)))
            continue
        yield inner.as_posix(), sha256(read_regular(path, MAX_PATCH))
