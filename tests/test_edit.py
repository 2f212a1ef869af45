"""Edit copies: ordinary repositories, made, used as people use git, moved, and brought up to the queue."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from authoring import Bench, name, numbered_patch, ten

from patchq.commands.edit import edit
from patchq.errors import DoesNotApply, Invalid, Refused
from patchq.report import State


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return ten(tmp_path, monkeypatch)


def test_one_commit_a_patch_in_an_ordinary_repository(bench: Bench) -> None:
    assert bench.edit() == bench.copy
    subjects = bench.git("log", "--reverse", "--format=%s", "baseline..patchq").splitlines()
    assert subjects == [f"Change {n}" for n in range(10) if n != 4]
    assert bench.git("status", "--porcelain") == ""
    assert bench.git("symbolic-ref", "HEAD") == "refs/heads/patchq"
    assert (bench.copy / "crlf.txt").read_bytes() == b"one\r\ntwo\r\n"
    for command in (("fsck", "--strict"), ("gc", "--quiet", "--prune=now"), ("fsck",), ("log", "-p"),
                    ("rebase", "-q", "-i", "baseline"), ("worktree", "add", "-q", "../other")):  # fmt: skip
        bench.git(*command)
    assert not (bench.copy / ".git/objects/info/alternates").exists()
    assert bench.git("show", "--format=", "HEAD").startswith("diff --git app.py app.py")


def test_it_hides_from_the_repository_around_it(bench: Bench) -> None:
    bench.git("init", "-q", folder=bench.folder)
    bench.edit()
    assert "edit" not in bench.git("status", "--porcelain", folder=bench.folder)


def test_reopening_changes_nothing_that_is_not_refreshed(bench: Bench) -> None:
    bench.edit()
    bench.change("README", "hello", "hello you")
    bench.git("commit", "-q", "-a", "-m", "Mine")
    (bench.copy / "README").write_text("uncommitted\n")
    tip = bench.git("rev-parse", "HEAD")
    assert edit(bench.place, "ppu", None, "up").steps[0].state is State.UNCHANGED
    bench.write("up/" + name(1), numbered_patch(1, "Description: Other\n"))
    (step,) = edit(bench.place, "ppu", None, "up").steps
    assert step.state is State.WARNING and "left as it is" in step.summary
    assert bench.git("rev-parse", "HEAD") == tip
    assert (bench.copy / "README").read_text() == "uncommitted\n"


def test_an_idle_copy_follows_the_queue(bench: Bench) -> None:
    bench.edit()
    bench.write("up/" + name(1), numbered_patch(1, "Description: Other\n").replace(b"more 1", b"more of 1"))
    (bench.copy / "untracked").write_text("mine")
    (step,) = edit(bench.place, "ppu", None, "up").steps
    assert (step.state, step.summary) == (State.PASSED, "brought up to the queue")
    assert "more of 1" in (bench.copy / "app.py").read_text()
    assert bench.git("status", "--porcelain") == "?? untracked"
    assert (bench.refresh()).exit_code == 0


def test_it_may_move_with_its_project(bench: Bench, tmp_path: Path) -> None:
    bench.edit()
    moved = Bench(tmp_path / "elsewhere", bench.clone)
    bench.folder.rename(moved.folder)
    moved.git("fsck")
    assert {step.state for step in moved.refresh().steps} == {State.UNCHANGED}


def test_another_folder_variant_and_what_is_none(bench: Bench, tmp_path: Path) -> None:
    out = tmp_path / "out"
    edit(bench.place, "gpu", "loss", "up", out=out)
    assert (out / ".git/patchq/edit.json").is_file()
    with pytest.raises(Refused, match=r"is the edit copy of gpu\+loss/up"):
        edit(bench.place, "ppu", None, "up", out=out)
    (tmp_path / "taken").mkdir()
    with pytest.raises(Refused, match="is no edit copy"):
        edit(bench.place, "ppu", None, "up", out=tmp_path / "taken")
    with pytest.raises(Invalid, match="no variant 'los'"):
        edit(bench.place, "ppu", "los")
    with pytest.raises(Invalid, match="no upstream 'upp'"):
        edit(bench.place, "ppu", None, "upp")


def test_a_selection_that_does_not_apply_makes_no_copy(bench: Bench) -> None:
    bench.write("up/" + name(1), numbered_patch(1).replace(b"line 1.1", b"line 1.x"))
    with pytest.raises(DoesNotApply, match=r"up/device/change-1\.patch: conflict"):
        bench.edit()
    assert not bench.copy.exists()


@pytest.mark.fault
def test_in_a_work_area_the_queue_that_came_stays_as_it_came(bench: Bench, tmp_path: Path) -> None:
    from patchq.commands.lock import lock
    from patchq.commands.place import Place

    lock(bench.place)
    area = tmp_path / "area"
    shutil.copytree(bench.root, area / "queue" / "abc" / "series")
    shutil.copytree(bench.place.store.folder, area / "store")
    shutil.rmtree(bench.clone)
    place = Place.find(area / "queue" / "abc")
    report = edit(place, "ppu", None, "up")
    copy = Path(report.data["copies"]["up"])
    assert copy == area / "authoring/edit/ppu/up"
    (copy / "README").write_text("there\n")
    bench.git("commit", "-q", "-a", "-m", "There", folder=copy)
    inner = Bench(area / "authoring", bench.clone)
    assert inner.place.home and inner.refresh(copy, layer="device").exit_code == 0
    assert (area / "authoring/series/up/device/there.patch").exists()
    assert not (area / "queue/abc/series/up/device/there.patch").exists()
    assert edit(place, "ppu", None, "up").steps[0].state is State.UNCHANGED
