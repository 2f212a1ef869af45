"""`rebase`: each patch has one fate, conflicts are resolved in a scratch copy, the queue changes once."""

from __future__ import annotations

from pathlib import Path

import pytest
from authoring import Room, commit, first, make_room, numbered
from world import git_bytes as git
from world import header, write

from patchq.cli import run
from patchq.commands import rebase as verbs
from patchq.commands.check import check
from patchq.commands.rebase_plan import plan
from patchq.errors import Invalid, Refused
from patchq.report import Report

START = {"pkg/__init__.py": b"", "pkg/a.py": numbered(60), "pkg/b.py": numbered(40), "pkg/c.py": numbered(20)}


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return make_room(tmp_path, START)


def fates(report: Report, label: str) -> dict[str, str]:
    matrix = report.data["matrix"]
    return {name.rpartition("/")[2].removesuffix(".patch"): cells[label]["fate"] for name, cells in matrix.items()}


def stack_of_six(room: Room) -> None:
    """Six patches, and an upstream release `v2.0` on which each has another fate."""
    a = numbered(60, {5: "same"})
    shift = numbered(40, {30: "shifted"})
    merged = numbered(20, {10: "merged"})
    landed = {30: "landed"}
    a2 = numbered(60, {5: "same", **landed})
    gone = numbered(60, {5: "same", **landed, 45: "emptied"})
    clash = numbered(60, {5: "same", **landed, 45: "emptied", 56: "ours"})
    patches = room.stack(
        [
            ("device/same.patch", {"pkg/a.py": a}),
            ("device/shift.patch", {"pkg/b.py": shift}),
            ("device/merge.patch", {"pkg/c.py": merged}),
            ("device/landed.patch", {"pkg/a.py": a2}),
            ("device/emptied.patch", {"pkg/a.py": gone}),
            ("device/clash.patch", {"pkg/a.py": clash}),
        ]
    )
    room.fill(patches)
    commit(room.clone, {"pkg/a.py": numbered(60, landed)}, "Land it upstream")
    new = {
        "pkg/a.py": numbered(60, {**landed, 43: "around", 45: "emptied", 56: "theirs"}),
        "pkg/b.py": b"on top\n" + numbered(40),
        "pkg/c.py": numbered(20, {8: "context"}),
    }
    commit(room.clone, new, "Everything else")
    git(room.clone, "tag", "v2.0")


def test_the_plan_gives_each_patch_one_fate(room: Room) -> None:
    stack_of_six(room)
    commit(room.clone, {"pkg/c.py": None}, "drop c")
    report = plan(room.place, "up", ["v2.0", "main", first(room.clone)])
    wanted = {"same": "unchanged", "shift": "shifted", "merge": "merged", "landed": "upstreamed", "emptied": "emptied"}
    assert fates(report, "v2.0") == {**wanted, "clash": "conflict"}
    assert fates(report, "main") == {**wanted, "merge": "conflict", "clash": "conflict"}
    assert set(fates(report, first(room.clone)).values()) == {"unchanged"}
    cell = report.data["matrix"]["up/device/landed.patch"]["v2.0"]
    assert cell["by"].endswith("Land it upstream")
    assert [step.data["version"] for step in report.steps] == ["2.0", "0", "0"]
    assert (room.place.queue.upstream("up").baseline.version, report.exit_code) == ("1.0", 0)


def test_a_conflict_is_resolved_in_the_scratch_copy_and_the_queue_changes_once(room: Room) -> None:
    stack_of_six(room)
    before = dict(room.place.queue.files)
    report = verbs.rebase(room.place, "up", "v2.0", yes=True)
    assert report.data["stopped"] == "up/device/clash.patch" and report.exit_code == 3
    copy = Path(report.data["copy"])
    assert b"<<<<<<< v2.0\ntheirs\n=======\nours\n>>>>>>> device/clash.patch\n" in (copy / "pkg/a.py").read_bytes()
    assert git(copy, "status", "--porcelain") == b"UU pkg/a.py\n"
    assert room.place.queue.files == before
    with pytest.raises(Refused, match="conflict markers are left"):
        verbs.go_on(room.place, "up")
    with pytest.raises(Refused, match="is under way"):
        verbs.rebase(room.place, "up", "v2.0")
    text = (copy / "pkg/a.py").read_bytes()
    write(copy, {"pkg/a.py": text.replace(text[text.index(b"<<<") : text.index(b"line 57")], b"both\n")})
    done = verbs.go_on(room.place, "up")
    assert done.exit_code == 0 and not copy.exists()
    now = room.place.queue.files
    assert now["up/series"] == b"".join(
        f"device/{name}.patch\n".encode() for name in ("same", "shift", "merge", "clash")
    )
    for name in ("same", "shift"):
        assert now[f"up/device/{name}.patch"] == before[f"up/device/{name}.patch"], "old bytes stay where they still do"
    for name in ("merge", "clash"):
        old, new = before[f"up/device/{name}.patch"], now[f"up/device/{name}.patch"]
        assert new != old and new.partition(b"diff --git")[0] == old.partition(b"diff --git")[0]
    assert b"-theirs\n+both\n" in now["up/device/clash.patch"]
    baseline = room.place.queue.upstream("up").baseline
    commit_id = git(room.clone, "rev-parse", "v2.0").decode().strip()
    assert (baseline.version, baseline.git and baseline.git.commit) == ("2.0", commit_id)
    assert now["up/baseline.yaml"].startswith(b"# What the patches start from.\n")
    assert [step for step in check(room.place).steps if step.state.code] == []


def test_what_the_new_baseline_has_stops_until_it_is_skipped(room: Room) -> None:
    stack_of_six(room)
    report = verbs.rebase(room.place, "up", "v2.0")
    assert report.data["stopped"] == "up/device/landed.patch" and report.exit_code == 1
    assert "Land it upstream" in str(report.steps)
    with pytest.raises(Refused, match="nothing is left of up/device/landed"):
        verbs.go_on(room.place, "up")
    report = verbs.skip(room.place, "up")
    assert report.data["stopped"] == "up/device/emptied.patch"
    assert verbs.skip(room.place, "up").data["stopped"] == "up/device/clash.patch"
    done = verbs.skip(room.place, "up")
    assert done.counts["excluded"] == 3 and done.exit_code == 0
    assert not (room.root / "up/device/clash.patch").exists()


def test_abort_and_a_queue_that_changed_meanwhile(room: Room) -> None:
    stack_of_six(room)
    verbs.rebase(room.place, "up", "v2.0", yes=True)
    before = dict(room.place.queue.files)
    with (room.root / "up/series").open("ab") as stream:
        stream.write(b"# more\n")
    with pytest.raises(Refused, match="changed since the rebase began"):
        verbs.skip(room.place, "up")
    verbs.abort(room.place, "up")
    assert room.place.queue.files == {**before, "up/series": before["up/series"] + b"# more\n"}
    with pytest.raises(Refused, match="no rebase of up is under way"):
        verbs.abort(room.place, "up")


def test_a_name_that_means_another_commit_by_now_is_refused(room: Room) -> None:
    stack_of_six(room)
    before = dict(room.place.queue.files)
    assert verbs.rebase(room.place, "up", "main", yes=True).data["stopped"] == "up/device/clash.patch"
    commit(room.clone, {"pkg/new.py": b"x = 1\n"}, "main moves on")
    with pytest.raises(Refused, match="main is another commit than when the rebase began"):
        verbs.skip(room.place, "up")
    verbs.abort(room.place, "up")
    assert room.place.queue.files == before


def test_a_merge_that_drops_a_hunk_is_no_success(room: Room) -> None:
    both = numbered(60, {5: "one", 50: "two"})
    room.fill({"device/p.patch": header("p") + room.diff({"pkg/a.py": both})})
    commit(room.clone, {"pkg/a.py": numbered(60, {5: "one"})}, "half of it")
    report = plan(room.place, "up", ["main"])
    assert report.data["matrix"]["up/device/p.patch"]["main"]["fate"] == "merged"
    assert "pkg/a.py, hunk 1: the change is not in the result" in str(report.data)
    assert report.steps[0].summary == "1 merged" and "hunk 1" in report.steps[0].detail[0]
    stopped = verbs.rebase(room.place, "up", "main")
    assert stopped.exit_code == 1 and stopped.data["stopped"] == "up/device/p.patch"
    assert (Path(stopped.data["copy"]) / "pkg/a.py").read_bytes() == both
    done = verbs.go_on(room.place, "up")
    assert done.exit_code == 0 and done.counts["warning"] == 1
    assert b"+two\n" in (room.root / "up/device/p.patch").read_bytes()
    assert b"+one\n" not in (room.root / "up/device/p.patch").read_bytes()


def test_renames_upstream_are_followed_and_lost_modules_named(room: Room) -> None:
    used = b"from pkg.c import x\n" + numbered(40)
    room.fill(
        room.stack([("device/a.patch", {"pkg/a.py": numbered(60, {50: "x"})}), ("device/b.patch", {"pkg/b.py": used})])
    )
    commit(room.clone, {"pkg/a.py": None, "pkg/moved.py": numbered(60), "pkg/c.py": None}, "move")
    report = plan(room.place, "up", ["main"])
    assert fates(report, "main") == {"a": "merged", "b": "unchanged"}
    assert report.data["matrix"]["up/device/b.patch"]["main"]["findings"] == [
        "pkg/b.py imports pkg.c, which is not there"
    ]
    assert verbs.rebase(room.place, "up", "main").exit_code == 0
    assert b"+++ b/pkg/moved.py\n" in (room.root / "up/device/a.patch").read_bytes()


def test_patches_that_exclude_each_other_move_in_their_own_contexts(room: Room) -> None:
    gpu = room.stack([("device/gpu.patch", {"pkg/c.py": numbered(20, {10: "gpu"})})])
    ppu = room.stack([("device/ppu.patch", {"pkg/c.py": numbered(20, {10: "ppu"})})])
    more = room.stack(
        [
            ("x", {"pkg/c.py": numbered(20, {10: "ppu"})}),
            ("device/more.patch", {"pkg/c.py": numbered(20, {10: "ppu", 12: "y"})}),
        ]
    )
    patches = {**gpu, **ppu, "device/more.patch": more["device/more.patch"]}
    room.fill(patches, "device/gpu.patch #-ppu\ndevice/ppu.patch #+ppu\ndevice/more.patch #+ppu\n")
    commit(room.clone, {"pkg/c.py": b"top\n" + numbered(20, {8: "eight"})}, "around")
    report = verbs.rebase(room.place, "up", "main")
    assert report.exit_code == 0, report
    assert [step for step in check(room.place).steps if step.state.code] == []


def test_two_baselines_are_alive_under_two_names(room: Room) -> None:
    """The documented way: `--as` beside the old one; targets move one by one."""
    stack_of_six(room)
    patches = dict(room.place.queue.files)
    tests = {"up/tests/test_x.py": b"def test_x(): pass\n"}
    write(room.root, tests)
    path = room.root / "up/device/shift.patch"
    path.write_bytes(b"Requires: up/device/same.patch\nTests: tests/test_x.py\n" + path.read_bytes())
    assert verbs.rebase(room.place, "up", "v2.0", yes=True, alias="up-next").exit_code == 3
    assert verbs.skip(room.place, "up").exit_code == 0
    queue = room.place.queue
    assert {name: text for name, text in queue.files.items() if name == "up/series"} == {
        "up/series": patches["up/series"]
    }
    assert queue.upstream("up-next").baseline.version == "2.0"
    assert b"Requires: up-next/device/same.patch\n" in queue.files["up-next/device/shift.patch"]
    assert "up-next/tests/test_x.py" in queue.files
    gpu = room.root / "targets/gpu.yaml"
    gpu.write_text(gpu.read_text().replace("  up: {", "  up-next: {"))
    report = check(room.place)
    assert [step for step in report.steps if step.state.code] == []
    assert {step.group for step in report.steps if step.name == "up-next/device/merge.patch"} == {"gpu"}
    assert {step.group for step in report.steps if step.name == "up/device/merge.patch"} == {"ppu"}


def test_usage(room: Room, capsys: pytest.CaptureFixture[str]) -> None:
    queue = ("--queue", str(room.root))
    for argv, code, said in (
        (("up",), 2, "where to?"),
        (("up", "--to", "nothing"), 2, "no commit 'nothing'"),
        (("up", "--to", "a", "--to", "b"), 2, "one baseline at a time"),
        (("up", "--skip", "--abort"), 2, "exclude each other"),
        (("up", "--continue"), 1, "no rebase of up is under way"),
        (("dn", "--plan", "--to", "x"), 2, "no upstream 'dn'"),
    ):
        assert run(["rebase", *argv, *queue]) == code, argv
        assert said in capsys.readouterr().err
    with pytest.raises(Invalid):
        verbs.chosen_action({"--plan": True, "--skip": True})
    assert run(["rebase", "up", "--plan", "--to", "main", *queue]) == 0
