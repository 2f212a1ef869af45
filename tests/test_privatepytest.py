"""The pytest that patchq lends serves every interpreter that trains, whichever one runs patchq."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from toyenv import interpreter_of

from patchq.errors import Prevented
from patchq.lock import load_lock
from patchq.machine import privatepytest
from patchq.machine.probe import PROBES
from patchq.queue.load import load_queue
from patchq.workarea import WorkArea

# An exception group and pyproject.toml are what pytest has no words for on 3.10 without the two packages.
TEST = """\
import sys
import pytest

def test_version():
    assert sys.version_info[:2] == {version}

def test_several_at_once():
    with pytest.RaisesGroup(ValueError):
        raise {group}("both", [ValueError(1)])
"""


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return privatepytest.private_pytest(WorkArea(tmp_path_factory.mktemp("lent")))


@pytest.mark.parametrize(
    "minor", [10, *(pytest.param(minor, marks=pytest.mark.fault) for minor in (11, 12, 13))], ids=lambda n: f"3.{n}"
)
def test_it_serves_an_interpreter_without_pytest(lent: Path, minor: int, tmp_path: Path) -> None:
    python = interpreter_of(f"3.{minor}")
    group = "ExceptionGroup" if minor > 10 else "__import__('exceptiongroup').ExceptionGroup"
    (tmp_path / "test_it.py").write_text(TEST.format(version=(3, minor), group=group))
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    question = {"files": ["test_it.py"], "pytest": str(lent), "rootdir": str(tmp_path)}
    done = subprocess.run([python, "-I", "-B", PROBES / "cpu_tests.py"], input=json.dumps(question), cwd=tmp_path,
                          text=True, capture_output=True, check=False, timeout=60)  # fmt: skip
    answer = json.loads(done.stdout.strip().rpartition("\n")[2])
    assert answer["results"] == {
        "test_it.py::test_version": {"state": "passed"},
        "test_it.py::test_several_at_once": {"state": "passed"},
    }, done.stderr
    assert not list(lent.rglob("*.pyc"))


def test_it_is_made_once_of_sources_alone(lent: Path) -> None:
    area = WorkArea(lent.parent.parent)
    before = lent.stat().st_ino
    assert privatepytest.private_pytest(area) == lent and lent.stat().st_ino == before
    assert {path.name for path in lent.iterdir()} >= {"_pytest", "pytest", "exceptiongroup", "tomli", "pluggy"}
    assert not [path for path in lent.rglob("*") if path.suffix in (".so", ".pyc")]
    assert [path.name for path in lent.parent.iterdir()] == [lent.name]


def test_what_is_missing_beside_patchq_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privatepytest, "_PROJECTS", ("pytest", "no-such-project"))
    with pytest.raises(Prevented, match="no-such-project is not installed"):
        privatepytest.private_pytest(WorkArea(tmp_path))
    assert not list(tmp_path.iterdir())


def test_the_shipped_bundles_carry_all_of_it() -> None:
    """On a host without network patchq comes out of the bundle, and lends its pytest from there."""
    lock = load_lock(load_queue(Path(__file__).resolve().parents[1] / "series"))
    assert lock.tools
    for wheels in lock.tools.values():
        assert {pin.name for pin in wheels.pins} >= set(privatepytest._PROJECTS)
