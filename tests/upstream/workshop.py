"""A work area of its own for what is tried on the baselines of the shipped queue: trees, work copies, and tests run in
them, made the way `apply` makes them.

The sdists come from the package index. verl needs a clone in VERL_SOURCE, and an interpreter with what it imports in
PATCHQ_TEST_VERL_PYTHON.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from training import VERL_PYTHON
from verl_source import verl_source

from patchq.engine import Base, Engine
from patchq.evidence.record import Evidence
from patchq.machine.launch import Launch
from patchq.machine.privatepytest import private_pytest
from patchq.proof import Prover
from patchq.queue.host import Host
from patchq.queue.load import QueuedPatch, load_queue
from patchq.report import State, Step
from patchq.sources import Sources
from patchq.store import Source, Store, fetch_commit
from patchq.workarea import WorkArea
from patchq.workcopy import create

QUEUE = load_queue(Path(__file__).resolve().parents[2] / "series")


@dataclass(frozen=True)
class Outcome:
    """What the CPU tests of some files said: tests by how they ended, and all that they printed."""

    failed: tuple[str, ...]
    passed: frozenset[str]
    output: str

    @classmethod
    def of(cls, steps: Sequence[Step], output: str) -> Outcome:
        passed = (test for step in steps if step.state is State.PASSED for test in step.data["tests"])
        failed = (f"{step.name}: {step.summary}" for step in steps if step.state is State.FAILED)
        return cls(tuple(failed), frozenset(passed), output)


@dataclass(frozen=True)
class Workshop:
    """A work area of its own, with baselines, patched work copies and what the tests said in them."""

    area: WorkArea
    engine: Engine
    bases: dict[str, Base] = field(default_factory=dict)
    known: dict[tuple[str, str, tuple[str, ...]], Outcome] = field(default_factory=dict)

    def base(self, upstream: str) -> Base:
        """The baseline in the store: the sdist where there is one, else the commit in the clone."""
        if upstream not in self.bases:
            store, baseline = self.engine.store, QUEUE.upstream(upstream).baseline
            if baseline.sdist:
                self.bases[upstream] = Sources(store, Host.here()).base(QUEUE.upstream(upstream), "sdist")
            else:
                assert baseline.git
                fetch_commit(store, Source(upstream, str(verl_source())), baseline.git.commit)
                self.bases[upstream] = Base.of(store, baseline.git.commit)
        return self.bases[upstream]

    def tested(self, upstream: str, patches: Sequence[QueuedPatch], files: Sequence[str]) -> Outcome:
        """Run test files in one pytest process on a work copy of the baseline with `patches`."""
        copy = self.copy(upstream, patches)
        key = (upstream, copy.name, tuple(files))
        if key not in self.known:
            self.known[key] = self._tested(upstream, copy, files)
        return self.known[key]

    def copy(self, upstream: str, patches: Sequence[QueuedPatch]) -> Path:
        """A work copy of the baseline with `patches`."""
        base = self.base(upstream)
        placed = self.engine.apply(base, patches)
        assert all(step.ok for step in placed)
        commit = placed[-1].commit if placed else base.commit
        folder = self.area.copy(upstream, commit)
        return folder if folder.exists() else create(self.engine.store, commit, base.commit, folder)

    def _tested(self, upstream: str, copy: Path, files: Sequence[str]) -> Outcome:
        root = (copy / QUEUE.upstream(upstream).baseline.root).absolute()
        launch = Launch(
            title=upstream,
            python=python_for(upstream),
            profile="",
            import_roots=(root,),
            pycache=self.area.pycache,
            ray_folder=self.area.ray_folder(),
        )
        prover = Prover("test", launch, frozenset(), Evidence())
        data = {path: QUEUE.files[f"{upstream}/{path}"] for path in files}
        steps = prover.tests(upstream, data, private_pytest(self.area))
        return Outcome.of(steps, "".join(map(str, prover.evidence.logs.values())))


def python_for(upstream: str) -> Path:
    if upstream != "verl":
        return Path(sys.executable)
    if not VERL_PYTHON:
        pytest.skip("PATCHQ_TEST_VERL_PYTHON names no interpreter with what verl imports")
    return Path(VERL_PYTHON)


@contextmanager
def workshop_in(folder: Path) -> Iterator[Workshop]:
    """A workshop whose work area is `folder`."""
    area = WorkArea(folder)
    with Engine.on(Store.open(area.store)) as engine:
        yield Workshop(area, engine)
