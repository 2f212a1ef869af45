"""`annotate`: each line of a patched file, and the patch that it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from patchq.authoring.relations import BASELINE, Traced, trace
from patchq.commands.place import Place
from patchq.engine import Engine, Placed
from patchq.errors import DoesNotApply, Invalid, Problem
from patchq.queue.selection import Selection, selections
from patchq.report import Report, State, Step


def annotate(
    place: Place, path: str, target: str, variant: str | None = None, sources: Mapping[str, str] | None = None
) -> Report:
    """Annotate a file as a target's selection leaves it; `path` may have the upstream's name in front.

    Raises `Invalid` where no upstream of the target has the file, or several have, and `DoesNotApply` where a
    patch of the selection does not apply.
    """
    queue = place.queue
    found: list[tuple[Selection, str, Traced]] = []
    with Engine.on(place.store) as engine:
        for selection in selections(queue, [target], [queue.variant_name(variant)]):
            base = place.sources(dict(sources or {})).base(selection.upstream, selection.form)
            placed = engine.apply(base, selection.chosen)
            tree = placed[-1].tree if placed else base.tree
            followed = trace(engine.store, base.tree, placed)
            for inner in _readings(path, selection.upstream.name):
                if inner in engine.store.entries(tree, [inner]):
                    _all_applied(selection, placed)
                    found.append((selection, inner, followed.file(inner)))
    if len(found) != 1:
        names = ", ".join(f"{selection.upstream.name}/{inner}" for selection, inner, _ in found)
        what = f"may be {names}" if names else f"is in no upstream of {target}"
        raise Invalid(what, where=path, hint="write UPSTREAM/PATH")
    return _report(*found[0])


def _readings(path: str, upstream: str) -> Iterator[str]:
    yield path
    if path.startswith(f"{upstream}/"):
        yield path.removeprefix(f"{upstream}/")


def _all_applied(selection: Selection, placed: tuple[Placed, ...]) -> None:
    failed = [Problem(f"{step.queued.name}: {step.state.value}", selection.scope) for step in placed if not step.ok]
    if failed:
        raise DoesNotApply([*failed, Problem("patchq check says why")])


def _report(selection: Selection, path: str, file: Traced) -> Report:
    names = {queued.name: queued.entry.name.removesuffix(".patch") for queued in selection.chosen}
    names[BASELINE] = "baseline"
    width = max(map(len, (names[owner] for owner in {BASELINE, *file.owners})))
    rows = [
        f"{names[owner]:{width}}  {number:5}  {line.decode('utf-8', 'surrogateescape')}\n"
        for number, (owner, line) in enumerate(zip(file.owners, file.lines, strict=True), 1)
    ]
    changed = [queued.name for queued in selection.chosen if queued.name in file.owners]
    steps = [Step(name, State.NOTE, f"{file.owners.count(name)} lines", group=selection.key) for name in changed]
    data = {"path": path, "selection": selection.key, "lines": [owner or None for owner in file.owners]}
    return Report("annotate", tuple(steps), data, output="".join(rows))
