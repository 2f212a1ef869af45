"""`export`: a selection in the form that quilt or `git am` reads, or what changed since a lock."""

from __future__ import annotations

from pathlib import Path

from patchq.commands.edit import authored
from patchq.commands.place import Place
from patchq.document import nearest, write_atomic, write_file
from patchq.errors import DoesNotApply, Invalid, Problem, Refused
from patchq.exclusive import room_in
from patchq.lock import differences, load_lock
from patchq.queue.load import QueuedPatch
from patchq.queue.selection import selections
from patchq.queuejournal import LOCK_NAME
from patchq.report import Report, State, Step
from patchq.transfer.bundle import read_old_lock
from patchq.transfer.interchange import git_am_files, quilt_files
from patchq.transfer.outgoing import ChangedFile, outgoing

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
    steps = []
    with room_in(out.absolute().parent) as room:
        for selection in found:
            files = FORMS[form]([_whole(queued) for queued in selection.chosen])
            for path, data in files.items():
                write_file(room / selection.upstream.name / path, data)
            summary = f"{len(selection.chosen)} patches on {selection.form} {selection.upstream.baseline.version}"
            steps.append(Step(selection.upstream.name, State.PASSED, summary))
        room.chmod(0o755)
        room.rename(out)
    return Report("export", tuple(steps), {"path": str(out), "format": form})


def export_since(place: Place, since: Path, out: Path) -> Report:
    """Write what changed since a lock as one text file, for `import` where the queue is at home.

    `since` is that lock, or a folder with it. Raises `Refused` if `out` is there, or nothing changed.
    """
    if out.exists():
        raise Refused("is there already", where=str(out), hint="choose a file that is not")
    place = authored(place)
    queue, old = place.queue, read_old_lock(since)
    if old.queue != queue.settings.name:
        raise Invalid(f"is the lock of the queue {old.queue!r}, not of {queue.settings.name!r}", where=str(since))
    lock = load_lock(queue) if LOCK_NAME in queue.files else None
    fresh = lock.digest if lock and not any(True for _ in differences(queue, lock)) else None
    now = {path: data for path, data in queue.files.items() if path != LOCK_NAME}
    changes = outgoing(queue.settings.name, old.digest, old.files, now, fresh)
    if not changes.files:
        raise Refused("nothing changed since that lock", where=str(since))
    write_atomic(out, changes.to_bytes())
    steps = [Step(file.path, State.PASSED, _what(file), "changed") for file in changes.files]
    hint = "on the other side: patchq import FILE" if fresh else "run patchq lock first, and both sides can compare it"
    steps.append(Step(str(out), State.PASSED, f"since {old.digest[:12]}", hint=hint))
    return Report("export", tuple(steps), {"path": str(out), "since": old.digest, "lock": fresh})


def _what(file: ChangedFile) -> str:
    return "gone" if file.data is None else "new" if file.before is None else "changed"


def _whole(queued: QueuedPatch) -> QueuedPatch:
    if queued.patch is None:
        raise DoesNotApply([Problem("is malformed", queued.name)])
    return queued
