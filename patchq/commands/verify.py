"""`verify`: proves again, before a long run, all that can be proved in seconds; writes a record, nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from patchq.audit import COLUMNS, STATIC, Change, Subject, Survey, changes, expired, last_good, subject_of, surveying
from patchq.commands.install import cut_short
from patchq.commands.place import Place
from patchq.commands.ready import ready, refuse_strangers
from patchq.commands.sinks import Installed
from patchq.commands.smoke import climb
from patchq.environment import environment_name
from patchq.errors import PatchqError, Refused
from patchq.evidence.inforce import last_apply
from patchq.evidence.record import Evidence, Record, write_record
from patchq.exclusive import scratch
from patchq.lock import Lock, LockedSelection, differences, load_lock
from patchq.queue.host import Host
from patchq.report import Report, State, Step
from patchq.store import Store, require_git
from patchq.workarea import WorkArea
from patchq.workcopy import current, digest_folder, inspect


def verify(
    place: Place,
    target: str,
    variant: str | None = None,
    *,
    env: str | None = None,
    smoke: bool = True,
    wait: float = 0,
) -> Report:
    """Verify the target's last apply (or `variant`), in all its environments or in `env`.

    With `smoke`, the rungs that the target marks for verify are climbed too, once all else has passed. Raises
    `Refused` where nothing was applied.
    """
    require_git((2, 25), "verify")
    queue = place.queue
    environments = [environment_name(queue, target, env)] if env else list(queue.target(target).environments)
    queue.variant_name(variant)
    area = place.area(target)
    lock = load_lock(queue)
    if last_apply(area.records, target) is None:
        raise _nothing_applied(area, target)
    with area.locked("verify", wait):
        applied = last_apply(area.records, target)
        if applied is None:
            raise _nothing_applied(area, target)
        work = _Verification(place, target, variant or applied.variant, environments, lock, area, applied)
        report = work.report(smoke=smoke)
        folder = write_record(area.records, report, work.evidence,
                              target=target, variant=work.variant, lock=lock.digest)  # fmt: skip
    return Report("verify", report.steps, {**report.data, "record": str(folder)})


def _nothing_applied(area: WorkArea, target: str) -> Refused:
    """What to say where no apply of a target is in force."""
    return Refused(f"nothing was applied for {target} on this host", where=str(area.root), hint="run: patchq apply")


@dataclass
class _Verification:
    """One verification: probes are started first, and heard once what patchq reads itself has been read."""

    place: Place
    target: str
    variant: str | None
    environments: list[str]
    lock: Lock
    area: WorkArea
    applied: Record
    evidence: Evidence = field(default_factory=Evidence)

    @cached_property
    def locked(self) -> dict[str, LockedSelection]:
        return self.lock.of(self.target, self.variant)

    @cached_property
    def host(self) -> Host:
        return Host.here(self.area.root)

    @cached_property
    def before(self) -> Record | None:
        """The last good record, which the present is compared with."""
        return last_good(self.area.records, "verify", self.target)

    def report(self, *, smoke: bool) -> Report:
        steps = list(self._static())
        found = list(self._changes())
        steps += self._changed(found)
        steps += self._smoke_counts()
        if smoke:
            steps += self._climbed(steps)
        data: dict[str, Any] = {"target": self.target, "variant": self.variant, "lock": self.lock.digest}
        if found:
            since = self.before.id if self.before else ""
            data["table"] = {"title": f"changed since {since}", "columns": COLUMNS, "rows": [c.row() for c in found]}
        return Report("verify", tuple(steps), {**data, **_headline(steps)})

    def _static(self) -> Iterator[Step]:
        store = Store(self.area.store)
        with ExitStack() as stack:
            surveys = [self._begun(stack, name) for name in self.environments]
            for name in self.environments:
                yield from cut_short(self.area, self.target, name)
            yield from self._queue()
            for name, locked in self.locked.items():
                if self.place.queue.target(self.target).upstreams[name].sink == "work-copy":
                    yield from self._copy(store, name, locked)
            yield from Installed(self.place, self.target, self.locked, self.area, store, self.host).verified()
            yield from self._protected_paths()
            for one in surveys:
                yield from (one,) if isinstance(one, Step) else one.steps()

    def _begun(self, stack: ExitStack, name: str) -> Survey | Step:
        try:
            refuse_strangers(self.place, self.locked, self.area, self._copies_of(name))
            return stack.enter_context(surveying(self._subject(name), STATIC))
        except PatchqError as error:
            problem = error.problems[0]
            return Step(f"interpreter {name}", State.NOT_RUN, problem.what, f"environment {name}", hint=problem.hint)

    def _copies_of(self, env: str) -> dict[str, Path]:
        """The work copies that an environment imports from, as far as they are there."""
        uses = self.place.queue.target(self.target).upstreams.items()
        named = [name for name, use in uses if use.sink == "work-copy" and env in use.environments]
        places = {name: self.area.copy(name, self.locked[name].commit) for name in named}
        return {name: place for name, place in places.items() if place.is_dir()}

    def _subject(self, name: str) -> Subject:
        before = self.before.facts["audit"].get(name, {}) if self.before else {}
        return subject_of(self.place.queue, self.target, name, self.locked, self.area, self.host, self.evidence,
                          start=(Path.cwd(),), before=before)  # fmt: skip

    def _queue(self) -> Iterator[Step]:
        stale = list(differences(self.place.queue, self.lock))
        yield from (Step(one.where, State.EDITED, one.what, "queue", hint=one.hint) for one in stale)
        if not stale:
            yield Step("lock", State.PASSED, f"{self.lock.digest[:12]} agrees with every file of the queue", "queue")
        if self.applied.exit not in (0, 4):
            yield Step("last apply", State.FAILED, f"failed: {self.applied.id}", "queue", hint="run: patchq apply")
        elif self.applied.lock != self.lock.digest:
            what = f"was of lock {self.applied.lock[:12]}"
            yield Step("last apply", State.FAILED, what, "queue", hint="run: patchq apply")
        if missing := self.applied.not_run():
            yield Step("last apply", State.NOT_RUN, "has steps that were not run", "queue", tuple(missing))

    def _copy(self, store: Store, name: str, locked: LockedSelection) -> Iterator[Step]:
        folder = self.area.copy(name, locked.commit)
        if not folder.is_dir():
            yield Step("work copy", State.FAILED, f"{folder} is not there", name, hint="run: patchq apply")
            return
        roots = (self.place.queue.upstream(name).baseline.root,)
        found = inspect(store, folder, locked.commit, locked.submodules, roots)
        rows = tuple(f"{drift.what}: {drift.path} {drift.detail}".rstrip() for drift in found.drift)
        if rows:
            what = f"{folder}: {len(rows)} things differ from the lock, the first is {rows[0]}"
            yield Step("work copy", State.FAILED, what, name, rows[:50],
                       hint="move the copy away, then: patchq apply (edits belong into an edit copy)")  # fmt: skip
        else:
            yield Step("work copy", State.PASSED, f"{folder}: every byte as locked, commit {locked.commit[:12]}", name)
        if found.untracked:
            shown = f"{len(found.untracked)} files that nothing imports"
            yield Step("untracked", State.NOTE, shown, name, found.untracked[:10])
        now = current(self.area.upstream(name))
        if now != locked.commit:
            yield Step("current", State.WARNING, f"names {now[:12] if now else 'nothing'}, not this copy", name)

    def _protected_paths(self) -> Iterator[Step]:
        """The vendor's folders, against what the last apply found there."""
        for path, digest in self.applied.facts.get("protected_paths", {}).items():
            now = digest_folder(Path(path)) if Path(path).is_dir() else None
            said = "as at the last apply" if now == digest else "is not there" if now is None else "was changed"
            yield Step(path, State.PASSED if now == digest else State.FAILED, said, "protected paths",
                       hint="" if now == digest else f"put it back from the vendor's image: {path}")  # fmt: skip

    def _changes(self) -> Iterator[Change]:
        audited = self.evidence.facts.get("audit", {})
        for name, facts in audited.items():
            if self.before and name in self.before.facts["audit"]:
                python = Path(str(facts.get("interpreter", {}).get("executable", "python")))
                yield from changes(name, self.before.facts["audit"][name], facts, python)

    def _changed(self, found: list[Change]) -> Iterator[Step]:
        group = "since the last good record"
        if self.before is None:
            yield Step("changes", State.NOTE, "this is the first verify that could be one", group)
        elif found:
            rows = tuple(f"{one.what}: {one.was} → {one.now}" for one in found)
            yield Step("changes", State.WARNING, f"{len(found)} things are not as in {self.before.id}", group,
                       data={"changes": list(rows)})  # fmt: skip
        else:
            yield Step("changes", State.PASSED, f"all as in {self.before.id}", group)

    def _smoke_counts(self) -> Iterator[Step]:
        """Whether the last good smoke is of this driver and these protected packages."""
        smoked = last_good(self.area.records, "smoke", self.target)
        if smoked is None:
            return
        for name, facts in self.evidence.facts.get("audit", {}).items():
            required = bool(self.place.queue.target(self.target).environments[name].ladder.required)
            group = f"environment {name}"
            if reasons := expired(smoked.facts["audit"].get(name, {}), facts):
                yield Step("smoke", State.NOT_RUN, f"expired: another {', '.join(reasons)} than in {smoked.id}", group,
                           hint=f"patchq smoke --target {self.target} --env {name}", required=required,
                           data={"expired": reasons})  # fmt: skip
            elif name in smoked.facts["audit"]:
                yield Step("smoke", State.PASSED, f"{smoked.id} is of this driver and these protected packages", group)

    def _climbed(self, before: list[Step]) -> Iterator[Step]:
        """The device rungs that the target marks for verify; not worth a minute where something failed already."""
        for name in self.environments:
            rungs = self.place.queue.target(self.target).environments[name].ladder.verify
            if rungs and any(step.code not in (0, 4) for step in before):
                yield Step(
                    f"rungs {', '.join(rungs)}", State.NOT_RUN, "something before them failed", f"environment {name}"
                )
            elif rungs:
                with scratch() as room:
                    yield from climb(ready(self.place, self.target, name, self.variant), rungs, self.evidence, room)


def _headline(steps: list[Step]) -> dict[str, str]:
    """The first cause and its fix, in one line, where something failed."""
    first = next((step for step in steps if step.code not in (0, 4)), None)
    if first is None:
        return {}
    fix = f" → {first.hint}" if first.hint else ""
    return {"headline": f"{first.name}: {first.summary}{fix}"}
