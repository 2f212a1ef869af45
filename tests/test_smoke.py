"""`smoke` on a queue that was really applied: the work copy is what commands import, and a record is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy import applied, make_queue

from patchq.commands.place import Place
from patchq.commands.smoke import smoke
from patchq.errors import Invalid, Refused
from patchq.evidence.record import read_record
from patchq.report import State

LADDER = """
require: [TOY_SDK]
set: {TOY: "${TOY_VALUE}", API_TOKEN: very-secret}
ladder:
  required: [step]
  step:
    commands:
      - {name: import, run: [python, -c, "import toy, os; print(toy.STATE, os.environ['TOY'])"], must: ["^patched v$"]}
      - {name: fails, run: [python, -c, "import toy; raise ValueError(toy.STATE)"]}
  recovery:
    commands: [{name: never, run: ["true"]}]
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("smoke")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setenv("TOY_VALUE", "v")
        found = make_queue(folder, LADDER)
        applied(found)
    return Place(found.root)


def test_climbs_records_and_stops(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_VALUE", "v")
    monkeypatch.setenv("TOY_SDK", "/sdk")
    report = smoke(place, "here", first="step")
    found = {step.name: step for step in report.steps}
    assert found["import"].state is State.PASSED
    assert found["fails"].state is State.FAILED
    assert found["recovery"].state is State.NOT_RUN
    assert report.exit_code == 1
    record = read_record(Path(report.data["record"]))
    assert record.facts["variables"]["TOY_SDK"] == "/sdk"
    assert record.facts["variables"]["API_TOKEN"] == "***"
    failed = next(step for step in record.steps if step["name"] == "fails")
    assert failed["data"]["first_error"]["message"] == "patched"
    assert "ValueError: patched" in (Path(report.data["record"]) / failed["data"]["log"]).read_text()
    assert "very-secret" not in json.dumps(record.facts) + json.dumps(record.steps)


def test_a_missing_variable_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Invalid, match="TOY_VALUE is not set"):
        smoke(place, "here", first="step")
    monkeypatch.setenv("TOY_VALUE", "v")
    report = smoke(place, "here", first="step")
    assert report.exit_code == 1
    assert "TOY_SDK is not set" in report.steps[0].summary


def test_without_an_apply_it_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with pytest.raises(Refused, match="nothing was applied"):
        smoke(make_queue(tmp_path), "here")
