"""`show` and `files`: the queue's patches as they are, and what they touch."""

from __future__ import annotations

from pathlib import Path

import pytest
from authoring import Room, make_room, numbered

from patchq.cli import run
from patchq.commands.files import files
from patchq.commands.show import show
from patchq.errors import Invalid
from patchq.queue.find import find_patch


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    room = make_room(tmp_path, {"pkg/a.py": numbered(20), "pkg/数据.bin": b"\0\1", "old.txt": b"x\n"})
    patches = room.stack(
        [
            ("device/one.patch", {"pkg/a.py": numbered(20, {3: "three \xe9"}).replace(b"\xc3\xa9", b"\xe9")}),
            ("device/two.patch", {"pkg/数据.bin": b"\0\2", "old.txt": None, "new.txt": b"x\n"}),
        ]
    )
    room.fill(patches, "device/one.patch #+ppu\ndevice/two.patch\n")
    return room


def test_show_gives_the_bytes_and_says_where_the_patch_is_in(room: Room, capsysbinary: pytest.CaptureFixture) -> None:
    report = show(room.place, "one")
    assert report.data["in"] == ["ppu"]
    assert report.output.encode("utf-8", "surrogateescape") == (room.root / "up/device/one.patch").read_bytes()
    assert run(["show", "up/device/one.patch", "--queue", str(room.root)]) == 0
    assert capsysbinary.readouterr().out == (room.root / "up/device/one.patch").read_bytes()


def test_show_of_a_malformed_patch_is_still_its_bytes(room: Room) -> None:
    (room.root / "up/device/one.patch").write_bytes(b"--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n")
    report = show(room.place, "one")
    assert (report.output, report.exit_code) == ("--- a/x\n+++ b/x\n@@ -1,2 +1 @@\n", 2)


def test_patches_are_found_by_the_end_of_their_names(room: Room) -> None:
    queue = room.place.queue
    for text in ("two", "two.patch", "device/two", "up/device/two.patch"):
        assert find_patch(queue, text).name == "up/device/two.patch"
    with pytest.raises(Invalid, match="did you mean 'two'"):
        find_patch(queue, "twoo")
    with pytest.raises(Invalid, match="no patch 'wo'"):
        find_patch(queue, "wo")


def test_files_lists_each_touched_file_with_its_patches(room: Room) -> None:
    steps = {step.name: step for step in files(room.place).steps}
    assert set(steps) == {"pkg/a.py", "pkg/数据.bin", "old.txt", "new.txt"}
    assert steps["old.txt"].detail == ("up/device/two.patch  renamed to new.txt",)
    assert steps["pkg/数据.bin"].detail == ("up/device/two.patch  modify, binary",)
    for which in ("*/a.py", "up/pkg/a.py", "up/device/one", "device/one.patch"):
        assert [step.name for step in files(room.place, which).steps] == ["pkg/a.py"]
    with pytest.raises(Invalid, match="matches no patch and no file"):
        files(room.place, "nothing")
