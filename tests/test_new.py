"""`new`: empty patches, and parts of a mixed diff by file and by hunk."""

from __future__ import annotations

from pathlib import Path

import pytest
from authoring import Bench, name, ten
from hypothesis import given, settings
from hypothesis import strategies as st

from patchq.authoring.portion import Portion
from patchq.commands.new import new_in_copy, new_in_queue
from patchq.engine import Engine
from patchq.errors import Invalid, Refused
from patchq.report import State
from patchq.store import Entry, Store


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return ten(tmp_path, monkeypatch)


def test_an_empty_patch_in_the_queue(bench: Bench) -> None:
    report = new_in_queue(bench.place, "device/Next", [], "", ["+ppu"])
    assert report.data["patch"] == "up/device/Next.patch"
    assert bench.read("up/series").endswith(b"research/loss.patch\ndevice/Next.patch #+ppu\n")
    text = bench.read("up/device/Next.patch").decode()
    assert text.startswith("Description: Next\nAuthor: Zoë Úser <zoe@example.org>\nLast-Update: ")
    with pytest.raises(Refused, match="of this name already"):
        new_in_queue(bench.place, "up/device/Next.patch", [], "", [])
    for wrong in ("Next", "other/Next", "device/../x", "nowhere/device/x"):
        with pytest.raises(Invalid):
            new_in_queue(bench.place, wrong, [], "", [])
    bench.edit()
    bench.change("README", "hello", "hi")
    assert bench.refresh(into="Next").exit_code == 0
    assert bench.read("up/device/Next.patch").startswith(text.encode() + b"\ndiff --git a/README b/README\n")
    assert bench.refresh().data["written"] is False


def test_a_mixed_diff_is_split(bench: Bench) -> None:
    """Two functions, a new file and a deleted one, into two patches; the rest stays uncommitted."""
    copy = bench.edit()
    bench.change("app.py", "line 0.3 patched", "line 0.3 for the device")
    bench.change("app.py", "line 9.3 patched", "line 9.3 for research")
    (copy / "README").unlink()
    (copy / "new").mkdir()
    (copy / "new/file.txt").write_text("new\n")
    whole = {path: (copy / path).read_bytes() for path in ("app.py", "new/file.txt")}
    listed = new_in_copy(bench.place, copy, None, [], "", [])
    assert [(step.group, step.summary.partition(":")[0]) for step in listed.steps] == [
        ("README", "delete"), ("app.py", "line 2"), ("app.py", "line 100"), ("new/file.txt", "add"),
    ]  # fmt: skip
    new_in_copy(bench.place, copy, "device/machine", ["2", "new"], "For the machine", [])
    assert bench.git("show", "--format=%an %s", "--stat=80", "HEAD").splitlines()[0] == "Zoë Úser For the machine"
    assert bench.git("status", "--porcelain").split() == ["D", "README", "M", "app.py"]
    assert {path: (copy / path).read_bytes() for path in whole} == whole
    new_in_copy(bench.place, copy, "backport/rest", ["1-2"], "", [])
    assert bench.git("status", "--porcelain") == ""
    report = bench.refresh()
    assert report.exit_code == 0
    assert bench.read("up/series").endswith(b"device/machine.patch\nbackport/rest.patch\nresearch/loss.patch\n")
    assert b"for the device" in bench.read("up/device/machine.patch")
    assert b"for research" not in bench.read("up/device/machine.patch")
    assert b"deleted file mode" in bench.read("up/backport/rest.patch")


def test_what_cannot_be_taken(bench: Bench) -> None:
    copy = bench.edit()
    bench.change("README", "hello", "hi")
    tip = bench.git("rev-parse", "HEAD")
    for take, what in ((["app.py"], "no uncommitted change 'app.py'"), (["2"], "no uncommitted change '2'")):
        with pytest.raises(Invalid, match=what):
            new_in_copy(bench.place, copy, "device/x", take, "", [])
    with pytest.raises(Refused, match="of this name already"):
        new_in_copy(bench.place, copy, name(1), [], "", [])
    with pytest.raises(Invalid, match="guards stand in the series file"):
        new_in_copy(bench.place, copy, "device/x", [], "", ["+ppu"])
    assert bench.git("rev-parse", "HEAD") == tip and (copy / "README").read_text() == "hi\n"


@pytest.mark.fault
def test_an_empty_commit_for_later(bench: Bench) -> None:
    copy = bench.edit()
    new_in_copy(bench.place, copy, "device/later", [], "Later", [])
    report = bench.refresh()
    assert report.exit_code == 0 and {step.state for step in report.steps} == {State.PASSED, State.UNCHANGED}
    assert bench.read("up/device/later.patch").startswith(b"Description: Later\n")
    assert bench.refresh().data["written"] is False


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(tmp_path_factory.mktemp("store"))


LINES = st.lists(st.sampled_from(["a", "b", "c", "", "\t", "é"]), max_size=12)


@pytest.mark.fault
@given(LINES, LINES, st.booleans(), st.data())
@settings(max_examples=25, deadline=None)
def test_a_part_and_then_the_rest_is_the_whole(
    store: Store, old: list[str], new: list[str], has_end: bool, data: st.DataObject
) -> None:
    """Whatever hunks go first, the others still follow, and both together are what was there."""
    gap = [f"same {n}" for n in range(9)]
    before, after = ("\n".join([*side, *gap, *reversed(side), *gap, *side]) + "\n" * has_end for side in (old, new))
    trees = [store.write_tree([("f", Entry("100644", store.write("blob", text.encode())))]) for text in (before, after)]
    with Engine.on(store) as engine:
        pieces = Portion.between(engine, *trees).pieces
        taken = [piece for piece in pieces if data.draw(st.booleans())]
        middle = Portion.between(engine, *trees).tree(taken)
        rest = Portion.between(engine, middle, trees[1])
        assert len(rest.pieces) <= len(pieces) - len(taken) + 1
        assert rest.tree(rest.pieces) == trees[1]
