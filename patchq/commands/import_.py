"""`import`: brings patches into the queue from wherever people have them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from patchq.commands.aftermath import aftermath
from patchq.commands.edit import authored
from patchq.commands.place import Place
from patchq.document import nearest, read_regular
from patchq.engine import Engine
from patchq.errors import DoesNotApply, Invalid, Problem, Refused
from patchq.importing import Incoming
from patchq.importing.clone import Clone
from patchq.importing.desk import Desk, Wanted
from patchq.importing.foreign import read_foreign_series, series_in
from patchq.importing.mails import split_file
from patchq.importing.upstream import baseline_text
from patchq.queue.load import MAX_PATCH, parse_queue
from patchq.queue.selection import selections
from patchq.queuejournal import write_queue
from patchq.report import Report, State, Step
from patchq.series import LAYERS


def import_(place: Place, what: str, wanted: Wanted, sources: dict[str, str] | None = None) -> Report:
    """Import `what` (a file, a folder, a clone); all of it or, where anything is refused, nothing.

    Raises `Invalid` for what cannot be read, `DoesNotApply` naming each patch that does not go on.
    """
    if wanted.layer and wanted.layer not in LAYERS:
        raise Invalid(f"there is no layer {wanted.layer!r}", hint=nearest(wanted.layer, list(LAYERS)))
    place = authored(place)
    with Engine.on(place.store) as engine:
        desk = Desk(engine, place.sources(sources), wanted, place.queue, dict(place.queue.files))
        for incoming in _read(desk, Path(what).expanduser().absolute()):
            desk.take(incoming)
        if desk.problems:
            raise DoesNotApply([*desk.problems, Problem("nothing was imported")])
        steps = [*desk.steps, *_taken_by_none(desk), *aftermath(place, engine, desk.sources, desk.queue)]
    changes = {path: data for path, data in desk.files.items() if place.queue.files.get(path) != data}
    write_queue(place.root, changes, seen=place.queue.digests)
    return Report("import", tuple(steps), {"patches": desk.taken, "files": sorted(changes)})


def add_upstream(place: Place, what: str, name: str, at: str) -> Report:
    """Write `NAME/baseline.yaml` and an empty series for a clone at a commit, or for `PROJECT==VERSION`."""
    place = authored(place)
    if name in place.queue.upstreams:
        raise Refused("there is such an upstream already", where=str(place.root / name))
    text = baseline_text(place.store, name, what, at)
    changes = {f"{name}/baseline.yaml": text, f"{name}/series": b""}
    form = parse_queue(place.root, {**place.queue.files, **changes}).upstream(name).baseline.forms()[0]
    write_queue(place.root, changes, seen=place.queue.digests)
    hint = f"let a target use it: upstreams: {{{name}: {{baseline: {form}, environments: […]}}}}"
    step = Step(f"{name}/baseline.yaml", State.PASSED, "written", detail=tuple(text.decode().splitlines()), hint=hint)
    return Report("import", (step,), {"files": sorted(changes)})


def _read(desk: Desk, path: Path) -> Iterator[Incoming]:
    """What stands at `path`, by what it is."""
    if path.is_file():
        if path.name == "series":
            return iter(read_foreign_series(path))
        return iter(split_file(read_regular(path, MAX_PATCH), path.name, str(path)))
    if not path.is_dir():
        raise Invalid("there is no such file or folder", where=str(path))
    if desk.wanted.span:
        return Clone(path, desk.engine.store).commits(desk.wanted.span)
    if (path / ".git").exists():
        return iter([desk.edited_clone(path)])
    listing = series_in(path)
    if listing:
        return iter(read_foreign_series(listing))
    listed = sorted(file for file in path.iterdir() if file.suffix in (".patch", ".diff", ".mbox", ".eml"))
    if listed:
        return (one for file in listed for one in split_file(read_regular(file, MAX_PATCH), file.name, str(file)))
    return iter([desk.edited_folder(path)])


def _taken_by_none(desk: Desk) -> Iterator[Step]:
    chosen = {queued.name for selection in selections(desk.queue) for queued in selection.chosen}
    for name in desk.taken:
        if name not in chosen:
            yield Step(name, State.WARNING, "no target takes it yet", hint="see the layers, guards and variants")
