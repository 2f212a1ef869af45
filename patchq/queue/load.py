"""Reading a whole queue: every file of it, every problem at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from patchq.document import MAX_BYTES, Document, nearest, parse_yaml, place_in, sha256
from patchq.errors import Invalid, Problem
from patchq.queue.baseline import Baseline
from patchq.queue.target import QueueSettings, Target, Variant
from patchq.queuejournal import LOCK_NAME, read_queue
from patchq.series import LAYERS, Series, SeriesEntry, parse_series

if TYPE_CHECKING:  # verbs that look into no patch do not pay for what reads them
    from patchq.patch import Patch

MAX_PATCH = 64 << 20
_FOLDERS = ("targets", "variants")


@dataclass(frozen=True)
class QueuedPatch:
    """A patch in its place: the series entry, and the bytes of its file below `folder` (None: it is not there).

    They are understood when first asked about, as what is wrong in one patch does not stop the queue.
    """

    upstream: str
    entry: SeriesEntry
    data: bytes | None = field(repr=False)
    folder: Path = Path()

    @property
    def name(self) -> str:
        """`UPSTREAM/LAYER/NAME`."""
        return f"{self.upstream}/{self.entry.name}"

    @property
    def patch(self) -> Patch | None:
        """The patch itself; None where its file cannot be read, for which `problems` has the reasons."""
        return self._understood[0]

    @property
    def problems(self) -> tuple[Problem, ...]:
        return self._understood[1]

    @cached_property
    def _understood(self) -> tuple[Patch | None, tuple[Problem, ...]]:
        from patchq.patch import parse_patch

        where = str(self.folder / self.entry.name)
        if self.data is None:
            place = f"{self.folder / 'series'}:{self.entry.line}"
            return None, (Problem(f"{self.entry.name} is listed but not there", place),)
        try:
            return parse_patch(self.name, _within(self.data, MAX_PATCH, where), where, self.entry.strip), ()
        except Invalid as error:
            return None, error.problems


@dataclass(frozen=True)
class Upstream:
    """One upstream of the queue; `files` are those of the whole queue."""

    name: str
    folder: Path
    baseline: Baseline
    series: Series
    files: Mapping[str, bytes] = field(repr=False)

    @cached_property
    def patches(self) -> tuple[QueuedPatch, ...]:
        """The patches in their order."""
        return tuple(
            QueuedPatch(self.name, entry, self.files.get(f"{self.name}/{entry.name}"), self.folder)
            for entry in self.series.entries
        )


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

    def place(self, inner: str, *at: str | int) -> str:
        """`FILE:LINE` of what stands at a location of a YAML file of the queue."""
        return place_in(self.files[inner], str(self.root / inner), at)

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
    reader = _Reader(root, files, [*problems, *_odd_names(root, files)])
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


def _odd_names(root: Path, files: Mapping[str, bytes]) -> Iterator[Problem]:
    """Files that a bundle could not carry, and those that would pass for a target or a variant and are none."""
    first: dict[str, str] = {}
    for path in sorted(files):
        parts = path.split("/")
        steps = ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]
        twin = next((first[step.lower()] for step in steps if first.setdefault(step.lower(), step) != step), None)
        if twin:
            yield Problem(f"differs from {twin} in case only", str(root / path), "give it another name")
        if not path.isprintable() or "\\" in path:
            hint = "names of a queue's files are printable and have no backslash"
            yield Problem(f"{path!r} is no name for a file of a queue", str(root), hint)
        if (
            parts[0] in _FOLDERS
            and len(parts) == 2
            and path.lower().endswith((".yml", ".yaml"))
            and not path.endswith(".yaml")
        ):
            yield Problem("is read by nobody", str(root / path), "its name has to end in .yaml")


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
        return self._collect(lambda: parse_yaml(self._bytes(inner), model, str(self.root / inner)))

    def folder(self, name: str, model: type[Yaml]) -> dict[str, Yaml]:
        inside = [path for path in sorted(self.files) if path.startswith(f"{name}/") and path.endswith(".yaml")]
        documents = {PurePosixPath(path).stem: self.yaml(path, model) for path in inside if path.count("/") == 1}
        return {stem: document for stem, document in documents.items() if document}

    def upstream(self, name: str) -> Upstream | None:
        folder = self.root / name
        where = str(folder / "series")
        baseline = self.yaml(f"{name}/baseline.yaml", Baseline)
        series = self._collect(lambda: parse_series(self._bytes(f"{name}/series"), where))
        if baseline is None or series is None:
            return None
        if baseline.upstream != name:
            what = f"upstream is {baseline.upstream!r}, the folder {name!r}"
            self.problems.append(Problem(what, str(folder / "baseline.yaml")))
        self.problems.extend(self._strays(name, {entry.name for entry in series.entries}))
        return Upstream(name, folder, baseline, series, self.files)

    def uses(self, targets: Mapping[str, Target], upstreams: Mapping[str, Upstream | None]) -> Iterator[Problem]:
        """Upstreams, forms of their baselines and environments that a target names and that are not there."""
        for target, declared in targets.items():
            inner = f"targets/{target}.yaml"
            for name, use in declared.upstreams.items():
                upstream = upstreams.get(name)
                if name not in upstreams:
                    where = self._place(inner, "upstreams", name)
                    yield Problem(f"there is no upstream {name!r}", where, nearest(name, list(upstreams)))
                elif upstream and use.baseline not in upstream.baseline.forms():
                    where = self._place(inner, "upstreams", name, "baseline")
                    yield Problem(f"{name} declares no {use.baseline} baseline", where)
                for at, env in enumerate(use.environments):
                    if env not in declared.environments:
                        where = self._place(inner, "upstreams", name, "environments", at)
                        what = f"{env!r} is not among the environments of this target"
                        yield Problem(what, where, nearest(env, list(declared.environments)))
            if declared.allowed_signers and declared.allowed_signers not in self.files:
                what = f"allowed_signers: there is no file {declared.allowed_signers!r} below series/"
                where = self._place(inner, "allowed_signers")
                yield Problem(what, where, nearest(declared.allowed_signers, list(self.files)))

    def _place(self, inner: str, *at: str | int) -> str:
        return place_in(self.files[inner], str(self.root / inner), at)

    def _strays(self, upstream: str, listed: set[str]) -> Iterator[Problem]:
        """Patch files that no series line names: they would silently never apply."""
        for layer in LAYERS:
            for path in sorted(self.files):
                inner = path.removeprefix(f"{upstream}/")
                if path.startswith(f"{upstream}/{layer}/") and inner not in listed:
                    hint = f"list it in {upstream}/series, or remove it"
                    yield Problem("is in no series line", str(self.root / path), hint)

    def _bytes(self, inner: str) -> bytes:
        data, where = self.files.get(inner), str(self.root / inner)
        if data is None:
            raise Invalid("there is no such file", where=where)
        return _within(data, MAX_BYTES, where)

    def _collect(self, load: Callable[[], Loaded]) -> Loaded | None:
        try:
            return load()
        except Invalid as error:
            self.problems.extend(error.problems)
            return None


def _within(data: bytes, limit: int, where: str) -> bytes:
    if len(data) > limit:
        raise Invalid(f"has {len(data)} bytes; at most {limit} are allowed", where=where)
    return data
