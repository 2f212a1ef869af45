"""`new`: starts a patch, from uncommitted changes of an edit copy or as an empty one in the queue."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from patchq.authoring.editcopy import EditCopy, person
from patchq.authoring.newheader import new_header
from patchq.authoring.portion import Piece, Portion
from patchq.commands.aftermath import changed
from patchq.commands.edit import authored
from patchq.commands.place import Place
from patchq.engine import Engine
from patchq.errors import Invalid, Refused
from patchq.patch import TRAILER
from patchq.queuejournal import write_queue
from patchq.report import Report, State, Step
from patchq.series import Series, SeriesEntry, parse_series


def new_in_queue(place: Place, name: str | None, take: Sequence[str], subject: str, guards: Sequence[str]) -> Report:
    """Write a patch of nothing but a header, at the end of its series.

    Raises `Invalid` for a name that is none or taken; what a header lacks `check` says.
    """
    if name is None or take:
        raise Invalid("there is no edit copy here to take changes from", hint="make one with: patchq edit")
    place = authored(place)
    queue = place.queue
    upstream, inner = full_name(place, name).split("/", 1)
    old = queue.upstream(upstream).series
    _refuse_taken(place, upstream, inner)
    author, told = person(place.root)
    header = new_header(subject or _words(inner), "", author, int(told.split()[0]))
    entry = SeriesEntry(inner, guards=tuple(guards))
    series = Series((*old.lines, entry))
    changes = {f"{upstream}/series": series.format(), f"{upstream}/{inner}": header.rstrip(b"\n") + b"\n"}
    parse_series(changes[f"{upstream}/series"], f"{upstream}/series")
    changed(queue, changes)
    write_queue(place.root, changes, seen=queue.digests)
    hint = "write its header; patchq edit gives its commit to work on"
    step = Step(f"{upstream}/{inner}", State.PASSED, "an empty patch, last in its series", hint=hint)
    return Report("new", (step,), {"queue": str(place.root), "patch": f"{upstream}/{inner}"})


def new_in_copy(
    place: Place, folder: Path, name: str | None, take: Sequence[str], subject: str, guards: Sequence[str]
) -> Report:
    """Make a commit for a new patch on top of an edit copy's branch, of the uncommitted changes that `take` names
    (none: an empty one); the others stay uncommitted. Without a name, list the changes with their numbers."""
    copy = EditCopy(place.store, folder)
    copy.settle(place.queue.digests)
    if guards:
        raise Invalid("guards stand in the series file", hint="refresh first, then add them to the patch's line there")
    tip, (_, untracked) = copy.tip(), copy.dirty()
    copy.bring(tip)
    after = copy.work_tree(untracked=untracked)
    with Engine.on(place.store) as engine:
        portion = Portion.between(engine, place.store.commit(tip).tree, after)
        if name is None:
            return Report("new", tuple(map(_listed, portion.pieces)), {"copy": str(folder)})
        inner = full_name(place, name, copy.state.upstream).split("/", 1)[1]
        _refuse_taken(place, copy.state.upstream, inner)
        taken = portion.meant(take)
        tree = portion.tree(taken)
    title = f"{copy.state.upstream}/{inner}"
    commit = _commit(place, copy, tip, tree, subject or _words(inner), title)
    new_files = [path for path in untracked if path in {piece.change.new for piece in taken}]
    kept = copy.work_tree(untracked=new_files)
    copy.receive(commit)
    # The index first: with it alone every change is still uncommitted, with the branch alone new files would look gone.
    copy.set_index(kept)
    copy.move(commit, tip, "new")
    what = f"commit {commit[:12]} of {len(taken)} changes; {len(portion.pieces) - len(taken)} stay uncommitted"
    step = Step(title, State.PASSED, what, hint="refresh writes it into the queue")
    return Report("new", (step,), {"copy": str(folder), "patch": title, "commit": commit})


def full_name(place: Place, text: str, upstream: str = "") -> str:
    """`UPSTREAM/LAYER/NAME.patch` from what a person wrote: the upstream may be left out where only one is meant."""
    name = text.removesuffix(".patch") + ".patch"
    if name.count("/") == 1:
        known = [upstream] if upstream else list(place.queue.upstreams)
        if len(known) != 1:
            raise Invalid(f"{text!r} names no upstream", hint=f"one of {', '.join(known)}, then /LAYER/NAME")
        name = f"{known[0]}/{name}"
    owner, _, inner = name.partition("/")
    place.queue.upstream(owner)
    if upstream and owner != upstream:
        raise Invalid(f"this is an edit copy of {upstream}, not of {owner}")
    parse_series(f"{inner}\n".encode("utf-8", "surrogateescape"), text)
    return name


def _refuse_taken(place: Place, upstream: str, inner: str) -> None:
    if f"{upstream}/{inner}" in place.queue.files:
        raise Refused("there is a patch of this name already", where=str(place.root / upstream / inner))


def _words(inner: str) -> str:
    words = inner.rpartition("/")[2].removesuffix(".patch").replace("-", " ").replace("_", " ")
    return words[:1].upper() + words[1:]


def _commit(place: Place, copy: EditCopy, tip: str, tree: str, subject: str, name: str) -> str:
    author, told = person(copy.folder)
    message = f"{subject}\n\n{TRAILER}: {name}\n".encode("utf-8", "surrogateescape")
    return place.store.write_commit(tree, [tip], author, told, f"{int(time.time())} +0000", message)


def _listed(piece: Piece) -> Step:
    return Step(f"{piece.number}", State.NOTE, piece.summary, piece.change.path)
