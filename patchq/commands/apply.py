"""`apply`: the whole selection into new work copies; compiled, imported, tested, recorded, then current."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

from patchq.commands.place import Place
from patchq.commands.sinks import Installed, Protected, protected
from patchq.document import sha256
from patchq.engine import Engine, Placed
from patchq.engine.conditions import broken
from patchq.engine.explain import patch_step
from patchq.environment import launch_of
from patchq.errors import PatchqError, Refused
from patchq.evidence.inforce import last_apply
from patchq.evidence.record import Evidence, write_record
from patchq.installed import roll_forward
from patchq.installed.undo import roll_back_all
from patchq.lock import Lock, LockedSelection, differences, load_lock
from patchq.machine.launch import Launch
from patchq.machine.privatepytest import private_pytest
from patchq.proof import Prover, adds_no_bad_whitespace
from patchq.queue.host import Host
from patchq.queue.load import Queue
from patchq.queue.selection import Selection, select
from patchq.report import Report, State, Step, worst
from patchq.sources import Sources
from patchq.store import Store, require_git
from patchq.workarea import WorkArea, remember_area
from patchq.workcopy import create, current, inspect, move_current, set_aside

OLDEST_GIT = (2, 25)


def apply(
    place: Place,
    target: str,
    variant: str | None = None,
    *,
    wait: float = 0,
    sources: dict[str, str] | None = None,
    before: Sequence[Step] = (),
) -> Report:
    """Apply the locked selection of a target. A failed step leaves `current` and installed files as they were."""
    version = require_git(OLDEST_GIT, "apply")
    queue, area = place.queue, place.area(target)
    queue.variant_name(variant)
    given = place.checked(sources or {})
    lock = load_lock(queue)
    locked = lock.of(target, variant)
    with area.locked("apply", wait):
        roll_forward(area.journals)
        roll_back_all(area)
        job = _Job(place, target, variant, area, lock, locked, given)
        job.prepare()
        job.evidence.facts |= {"git": version, "queue": str(place.root), "patches": _patch_facts(locked)}
        job.steps.extend(before)
        if not job.is_done():
            job.run()
        report = Report("apply", tuple(job.steps), job.data)
        if job.changed:
            folder = write_record(area.records, report, job.evidence, target=target, variant=variant, lock=job.digest)
            report = Report("apply", report.steps, {**report.data, "record": str(folder)})
        remember_area(target, area)
    return report


def _patch_facts(locked: Mapping[str, LockedSelection]) -> dict[str, object]:
    return {
        name: {
            "baseline": selection.base_commit,
            "patches": [[patch.name, patch.sha256, patch.tree] for patch in selection.patches],
            "tree": selection.tree,
            "commit": selection.commit,
        }
        for name, selection in locked.items()
    }


@dataclass
class _Job:
    """One apply. Steps are added in order; the first that fails ends the work."""

    place: Place
    target: str
    variant: str | None
    area: WorkArea
    lock: Lock
    locked: dict[str, LockedSelection]
    given: Mapping[str, str]
    steps: list[Step] = field(default_factory=list)
    evidence: Evidence = field(default_factory=Evidence)
    created: list[Path] = field(default_factory=list)
    changed: bool = True
    launches: dict[str, Launch] = field(default_factory=dict)
    guarded: Protected | None = None

    @property
    def queue(self) -> Queue:
        return self.place.queue

    @cached_property
    def digest(self) -> str:
        """The lock's, worked out once: that writes the whole of it."""
        return self.lock.digest

    @cached_property
    def host(self) -> Host:
        return Host.here(self.area.root)

    @cached_property
    def store(self) -> Store:
        return Store.open(self.area.store)

    @property
    def data(self) -> dict[str, object]:
        copies = {name: str(self.area.copy(name, locked.commit)) for name, locked in self._copies().items()}
        return {"target": self.target, "variant": self.variant, "lock": self.digest,
                "work": str(self.area.root), "copies": copies}  # fmt: skip

    def prepare(self) -> None:
        """Expand every variable of the target, and digest what must not change; raises before anything is made."""
        target = self.queue.target(self.target)
        self.launches = {
            name: launch_of(self.queue, self.target, name, self.locked, self.area, self.host)
            for name in target.environments
        }
        self.guarded = protected(target, self.host, self.place.target_file(self.target))

    def is_done(self) -> bool:
        """Whether the last apply was of this very lock and variant, passed, and its copies are still as they were."""
        last = last_apply(self.area.records, self.target)
        if last is None or (last.lock, last.variant, last.exit) != (self.digest, self.variant, 0):
            return False
        if any(True for _ in differences(self.queue, self.lock)) or self.installed.drift():
            return False
        for name, locked in self._copies().items():
            folder = self.area.copy(name, locked.commit)
            if current(self.area.upstream(name)) != locked.commit or self._drift(name, folder):
                return False
            self.steps.append(Step(name, State.UNCHANGED, str(folder), "work copy"))
        self.changed = False
        return True

    def run(self) -> None:
        """Do it all; whatever fails, nothing that was current before has moved."""
        stages: tuple[Callable[[], Iterator[Step]], ...] = (
            self._is_locked, self._applies, self._placed, self._proved, self._taken_into_use,
        )  # fmt: skip
        try:
            for stage in stages:
                for step in stage():
                    self.steps.append(step)
                if self._has_failed():
                    self._set_aside()
                    return
        except PatchqError as error:
            self.steps.extend(_error_step(problem, error) for problem in error.problems)
            self._set_aside()
        except BaseException:
            self._set_aside()
            raise

    def _has_failed(self) -> bool:
        return worst(step.state.code for step in self.steps) not in (0, 4)

    def _is_locked(self) -> Iterator[Step]:
        stale = list(differences(self.queue, self.lock))
        for problem in stale:
            yield Step(problem.where, State.EDITED, problem.what, "queue", hint=problem.hint)
        if not stale:
            yield Step("lock", State.PASSED, f"{self.digest[:12]} agrees with every file of the queue", "queue")
            from patchq.transfer.receive import keep_queue  # reads bundles: not where nothing is to be done

            keep_queue(self.lock, self.area, partial(_read_locked, self.queue))

    def _applies(self) -> Iterator[Step]:
        nearby = None if self.place.home else self.place.store
        sources = Sources(self.store, self.host, self.given, offline=self.place.home is not None, nearby=nearby)
        with Engine.on(self.store) as engine:
            for name, locked in self.locked.items():
                selection = select(self.queue, self.target, self.variant, name)
                yield from self._apply_one(engine, sources, selection, locked)

    def _apply_one(
        self, engine: Engine, sources: Sources, selection: Selection, locked: LockedSelection
    ) -> Iterator[Step]:
        base = sources.base(selection.upstream, selection.form)
        name = selection.upstream.name
        if (base.commit, base.tree) != (locked.base_commit, locked.base_tree):
            yield Step("baseline", State.FAILED, f"{base.commit} is not the baseline of the lock", name)
            return
        yield Step("baseline", State.PASSED, f"{selection.form} {base.commit[:12]}, tree {base.tree[:12]}", name)
        placed = engine.apply(base, selection.chosen)
        for step in placed:
            yield _in_group(patch_step(engine, base, selection, placed, step), name)
        for choice in selection.excluded:
            yield Step(choice.queued.name, State.EXCLUDED, choice.reason, name)
        if all(step.ok for step in placed):
            yield from self._agrees(placed, selection, locked)
            yield adds_no_bad_whitespace(self.store, name, locked.base_tree, locked.tree)

    def _agrees(self, placed: Sequence[Placed], selection: Selection, locked: LockedSelection) -> Iterator[Step]:
        name = selection.upstream.name
        result = [(step.tree, step.commit) for step in placed]
        if result != [(patch.tree, patch.commit) for patch in locked.patches]:
            yield Step("commits", State.FAILED, "the patches give other commits than the lock names", name)
            return
        yield Step("commits", State.PASSED, f"{len(placed)} patches, commit {locked.commit[:12]} as locked", name)
        for problem in broken(self.store, locked.tree, selection.chosen):
            yield Step(problem.what, State.FAILED, problem.where, name)

    def _placed(self) -> Iterator[Step]:
        for name, locked in self._copies().items():
            folder = self.area.copy(name, locked.commit)
            if folder.exists():
                drift = self._drift(name, folder)
                state = State.FAILED if drift else State.UNCHANGED
                yield Step("work copy", state, str(folder), name, tuple(drift[:20]),
                           hint="it was changed since it was made: move it away" if drift else "")  # fmt: skip
                continue
            self.created.append(create(self.store, locked.commit, locked.base_commit, folder, locked.submodules))
            drift = self._drift(name, folder)
            yield Step("work copy", State.FAILED if drift else State.PASSED, str(folder), name, tuple(drift[:20]))
        yield from self.installed.placed()

    def _proved(self) -> Iterator[Step]:
        target = self.queue.target(self.target)
        pytest = private_pytest(self.area)
        for name, environment in target.environments.items():
            prover = Prover(name, self.launches[name], frozenset(environment.without), self.evidence)
            interpreter = prover.interpreter(environment.version)
            yield interpreter
            for upstream, use in target.upstreams.items():
                if name not in use.environments:
                    continue
                if interpreter.state is State.NOT_RUN:
                    why = "no interpreter"
                    yield Step(f"compile, import and tests of {upstream}", State.NOT_RUN, why, f"environment {name}")
                else:
                    yield from self._prove_one(prover, upstream, pytest)
        if self.guarded:
            yield from self.guarded.unchanged(self.evidence)

    def _prove_one(self, prover: Prover, name: str, pytest: Path) -> Iterator[Step]:
        baseline = self.queue.upstream(name).baseline
        use = self.queue.target(self.target).upstreams[name]
        if use.sink == "work-copy":
            folder = self.area.copy(name, self.locked[name].commit)
            yield prover.compiles(name, folder, baseline)
            modules = baseline.packages if use.imports is None else use.imports
            yield from prover.imports(name, folder, baseline, modules)
        files = self._tests(name)
        if files and (prover.name, name) in self.installed.absent:
            yield Step(f"tests of {name}", State.NOT_RUN, f"{name} is not installed", f"environment {prover.name}")
        elif files:
            yield from prover.tests(name, files, pytest)

    def _tests(self, name: str) -> dict[str, bytes]:
        """The CPU tests that the chosen patches name, with their bytes as locked."""
        chosen = select(self.queue, self.target, self.variant, name).chosen
        tests = {test for queued in chosen if queued.patch for test in queued.patch.header.tests}
        return {
            test: _read_locked(self.queue, f"{name}/{test}", self.lock.files[f"{name}/{test}"])
            for test in sorted(tests)
        }

    def _taken_into_use(self) -> Iterator[Step]:
        for name, locked in self._copies().items():
            move_current(self.area.upstream(name), locked.commit)
            yield Step("current", State.PASSED, f"{name}/current is {locked.commit[:12]}", name)

    def _set_aside(self) -> None:
        for folder in self.created:
            kept = set_aside(folder)
            self.steps.append(Step("kept for inspection", State.NOTE, str(kept), folder.parent.name))
        self.created.clear()
        self.steps.extend(self.installed.undone())

    def _copies(self) -> dict[str, LockedSelection]:
        uses = self.queue.target(self.target).upstreams
        return {name: locked for name, locked in self.locked.items() if uses[name].sink == "work-copy"}

    def _drift(self, name: str, folder: Path) -> list[str]:
        locked = self.locked[name]
        roots = (self.queue.upstream(name).baseline.root,)
        found = inspect(self.store, folder, locked.commit, locked.submodules, roots).drift
        return [f"{drift.what}: {drift.path} {drift.detail}".rstrip() for drift in found]

    @cached_property
    def installed(self) -> Installed:
        return Installed(self.place, self.target, self.locked, self.area, self.store, self.host)


def _in_group(step: Step, group: str) -> Step:
    return Step(step.name, step.state, step.summary, group, step.detail, step.hint, step.data)


def _error_step(problem: object, error: PatchqError) -> Step:
    states = {1: State.FAILED, 2: State.MALFORMED, 3: State.CONFLICT, 5: State.PREVENTED}
    return Step(str(problem), states.get(error.exit_code, State.FAILED), group="error")


def _read_locked(queue: Queue, path: str, digest: str) -> bytes:
    data = queue.files.get(path)
    if data is None or sha256(data) != digest:
        raise Refused("differs from the lock", where=str(queue.root / path), hint="run: patchq lock")
    return data
