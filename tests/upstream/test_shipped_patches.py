"""Each shipped patch, alone on its baseline: its CPU tests fail without it and pass with it; and every subset of an
upstream's patches applies.

The sdists need nothing but this interpreter's pytest (what needs torch is then not run).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from workshop import QUEUE, Workshop, python_for, workshop_in

from patchq.engine import Base, Engine
from patchq.engine.conditions import broken
from patchq.queue.load import QueuedPatch

pytestmark = pytest.mark.upstream

PATCHES = [queued for upstream in QUEUE.upstreams.values() for queued in upstream.patches]
EVERY_PATCH = pytest.mark.parametrize("queued", PATCHES, ids=lambda queued: queued.name)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with workshop_in(tmp_path_factory.mktemp("shipped")) as made:
        yield made


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
