"""`series`: a target's ordered selection, with the reason for every patch that is in or out."""

from __future__ import annotations

from patchq.commands.place import Place
from patchq.queue.selection import Selection, selections
from patchq.report import Report, State, Step


def series(place: Place, target: str, variant: str | None = None, *, why: bool = False) -> Report:
    """List the chosen patches of a target; with `why` also the others, and each one's reason."""
    queue = place.queue
    variant = queue.variant_name(variant)
    found = list(selections(queue, [target], [variant]))
    steps = (*place.assumed(), *(step for selection in found for step in _steps(selection, why)))
    chosen = {selection.upstream.name: [queued.name for queued in selection.chosen] for selection in found}
    return Report("series", steps, {"target": target, "variant": variant, "selection": chosen})


def _steps(selection: Selection, why: bool) -> list[Step]:
    group = f"{selection.scope}/{selection.upstream.name} ({selection.form})"
    return [
        Step(
            choice.queued.name,
            State.PASSED if choice.chosen else State.EXCLUDED,
            choice.reason if why else "",
            group,
        )
        for choice in selection.choices
        if choice.chosen or why
    ]
