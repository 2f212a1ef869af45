"""From the edits of an edit copy back to the queue's files, without losing a byte of what did not change.

A patch's diff stays as it is while it still gives the edit's tree, its header while the message derived from it is
the edit's. New diff text is made in the reference context, the whole series on one fixed baseline, so that
refreshing for one target and then for another does not turn it back and forth.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from patchq.authoring.edited import Edit, split_message
from patchq.authoring.newdiff import make_diff
from patchq.authoring.newheader import new_header, rewrite_header
from patchq.engine import Base, Engine
from patchq.errors import Invalid, Problem, Refused
from patchq.patch import Patch, parse_patch
from patchq.queue.load import Queue, QueuedPatch, Upstream
from patchq.queue.selection import Selection
from patchq.report import State, Step
from patchq.series import LAYERS, Series, SeriesEntry

_MAX_SLUG = 60


@dataclass(frozen=True)
class Renewed:
    """One patch after a refresh: its full name, file and series entry, and what happened to it in words."""

    name: str
    entry: SeriesEntry
    data: bytes
    state: State
    what: str = ""

    @property
    def step(self) -> Step:
        return Step(self.name, self.state, self.what)


@dataclass(frozen=True)
class Plan:
    """What a refresh would write: `changes` maps paths below `series/` to bytes (None: the file goes)."""

    edits: tuple[Edit, ...]
    changes: Mapping[str, bytes | None]
    steps: tuple[Step, ...]


class Refresh:
    """A refresh of one selection. `reference` is the base of the reference context."""

    def __init__(self, queue: Queue, selection: Selection, engine: Engine, base: Base, reference: Base) -> None:
        self._queue = queue
        self._selection = selection
        self._upstream: Upstream = selection.upstream
        self._engine = engine
        self._base = base
        self._reference = reference
        self._old = {queued.name: queued for queued in self._upstream.patches}

    def plan(self, edits: Sequence[Edit], known: Sequence[str], layer: str = "") -> Plan:
        """Plan it. `known` are the patches that the copy began with: those without an edit are dropped; `layer` is
        that of new patches which name none. Raises `Invalid` and `Refused` where an edit cannot become a patch."""
        self._refuse_strangers(edits)
        named = self._name_new(edits, layer)
        dropped = [name for name in known if name in self._old and name not in {edit.name for edit in named}]
        series = reordered(self._upstream.series, [self._inner(edit.name) for edit in named],
                           [self._inner(name) for name in dropped])  # fmt: skip
        renewed = {edit.name: self._renew(edit, named[number:]) for number, edit in enumerate(named)}
        renewed = self._in_reference(series, renewed, {edit.name: edit for edit in named})
        changes: dict[str, bytes | None] = {
            one.name: one.data for one in renewed.values() if self._queue.files.get(one.name) != one.data
        }
        changes |= dict.fromkeys(dropped)
        if series.format() != self._queue.files.get(f"{self._upstream.name}/series"):
            changes[f"{self._upstream.name}/series"] = series.format()
        steps = [renewed[edit.name].step for edit in named]
        steps += [Step(name, State.NOTE, "dropped", hint=orphans(self._upstream, name)) for name in dropped]
        if f"{self._upstream.name}/series" in changes:
            steps.append(Step(f"{self._upstream.name}/series", State.PASSED, "new lines, or a new order"))
        return Plan(tuple(named), changes, tuple(steps))

    def _inner(self, name: str) -> str:
        return name.removeprefix(f"{self._upstream.name}/")

    def _refuse_strangers(self, edits: Sequence[Edit]) -> None:
        reasons = {choice.queued.name: choice.reason for choice in self._selection.excluded}
        problems = []
        for edit in edits:
            if edit.name in reasons:
                what = f"{edit.commit[:12]} is {edit.name}, which {self._selection.scope} does not take"
                problems.append(Problem(what, hint=reasons[edit.name]))
            elif edit.name and not re.fullmatch(rf"{re.escape(self._upstream.name)}/[^/]+/[^/]+", edit.name):
                what = f"{edit.commit[:12]} names {edit.name}, which is no patch of {self._upstream.name}"
                problems.append(Problem(what, hint="take its Patchq-Patch line out to make it a new patch"))
        if problems:
            raise Refused(problems)

    def _name_new(self, edits: Sequence[Edit], layer: str) -> list[Edit]:
        taken = {*self._old, *(edit.name for edit in edits if edit.name)}
        taken |= {path for path in self._queue.files if path.startswith(f"{self._upstream.name}/")}
        named = []
        for edit in edits:
            if not edit.name:
                chosen = edit.layer or layer
                if chosen not in LAYERS:
                    what = f"{edit.commit[:12]} ({edit.subject}) is a new patch of no layer"
                    raise Invalid(what, hint=f"say --layer {'|'.join(LAYERS)}, or Patchq-Layer: in its message")
                edit = replace(edit, name=free_name(f"{self._upstream.name}/{chosen}/{slug(edit.subject)}", taken))
                taken.add(edit.name)
            named.append(edit)
        return named

    def _renew(self, edit: Edit, onwards: Sequence[Edit]) -> Renewed:
        """The patch of an edit. `onwards` are this edit and those behind it, which git is asked about with it."""
        known = (self._old[other.name].patch for other in onwards if other.name in self._old)
        self._engine.ask_together((patch for patch in known if patch), edit.before)
        queued = self._old.get(edit.name)
        if queued is None:
            entry = SeriesEntry(self._inner(edit.name))
            diff = make_diff(self._engine.store, edit.before, edit.after)
            header = new_header(edit.subject, edit.body, edit.author, edit.seconds)
            return Renewed(edit.name, entry, header + diff, State.PASSED, "new")
        patch = _whole(queued)
        header = self._header(patch, edit)
        diff = self._diff(patch, edit)
        words = [word for word, old, new in (("header", patch.data[: patch.diff_start], header),
                                             ("diff", patch.data[patch.diff_start :], diff)) if old != new]  # fmt: skip
        state = State.PASSED if words else State.UNCHANGED
        if diff and not patch.changes:
            header = header.rstrip(b"\n") + b"\n\n"
        return Renewed(edit.name, queued.entry, header + diff, state, f"new {' and '.join(words)}" if words else "")

    def _header(self, patch: Patch, edit: Edit) -> bytes:
        header = patch.header
        subject, body = split_message(
            header.message("").decode("utf-8", "surrogatepass").rpartition("Patchq-Patch:")[0]
        )
        if (edit.subject, edit.body) == (subject, body):
            is_ours = edit.author == header.author
            return header.raw if is_ours else rewrite_header(patch, author=edit.author)
        author = None if edit.author == header.author else edit.author
        return rewrite_header(patch, subject=edit.subject, body=edit.body, author=author)

    def _diff(self, patch: Patch, edit: Edit) -> bytes:
        if self._gives(patch, edit):
            return patch.data[patch.diff_start :]
        return make_diff(self._engine.store, edit.before, edit.after, strip=patch.strip)

    def _gives(self, patch: Patch, edit: Edit) -> bool:
        """Whether a patch turns the tree before the edit into the tree after it."""
        if not patch.changes:
            return edit.before == edit.after
        done = self._engine.step(patch, edit.before)
        return done.ok and self._engine.store.update_tree(edit.before, done.changes) == edit.after

    def _in_reference(
        self, series: Series, renewed: Mapping[str, Renewed], edits: Mapping[str, Edit]
    ) -> dict[str, Renewed]:
        """`renewed` with every new diff made on the tree that the whole series before it gives, where that works."""
        done = dict(renewed)
        tree = self._reference.tree
        for entry in series.entries:
            name = f"{self._upstream.name}/{entry.name}"
            one, old = renewed.get(name), self._old.get(name)
            patch = parse(one) if one else old.patch if old else None
            if patch is None or not patch.changes:
                continue
            step = self._engine.step(patch, tree)
            if not step.ok:
                continue
            after = self._engine.store.update_tree(tree, step.changes)
            if one and not (
                old and old.patch and old.patch.data[old.patch.diff_start :] == patch.data[patch.diff_start :]
            ):
                text = patch.data[: patch.diff_start] + make_diff(self._engine.store, tree, after, strip=patch.strip)
                again = replace(one, data=text)
                if self._gives(parse(again), edits[name]):
                    done[name] = again
            tree = after
        return done


def orphans(upstream: Upstream, name: str) -> str:
    """A hint that names the tests which only the patch `name` names; empty where there is none."""
    named = {queued.name: queued.patch.header.tests for queued in upstream.patches if queued.patch}
    others = {test for other, tests in named.items() if other != name for test in tests}
    left = [test for test in named.get(name, ()) if test not in others]
    return f"no patch names {', '.join(left)} any more" if left else ""


def reordered(series: Series, order: Sequence[str], dropped: Sequence[str]) -> Series:
    """`series` with its patches in `order`, without `dropped`, and with those that are new.

    As few lines as possible move: a patch that is new, or whose place among the others is, comes behind the one
    before it in `order`. Comments, other patches, and each line's guards and -pN stay.
    """
    there = {entry.name: entry for entry in series.entries}
    old = [entry.name for entry in series.entries if entry.name in order]
    blocks = SequenceMatcher(None, old, order, autojunk=False).get_matching_blocks()
    kept = {name for block in blocks for name in old[block.a : block.a + block.size]}
    gone = {*order, *dropped} - kept
    lines = [line for line in series.lines if isinstance(line, str) or line.name not in gone]
    for number, name in enumerate(order):
        if name not in kept:
            at = _position(lines, order[number - 1]) + 1 if number else _first(lines, order)
            lines.insert(at, there.get(name, SeriesEntry(name)))
    return Series(tuple(lines))


def _position(lines: Sequence[SeriesEntry | str], name: str) -> int:
    return next(n for n, line in enumerate(lines) if isinstance(line, SeriesEntry) and line.name == name)


def _first(lines: Sequence[SeriesEntry | str], order: Sequence[str]) -> int:
    """Where the first patch of `order` stands; the end where none does."""
    places = [n for n, line in enumerate(lines) if isinstance(line, SeriesEntry) and line.name in order]
    return min(places, default=len(lines))


def slug(subject: str) -> str:
    """A file name from a subject: `Fix the thing` becomes `fix-the-thing`."""
    plain = unicodedata.normalize("NFKD", subject.casefold()).encode("ascii", "ignore").decode()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    if len(words) > _MAX_SLUG:
        words = words[: _MAX_SLUG + 1].rpartition("-")[0] or words[:_MAX_SLUG]
    return words or "patch"


def free_name(wanted: str, taken: set[str]) -> str:
    """`wanted.patch`, with a number where that is taken."""
    numbers = ("", *(f"-{n}" for n in range(2, len(taken) + 3)))
    return next(name for n in numbers if (name := f"{wanted}{n}.patch") not in taken)


def parse(renewed: Renewed) -> Patch:
    """The patch that would be written; raises `Invalid` where patchq would not read it back."""
    return parse_patch(renewed.name, renewed.data, renewed.name, renewed.entry.strip)


def _whole(queued: QueuedPatch) -> Patch:
    if queued.patch is None:
        raise Invalid(queued.problems)
    return queued.patch
