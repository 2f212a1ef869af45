"""Each shipped patch, alone on its baseline: its CPU tests fail without it and pass with it; and every subset of an
upstream's patches applies. Trees, work copies and test runs are made the way `apply` makes them.

The sdists need nothing but this interpreter's pytest (what needs torch is then not run). verl needs a clone in
VERL_SOURCE, its tests also an interpreter with what verl imports, in PATCHQ_TEST_VERL_PYTHON.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from verl_source import verl_source

from patchq.conditions import broken
from patchq.engine import Base, Engine
from patchq.launch import Launch
from patchq.privatepytest import private_pytest
from patchq.proof import Prover
from patchq.queue.host import Host
from patchq.queue.load import QueuedPatch, load_queue
from patchq.record import Evidence
from patchq.report import State, Step
from patchq.sources import Sources
from patchq.store import Source, Store, fetch_commit
from patchq.workarea import WorkArea
from patchq.workcopy import create

pytestmark = pytest.mark.upstream

QUEUE = load_queue(Path(__file__).resolve().parents[2] / "series")
PATCHES = [queued for upstream in QUEUE.upstreams.values() for queued in upstream.patches]
VERL_PYTHON = os.environ.get("PATCHQ_TEST_VERL_PYTHON")  # read here: tests run without PATCHQ_ variables
EVERY_PATCH = pytest.mark.parametrize("queued", PATCHES, ids=lambda queued: queued.name)


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
        base = self.base(upstream)
        placed = self.engine.apply(base, patches)
        assert all(step.ok for step in placed)
        commit = placed[-1].commit if placed else base.commit
        key = (upstream, commit, tuple(files))
        if key not in self.known:
            self.known[key] = self._tested(upstream, self._copy(upstream, base, commit), files)
        return self.known[key]

    def _copy(self, upstream: str, base: Base, commit: str) -> Path:
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


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    area = WorkArea(tmp_path_factory.mktemp("shipped"))
    with Engine.on(Store.open(area.store)) as engine:
        yield Workshop(area, engine)


@EVERY_PATCH
def test_its_tests_fail_without_it_and_pass_with_it(
    queued: QueuedPatch, workshop: Workshop, record_property: Callable[[str, object], None]
) -> None:
    """No test that passes on the baseline fails with the patch, and at least one is there for what it changes."""
    assert queued.patch and queued.patch.header.tests, "a shipped patch names the tests that prove it"
    upstream, files = queued.upstream, queued.patch.header.tests
    workshop.base(upstream)
    python_for(upstream)
    unpatched = workshop.tested(upstream, (), files)
    patched = workshop.tested(upstream, (queued,), files)
    record_property("without", f"{len(unpatched.passed)} passed; {'; '.join(unpatched.failed)}")
    record_property("with", f"{len(patched.passed)} passed; {'; '.join(patched.failed)}")
    assert unpatched.failed, f"nothing fails without the patch:\n{unpatched.output}"
    assert not patched.failed, f"fails with the patch:\n{patched.output}"
    assert unpatched.passed < patched.passed


@pytest.mark.parametrize("upstream", QUEUE.upstreams)
def test_every_subset_applies(upstream: str, workshop: Workshop) -> None:
    """In series order, each patch in or out; and what the patches expect of the result holds in each."""
    base, patches = workshop.base(upstream), QUEUE.upstream(upstream).patches
    seen = 0
    for tree, subset in subsets(workshop.engine, base, patches):
        assert not list(broken(workshop.engine.store, tree, subset))
        seen += 1
    assert seen == 2 ** len(patches)


def subsets(
    engine: Engine, base: Base, rest: Sequence[QueuedPatch], taken: tuple[QueuedPatch, ...] = ()
) -> Iterator[tuple[str, tuple[QueuedPatch, ...]]]:
    """The tree of every subset of `rest` on top of what was taken already; no beginning is applied twice."""
    if not rest:
        yield base.tree, taken
        return
    yield from subsets(engine, base, rest[1:], taken)
    (placed,) = engine.apply(base, rest[:1])
    names = [queued.name for queued in (*taken, rest[0])]
    assert placed.ok, f"{placed.state}: {names}: {placed.applied and placed.applied.errors}"
    after = replace(base, tree=placed.tree, commit=placed.commit)
    yield from subsets(engine, after, rest[1:], (*taken, rest[0]))
