"""`export`: a selection in the form that quilt or `git am` reads, one folder an upstream."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from patchq.commands.place import Place
from patchq.document import nearest
from patchq.errors import DoesNotApply, Invalid, Problem, Refused
from patchq.interchange import git_am_files, quilt_files
from patchq.queue.load import QueuedPatch
from patchq.queue.selection import selections
from patchq.report import Report, State, Step

FORMS = {"quilt": quilt_files, "git-am": git_am_files}


def export(place: Place, target: str, variant: str | None, form: str, out: Path) -> Report:
    """Write the chosen patches of a target below the new folder `out`, as `UPSTREAM/…`.

    `quilt`: the patch files and a `series` for `quilt push -a --fuzz=0`. `git-am`: numbered mails for
    `git am --keep-cr`. Raises `Refused` if `out` is there, `DoesNotApply` for a malformed patch.
    """
    if form not in FORMS:
        raise Invalid(f"there is no format {form!r}", hint=nearest(form, list(FORMS)))
    if out.exists():
        raise Refused("is there already", where=str(out), hint="choose a folder that is not")
    queue = place.queue
    found = list(selections(queue, [target], [queue.variant_name(variant)]))
    malformed = [problem for selection in found for queued in selection.chosen for problem in queued.problems]
    if malformed:
        raise DoesNotApply(malformed)
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    room = Path(tempfile.mkdtemp(prefix=".new-", dir=out.absolute().parent))
    steps = []
    try:
        for selection in found:
            files = FORMS[form]([_whole(queued) for queued in selection.chosen])
            for path, data in files.items():
                place_at = room / selection.upstream.name / path
                place_at.parent.mkdir(parents=True, exist_ok=True)
                place_at.write_bytes(data)
            summary = f"{len(selection.chosen)} patches on {selection.form} {selection.upstream.baseline.version}"
            steps.append(Step(selection.upstream.name, State.PASSED, summary))
        room.chmod(0o755)
        room.rename(out)
    finally:
        shutil.rmtree(room, ignore_errors=True)
    return Report("export", tuple(steps), {"path": str(out), "format": form})


def _whole(queued: QueuedPatch) -> QueuedPatch:
    if queued.patch is None:
        raise DoesNotApply([Problem("is malformed", queued.name)])
    return queued
