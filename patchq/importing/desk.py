"""The desk of an import: each incoming patch gets its upstream, its place in the series, and its header."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from pathlib import Path

from patchq.authoring.newdiff import make_diff
from patchq.document import nearest
from patchq.engine import Base, Engine
from patchq.errors import DoesNotApply, Invalid, PatchqError, Prevented, Problem, Refused
from patchq.importing.anchor import Anchor, Anchored
from patchq.importing.clone import Clone
from patchq.importing.complete import completed
from patchq.importing.folders import Compared, compare_folder, compare_installed, is_site, metadata_of
from patchq.importing.model import Incoming, slug
from patchq.queue.baseline import BaselineForm
from patchq.queue.load import Queue, QueuedPatch, Upstream, parse_queue
from patchq.queue.selection import selections
from patchq.report import State, Step
from patchq.series import LAYERS, Series, SeriesEntry
from patchq.sources import Sources


@dataclass(frozen=True)
class Wanted:
    """What an import asks for; empty fields are found out, or refused where they can't be."""

    upstream: str = ""
    layer: str = ""
    name: str = ""
    guards: tuple[str, ...] = ()
    span: str = ""
    only: tuple[str, ...] = ()
    three_way: bool = False


@dataclass
class Desk:
    """One import under way: the queue as it will be, and what happened to each patch."""

    engine: Engine
    sources: Sources
    wanted: Wanted
    queue: Queue
    files: dict[str, bytes]
    steps: list[Step] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)
    _trees_after: dict[tuple[str, ...], str] = field(default_factory=dict)

    def take(self, incoming: Incoming) -> None:
        """Put one patch into the queue, or note why not."""
        try:
            layer, name = self._layer_and_name(incoming)
            upstream, anchored = self._anchored(incoming, layer, name)
        except (DoesNotApply, Invalid) as error:
            if isinstance(error, Invalid) and not isinstance(error, DoesNotApply):
                raise
            self.problems += error.problems
            return
        full = f"{upstream.name}/{layer}/{name}"
        if full in self.files:
            raise Refused("there is such a patch already", where=full, hint="say --name ANOTHER")
        patch = anchored.patch
        origin = incoming.origin or "other"
        data = completed(patch, origin, datetime.now(timezone.utc).strftime("%Y-%m-%d"))
        guards = (*incoming.guards, *(guard for guard in self.wanted.guards if guard not in incoming.guards))
        entry = SeriesEntry(f"{layer}/{name}", patch.strip, guards, incoming.comment)
        series = insert(upstream.series, entry, incoming.above)
        self.files |= {full: data, f"{upstream.name}/series": series.format()}
        self.queue = parse_queue(self.queue.root, self.files)
        self.taken.append(full)
        rows = [*anchored.notes, f"from {incoming.where}"]
        if data[: len(data) - len(patch.data) + patch.diff_start] != patch.data[: patch.diff_start]:
            rows.append("the header was completed")
        self.steps.append(Step(full, State.PASSED, " ".join(f"#{guard}" for guard in guards), detail=tuple(rows)))

    def _layer_and_name(self, incoming: Incoming) -> tuple[str, str]:
        """The layer and file name: as asked for, else as the patch's own name has them."""
        parts = incoming.name.split("/")
        told = next((part for part in parts[:-1] if part in LAYERS), "")
        layer = self.wanted.layer or told
        if not layer:
            raise Invalid(f"{incoming.name}: which layer?", hint=f"say --layer {'|'.join(LAYERS)}")
        inner = "-".join(parts[parts.index(told) + 1 :] if told else parts)
        return layer, slug(self.wanted.name or inner)

    def _anchored(self, incoming: Incoming, layer: str, name: str) -> tuple[Upstream, Anchored]:
        """The upstream whose tree takes the patch, and the patch as it goes on there."""
        anchor = Anchor(self.engine, self.clones(), self.wanted.three_way)
        refused: list[PatchqError] = []
        for upstream in self.upstreams():
            full = f"{upstream.name}/{layer}/{name}"
            for tree in dict.fromkeys(self._trees(upstream, layer)):
                try:
                    return upstream, anchor.put(incoming, full, tree)
                except (DoesNotApply, Invalid) as error:  # noqa: PERF203 - the loop ends at the first that fits
                    refused.append(error)
        if not refused:
            raise Invalid("no baseline to try the patch on is at hand", hint="say --source UPSTREAM=PATH")
        raise max(refused, key=lambda error: _closeness(error, incoming))

    def upstreams(self) -> list[Upstream]:
        """The upstream that was named, else all of them."""
        named = self.wanted.upstream
        return [self.queue.upstream(named)] if named else list(self.queue.upstreams.values())

    def _trees(self, upstream: Upstream, layer: str) -> Iterator[str]:
        """The trees that a new patch of a layer may stand on: the whole series up to its place, then selections."""
        place = position(upstream.series, layer)
        earlier = {line.name for line in upstream.series.lines[:place] if isinstance(line, SeriesEntry)}
        for form, base in self.bases(upstream):
            orders = [upstream.patches]
            orders += [one.chosen for one in selections(self.queue) if one.upstream == upstream and one.form == form]
            for order in orders:
                yield self._after(base, [queued for queued in order if queued.entry.name in earlier])

    def _after(self, base: Base, patches: Sequence[QueuedPatch]) -> str:
        """The tree after patches; one that does not apply is passed over. Each start of a list is applied once."""
        present = [queued.patch for queued in patches if queued.patch and queued.patch.changes]
        key = (base.tree, *(f"{patch.strip} {patch.sha256}" for patch in present))
        known = next(at for at in range(len(key), 0, -1) if at == 1 or key[:at] in self._trees_after)
        tree = self._trees_after.get(key[:known], base.tree)
        for at, patch in enumerate(present[known - 1 :], known + 1):
            done = self.engine.step(patch, tree)
            tree = self.engine.store.update_tree(tree, done.changes) if done.ok else tree
            self._trees_after[key[:at]] = tree
        return tree

    def bases(self, upstream: Upstream) -> Iterator[tuple[BaselineForm, Base]]:
        """The baselines of an upstream that are at hand; raises `Prevented` where the named one has none."""
        errors: list[PatchqError] = []
        found = False
        for form in upstream.baseline.forms():
            try:
                base = self.sources.base(upstream, form)
            except PatchqError as error:
                errors.append(error)
                continue
            found = True
            yield form, base
        if not found and self.wanted.upstream and errors:
            raise errors[0]

    def clones(self) -> list[Clone]:
        """The clones on this machine that blobs and history may be had from."""
        found = [Path(location) for location in self.sources.given.values()]
        for upstream in self.upstreams():
            git = upstream.baseline.git
            if git:
                with contextlib.suppress(Invalid):
                    found.append(Path(self.sources.host.expand(git.source, "")))
        return [Clone(path.absolute(), self.engine.store) for path in dict.fromkeys(found) if path.is_dir()]

    def edited_clone(self, folder: Path) -> Incoming:
        """The uncommitted changes of a clone, new files included, as one patch."""
        before, after = Clone(folder, self.engine.store).dirty_trees()
        return self._difference(folder, before, Compared(after), "uncommitted changes")

    def edited_folder(self, folder: Path) -> Incoming:
        """What differs between a folder, or an installed package, and the nearest tree that the queue makes."""
        found: list[tuple[int, str, Compared]] = []
        refused: list[Refused] = []
        for upstream in self._upstreams_of(folder):
            for before in dict.fromkeys(self._whole_trees(upstream)):
                try:
                    compared = self._compared(folder, upstream, before)
                except Refused as error:  # noqa: PERF203 - it may be what another selection left there
                    refused.append(error)
                else:
                    found.append((len(make_diff(self.engine.store, before, compared.tree)), before, compared))
        if not found and refused:
            raise refused[0]
        if not found:
            raise Prevented("no baseline to compare with is at hand", where=str(folder))
        _, before, compared = min(found, key=lambda item: item[0])
        return self._difference(folder, before, compared, "edited files")

    def _upstreams_of(self, folder: Path) -> list[Upstream]:
        """The upstreams that a folder may be of: in site-packages those that are installed there."""
        if not is_site(folder):
            return self.upstreams()
        found = [upstream for upstream in self.upstreams() if metadata_of(folder, upstream.baseline)]
        if not found:
            hint = "baseline.yaml has to declare it: installed: {distribution: …, version: …, like: …}"
            raise Invalid("no upstream of this queue is installed there", where=str(folder), hint=hint)
        return found

    def _compared(self, folder: Path, upstream: Upstream, before: str) -> Compared:
        metadata = metadata_of(folder, upstream.baseline)
        if metadata:
            return compare_installed(self.engine.store, metadata, upstream.baseline, before)
        return compare_folder(self.engine.store, folder, before)

    def _whole_trees(self, upstream: Upstream) -> Iterator[str]:
        for form, base in self.bases(upstream):
            yield base.tree
            for one in selections(self.queue):
                if one.upstream == upstream and one.form == form:
                    yield self._after(base, one.chosen)

    def _difference(self, folder: Path, before: str, compared: Compared, what: str) -> Incoming:
        tree = self._only(before, compared.tree)
        diff = make_diff(self.engine.store, before, tree)
        if not diff:
            raise Refused("nothing differs", where=str(folder))
        return Incoming(folder.name, diff, f"{folder} ({what})", 1, origin=f"other, {what} of {folder.name}",
                        notes=compared.notes)  # fmt: skip

    def _only(self, before: str, after: str) -> str:
        """`after`, but with nothing changed outside the paths that were asked for."""
        if not self.wanted.only:
            return after
        store = self.engine.store
        paths = changed_paths(self.engine, before, after)
        unused = [glob for glob in self.wanted.only if not any(fnmatchcase(path, glob) for path in paths)]
        if unused:
            raise Invalid(f"{unused[0]!r} matches no changed file", hint=nearest(unused[0], paths))
        chosen = [path for path in paths if any(fnmatchcase(path, glob) for glob in self.wanted.only)]
        entries = store.entries(after, chosen)
        return store.update_tree(before, {path: entries.get(path) for path in chosen})


def changed_paths(engine: Engine, before: str, after: str) -> list[str]:
    """Every path at which two trees differ."""
    told = engine.store.git.run(("diff-tree", "-r", "-z", "--no-renames", "--name-only", before, after))
    return [path for path in told.decode("utf-8", "surrogateescape").split("\0") if path]


def position(series: Series, layer: str) -> int:
    """The index in `series.lines` at which a new patch of a layer goes: behind the last of its layer or before."""
    allowed = LAYERS[: LAYERS.index(layer) + 1]
    last = [n for n, line in enumerate(series.lines) if isinstance(line, SeriesEntry) and line.layer in allowed]
    first = [n for n, line in enumerate(series.lines) if isinstance(line, SeriesEntry)]
    return last[-1] + 1 if last else first[0] if first else len(series.lines)


def insert(series: Series, entry: SeriesEntry, above: Sequence[str] = ()) -> Series:
    """The series with a new entry in its layer's place, and comment lines above it; all else as it was."""
    at = position(series, entry.layer)
    return Series((*series.lines[:at], *above, entry, *series.lines[at:]))


def _closeness(error: PatchqError, incoming: Incoming) -> tuple[bool, bool]:
    """How much a refusal says: the upstream that has the patch's files says more than one that does not."""
    text = str(error)
    return isinstance(error, DoesNotApply), "No such file" not in text and "does not exist" not in text
