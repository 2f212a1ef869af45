"""`import`: brings patches into the queue from wherever people have them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from patchq.commands.aftermath import aftermath, changed
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
from patchq.location import local_path
from patchq.lock import load_lock
from patchq.queue.load import MAX_PATCH
from patchq.queue.selection import selections
from patchq.queuejournal import LOCK_NAME, write_queue
from patchq.report import Report, State, Step
from patchq.series import LAYERS
from patchq.transfer.outgoing import MAX_BYTES, is_outgoing, parse_outgoing


def import_(place: Place, what: str, wanted: Wanted, sources: dict[str, str] | None = None) -> Report:
    """Import `what` (a file, a folder, a clone); all of it or, where anything is refused, nothing.

    Raises `Invalid` for what cannot be read, `DoesNotApply` naming each patch that does not go on.
    """
    if wanted.layer and wanted.layer not in LAYERS:
        raise Invalid(f"there is no layer {wanted.layer!r}", hint=nearest(wanted.layer, list(LAYERS)))
    path = local_path(what).absolute()
    if path.is_file() and is_outgoing(path):
        return bring_home(place, path, sources)
    place = authored(place)
    with Engine.on(place.store) as engine:
        desk = Desk(engine, place.sources(sources), wanted, place.queue, dict(place.queue.files))
        for incoming in _read(desk, path):
            desk.take(incoming)
        if desk.problems:
            raise DoesNotApply([*desk.problems, Problem("nothing was imported")])
        steps = [*desk.steps, *_taken_by_none(desk), *aftermath(place, engine, desk.sources, desk.queue)]
    changes = {path: data for path, data in desk.files.items() if place.queue.files.get(path) != data}
    write_queue(place.root, changes, seen=place.queue.digests)
    return Report("import", tuple(steps), {"patches": desk.taken, "files": sorted(changes)})


def bring_home(place: Place, path: Path, sources: dict[str, str] | None = None) -> Report:
    """Take in what `export --since` wrote elsewhere: all of it, or nothing.

    Raises `Refused` with what was changed here meanwhile, `Invalid` for another queue's or a damaged file.
    """
    place = authored(place)
    queue = place.queue
    brought = parse_outgoing(read_regular(path, MAX_BYTES), str(path))
    if brought.queue != queue.settings.name:
        raise Invalid(f"is of the queue {brought.queue!r}; this one is {queue.settings.name!r}", where=str(path))
    changes = brought.changes_for(queue.digests)
    steps = [Step(file.path, State.PASSED if file.path in changes else State.UNCHANGED) for file in brought.files]
    if LOCK_NAME in queue.files and load_lock(queue).digest != brought.since:
        what = f"the changes were made on lock {brought.since[:12]}, this queue has {load_lock(queue).digest[:12]}"
        steps.append(Step("lock", State.WARNING, what))
    with Engine.on(place.store) as engine:
        steps += aftermath(place, engine, place.sources(sources), changed(queue, changes))
    write_queue(place.root, changes, seen=queue.digests)
    if brought.lock:
        steps.append(Step("lock", State.NOTE, f"was {brought.lock} there", hint="patchq lock has to give the same"))
    return Report("import", tuple(steps), {"files": sorted(changes), "lock": brought.lock})


def add_upstream(place: Place, what: str, name: str, at: str) -> Report:
    """Write `NAME/baseline.yaml` and an empty series for a clone at a commit, or for `PROJECT==VERSION`."""
    place = authored(place)
    if name in place.queue.upstreams:
        raise Refused("there is such an upstream already", where=str(place.root / name))
    text = baseline_text(place.store, name, what, at)
    changes = {f"{name}/baseline.yaml": text, f"{name}/series": b""}
    form = changed(place.queue, changes).upstream(name).baseline.forms()[0]
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
