"""Proving a work copy with the training interpreter: it compiles, is what gets imported, and passes its tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchq.errors import PatchqError
from patchq.evidence.record import Evidence
from patchq.exclusive import scratch
from patchq.machine.launch import Launch
from patchq.machine.probe import ProbeFailed, ask, reading
from patchq.process import leashed
from patchq.progress import tell
from patchq.queue.baseline import Baseline
from patchq.report import State, Step
from patchq.store import Store

COMPILE_SECONDS = 900
TEST_SECONDS = 3600
_NONE_FAILED = (0, 5)  # all passed, none was there (pytest.ExitCode)


@dataclass(frozen=True)
class Prover:
    """One environment that is asked; what it says goes into `evidence`."""

    name: str
    launch: Launch
    without: frozenset[str]
    evidence: Evidence

    def interpreter(self, wanted: str | None) -> Step:
        """Which interpreter this is, against the version that the target demands; keeps `pip freeze`."""
        group = f"environment {self.name}"
        try:
            with scratch() as folder:
                answer = ask(self.launch, "interpreter", {}, cwd=folder)
                installed = ask(self.launch, "packages", {"files": False}, cwd=folder)
            with reading("interpreter", self.launch.python):
                version, executable = str(answer["version"]), str(answer["executable"])
            with reading("packages", self.launch.python):
                self.evidence.freeze[self.name] = frozen(installed)
        except PatchqError as error:
            return Step(
                f"interpreter {self.name}",
                State.NOT_RUN,
                error.problems[0].what,
                group,
                hint=str(self.launch.python),
            )
        self.evidence.facts.setdefault("environments", {})[self.name] = answer
        is_right = wanted is None or version.startswith(f"{wanted}.")
        said = f"Python {version}, {executable}"
        if is_right:
            return Step(f"interpreter {self.name}", State.PASSED, said, group)
        hint = f"the target's wheels are chosen for Python {wanted}; an exact version makes it a demand"
        return Step(f"interpreter {self.name}", State.WARNING, said, group, hint=hint)

    def compiles(self, upstream: str, folder: Path, baseline: Baseline) -> Step:
        """`compileall`, forced, into the cache that training reads; checked by content at every import."""
        name = f"compile {upstream}"
        tell(f"compiling {upstream}")
        paths = [str(folder / path) for path in baseline.compile]
        argv = [
            str(self.launch.python),
            "-m",
            "compileall",
            "-q",
            "-f",
            "--invalidation-mode",
            "checked-hash",
            *paths,
        ]
        with scratch() as room, leashed(self.launch.argv(argv), cwd=room) as running:
            done = running.outcome(COMPILE_SECONDS)
        self.evidence.logs[f"compile-{upstream}-{self.name}.txt"] = done.text + done.error_text
        if done.ok:
            return Step(name, State.PASSED, ", ".join(baseline.compile), self._group, seconds=done.seconds)
        said = tuple((done.text + done.error_text).strip().splitlines()[:8])
        what = f"did not end within {COMPILE_SECONDS} s" if done.timed_out else "does not compile"
        return Step(name, State.FAILED, what, self._group, said, seconds=done.seconds)

    def imports(self, upstream: str, folder: Path, baseline: Baseline, modules: Sequence[str]) -> list[Step]:
        """Each package is found in the work copy and nowhere else; each of `modules` is really imported."""
        tell(f"importing {upstream} in the environment {self.name}")
        question = {"locate": list(baseline.packages), "import": list(modules)}
        try:
            with scratch() as room:
                answer = ask(self.launch, "origins", question, cwd=room, timeout=600)
            with reading("origins", self.launch.python):
                located = [self._located(name, answer["located"][name], folder) for name in baseline.packages]
                imported = [self._imported(name, answer["imported"][name], folder) for name in modules]
        except ProbeFailed as error:
            return [Step(f"import {upstream}", State.FAILED, error.problems[0].what, self._group)]
        self.evidence.facts.setdefault("origins", {}).setdefault(self.name, {})[upstream] = answer
        return located + imported

    def tests(self, upstream: str, files: Mapping[str, bytes], pytest: Path) -> list[Step]:
        """Run CPU tests in a scratch folder; one step a test file."""
        tell(f"running {len(files)} CPU test files of {upstream} in the environment {self.name}")
        with scratch() as room:
            for path, data in files.items():
                (room / path).parent.mkdir(parents=True, exist_ok=True)
                (room / path).write_bytes(data)
            (room / "pytest.ini").write_text("[pytest]\n")
            question = {"files": sorted(files), "pytest": str(pytest), "rootdir": str(room)}
            try:
                answer = ask(self.launch, "cpu_tests", question, cwd=room, timeout=TEST_SECONDS)
                with reading("cpu_tests", self.launch.python):
                    return self._tested(upstream, sorted(files), answer)
            except ProbeFailed as error:
                return [Step(f"tests {upstream}", State.FAILED, error.problems[0].what, self._group)]
            finally:  # the bytecode of the tests themselves and of their stand-ins
                shutil.rmtree(self.launch.pycache / room.relative_to(room.anchor), ignore_errors=True)

    def _tested(self, upstream: str, files: Sequence[str], answer: dict[str, Any]) -> list[Step]:
        self.evidence.logs[f"tests-{upstream}-{self.name}.txt"] = str(answer.pop("output", ""))
        if "error" in answer:
            return [Step(f"tests {upstream}", State.NOT_RUN, str(answer["error"]), self._group)]
        steps = [step for path in files for step in self._file(path, answer)]
        if answer["code"] not in _NONE_FAILED and not any(step.state is State.FAILED for step in steps):
            what = f"pytest ended with status {answer['code']}, and names no test that failed"
            steps.append(Step(f"tests {upstream}", State.FAILED, what, self._group))
        return steps

    @property
    def _group(self) -> str:
        return f"environment {self.name}"

    def _located(self, package: str, found: Mapping[str, Any], folder: Path) -> Step:
        name = f"origin {package}"
        places = [found.get("origin") or "", *found.get("folders", [])]
        if "error" in found:
            return Step(name, State.FAILED, f"{package}: {found['error']}", self._group)
        if not found.get("origin") or not all(_is_inside(Path(place), folder) for place in places):
            others = ", ".join(place for place in places if not _is_inside(Path(place), folder)) or "a namespace"
            return Step(name, State.FAILED, f"{package} would be imported from {others}", self._group,
                        hint=f"the work copy is {folder}")  # fmt: skip
        return Step(name, State.PASSED, str(found["origin"]), self._group)

    def _imported(self, module: str, found: Mapping[str, Any], folder: Path) -> Step:
        name = f"import {module}"
        if "missing" in found:
            return Step(name, State.NOT_RUN, f"{found['missing']} is not installed", self._group)
        if "error" in found:
            trace = tuple(str(found.get("trace", "")).strip().splitlines()[-6:])
            return Step(name, State.FAILED, str(found["error"]), self._group, trace)
        inside = _is_inside(Path(str(found["file"])), folder)
        return Step(name, State.PASSED if inside else State.FAILED, str(found["file"]), self._group)

    def _file(self, path: str, answer: Mapping[str, Any]) -> Iterator[Step]:
        mine = {test: found for test, found in answer["results"].items() if test.split("::")[0] == path}
        by_state: dict[str, list[str]] = {}
        for test, found in mine.items():
            by_state.setdefault(self._state(found), []).append(test.partition("::")[2])
        name = path.rpartition("/")[2]
        if not mine:
            yield Step(name, State.FAILED, "ran no test", self._group)
        if failed := by_state.get("failed"):
            texts = [str(mine[_node(path, test)].get("text", "")) for test in failed[:3]]
            detail = tuple(line for text in texts for line in text.strip().splitlines()[-12:])
            yield Step(name, State.FAILED, f"{len(failed)} failed: {', '.join(failed)}", self._group, detail)
        if skipped := by_state.get("not run"):
            reasons = sorted({self._reason(mine[_node(path, test)]) for test in skipped})
            yield Step(
                name,
                State.NOT_RUN,
                f"{len(skipped)} tests: {'; '.join(reasons)}",
                self._group,
                tuple(skipped),
            )
        if excluded := by_state.get("excluded"):
            lacking = sorted({name for test in excluded for name in mine[_node(path, test)]["missing"]} & self.without)
            reason = f"{len(excluded)} tests: this target has no {', '.join(lacking)}"
            yield Step(name, State.EXCLUDED, reason, self._group, data={"tests": excluded})
        if passed := by_state.get("passed"):
            yield Step(name, State.PASSED, f"{len(passed)} passed", self._group, data={"tests": passed})

    def _state(self, found: Mapping[str, Any]) -> str:
        lacks_by_design = self.without.intersection(found.get("missing", ()))
        return "excluded" if lacks_by_design else str(found["state"])

    def _reason(self, found: Mapping[str, Any]) -> str:
        missing = found.get("missing")
        return f"{', '.join(missing)} missing" if missing else str(found.get("text", "skipped"))


def frozen(installed: Mapping[str, Any]) -> str:
    """What `pip freeze` would print, from the answer of the probe `packages`."""
    lines = sorted((copy["frozen"] for copy in installed["distributions"].values()), key=str.lower)
    return "".join(f"{line}\n" for line in lines)


def _node(path: str, test: str) -> str:
    """pytest's name of a test, or of a file that could not be read at all."""
    return f"{path}::{test}" if test else path


def adds_no_bad_whitespace(store: Store, upstream: str, base_tree: str, tree: str) -> Step:
    """Whitespace errors that the patches add (a carriage return at a line's end is upstream's own affair)."""
    found = store.git.try_run(
        ("-c", "core.whitespace=cr-at-eol", "diff-tree", "--check", "--no-color", base_tree, tree)
    )
    rows = tuple(row for row in found.text.splitlines() if row and not row.startswith("+"))
    if rows:
        return Step("whitespace", State.WARNING, f"{len(rows)} errors are added", upstream, rows[:20])
    return Step("whitespace", State.PASSED, "the patches add no errors", upstream)


def _is_inside(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())
