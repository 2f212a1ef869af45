"""`rebase`: moves an upstream's series to another baseline, stopping where a person has to decide."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from patchq.authoring.merging import OLDEST_GIT, Merged
from patchq.authoring.newdiff import make_diff
from patchq.commands.aftermath import aftermath, changed
from patchq.commands.edit import authored
from patchq.commands.place import Place
from patchq.document import sha256
from patchq.engine import Engine
from patchq.errors import Invalid, Problem, Refused
from patchq.queue.load import QueuedPatch
from patchq.queuejournal import write_queue
from patchq.rebase.candidate import Candidate, find_candidates
from patchq.rebase.carry import Carried, Fate
from patchq.rebase.history import landed
from patchq.rebase.result import changed_files
from patchq.rebase.session import Decided, Desk, Session, Stopped
from patchq.rebase.way import Way, way_to
from patchq.report import Report, State, Step
from patchq.sources import Sources
from patchq.store import require_git

_STATES = {
    Fate.UNCHANGED: State.UNCHANGED,
    Fate.SHIFTED: State.PASSED,
    Fate.MERGED: State.PASSED,
    Fate.UPSTREAMED: State.UPSTREAMED,
    Fate.EMPTIED: State.UPSTREAMED,
    Fate.CONFLICT: State.CONFLICT,
}


def rebase(
    place: Place, name: str, to: str, *, yes: bool = False, alias: str = "", sources: dict[str, str] | None = None
) -> Report:
    """Begin to move the upstream `name` to the baseline `to`; the queue is written when every patch is decided.

    `alias` leaves the upstream as it is and puts the moved series beside it under another name. `yes` leaves out
    what the new baseline has already. Raises `Refused` where a rebase is under way.
    """
    require_git(OLDEST_GIT, "rebase")
    place = authored(place)
    desk = Desk(place.root, name)
    place.queue.upstream(name)
    desk.settle(place.queue.digests)
    if desk.load():
        raise Refused(f"a rebase of {name} is under way", where=str(desk.copy), hint="--continue, --skip or --abort")
    if alias and alias in place.queue.upstreams:
        raise Refused("there is such an upstream already", where=str(place.root / alias))
    session = Session(upstream=name, to=to, alias=alias or name, seen=place.queue.digests)
    return _go_on(place, desk, session, yes, sources)


def go_on(place: Place, name: str, *, yes: bool = False, sources: dict[str, str] | None = None) -> Report:
    """Take what lies in the scratch copy for the patch at which the rebase stopped, and go on."""
    place = authored(place)
    desk = Desk(place.root, name)
    if desk.settle(place.queue.digests):
        return Report("rebase", (Step(name, State.PASSED, "was interrupted when the queue was written; it is done"),))
    session = _under_way(place, desk)
    stopped = session.stopped
    if stopped is None:
        return _go_on(place, desk, session, yes, sources)
    store = place.store
    tree = desk.resolved(store, stopped)
    diff = make_diff(store, stopped.ours, tree)
    if not diff:
        raise Refused(f"nothing is left of {stopped.name}", where=str(desk.copy), hint="--skip leaves it out")
    findings = stopped.findings if stopped.fate is Fate.MERGED else ()
    text = base64.b64encode(diff).decode()
    decided = Decided(name=stopped.name, fate=stopped.fate, diff=text, findings=findings)
    return _go_on(place, desk, session.with_decision(decided), yes, sources)


def skip(place: Place, name: str, *, yes: bool = False, sources: dict[str, str] | None = None) -> Report:
    """Leave the patch at which the rebase stopped out of the moved series, and go on."""
    place = authored(place)
    desk = Desk(place.root, name)
    session = _under_way(place, desk)
    stopped = session.stopped
    if stopped is None:
        raise Refused("was interrupted, and has stopped at no patch", where=name, hint="--continue goes on")
    decided = Decided(name=stopped.name, fate=stopped.fate, left_out=True)
    return _go_on(place, desk, session.with_decision(decided), yes, sources)


def abort(place: Place, name: str) -> Report:
    """Give the rebase up; the queue is as it was."""
    place = authored(place)
    desk = Desk(place.root, name)
    if desk.settle(place.queue.digests):
        raise Refused(f"the rebase of {name} was done when it was interrupted: the queue is written")
    if desk.load() is None:
        raise Refused(f"no rebase of {name} is under way")
    desk.clear()
    return Report("rebase", (Step(name, State.PASSED, "given up; the queue is as it was"),))


def _under_way(place: Place, desk: Desk) -> Session:
    session = desk.load()
    if session is None:
        hint = f"begin one: patchq rebase {desk.upstream} --to REF"
        raise Refused(f"no rebase of {desk.upstream} is under way", hint=hint)
    now, seen = place.queue.digests, session.seen
    moved = [path for path in sorted({*now, *seen}) if now.get(path) != seen.get(path)]
    if moved:
        what, hint = "was changed since the rebase began", "--abort, and begin again"
        raise Refused([Problem(what, path, hint) for path in moved])
    return session


def _go_on(place: Place, desk: Desk, session: Session, yes: bool, given: dict[str, str] | None) -> Report:
    """Carry patches until one has to be decided by a person, or all are."""
    upstream, sources = place.queue.upstream(session.upstream), place.sources(given)
    found = find_candidates(sources, upstream, session.to)
    candidate = found[0]
    session = _pinned(session, found)
    with Engine.on(place.store) as engine:
        way = way_to(place.queue, engine, sources, upstream, candidate.base, candidate.form)
        known = {decided.name: decided for decided in session.decided}
        for queued in upstream.patches:
            if queued.name in known:
                session = _taken(way, queued, known[queued.name], session)
                continue
            result = way.carry(queued)
            has_it = result.fate in (Fate.UPSTREAMED, Fate.EMPTIED)
            if not result.goes_on and not (has_it and yes):
                return _stop(place, desk, session, way, candidate, queued, result, sources)
            session = session.with_decision(_decided(queued, result, left_out=has_it))
        return _finish(place, desk, session, engine, way, found, sources)


def _pinned(session: Session, found: list[Candidate]) -> Session:
    """The session, tied to the commits that its name has now; raises `Refused` where it had others before."""
    commits = {candidate.form: candidate.base.commit for candidate in found}
    if session.commits and session.commits != commits:
        what = f"{session.to} is another commit than when the rebase began"
        raise Refused(what, where=session.upstream, hint="--abort, and begin again")
    return session.model_copy(update={"commits": commits})


def _taken(way: Way, queued: QueuedPatch, decided: Decided, session: Session) -> Session:
    """Take a decision on; the one that was just made gets what there is to say about it."""
    if decided.left_out:
        return session
    new = way.take(queued, decided.text)
    if decided != session.decided[-1] or decided.fate is not Fate.CONFLICT or decided.findings:
        return session
    ours = way.ours(queued.name)
    tree = way.engine.store.update_tree(ours, way.engine.step(new, ours).changes)
    told = decided.model_copy(update={"findings": way.doubts(queued, new, tree)})
    return session.model_copy(update={"decided": (*session.decided[:-1], told)})


def _decided(queued: QueuedPatch, result: Carried, *, left_out: bool) -> Decided:
    diff = None if result.diff is None or left_out else base64.b64encode(result.diff).decode()
    return Decided(name=queued.name, fate=result.fate, diff=diff, left_out=left_out, findings=result.findings)


def _stop(
    place: Place,
    desk: Desk,
    session: Session,
    way: Way,
    candidate: Candidate,
    queued: QueuedPatch,
    result: Carried,
    sources: Sources,
) -> Report:
    """Put what a person has to decide into the scratch copy. What was decided before is noted first: the copy in which
    it was decided is about to go."""
    desk.save(session)
    ours = way.ours(queued.name)
    shown = desk.show(place.store, candidate, ours, result.merged or Merged(ours), queued.entry.name)
    conflicts = result.merged.conflicts if result.merged else ()
    stopped = Stopped(name=queued.name, fate=result.fate, ours=ours, shown=shown, conflicts=conflicts,
                      findings=result.findings)  # fmt: skip
    desk.save(session.model_copy(update={"stopped": stopped}))
    steps = [_decision(decided) for decided in session.decided]
    detail = [f"{path}: conflict" for path in conflicts] or list(result.findings)
    state, hint = _STATES[result.fate], f"resolve it in {desk.copy}, then --continue; or --skip, or --abort"
    if result.fate in (Fate.UPSTREAMED, Fate.EMPTIED):
        by = landed(sources, way.upstream, candidate, queued.patch) if queued.patch else ""
        detail = [f"by {by}"] if by else []
        hint = f"--skip leaves it out; --abort gives up; {desk.copy} shows what is there"
    if result.fate is Fate.MERGED:
        state, hint = State.FAILED, f"look at it in {desk.copy}, then --continue; or --skip, or --abort"
    fate = "" if state.value == result.fate.value else result.fate.value
    steps.append(Step(queued.name, state, fate, "stopped at", tuple(detail), hint))
    left = len(way.upstream.patches) - len(session.decided) - 1
    steps.append(Step(f"{left} more patches", State.NOTE, "wait; the queue is as it was", "stopped at"))
    return Report("rebase", tuple(steps), {"stopped": queued.name, "copy": str(desk.copy), "to": candidate.base.commit})


def _decision(decided: Decided) -> Step:
    if decided.left_out:
        return Step(decided.name, State.EXCLUDED, f"left out: {decided.fate.value}", "decided")
    by_hand = decided.fate is Fate.CONFLICT
    state = State.WARNING if decided.findings else State.PASSED if by_hand else _STATES[decided.fate]
    return Step(decided.name, state, "resolved" if by_hand else decided.fate.value, "decided", decided.findings)


def _finish(
    place: Place,
    desk: Desk,
    session: Session,
    engine: Engine,
    way: Way,
    found: list[Candidate],
    sources: Sources,
) -> Report:
    """Write the moved series and baseline, and check every selection that they are in."""
    changes = changed_files(place.queue, session, way, found, sources)
    queue = changed(place.queue, changes)
    steps = [_decision(decided) for decided in session.decided]
    steps += aftermath(place, engine, sources, queue)
    if not any(session.alias in target.upstreams for target in queue.targets.values()):
        hint = "name it in series/targets/*.yaml, and its research patches in series/variants/*.yaml"
        steps.append(Step(session.alias, State.NOTE, "no target uses it yet", "queue", hint=hint))
    files = {path: None if data is None else sha256(data) for path, data in changes.items()}
    desk.save(session.model_copy(update={"written": files}))
    written = write_queue(place.root, changes, seen=session.seen)
    desk.clear()
    baseline = queue.upstream(session.alias).baseline
    if baseline.description and baseline.description == way.upstream.baseline.description:
        where = f"{session.alias}/baseline.yaml"
        steps.append(Step(where, State.NOTE, "its description still tells of the old baseline", "queue"))
    return Report("rebase", tuple(steps), {"to": found[0].base.commit, "files": list(written)})


def chosen_action(actions: Mapping[str, bool]) -> str:
    """The one of several options that was given, or none; raises `Invalid` for more than one."""
    given = [name for name, is_given in actions.items() if is_given]
    if len(given) > 1:
        raise Invalid(f"{' and '.join(given)} exclude each other")
    return given[0] if given else ""
