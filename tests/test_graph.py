"""`graph` and `annotate`: owners of lines, and needs that hold when they are tried."""

from __future__ import annotations

from pathlib import Path

import pytest
from authoring import Room, make_room, numbered
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchq.authoring.relations import trace
from patchq.commands.annotate import annotate
from patchq.commands.graph import graph
from patchq.engine import Engine
from patchq.errors import Invalid


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return make_room(tmp_path, {"pkg/a.py": numbered(60), "pkg/b.py": numbered(9), "up/c.py": b"c\n"})


def needs(room: Room) -> set[tuple[str, str]]:
    short = {}
    for name, other in graph(room.place).data["edges"]:
        short[name, other] = None
    return {(name.split("/")[2][:-6], other.split("/")[2][:-6]) for name, other in short}


def test_a_patch_needs_those_on_whose_lines_it_stands(room: Room) -> None:
    one = numbered(60, {10: "ten"})
    two = one.replace(b"line 40\n", b"line 40\nmore\n")
    three = two.replace(b"line 12\n", b"twelve\n")
    four = three.replace(b"line 50\nline 51\n", b"")
    five = four.replace(b"line 52\n", b"fifty-two\n")
    patches = [("one", one), ("two", two), ("three", three), ("four", four), ("five", five)]
    room.fill(room.stack([(f"device/{name}.patch", {"pkg/a.py": data}) for name, data in patches]))
    assert needs(room) == {("three", "one"), ("five", "four")}
    mermaid = graph(room.place, form="mermaid").output
    assert mermaid.startswith('graph TD\n  p1["up/device/one"]\n') and "  p3 --> p1\n" in mermaid


def test_renamed_new_and_binary_files_are_needs(room: Room) -> None:
    changes = [
        ("device/add.patch", {"new.py": numbered(9)}),
        ("device/use.patch", {"new.py": numbered(9, {5: "five"})}),
        ("device/move.patch", {"pkg/b.py": None, "pkg/moved.py": numbered(9)}),
        ("device/edit.patch", {"pkg/moved.py": numbered(9, {5: "five"})}),
        ("device/bin.patch", {"up/c.py": b"\0\1"}),
        ("device/bin2.patch", {"up/c.py": b"\0\2"}),
        ("device/apart.patch", {"pkg/a.py": numbered(60, {5: "five"})}),
    ]
    room.fill(room.stack(changes))
    assert needs(room) == {("use", "add"), ("edit", "move"), ("bin2", "bin")}


def test_patches_that_exclude_each_other_are_both_looked_at(room: Room) -> None:
    base = room.stack([("device/a.patch", {"pkg/b.py": numbered(9, {5: "gpu"})})])
    other = room.stack([("device/b.patch", {"pkg/b.py": numbered(9, {5: "ppu"})})])
    chain = [("x", {"pkg/b.py": numbered(9, {5: "ppu"})}), ("device/c.patch", {"pkg/b.py": numbered(9, {5: "ppu!"})})]
    patches = {**base, **other, "device/c.patch": room.stack(chain)["device/c.patch"]}
    room.fill(patches, "device/a.patch #-ppu\ndevice/b.patch #+ppu\ndevice/c.patch #+ppu\n")
    report = graph(room.place)
    assert needs(room) == {("c", "b")}
    assert report.exit_code == 0 and report.counts == {"note": 3}


def test_what_only_the_header_says_is_a_dotted_arrow(room: Room) -> None:
    patches = room.stack(
        [
            ("device/a.patch", {"pkg/b.py": numbered(9, {5: "x"})}),
            ("device/b.patch", {"pkg/a.py": numbered(60, {5: "x"})}),
        ]
    )
    patches["device/b.patch"] = b"Requires: up/device/a.patch\n" + patches["device/b.patch"]
    room.fill(patches)
    assert "p2 -.-> p1" in graph(room.place, form="mermaid").output


def test_annotate_says_for_each_line_whose_it_is(room: Room) -> None:
    changes = [
        ("device/one.patch", {"pkg/b.py": numbered(9, {5: "five"})}),
        ("device/two.patch", {"pkg/b.py": numbered(9, {5: "five", 7: "seven"})}),
    ]
    room.fill(room.stack(changes), "device/one.patch\ndevice/two.patch #+ppu\n")
    lines = annotate(room.place, "pkg/b.py", "ppu").data["lines"]
    assert lines == [None] * 4 + ["up/device/one.patch", None, "up/device/two.patch", None, None]
    assert annotate(room.place, "up/pkg/b.py", "gpu").data["lines"].count(None) == 8
    assert annotate(room.place, "pkg/a.py", "gpu").data["lines"] == [None] * 60
    assert annotate(room.place, "pkg/b.py", "ppu").output.splitlines()[4] == "device/one      5  five"
    with pytest.raises(Invalid, match="in no upstream"):
        annotate(room.place, "pkg/none.py", "gpu")


FILES = st.lists(st.sampled_from("abcd"), max_size=12).map(lambda rows: "".join(f"{row}\n" for row in rows).encode())


@pytest.mark.fault
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(versions=st.lists(FILES, min_size=2, max_size=6, unique=True))
def test_the_traced_lines_are_the_files_lines(versions: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Repeating lines are where places are ambiguous: the trace has to follow git."""
    folder = tmp_path_factory.mktemp("trace")
    room = make_room(folder, {"keep": b"", "f": versions[0]})
    patches = room.stack([(f"device/p{n}.patch", {"f": data}) for n, data in enumerate(versions[1:])])
    room.fill(patches)
    place = room.place
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_DATA_HOME", str(folder / "data"))
        upstream = place.queue.upstream("up")
        base = place.sources().base(upstream, "git")
        with Engine.on(place.store) as engine:
            placed = engine.apply(base, upstream.patches)
            for count, step in enumerate(placed):
                found = trace(place.store, base.tree, placed[: count + 1]).file("f")
                assert step.ok
                assert b"".join(line + b"\n" for line in found.lines) == versions[count + 1]
                assert len(found.owners) == len(found.lines) == len(found.cuts) - 1
