"""The upstreams' own tests for what our patches touch, before and after patching: none that passed before fails after.

verl needs a clone in VERL_SOURCE and an interpreter in PATCHQ_TEST_VERL_PYTHON; LLaMA-Factory comes as its sdist, and
is run with the training environment that is built once a session.
"""

from __future__ import annotations

import os
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from training import AUDIO
from workshop import QUEUE, Workshop, python_for, workshop_in

from patchq.machine.privatepytest import private_pytest
from patchq.process import leashed
from patchq.queue.load import QueuedPatch

pytestmark = pytest.mark.upstream

SECONDS = 600  # a file
WHOLE_FILE = "(the whole file)"
# What has no test that names it: tests that load much of the same package, and need no hub.
NEIGHBOURS = {
    "llamafactory": ("tests_v1/config/test_args_parser.py", "tests_v1/accelerator/test_interface.py",
                     "tests/data/test_formatter.py"),
}  # fmt: skip
Results = dict[str, str]  # test → passed, failed, error, skipped


@dataclass(frozen=True)
class Bench:
    """Runs an upstream's own tests with one interpreter, a process a file."""

    upstream: str
    python: Path
    room: Path
    pytest: Path

    def run(self, tree: Path, path: str) -> Results:
        """How each test of a file ended in a work copy."""
        results = self.room / "results.xml"
        results.unlink(missing_ok=True)
        words = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", f"--junitxml={results}", path]
        with leashed([str(self.python), "-B", "-m", "pytest", *words], env=self._env(tree), cwd=tree) as running:
            outcome = running.outcome(SECONDS)
        if outcome.timed_out or not results.exists():
            said = (outcome.error_text or outcome.text).strip().splitlines()[-1:]
            return {WHOLE_FILE: f"did not end in {SECONDS} s" if outcome.timed_out else f"no result: {said}"}
        cases = ElementTree.parse(results).iter("testcase")
        return {f"{case.get('classname')}::{case.get('name')}": _ended(case) for case in cases}

    def _env(self, tree: Path) -> dict[str, str]:
        root = tree / QUEUE.upstream(self.upstream).baseline.root
        path = [str(root), str(tree), str(self.room / "stubs"), str(self.pytest)]
        settings = {"HOME": str(self.room), "PYTHONPATH": ":".join(path), "HF_HUB_OFFLINE": "1",
                    "RAY_OVERRIDE_RESOURCES": '{"CPU":128}', "OMP_NUM_THREADS": "1"}  # fmt: skip
        return {"PATH": f"{self.python.parent}:{os.environ['PATH']}", "LANG": "C.UTF-8", **settings}


def _ended(case: ElementTree.Element) -> str:
    return next((kind for kind in ("error", "failure", "skipped") if case.find(kind) is not None), "passed")


def near(tree: Path, upstream: str, patches: Sequence[QueuedPatch]) -> list[str]:
    """The CPU tests of an upstream that name a module which a patch touches, or a package that passes it on."""
    root = tree / QUEUE.upstream(upstream).baseline.root
    modules = {module for queued in patches if queued.patch for module in _modules(queued.patch.paths)}
    packages = {module.rpartition(".")[0] for module in modules}
    passing = {one for one in packages if _passes_on(root / one.replace(".", "/") / "__init__.py", one, modules)}
    found = [
        path.relative_to(tree).as_posix()
        for folder in sorted(tree.glob("tests*"))
        for path in sorted(folder.rglob("test_*.py"))
        if ("_on_cpu" in path.name or "plugin" in path.parts) and _names(path.read_text(), modules, passing)
    ]
    return [*found, *NEIGHBOURS.get(upstream, ())]


def _modules(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        if path.endswith(".py") and not path.endswith("__init__.py"):
            yield path.removeprefix("src/").removesuffix(".py").replace("/", ".")


def _passes_on(init: Path, package: str, modules: set[str]) -> bool:
    """Whether a package's `__init__` takes everything over from a touched module."""
    text = init.read_text() if init.exists() else ""
    stars = re.findall(r"from (\.\w+) import \*", text)
    return any(package + star in modules for star in stars)


def _names(text: str, modules: set[str], passing: set[str]) -> bool:
    return (
        any(re.search(rf"\b{re.escape(module)}\b", text) for module in modules)
        or any(re.search(rf"^\s*from {re.escape(package)} import", text, re.MULTILINE) for package in passing)
        or any(re.search(rf"from {re.escape(head)} import .*\b{tail}\b", text)
               for head, _, tail in (module.rpartition(".") for module in modules))
    )  # fmt: skip


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    with workshop_in(tmp_path_factory.mktemp("own")) as made:
        yield made


@pytest.fixture
def bench(request: pytest.FixtureRequest, workshop: Workshop, tmp_path: Path) -> Bench:
    upstream = request.param
    workshop.base(upstream)
    python = python_for(upstream) if upstream == "verl" else request.getfixturevalue("training")
    (tmp_path / "stubs").mkdir()
    (tmp_path / "stubs/torchaudio.py").write_text(AUDIO)
    return Bench(upstream, python, tmp_path, private_pytest(workshop.area))


def table(rows: Sequence[tuple[str, Results, Results]]) -> str:
    """File by file how many tests ended how, before and after."""
    shown = [f"{path}: {_counts(before)} → {_counts(after)}" for path, before, after in rows]
    return "\n".join([*shown, f"all: {_counts(*(row[1] for row in rows))} → {_counts(*(row[2] for row in rows))}"])


def _counts(*results: Results) -> str:
    counted = Counter(how for one in results for how in one.values())
    return ", ".join(f"{number} {how}" for how, number in sorted(counted.items(), key=lambda pair: pair[0] != "passed"))


def lost(rows: Sequence[tuple[str, Results, Results]]) -> list[str]:
    """The tests that passed before and do not after."""
    return [f"{path} {test}: {after.get(test, 'gone')}" for path, before, after in rows
            for test, how in before.items() if how == "passed" and after.get(test) != "passed"]  # fmt: skip


@pytest.mark.parametrize("bench", ["verl", "llamafactory"], indirect=True)
def test_none_that_passed_before_fails_after(bench: Bench, workshop: Workshop) -> None:
    """After all patches of the series at once, which every target's selection is a part of."""
    patches = QUEUE.upstream(bench.upstream).patches
    plain, patched = workshop.copy(bench.upstream, ()), workshop.copy(bench.upstream, patches)
    files = near(plain, bench.upstream, patches)
    rows = [(path, bench.run(plain, path), bench.run(patched, path)) for path in files]
    sys.stdout.write(f"\n{bench.upstream}, before → after:\n{table(rows)}\n")
    assert not lost(rows), table(rows)
    assert sum(how == "passed" for _, before, _ in rows for how in before.values()) >= 10, table(rows)


def test_a_patch_that_breaks_what_passed_is_found(workshop: Workshop, training: Path, tmp_path: Path) -> None:
    """The same comparison, with something broken in the patched tree."""
    (tmp_path / "stubs").mkdir()
    (tmp_path / "stubs/torchaudio.py").write_text(AUDIO)
    bench = Bench("llamafactory", training, tmp_path, private_pytest(workshop.area))
    copy, path = workshop.copy("llamafactory", ()), "tests/data/test_formatter.py"
    before = bench.run(copy, path)
    formatter = copy / "src/llamafactory/data/formatter.py"
    text = formatter.read_text()
    formatter.write_text(text.replace("class EmptyFormatter", "class EmptyFormater"))
    try:
        rows = [(path, before, bench.run(copy, path))]
    finally:
        formatter.write_text(text)
    assert len(lost(rows)) == sum(how == "passed" for how in before.values()) > 0, table(rows)
