"""Why a patch does not apply: the hunk, what was expected and found, and who is responsible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from patchq.engine import Base, Engine, Placed
from patchq.patch import Change, Patch, conflict_view
from patchq.queue.load import QueuedPatch
from patchq.queue.selection import Selection
from patchq.report import State, Step
from patchq.store.apply import Applied

_MAX_MISSING = 3
_MAX_CANDIDATES = 12
# A line that stands there more often says nothing about where a hunk belongs.
_COMMON = 200
_LONGEST = 200


@dataclass(frozen=True)
class Cause:
    """Where a patch failed, in lines for people, and the one thing that is responsible."""

    detail: tuple[str, ...]
    responsible: str


def patch_step(engine: Engine, base: Base, selection: Selection, placed: Sequence[Placed], step: Placed) -> Step:
    """How one chosen patch ended, with the reason where it did not apply."""
    name, scope = step.queued.name, selection.scope
    data = {"tree": step.tree, "commit": step.commit, "upstream": selection.upstream.name}
    if step.state is State.APPLIED:
        warned = any(finding.state is State.WARNING for finding in step.findings)
        found = tuple(f"{finding.state.value}: {finding.text}" for finding in step.findings)
        return Step(name, State.APPLIED, "at another place" if warned else "", scope, found, data=data)
    if step.state is State.CONFLICT:
        cause = explain(engine, base, selection, placed, step)
        return Step(name, State.CONFLICT, cause.responsible, scope, cause.detail, data=data)
    if step.state is State.UPSTREAMED:
        hint = "the baseline has it already: drop the patch, or move it to where it is needed"
        return Step(name, State.UPSTREAMED, "reverse applies on the baseline", scope, hint=hint, data=data)
    return Step(name, State.MALFORMED, "", scope, tuple(map(str, step.problems)))


def explain(engine: Engine, base: Base, selection: Selection, placed: Sequence[Placed], failed: Placed) -> Cause:
    """Explain the conflict of one step among the steps of its selection."""
    patch, done = failed.queued.patch, failed.applied
    assert patch and done
    detail = [*done.errors]
    for path, line in done.failed[:3]:
        detail += _hunk(engine, patch, failed.tree, path, line)
    return Cause(tuple(detail), _responsible(engine, base, selection, placed, failed, patch))


def _hunk(engine: Engine, patch: Patch, tree: str, path: str, line: int) -> list[str]:
    """The hunk, and its first line that is not there where most of the others are."""
    view = conflict_view(patch, path, line)
    if view is None:
        return []
    entry = engine.store.entries(tree, [path]).get(path)
    text = engine.store.read(entry.id, "blob").decode("utf-8", "replace") if entry else ""
    found = text.removesuffix("\n").split("\n") if text else []
    section = view.section.strip()
    rows = [f"{path}: hunk at line {line}{f' ({section})' if section else ''}"]
    shift = _best_shift(view.expected, found)
    for number, expected in view.expected:
        at = number + shift
        there = found[at - 1] if 0 < at <= len(found) else None
        if there != expected:
            rows.append(f"  line {at}: expected {_shown(expected)}")
            rows.append(f"  line {at}: found    {'(end of file)' if there is None else _shown(there)}")
            break
    return rows


def _best_shift(expected: Sequence[tuple[int, str]], found: Sequence[str]) -> int:
    """By how many lines the place is off where most of the expected lines are; 0 where no place is better."""
    places: dict[str, list[int]] = {}
    for number, text in enumerate(found, 1):
        places.setdefault(text, []).append(number)
    votes = Counter(
        at - number for number, text in expected for at in places.get(text, ()) if len(places[text]) <= _COMMON
    )
    votes[0] = sum(1 for number, text in expected if number <= len(found) and found[number - 1] == text)
    return max(votes, key=lambda shift: (votes[shift], -abs(shift)))


def _shown(line: str) -> str:
    return repr(line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…")


def _responsible(
    engine: Engine, base: Base, selection: Selection, placed: Sequence[Placed], failed: Placed, patch: Patch
) -> str:
    before = placed[: placed.index(failed)]
    missing = _missing_patches(engine, selection, failed, patch)
    if missing:
        return "needs " + " or ".join(" with ".join(names) for names in missing) + ", which this selection leaves out"
    earlier = _breaking_patch(engine, base, before, patch)
    if earlier:
        return f"{earlier} changed these lines before it"
    fallen = [step.queued for step in before if not step.ok and step.queued.patch]
    beside = next((queued.name for queued in fallen if queued.patch and queued.patch.paths & patch.paths), None)
    if beside:
        return f"{beside}, which changes the same file before it, does not apply either"
    return _baseline_difference(engine, base, patch)


def _breaking_patch(engine: Engine, base: Base, before: Sequence[Placed], patch: Patch) -> str | None:
    """The selected patch after which this one no longer applies; None if there was no tree on which it did."""
    applied = [step for step in before if step.ok]
    trees = [base.tree, *(step.tree for step in applied)]
    good = [at for at, tree in enumerate(trees) if engine.step(patch, tree).ok]
    return applied[good[-1]].queued.name if good else None


def _baseline_difference(engine: Engine, base: Base, patch: Patch) -> str:
    entries = engine.store.entries(base.tree, sorted(patch.paths))
    for change in patch.changes:
        if not change.old:
            continue
        entry = entries.get(change.old)
        if entry is None:
            return f"the baseline has no {change.old}"
        if change.old_id and set(change.old_id) != {"0"}:
            if not entry.id.startswith(change.old_id):
                return f"made for another {change.old} ({change.old_id[:12]}; the baseline has {entry.id[:12]})"
            return f"{change.old} is the very file that the patch was made for: {changed_how(change)}"
    return "the baseline differs from what the patch was made for"


def changed_how(change: Change) -> str:
    """Why a patch does not go onto the very file that it was made for."""
    if any(not hunk.trailing for hunk in change.hunks):
        return "it has hunks without lines of context, which fit the end of a file only; make it with `git diff -U3`"
    return "the patch's text was edited"


def _missing_patches(engine: Engine, selection: Selection, failed: Placed, patch: Patch) -> list[tuple[str, ...]]:
    """Minimal sets of excluded earlier patches with which this one applies."""
    order = [choice.queued.name for choice in selection.choices]
    own = order.index(failed.queued.name)
    candidates = [
        choice.queued
        for choice in selection.choices[:own]
        if not choice.chosen and choice.queued.patch and choice.queued.patch.paths & patch.paths
    ][:_MAX_CANDIDATES]
    for size in range(1, min(_MAX_MISSING, len(candidates)) + 1):
        found = [group for group in combinations(candidates, size) if _applies_with(engine, failed.tree, group, patch)]
        if found:
            return [tuple(queued.name for queued in group) for group in found]
    return []


def _applies_with(engine: Engine, tree: str, group: Sequence[QueuedPatch], patch: Patch) -> bool:
    for queued in group:
        assert queued.patch
        done: Applied = engine.step(queued.patch, tree)
        if not done.ok:
            return False
        tree = engine.store.update_tree(tree, done.changes)
    return engine.step(patch, tree).ok
