"""Finding a patch by what a person calls it."""

from __future__ import annotations

from patchq.document import nearest
from patchq.errors import Invalid
from patchq.queue.load import Queue, QueuedPatch


def find_patch(queue: Queue, text: str) -> QueuedPatch:
    """The patch that `text` means: `UPSTREAM/LAYER/NAME`, or the end of that from a slash on.

    A `.patch` at the end may be left out. Raises `Invalid` where no patch or more than one is meant.
    """
    every = [queued for upstream in queue.upstreams.values() for queued in upstream.patches]
    wanted = text.removesuffix(".patch")
    exact = [queued for queued in every if queued.name.removesuffix(".patch") == wanted]
    found = exact or [queued for queued in every if queued.name.removesuffix(".patch").endswith(f"/{wanted}")]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(queued.name for queued in found)
        raise Invalid(f"{text!r} may be {names}", hint="write it in full")
    hint = nearest(wanted.rpartition("/")[2], [_short(queued) for queued in every])
    raise Invalid(f"there is no patch {text!r}", where=str(queue.root), hint=hint)


def _short(queued: QueuedPatch) -> str:
    return queued.entry.name.rpartition("/")[2].removesuffix(".patch")
