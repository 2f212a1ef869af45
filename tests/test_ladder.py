"""Climbing a ladder: real commands in a real launch environment, expectations, and where it stops."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from patchq.document import parse_yaml
from patchq.errors import Invalid
from patchq.ladder.climb import Climb, between
from patchq.ladder.command import variables_of
from patchq.ladder.model import BUILT_IN, RUNGS, Ladder, RungName
from patchq.machine.launch import Launch
from patchq.report import State, Step


def launch(folder: Path, **changes: Any) -> Launch:
    return Launch(**{
        "title": "target here", "python": Path(sys.executable), "profile": "", "import_roots": (),
        "pycache": folder / "pyc", "ray_folder": Path("/tmp/pqtest"), **changes,
    })  # fmt: skip


def ladder(text: str) -> Ladder:
    return parse_yaml(text.encode(), Ladder, "here.yaml")


def climb(folder: Path, text: str, rungs: tuple[RungName, ...] = ("step", "recovery"), **changes: Any) -> list[Step]:
    def survey(probe: str, settings: object, rung: RungName) -> Iterable[Step]:
        states = {"memory": State.NOT_RUN, "cache": State.FAILED}
        return [Step(probe, states.get(probe, State.PASSED), str(settings), rung)]

    done = Climb(ladder(text), launch(folder, **changes), survey, folder / "rooms", folder / "logs")
    return list(done.steps(rungs))


def states(steps: list[Step]) -> dict[str, State]:
    return {step.name: step.state for step in steps}


COMMAND = """
step:
  commands:
    - {{name: it, run: [bash, -c, {script!r}], {rest}}}
"""


@pytest.mark.parametrize(
    ("script", "rest", "broken"),
    [
        ("echo a; exit 0", "must: ['^a$']", ""),
        ("echo a >&2; exit 3", "exit: 3, must: ['^a$'], must_not: [b]", ""),
        ("exit 2", "exit: 0", "exit status 2, 0 was expected"),
        ("kill -9 $$", "exit: 0", "exit status -9, 0 was expected"),
        ("echo x", "must: ['^y']", "its output lacks /^y/"),
        ("echo x; echo loss nan", "must_not: ['nan$']", "its output has /nan$/ in line 2"),
        ("echo $A; sleep 60", "seconds: 1", "did not end within 1 s"),
        ("true", "cwd: /nowhere/at/all", "its working directory is not there"),
        ("exec /nowhere/at/all", "exit: 0", "exit status 127, 0 was expected"),
    ],
)
def test_expectations(tmp_path: Path, script: str, rest: str, broken: str) -> None:
    (step, *_) = (step for step in climb(tmp_path, COMMAND.format(script=script, rest=rest)) if step.name == "it")
    assert step.state is (State.FAILED if broken else State.PASSED)
    assert not broken or step.summary == broken


def test_a_failure_keeps_command_output_and_cause(tmp_path: Path) -> None:
    script = 'import sys; print("token=hunter2 begin", flush=True); {}["bias_correction"]'
    text = f"step: {{commands: [{{name: t, run: [python, -c, {script!r}], set: {{HF_TOKEN: hf_secret, A: b}}}}]}}"
    (step,) = (step for step in climb(tmp_path, text) if step.name == "t")
    assert step.data["first_error"]["kind"] == "KeyError"
    line = 4 if sys.version_info < (3, 13) else 6  # it shows the source of `-c`, and marks the place in it
    assert step.data["first_error"]["line"] == line
    assert step.data["set"]["HF_TOKEN"] == "***" and step.data["set"]["A"] == "b"
    assert any(
        row.startswith(f"first effective error (line {line}): KeyError: 'bias_correction'") for row in step.detail
    )
    assert (tmp_path / "logs/step-t.txt").read_text().startswith("token=hunter2 begin\n")
    assert "hunter2" not in str(step.as_json())


def test_what_comes_after_a_failure_is_not_run(tmp_path: Path) -> None:
    text = """
    required: [recovery]
    step: {commands: [{name: one, run: ["false"]}, {name: two, run: ["true"]}]}
    recovery: {commands: [{name: three, run: ["true"]}]}
    """
    steps = climb(tmp_path, text)
    assert states(steps)["two"] is State.NOT_RUN
    assert [(step.name, step.state, step.required) for step in steps][-1] == ("recovery", State.NOT_RUN, True)
    assert "three" not in states(steps)


def test_a_missing_need_stops_only_where_it_is_required(tmp_path: Path) -> None:
    """`memory` is not run here; `cache` fails. The rung service asks the one before the other."""
    easy = climb(tmp_path / "a", "{}", ("service", "step"))
    assert [step.code for step in easy if step.name == "memory"] == [0]
    strict = climb(tmp_path / "b", "required: [service]", ("service", "step"))
    assert [step.code for step in strict if step.name == "memory"] == [4]
    assert states(strict)["step"] is State.NOT_RUN


def test_probes_that_need_settings_are_asked_only_with_them(tmp_path: Path) -> None:
    text = "recovery: {ask: {checkpoint: {folder: /ckpt}, bf16: {}}}"
    found = {step.name: step for step in climb(tmp_path, text, ("recovery",))}
    assert found["checkpoint"].summary == "{'folder': '/ckpt'}"
    assert found["copy"].state is State.EXCLUDED
    assert found["bf16"].state is State.PASSED


def test_gates_are_asked_about_the_commands_own_log(tmp_path: Path) -> None:
    text = "step: {commands: [{name: t, run: [echo, loss], gates: {kl: 0.1}}]}"
    (gate,) = (step for step in climb(tmp_path, text) if step.name == "step_log")
    assert "'kl': 0.1" in gate.summary and str(tmp_path / "logs/step-t.txt") in gate.summary


@pytest.mark.fault
def test_nothing_of_a_command_outlives_it(tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    script = f"(sleep 1; touch {marker}) & exit 0"
    climb(tmp_path, COMMAND.format(script=script, rest="exit: 0"))
    time.sleep(1.5)
    assert not marker.exists()


def test_the_environment_is_the_one_of_the_launch(tmp_path: Path) -> None:
    seen = variables_of(launch(tmp_path, variables=(("A", "b c\nd"),), forbidden=("HOME",)), cwd=tmp_path)
    assert seen["A"] == "b c\nd" and "HOME" not in seen
    with pytest.raises(Invalid, match="PPU_SDK is not set"):
        variables_of(launch(tmp_path, required=("PPU_SDK",)), cwd=tmp_path)


def test_rungs_by_name() -> None:
    assert between(None, None) == RUNGS
    assert between("service", "step") == ("service", "framework", "step")
    with pytest.raises(Invalid, match="comes after"):
        between("step", "static")
    with pytest.raises(Invalid, match="no rung 'stp'"):
        between("stp", None)
    assert set(BUILT_IN) == set(RUNGS)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("step: {commands: [{name: a, run: []}]}", "here.yaml:1"),
        ("step:\n  commands:\n    - name: a\n      run: [x]\n      must: ['(']", "not a regular expression"),
        ("static: {ask: {machin: {}}}", "did you mean 'machine'"),
        ("required: [statik]", "here.yaml:1"),
        ("step: {commands: [{name: a, run: [x]}, {name: a, run: [x]}]}", "is there twice"),
        ("step: {commands: [{name: ../a, run: [x]}]}", "here.yaml:1"),
    ],
)
def test_bad_ladders_are_named(text: str, what: str) -> None:
    with pytest.raises(Invalid, match=what.replace("(", r"\(")):
        ladder(text)
