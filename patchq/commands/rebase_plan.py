"""`rebase --plan`: what would become of each patch on each of several baselines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from patchq.authoring.merging import OLDEST_GIT
from patchq.commands.place import Place
from patchq.engine import Engine
from patchq.queue.load import QueuedPatch, Upstream
from patchq.rebase.candidate import Candidate, find_candidates
from patchq.rebase.carry import Carried, Fate
from patchq.rebase.history import landed
from patchq.rebase.way import way_to
from patchq.report import Report, State, Step
from patchq.sources import Sources
from patchq.store import require_git


def plan(place: Place, name: str, names: Sequence[str], sources: dict[str, str] | None = None) -> Report:
    """What would become of each patch on each of the baselines `names`; nothing is written but the store."""
    require_git(OLDEST_GIT, "rebase")
    upstream = place.queue.upstream(name)
    asked = place.sources(sources)
    columns: list[str] = []
    matrix: dict[str, dict[str, Any]] = {queued.name: {} for queued in upstream.patches}
    steps: list[Step] = []
    with Engine.on(place.store) as engine:
        for wanted in names:
            found = find_candidates(asked, upstream, wanted)
            for candidate in found:
                label = candidate.label if len(found) == 1 else f"{candidate.label} ({candidate.form})"
                columns.append(label)
                way = way_to(place.queue, engine, asked, upstream, candidate.base, candidate.form)
                results = [(queued, way.carry(queued)) for queued in upstream.patches]
                for queued, result in results:
                    matrix[queued.name][label] = _cell(asked, upstream, candidate, queued, result)
                steps.append(_column(label, candidate, results))
    data = {"upstream": name, "candidates": columns, "matrix": matrix}
    return Report("rebase", tuple(steps), data)


def _cell(
    sources: Sources, upstream: Upstream, candidate: Candidate, queued: QueuedPatch, result: Carried
) -> dict[str, Any]:
    files = {path: fate.value for path, fate in result.files.items()}
    cell: dict[str, Any] = {"fate": result.fate.value, "findings": list(result.findings), "files": files}
    if result.fate in (Fate.UPSTREAMED, Fate.EMPTIED) and queued.patch:
        cell["by"] = landed(sources, upstream, candidate, queued.patch)
    return cell


def _column(label: str, candidate: Candidate, results: Sequence[tuple[QueuedPatch, Carried]]) -> Step:
    counts = Counter(result.fate.value for _, result in results)
    shown = ", ".join(f"{counts[fate.value]} {fate.value}" for fate in Fate if counts[fate.value])
    detail = tuple(
        f"{result.fate.value}: {queued.entry.name}: {finding}"
        for queued, result in results
        for finding in result.findings
    )
    ready = all(result.goes_on for _, result in results)
    commit = candidate.base.commit
    data = {"commit": commit, "version": candidate.version, "counts": dict(counts)}
    state = State.PASSED if ready else State.NOTE
    return Step(f"{label}  {commit[:12]}", state, shown, "candidates", detail, data=data)
