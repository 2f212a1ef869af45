"""`drop`: asks, keeps comments, tells what breaks; and nothing asks where nobody can answer."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from authoring import Bench, name, numbered_patch, ten

from patchq.cli import boundary
from patchq.commands.drop import drop
from patchq.errors import Invalid, Refused
from patchq.report import State


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return ten(tmp_path, monkeypatch)


def no(question: str) -> bool:
    return False


def yes(question: str) -> bool:
    return True


def test_the_file_and_its_line_go(bench: Bench) -> None:
    before = bench.read("up/series")
    report = drop(bench.place, "change-6", yes)
    assert report.exit_code == 0 and report.data["written"]
    assert bench.read("up/series") == before.replace(name(6).encode() + b"\n", b"")
    assert not (bench.root / f"up/{name(6)}").exists()
    assert {step.name for step in report.steps} == {f"up/{name(6)}", *(f"{t}{v}/up" for t in ("ppu", "gpu")
                                                                       for v in ("", "+loss"))}  # fmt: skip


def test_no_is_no(bench: Bench) -> None:
    before = bench.files()
    with pytest.raises(Refused, match="was not dropped"):
        drop(bench.place, "change-6", no)
    with pytest.raises(Invalid, match="no patch 'chang-6'"):
        drop(bench.place, "chang-6", yes)
    assert bench.files() == before


@pytest.mark.fault
def test_what_breaks_is_told(bench: Bench) -> None:
    """The last research patch goes, so that the variant names nothing; change 7 required change 6."""
    bench.write(f"up/{name(7)}", numbered_patch(7, f"Description: Seven\nRequires: up/{name(6)}\nTests: tests/t.py\n"))
    bench.write("up/tests/t.py", "")
    before = bench.files()
    strict = drop(bench.place, "change-6", yes, is_strict=True)
    assert strict.exit_code == 1 and bench.files() == before and not strict.data["written"]
    report = drop(bench.place, "change-6", yes)
    assert report.exit_code == 1 and report.data["written"]
    assert any("requires" in line for step in report.steps for line in step.detail)
    report = drop(bench.place, "change-7", yes)
    assert report.exit_code == 0 and report.steps[0].hint == "no patch names tests/t.py any more"
    report = drop(bench.place, "research/loss", yes)
    assert report.exit_code == 1
    assert any(step.state is State.FAILED and "matches no research patch" in step.summary for step in report.steps)


@pytest.mark.parametrize("more, code", [([], 1), (["--yes"], 0)])
def test_nothing_asks_without_a_terminal(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: list[str], code: int
) -> None:
    """Standard input that is read would raise; no terminal and no --yes means no."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys.stdin, "read", lambda *_: pytest.fail("asked"), raising=False)
    monkeypatch.setattr(sys.stdin, "readline", lambda *_: pytest.fail("asked"), raising=False)
    assert boundary.run(["drop", "change-6", "--json", "--queue", str(bench.folder), *more]) == code
    answer = json.loads(capsys.readouterr().out)
    assert answer["exit"] == code
    if code:
        assert answer["errors"] == [{"what": f"up/{name(6)} was not dropped", "where": "", "hint": "say --yes"}]


def test_a_day_on_the_command_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The verbs as they are typed, from inside and outside of the edit copy."""
    queue = ["--queue", str(bench.folder)]
    assert boundary.run(["edit", "--target", "ppu", *queue]) == 0
    bench.change("README", "hello", "hi")
    monkeypatch.chdir(bench.copy)
    assert boundary.run(["new"]) == 0
    assert boundary.run(["new", "device/hi", "--take", "README", "--subject", "Say hi"]) == 0
    assert boundary.run(["refresh", "--check"]) == 1
    monkeypatch.chdir(bench.folder)
    assert boundary.run(["refresh"]) == 0
    assert (bench.root / "up/device/hi.patch").exists()
    monkeypatch.chdir(bench.folder.parent)
    assert boundary.run(["refresh"]) == 2
    assert "there is no edit copy here" in capsys.readouterr().err
    assert boundary.run(["refresh", str(bench.copy), "--into", "hi"]) == 1
    assert boundary.run(["refresh", str(bench.folder)]) == 2
