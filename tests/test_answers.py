"""True answers of every probe, spoilt at every key: another shape is never believed, never a traceback."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from test_audit import subject
from test_probes import LOG, verl_checkpoint
from toyenv import install, make_venv, script, site_packages

import patchq.installed.install
import patchq.proof
from patchq.audit import AUDITS, STATIC, Subject
from patchq.document import validate
from patchq.errors import PatchqError, Prevented
from patchq.evidence.record import Evidence
from patchq.installed.installation import _parse
from patchq.machine.answers import SHAPES, misfit
from patchq.machine.launch import Launch
from patchq.machine.probe import MAX_ANSWER, ProbeFailed, answer_of, ask, reading
from patchq.process import Outcome
from patchq.proof import Prover
from patchq.queue.baseline import Baseline
from patchq.queue.target import Environment, Folder
from patchq.report import State, Step

GPU = Path(__file__).parents[1] / "docs/records/2026-12-01-gpu-smoke-h200/record.json"
OTHERS: tuple[Any, ...] = (None, True, False, 0, -1, 1.5, float("nan"), float("inf"), 10**400, "", "x", [],
                           [None], ["x"], [[]], {}, {"x": 1}, {"": {}}, json.loads("[" * 200 + "]" * 200))  # fmt: skip


@dataclass
class True_:
    """An answer that a probe gave, what it was asked, and how it is judged."""

    script: str
    question: Mapping[str, Any]
    answer: dict[str, Any]
    judge: Callable[[dict[str, Any]], list[Step]] = field(repr=False)

    def judged(self, spoilt: Any) -> list[Step] | None:
        """The steps that come of a printed answer; None where it is refused as a whole, in one line."""
        outcome = Outcome(("python",), 0, json.dumps(spoilt).encode() + b"\n", b"", 0)
        try:
            answer = answer_of(outcome, self.script, Path("/opt/python"), 1, self.question)
            with reading(self.script, Path("/opt/python")):
                return self.judge(answer)
        except ProbeFailed as refused:
            (problem,) = refused.problems
            assert "\n" not in problem.what and len(problem.what) < 400, problem
            return None


def spoilt(value: Any, most: int = 3) -> Iterator[Any]:
    """Copies of JSON types with one part of another type, or one key more; of what is long the first few parts."""
    yield from (other for other in OTHERS if _is_other(value, other))
    if isinstance(value, dict):
        yield {**value, "more": {"x": [None]}}
        for key in list(value)[: most if len(value) > 20 else None]:
            yield from ({**value, key: other} for other in spoilt(value[key], most))
    elif isinstance(value, list):
        for at, item in enumerate(value[:most]):
            yield from ([*value[:at], other, *value[at + 1 :]] for other in spoilt(item, most))


def _is_other(value: Any, other: Any) -> bool:
    numbers = (int, float)
    if type(value) in numbers and type(other) in numbers:  # of its own type only what it can never be
        return type(value) is int and (other in (-1, 1.5, 10**400) or other != other)
    return type(value) is not type(other)


def lessened(value: Any) -> Iterator[Any]:
    """Copies with one part left out, which may be another true answer."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in parts:
        if isinstance(value, dict):
            yield {name: one for name, one in value.items() if name != key}
            yield from ({**value, key: less} for less in lessened(item))
        else:
            yield [*value[:key], *value[key + 1 :]]
            yield from ([*value[:key], less, *value[key + 1 :]] for less in lessened(item))


def names(steps: list[Step], *states: State) -> set[str]:
    return {step.name for step in steps if step.state in states}


def hold(case: True_) -> int:
    """Every spoilt answer is refused, or judged no better than the true one; how many there were."""
    true = case.judged(case.answer)
    assert true is not None, misfit(case.script, case.answer, case.question)
    passed, failed = names(true, State.PASSED), names(true, State.FAILED)
    all_of_them = list(spoilt(case.answer))
    for one in all_of_them:
        found = case.judged(one)
        if found is not None:
            assert names(found, State.PASSED) <= passed, (one, found)
            assert failed <= names(found, State.FAILED), (one, found)
    for one in islice(lessened(case.answer), 2000):
        case.judged(one)
    return len(all_of_them)


def audited(name: str, answer: dict[str, Any], of: Subject | None = None, **settings: Any) -> True_:
    """An answer that `verify` or `smoke` judges."""
    audit, of = AUDITS[name], of or subject()
    chosen = validate(settings, audit.settings, "settings", {})
    return True_(audit.script, audit.question(of, chosen), answer, lambda one: list(audit.steps(of, chosen, one)))


# What `verify` asks: of a real environment, whole and with a fault for each probe.


def environment(folder: Path, *, is_whole: bool) -> Subject:
    python = make_venv(folder / "env")
    install(
        folder / "env", "torch", "2.9.0", {"torch/__init__.py": "a = 1\n", "torch/b.py": ""}, ["absent; extra == 'x'"]
    )
    if not is_whole:
        site = site_packages(folder / "env")
        (site / "torch/__init__.py").write_text("a = 2\n")
        (site / "ray").mkdir()
        script(folder / "env/bin/torchrun", "/usr/bin/python9")
        (folder / "start/verl").mkdir(parents=True)
        (folder / "start/verl/__init__.py").touch()
    (folder / "start").mkdir(exist_ok=True)
    declared = Environment(
        python=str(python),
        protected=("torch",),
        pins={"torch": "2.9.0" if is_whole else "2.8.0"},
        require=("PATH",) if is_whole else ("NOT_SET",),
        device_query="exit 127",
        version="3.99" if not is_whole else None,
        folders={"data": Folder(path=str(folder), free=0 if is_whole else 1e9)},
    )
    launch = Launch("t", python, "", (), folder / "pyc", folder / "r", (("MINE", "1"),))
    return Subject("rl", declared, launch, folder, start=(folder / "start",))


@pytest.fixture(scope="module", params=[True, False], ids=["whole", "faulty"])
def here(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    return environment(tmp_path_factory.mktemp("answers"), is_whole=request.param)


@pytest.mark.fault
@pytest.mark.parametrize("name", STATIC)
def test_what_verify_asks(here: Subject, name: str) -> None:
    audit = AUDITS[name]
    question = audit.question(here, audit.settings())
    answer = ask(here.launch, audit.script, question, cwd=here.work)
    assert hold(audited(name, answer, here)) > 20


# What `smoke` asks: as a GPU answered, as a service or Ray does, and as the probes say of real files.

RAY = {"host": "node", "executable": "/opt/env/bin/python", "version": "3.11.7", "path": ["/opt"],
       "origins": {"ray": "/opt/ray/__init__.py", "verl": None}, "variables": {"PATH": "/bin"}}  # fmt: skip
CLUSTER = {"origin": "/opt/ray/__init__.py", "lacking": [], "version": "2.60.0", "address": "node:6379", "mine": RAY,
           "unreachable": "", "resources": {"GPU": 8.0}, "actors": [RAY]}  # fmt: skip
SAID = {"text": "5", "tokens": [20], "executable": "/opt/env/bin/python", "torch": ["2.9", "/opt/torch"],
        "vllm": ["0.11", "/opt/vllm"]}  # fmt: skip  # no vLLM was to be had: this has its probe's form
VECTOR = {"health": "", "model": "m", "dimension": 3, "norm": 1.0}
DATA = {"pyarrow": "21", "files": [{"path": "/d", "rows": 5, "columns": ["prompt"], "problems": []}]}
SERVED = {"model": "m", "dimension": 3, "url": "http://h"}


def on_gpu(name: str) -> dict[str, Any]:
    """What a probe answered on one GPU, as its record kept it."""
    facts = json.loads(GPU.read_text())["facts"]["audit"]["rl"][name]
    if name == "allocator":  # as it was then, the ranks twice
        facts.pop("in_force")
    return {"devices": facts} if name == "memory" else dict(facts)


def _changed(answer: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return json.loads(json.dumps({**answer, **more}))  # type: ignore[no-any-return]


def _wrong_sum() -> dict[str, Any]:
    answer = on_gpu("all_reduce")
    answer["ranks"][0]["answer"]["sum"] = 7.0
    return answer


def _dead_rank() -> dict[str, Any]:
    answer = on_gpu("all_reduce")
    answer["ranks"][0] |= {"answer": None, "error": "killed by SIGKILL"}
    return answer


ASKED: dict[str, Callable[[], True_]] = {
    **{
        name: (lambda name=name: audited(name, on_gpu(name)))
        for name in ("memory", "allocator", "bf16", "all_reduce", "fsdp", "pairs")
    },
    "too little memory": lambda: audited("memory", on_gpu("memory"), free=9999),
    "another allocator": lambda: audited(
        "allocator",
        on_gpu("allocator"),
        subject({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:99"}),
    ),
    "not exact": lambda: audited("bf16", on_gpu("bf16"), tolerance=0),
    "not finite": lambda: audited(
        "bf16", _changed(on_gpu("bf16"), finite=False, errors={"loss": float("nan"), "gradients": 0.1})
    ),
    "a wrong sum": lambda: audited("all_reduce", _wrong_sum()),
    "a dead rank": lambda: audited("all_reduce", _dead_rank()),
    "no sound step": lambda: audited("fsdp", on_gpu("fsdp"), tolerance=0),
    "flash-attn that does not load": lambda: audited(
        "pairs", {"flash_attn": "2.8", "torch": "2.9", "error": "ImportError: x"}
    ),
    "ray": lambda: audited("ray", CLUSTER),
    "ray without resources": lambda: audited("ray", CLUSTER, resources={"GPU": 99}),
    "ray that lost files": lambda: audited("ray", {"origin": None, "lacking": ["init"]}),
    "ray out of reach": lambda: audited(
        "ray", {**{k: CLUSTER[k] for k in list(CLUSTER)[:5]}, "unreachable": "refused"}
    ),
    "ray with an error": lambda: audited(
        "ray", {**{k: CLUSTER[k] for k in list(CLUSTER)[:6]}, "error": "E: x", "asks_token": False}
    ),
    "another actor": lambda: audited("ray", _changed(CLUSTER, actors=[{**RAY, "version": "3.12.0"}])),
    "generate": lambda: audited("generate", SAID, model="/m"),
    "silence": lambda: audited("generate", {**SAID, "tokens": []}, model="/m"),
    "embedding": lambda: audited("embedding", VECTOR, **SERVED),
    "a sick service": lambda: audited("embedding", {"health": "HTTP 500"}, **SERVED),
    "a request that fails": lambda: audited("embedding", {"health": "", "error": "HTTP 500"}, **SERVED),
    "a zero vector": lambda: audited("embedding", {**VECTOR, "norm": 0.0}, **SERVED),
    "another model": lambda: audited("embedding", {**VECTOR, "model": None}, **SERVED),
    "data": lambda: audited("data", DATA, files=["/d"]),
    "bad data": lambda: audited(
        "data", _changed(DATA, files=[{"path": "/d", "problems": ["is not there"]}]), files=["/d"]
    ),
    "a copy": lambda: audited("copy", {"files": 2, "of": 2, "written": 1, "bytes": 9}, source="/a", target="/b"),
    "a copy that broke off": lambda: audited(
        "copy", {"files": 1, "of": 2, "failed": "x", "error": "No space"}, source="/a", target="/b"
    ),
}


LARGE = {"allocator", "another allocator", "all_reduce", "a wrong sum", "a dead rank", "fsdp", "no sound step",
         *(kind for kind in ASKED if "ray" in kind)}  # fmt: skip


@pytest.mark.parametrize("kind", [pytest.param(one, marks=pytest.mark.fault) if one in LARGE else one for one in ASKED])
def test_what_smoke_asks(kind: str) -> None:
    assert hold(ASKED[kind]()) > 15


@pytest.mark.fault
@pytest.mark.parametrize("exit_code", [0, 1])
def test_what_files_say(exit_code: int, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    settings = {
        "step_log": {"log": str(tmp_path / "log"), "exit": exit_code},
        "checkpoint": {"folder": str(verl_checkpoint(tmp_path)), "step": 3 + exit_code},
    }
    launch = Launch("t", Path(sys.executable), "", (), tmp_path / "pyc", tmp_path / "r")
    for name, chosen in settings.items():
        case = audited(name, {}, **chosen)
        case.answer = ask(launch, case.script, case.question, cwd=tmp_path)
        assert hold(case) > 20


# What `apply` and `install` ask.


def told(monkeypatch: pytest.MonkeyPatch, room: Any, answers: Mapping[str, Any]) -> None:
    """Have a room hear these answers, as if an interpreter had printed them."""

    def heard(launch: Launch, probe: str, question: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        outcome = Outcome(("python",), 0, json.dumps(answers[probe]).encode(), b"", 0)
        return answer_of(outcome, probe, launch.python, 1, question)

    monkeypatch.setattr(room, "ask", heard)


@pytest.mark.fault
@pytest.mark.parametrize("is_well", [True, False])
def test_what_apply_asks(is_well: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launch("t", Path(sys.executable), "", (), tmp_path / "pyc", tmp_path / "r")
    prover = Prover("rl", launch, frozenset({"gone"}), Evidence())
    baseline = Baseline.model_validate(
        {
            "upstream": "up",
            "version": "1",
            "packages": ("json",),
            "sdist": {"project": "up", "version": "1", "filename": "up-1.tar.gz", "sha256": "0" * 64},
        }
    )
    folder = Path(os.__file__).parent if is_well else tmp_path
    results = {"test_a.py::one": {"state": "passed"}, "test_a.py::two": {"state": "not run", "missing": ["gone"]}}
    if not is_well:
        results["test_a.py::three"] = {"state": "failed", "text": "E"}
    tested = {"code": int(not is_well), "pytest": "9", "results": results, "output": "1 passed"}
    origins = ask(
        launch, "origins", {"locate": ["json"], "import": ["json"] if is_well else ["json", "no_such"]}, cwd=tmp_path
    )
    modules = list(origins["imported"])

    def imports(answer: dict[str, Any]) -> list[Step]:
        told(monkeypatch, patchq.proof, {"origins": answer})
        return prover.imports("up", folder, baseline, modules)

    def tests(answer: dict[str, Any]) -> list[Step]:
        told(monkeypatch, patchq.proof, {"cpu_tests": answer})
        return prover.tests("up", {"test_a.py": b""}, tmp_path)

    def interpreter(answer: dict[str, Any]) -> list[Step]:
        told(monkeypatch, patchq.proof, {"interpreter": answer, "packages": packages})
        return [prover.interpreter(None if is_well else "3.99")]

    packages = ask(launch, "packages", {"files": False}, cwd=tmp_path)
    python = ask(launch, "interpreter", {}, cwd=tmp_path)
    assert hold(True_("origins", {"locate": ["json"], "import": modules}, origins, imports)) > 20
    assert hold(True_("cpu_tests", {}, tested, tests)) > 20
    assert hold(True_("interpreter", {}, python, interpreter)) > 20


def test_a_pytest_that_broke_off_is_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An internal error of pytest (3) ends it between two tests: what was passed before is shown, and not believed."""
    launch = Launch("t", Path(sys.executable), "", (), tmp_path / "pyc", tmp_path / "r")
    answer = {"code": 3, "pytest": "9", "results": {"test_a.py::one": {"state": "passed"}}, "output": ""}
    told(monkeypatch, patchq.proof, {"cpu_tests": answer})
    steps = Prover("rl", launch, frozenset(), Evidence()).tests("up", {"test_a.py": b""}, tmp_path)
    assert [step.state for step in steps] == [State.PASSED, State.FAILED]
    assert steps[-1].summary == "pytest ended with status 3, and names no test that failed"


def test_what_install_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = Launch("t", Path("/opt/python"), "", (), tmp_path / "pyc", tmp_path / "r")
    answer = {
        "paths": dict.fromkeys(("purelib", "platlib", "scripts", "data", "include"), "/opt/env/lib"),
        "distributions": {"torch": [{"version": "2.9", "root": "/opt/env/lib", "files": ["/opt/env/lib/t.py"]}]},
    }
    for one in (answer, *spoilt(answer)):
        told(monkeypatch, patchq.installed.install, {"layout": one})
        with suppress(ProbeFailed):
            layout = patchq.installed.install.layout_of(launch, ["torch"])
            assert layout.version("torch") in ("2.9", "?", None) and layout.snapshot(["torch"]) is not None
    copy = {"version": "1", "root": "/r", "metadata": "/m", "record": "/R", "editable": False, "shadowed": {"a": "/b"}}
    for one in spoilt({"copies": [copy]}):
        with suppress(Prevented):
            _parse(Outcome(("python",), 0, json.dumps(one).encode(), b"", 0), Path("/opt/python"))


# Around the answer.

LAYOUT = {"flash_attn": None}
LINE = json.dumps(LAYOUT).encode()


@pytest.mark.parametrize(("printed", "code", "said"), [
    (LINE + b"\n" + LINE, 0, ""),
    (LINE + b'\n{"flash_attn": "2.8", "torch": "2.9", "extension": "x"}', 0, "gave 2 answers that differ"),
    (LINE[:-1], 0, 'gave no answer: {"flash_attn": null'),
    (LINE.replace(b"null", b"NaN"), 0, "another shape: flash_attn is a number"),
    (LINE, 3, "answered, and then ended with exit status 3"),
    (LINE, -15, "was killed by SIGTERM"),
    (b"[" + LINE + b"]", 0, "gave no answer"),
    (b'{"flash_attn": "' + b"x" * MAX_ANSWER + b'"}', 0, "gave no answer"),
    (b'{"flash_attn": ' + b"[" * 150 + b"]" * 150 + b"}", 0, "gave no answer"),
    (b'{"flash_attn": {"a": ' * 9 + b"1" + b"}}" * 9, 0, "another shape"),
    (LINE.decode().encode("utf-16"), 0, "gave no answer"),
    (LINE.replace(b"{", b"{\0"), 0, "gave no answer"),
    (b'{"not_run": "no need"}', 0, "gave no answer"),
])  # fmt: skip
def test_one_whole_answer_and_a_good_end(printed: bytes, code: int, said: str) -> None:
    outcome = Outcome(("python",), code, printed, b"", 0)
    if not said:
        assert answer_of(outcome, "pairs", Path("/opt/python"), 1) == LAYOUT
        return
    with pytest.raises(PatchqError) as raised:
        answer_of(outcome, "pairs", Path("/opt/python"), 1)
    assert said in raised.value.problems[0].what


def test_every_probe_is_spoilt_somewhere() -> None:
    here = {AUDITS[name].script for name in STATIC} | {"layout", "installation", "cpu_tests", "step_log", "checkpoint"}
    assert here | {make().script for make in ASKED.values()} == set(SHAPES)
