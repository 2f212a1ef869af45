"""Reading a whole queue: every file of it, every problem at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TypeVar

from patchq.document import MAX_BYTES, Document, nearest, parse_yaml, sha256
from patchq.errors import Invalid, Problem
from patchq.patch import Patch, parse_patch
from patchq.queue.baseline import Baseline
from patchq.queue.target import QueueSettings, Target, Variant
from patchq.queuejournal import LOCK_NAME, read_queue
from patchq.series import LAYERS, Series, SeriesEntry, parse_series

MAX_PATCH = 64 << 20
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
    """A queue that was read: `root` is the `series/` folder, `files` the bytes of each of its files."""

    root: Path
    settings: QueueSettings
    upstreams: dict[str, Upstream]
    targets: dict[str, Target]
    variants: dict[str, Variant]
    files: Mapping[str, bytes] = field(default_factory=dict)

    @cached_property
    def digests(self) -> dict[str, str]:
        """The SHA-256 of every file but the lock, by its path below `root`."""
        return {path: sha256(data) for path, data in self.files.items() if path != LOCK_NAME}

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
    """Read the queue at `root`, through an interrupted write if there is one.

    Raises `Invalid` with every problem of every file, `Refused` where a write was interrupted and a file changed since.
    """
    root = root.resolve()
    if not (root / "queue.yaml").is_file():
        raise Invalid("is not a queue: it has no queue.yaml", where=str(root), hint="start one with: patchq init")
    files, problems = read_queue(root)
    return parse_queue(root, files, problems)


def parse_queue(root: Path, files: Mapping[str, bytes], problems: Iterable[Problem] = ()) -> Queue:
    """The queue that `files` (path below `root` → bytes) make up. Raises `Invalid` with every problem of every file.

    What is wrong inside a patch file does not stop the queue: that patch is `malformed`, the others go on.
    """
    reader = _Reader(root, files, list(problems))
    settings = reader.yaml("queue.yaml", QueueSettings)
    targets = reader.folder("targets", Target)
    variants = reader.folder("variants", Variant)
    names = dict.fromkeys(path.split("/", 1)[0] for path in sorted(files) if "/" in path)
    upstreams = {name: reader.upstream(name) for name in names if name not in _FOLDERS}
    reader.problems.extend(reader.uses(targets, upstreams))
    if reader.problems or settings is None:
        raise Invalid(reader.problems)
    whole = {name: upstream for name, upstream in upstreams.items() if upstream}
    return Queue(root, settings, whole, targets, variants, files)


Loaded = TypeVar("Loaded")
Yaml = TypeVar("Yaml", Target, Variant)
Model = TypeVar("Model", bound=Document)


@dataclass(frozen=True)
class _Reader:
    """Reads the parts of a queue from its files and takes down in `problems` what is wrong."""

    root: Path
    files: Mapping[str, bytes]
    problems: list[Problem]

    def yaml(self, inner: str, model: type[Model]) -> Model | None:
        return self._collect(lambda: parse_yaml(self._bytes(inner, MAX_BYTES), model, str(self.root / inner)))

    def folder(self, name: str, model: type[Yaml]) -> dict[str, Yaml]:
        listed = [path for path in sorted(self.files) if PurePosixPath(path).match(f"{name}/*.yaml")]
        documents = {PurePosixPath(path).stem: self.yaml(path, model) for path in listed if path.count("/") == 1}
        return {stem: document for stem, document in documents.items() if document}

    def upstream(self, name: str) -> Upstream | None:
        folder = self.root / name
        where = str(folder / "series")
        baseline = self.yaml(f"{name}/baseline.yaml", Baseline)
        series = self._collect(lambda: parse_series(self._bytes(f"{name}/series", MAX_BYTES), where))
        if baseline is None or series is None:
            return None
        if baseline.upstream != name:
            what = f"upstream is {baseline.upstream!r}, the folder {name!r}"
            self.problems.append(Problem(what, str(folder / "baseline.yaml")))
        patches = tuple(self._patch(name, entry) for entry in series.entries)
        self.problems.extend(self._strays(name, {entry.name for entry in series.entries}))
        return Upstream(name, folder, baseline, series, patches)

    def uses(self, targets: Mapping[str, Target], upstreams: Mapping[str, Upstream | None]) -> Iterator[Problem]:
        """Upstreams, and forms of their baselines, that a target names and that are not there."""
        for target, declared in targets.items():
            where = str(self.root / "targets" / f"{target}.yaml")
            for name, use in declared.upstreams.items():
                upstream = upstreams.get(name)
                if name not in upstreams:
                    yield Problem(f"there is no upstream {name!r}", where, nearest(name, list(upstreams)))
                elif upstream and use.baseline not in upstream.baseline.forms():
                    yield Problem(f"{name} declares no {use.baseline} baseline", where)

    def _patch(self, upstream: str, entry: SeriesEntry) -> QueuedPatch:
        name = f"{upstream}/{entry.name}"
        if name not in self.files:
            place = f"{self.root / upstream / 'series'}:{entry.line}"
            return QueuedPatch(upstream, entry, None, (Problem(f"{entry.name} is listed but not there", place),))
        try:
            patch = parse_patch(name, self._bytes(name, MAX_PATCH), str(self.root / name), entry.strip)
            return QueuedPatch(upstream, entry, patch)
        except Invalid as error:
            return QueuedPatch(upstream, entry, None, error.problems)

    def _strays(self, upstream: str, listed: set[str]) -> Iterator[Problem]:
        """Patch files that no series line names: they would silently never apply."""
        for layer in LAYERS:
            for path in sorted(self.files):
                inner = path.removeprefix(f"{upstream}/")
                if path.startswith(f"{upstream}/{layer}/") and inner not in listed:
                    hint = f"list it in {upstream}/series, or remove it"
                    yield Problem("is in no series line", str(self.root / path), hint)

    def _bytes(self, inner: str, limit: int) -> bytes:
        data, where = self.files.get(inner), str(self.root / inner)
        if data is None:
            raise Invalid("there is no such file", where=where)
        if len(data) > limit:
            raise Invalid(f"has {len(data)} bytes; at most {limit} are allowed", where=where)
        return data

    def _collect(self, load: Callable[[], Loaded]) -> Loaded | None:
        try:
            return load()
        except Invalid as error:
            self.problems.extend(error.problems)
            return None
