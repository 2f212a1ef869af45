"""`drop`: takes a patch out of the queue."""

from __future__ import annotations

from patchq.authoring.edited import Decide
from patchq.authoring.refresh import orphans, reordered
from patchq.commands.aftermath import aftermath, changed
from patchq.commands.edit import authored
from patchq.commands.place import Place
from patchq.engine import Engine
from patchq.errors import Refused
from patchq.queue.find import find_patch
from patchq.queuejournal import write_queue
from patchq.report import Report, State, Step


def drop(
    place: Place, patch: str, decide: Decide, *, is_strict: bool = False, sources: dict[str, str] | None = None
) -> Report:
    """Remove a patch's file and its series line; comments stay. Raises `Refused` where the answer was no.

    What breaks by it is `failed`; with `is_strict` nothing is written then.
    """
    place = authored(place)
    queue = place.queue
    queued = find_patch(queue, patch)
    if not decide(f"Drop {queued.name}?"):
        raise Refused(f"{queued.name} was not dropped", hint="say --yes")
    upstream = queue.upstream(queued.upstream)
    series = reordered(upstream.series, [], [queued.entry.name])
    changes = {f"{upstream.name}/series": series.format(), queued.name: None}
    steps = [Step(queued.name, State.PASSED, "dropped", hint=orphans(upstream, queued.name))]
    with Engine.on(place.store) as engine:
        steps += aftermath(place, engine, place.sources(sources), changed(queue, changes))
    is_broken = any(step.state is State.FAILED for step in steps)
    if is_broken and is_strict:
        steps.append(Step("queue", State.FAILED, "nothing was written", hint="leave out --strict to drop it anyway"))
    else:
        write_queue(place.root, changes, seen=queue.digests)
    data = {"queue": str(place.root), "patch": queued.name, "written": not (is_broken and is_strict)}
    return Report("drop", tuple(steps), data)
