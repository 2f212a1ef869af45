"""The queue's files after a rebase."""

from __future__ import annotations

import re

from patchq.patch import Patch
from patchq.queue.load import Queue
from patchq.rebase.candidate import Candidate, moved_baseline
from patchq.rebase.session import Session
from patchq.rebase.way import Way
from patchq.series import Series, SeriesEntry
from patchq.sources import Sources


def changed_files(
    queue: Queue, session: Session, way: Way, found: list[Candidate], sources: Sources
) -> dict[str, bytes | None]:
    """What to write: the baseline, the series without what is left out, and each patch with its new text.

    Under another name than the upstream's, its tests are copied too and `Requires` follows.
    """
    upstream, alias = way.upstream, session.alias
    old, is_new = upstream.name, session.alias != upstream.name
    text = moved_baseline(sources, upstream, queue.files[f"{old}/baseline.yaml"], found, alias)
    changes: dict[str, bytes | None] = {f"{alias}/baseline.yaml": text}
    left_out = {decided.name for decided in session.decided if decided.left_out}
    kept = [line for line in upstream.series.lines if not _is_of(line, old, left_out)]
    changes[f"{alias}/series"] = Series(tuple(kept)).format()
    for queued in upstream.patches:
        patch = way.moved.get(queued.name)
        place = f"{alias}/{queued.entry.name}"
        if patch:
            changes[place] = _renamed(patch, old, alias) if is_new else patch.data
        elif not is_new:
            changes[place] = None
    if is_new:
        inner = [path for path in queue.files if path.startswith(f"{old}/tests/")]
        changes |= {alias + path.removeprefix(old): queue.files[path] for path in inner}
    return changes


def _is_of(line: SeriesEntry | str, upstream: str, names: set[str]) -> bool:
    return isinstance(line, SeriesEntry) and f"{upstream}/{line.name}" in names


def _renamed(patch: Patch, old: str, new: str) -> bytes:
    """The patch's bytes, its `Requires` naming patches of the upstream `new` instead of `old`."""
    lines = patch.data[: patch.diff_start].split(b"\n")
    for field in patch.header.every("requires"):
        for at in range(field.line - 1, field.line - 1 + len(field.lines)):
            lines[at] = re.sub(rf"\b{re.escape(old)}/".encode(), f"{new}/".encode(), lines[at])
    return b"\n".join(lines) + patch.data[patch.diff_start :]
