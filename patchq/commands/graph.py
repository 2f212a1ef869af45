"""`graph`: which patch needs which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from patchq.authoring.relations import Need, trace
from patchq.commands.place import Place
from patchq.document import nearest
from patchq.engine import Engine
from patchq.errors import Invalid
from patchq.queue.baseline import BaselineForm
from patchq.queue.load import Queue, QueuedPatch, Upstream
from patchq.queue.selection import selections
from patchq.report import Report, State, Step

FORMS = ("text", "mermaid")


def graph(
    place: Place, targets: Sequence[str] = (), form: str = "text", sources: Mapping[str, str] | None = None
) -> Report:
    """Who needs whom, by lines and by `Requires`, over the selections of `targets` (none: all, and the series).

    A patch that applies in no selection that was looked at is a warning.
    """
    if form not in FORMS:
        raise Invalid(f"there is no format {form!r}", hint=nearest(form, list(FORMS)))
    queue = place.queue
    needs: dict[tuple[str, str], Need] = {}
    placed_once: set[str] = set()
    with Engine.on(place.store) as engine:
        for upstream, baseline, order in _orders(queue, targets):
            base = place.sources(dict(sources or {})).base(upstream, baseline)
            placed = engine.apply(base, order)
            placed_once |= {step.queued.name for step in placed if step.ok}
            for need in trace(engine.store, base.tree, placed).needs:
                needs.setdefault((need.name, need.other), need)
    every = [queued for upstream, _, order in _orders(queue, targets) for queued in order]
    chosen = list({queued.name: queued for queued in every}.values())
    steps = tuple(_step(queued, needs, placed_once) for queued in chosen)
    edges = [[need.name, need.other] for need in needs.values()]
    output = _mermaid(chosen, needs) if form == "mermaid" else ""
    return Report("graph", steps, {"edges": edges}, output=output)


def _orders(queue: Queue, targets: Sequence[str]) -> Iterator[tuple[Upstream, BaselineForm, tuple[QueuedPatch, ...]]]:
    """Each different order in which patches of an upstream come: the whole series first, then selections."""
    seen: set[tuple[str, ...]] = set()
    found: list[tuple[Upstream, BaselineForm, tuple[QueuedPatch, ...]]] = []
    if not targets:
        found += [(upstream, upstream.baseline.forms()[0], upstream.patches) for upstream in queue.upstreams.values()]
    found += [(one.upstream, one.form, one.chosen) for one in selections(queue, targets or None)]
    for upstream, form, order in found:
        key = (upstream.name, *(queued.name for queued in order))
        if order and key not in seen:
            seen.add(key)
            yield upstream, form, order


def _step(queued: QueuedPatch, needs: Mapping[tuple[str, str], Need], placed: set[str]) -> Step:
    own = [need for (name, _), need in needs.items() if name == queued.name]
    declared = list(queued.patch.header.requires) if queued.patch else []
    detail = [f"needs {need.other} ({need.path}:{need.line})" for need in own]
    detail += [f"requires {name}" for name in declared if (queued.name, name) not in needs]
    if queued.name not in placed:
        return Step(queued.name, State.WARNING, "applies nowhere here", queued.upstream, hint="patchq check says why")
    data = {"needs": [need.other for need in own], "requires": declared}
    return Step(queued.name, State.NOTE, "" if detail else "needs no other", queued.upstream, tuple(detail), data=data)


def _mermaid(chosen: Sequence[QueuedPatch], needs: Mapping[tuple[str, str], Need]) -> str:
    """A Mermaid flow chart: an arrow from each patch to what it needs, dotted where only the header says so."""
    ids = {queued.name: f"p{number}" for number, queued in enumerate(chosen, 1)}
    rows = ["graph TD"]
    rows += [f'  {ids[queued.name]}["{queued.name.removesuffix(".patch")}"]' for queued in chosen]
    rows += [f"  {ids[name]} --> {ids[other]}" for name, other in needs]
    for queued in chosen:
        for other in queued.patch.header.requires if queued.patch else ():
            if other in ids and (queued.name, other) not in needs:
                rows.append(f"  {ids[queued.name]} -.-> {ids[other]}")
    return "\n".join(rows) + "\n"
