"""The shipped patches whose baseline is a pinned sdist, moved to other releases of the package index."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from verl_source import SERIES
from world import patchq, write

from patchq.commands.place import Place
from patchq.errors import Prevented
from patchq.index.download import find_sdist

pytestmark = pytest.mark.upstream

TARGET = """\
description: a machine
work: {work}
upstreams:
  {name}: {{baseline: sdist, environments: [local]}}
environments:
  local:
    python: ${{PATCHQ_PYTHON}}
"""
ADAM = "deepspeed/device/cpu-adam-missing-bias-correction.patch"
OPTIMIZER = "deepspeed/ops/adam/cpu_adam.py"
LAUNCHERS = ("src/llamafactory/launcher.py", "src/llamafactory/v1/launcher.py")


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """A queue with the shipped patches of one release of the index."""
    name, version = request.param
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    try:
        find_sdist(name, version)
    except Prevented as error:
        pytest.skip(str(error))
    room = tmp_path / "queue"
    room.mkdir()
    monkeypatch.chdir(room)
    assert patchq("init") == 0
    assert patchq("import", f"{name}=={version}", "--as-upstream", name) == 0
    write(room / "series", {"targets/local.yaml": TARGET.format(work=tmp_path / "work", name=name)})
    shutil.copytree(SERIES / name / "tests", room / "series" / name / "tests")
    assert patchq("import", SERIES / name / "device", "--upstream", name, "--layer", "device") == 0
    return room


def planned(capsys: pytest.CaptureFixture[str], name: str, *versions: str) -> dict[str, dict[str, dict[str, object]]]:
    """The matrix of a plan: patch → version → what is known."""
    capsys.readouterr()
    to = [word for version in versions for word in ("--to", version)]
    assert patchq("rebase", name, "--plan", *to, "--json") == 0
    return json.loads(capsys.readouterr().out)["data"]["matrix"]


@pytest.mark.parametrize("room", [("deepspeed", "0.18.4")], indirect=True)
def test_deepspeed_moves_and_a_conflict_is_solved(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    versions = ("0.18.5", "0.18.9", "0.19.8", "0.17.6")
    cells = planned(capsys, "deepspeed", *versions)[ADAM]
    assert [cells[version]["fate"] for version in versions] == ["unchanged", "conflict", "conflict", "conflict"]
    before = Place(room / "series").queue.files

    assert patchq("rebase", "deepspeed", "--to", "0.18.5") == 0
    queue = Place(room / "series").queue
    baseline, pin = queue.upstream("deepspeed").baseline, find_sdist("deepspeed", "0.18.5")
    assert baseline.sdist and baseline.installed
    assert (baseline.version, baseline.sdist.version, baseline.installed.version) == ("0.18.5",) * 3
    assert (baseline.sdist.filename, baseline.sdist.sha256) == (pin.filename, pin.sha256)
    assert queue.files[ADAM] == before[ADAM]
    assert patchq("lock") == 0 and patchq("check") == 0

    assert patchq("rebase", "deepspeed", "--to", "0.18.9") == 3
    path = room / "edit/rebase/deepspeed" / OPTIMIZER
    old, new = "group['bias_correction']", "group.get('bias_correction', True)"
    path.write_text(upstreams_side(path.read_text(), old, new))
    assert patchq("rebase", "deepspeed", "--continue") == 0
    queue = Place(room / "series").queue
    assert queue.upstream("deepspeed").baseline.version == "0.18.9" and queue.files[ADAM] != before[ADAM]
    assert patchq("lock") == 0 and patchq("check") == 0


@pytest.mark.parametrize("room", [("llamafactory", "0.9.5")], indirect=True)
def test_llamafactory_goes_back_a_release(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One launcher of 0.9.4 takes the allocator patch, the other does not; both launchers of 0.9.3 differ."""
    matrix = planned(capsys, "llamafactory", "0.9.4", "0.9.3")
    cells = matrix["llamafactory/device/allocator-for-driver-470.patch"]
    assert [cells["0.9.4"]["files"][path] for path in LAUNCHERS] == ["unchanged", "conflict"]
    assert [cells["0.9.3"]["files"][path] for path in LAUNCHERS] == ["conflict", "conflict"]
    before = Place(room / "series").queue.files
    assert patchq("rebase", "llamafactory", "--to", "0.9.4") == 3
    assert patchq("rebase", "llamafactory", "--skip") == 3
    assert patchq("rebase", "llamafactory", "--abort") == 0
    assert Place(room / "series").queue.files == before and patchq("check") == 0


def upstreams_side(text: str, old: str, new: str) -> str:
    """The text with upstream's side of its conflict, and the patch's change made there."""
    before, _, rest = text.partition("<<<<<<< 0.18.9\n")
    ours, _, rest = rest.partition("=======\n")
    assert old in ours
    return before + ours.replace(old, new) + rest.partition(">>>>>>> ")[2].partition("\n")[2]
