"""Queue files made to mislead: each refused with its line before anything runs, and what is good taken."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from authoring import Room, make_room, numbered
from world import World, patchq

from patchq.cli import run
from patchq.errors import Invalid
from patchq.queue.load import load_queue


@pytest.fixture
def room(tmp_path: Path) -> Room:
    room = make_room(tmp_path, {"pkg/a.py": numbered(9)}, {"t": []})
    room.fill({"device/one.patch": room.stack([("one", {"pkg/a.py": numbered(9, {2: "two"})})])["one"]})
    return room


def refused(room: Room) -> str:
    with pytest.raises(Invalid) as caught:
        load_queue(room.root)
    return str(caught.value)


SOURCES = ["-u", "ext::sh -c x", "https://u:p@h/x", "https://token@h/x", "ftp://h/x", "a\\nb", "ssh://-oX/y", ""]


@pytest.mark.parametrize("source", SOURCES)
def test_a_source_that_git_must_not_see_is_refused_at_its_line(room: Room, source: str) -> None:
    path = room.root / "up/baseline.yaml"
    path.write_text(path.read_text().replace(f"source: {room.clone}", f'source: "{source}"'))
    assert "up/baseline.yaml:6: git.source: the source " in refused(room)


COMMITS = ["main", "'abc1234'", "1234567890123456789012345678901234567890", "0x1f", "1_000", "2026-01-01", "1e39", "~"]


@pytest.mark.parametrize("commit", COMMITS)
def test_a_commit_is_a_full_id_in_quotes(room: Room, commit: str) -> None:
    path = room.root / "up/baseline.yaml"
    rows = [f"  commit: {commit}" if row.startswith("  commit:") else row for row in path.read_text().split("\n")]
    path.write_text("\n".join(rows))
    assert "up/baseline.yaml:5: git.commit: " in refused(room)


YAML: dict[str, tuple[str, str]] = {
    "aliases": ("".join(f"x{n}: &x{n} [*x{n - 1}, *x{n - 1}]\n" for n in range(1, 30)), "too many aliases"),
    "itself": ("z: &z [*z]\n", "unfold"),
    "deep": ("z: " + "[" * 5000 + "]" * 5000, "nested more than 20"),
    "long": ("".join(f"k{n}: 1\n" for n in range(30_000)), "more than 20000 things"),
    "large": ("#" * (1 << 20), "bytes; at most"),
    "python": ("z: !!python/object/apply:os.system [x]\n", "the tag"),
    "binary": ("z: !!binary aGk=\n", "the tag"),
    "merge": ("x: &x {a: b}\n<<: *x\n", "unknown key '<<'"),
    "NUL": ('z: "a\\0b"\n', "holds a NUL"),
    "a raw NUL": ("z: \0\n", "control character 0x00"),
    "escape": ("z: \x1b[2J\n", "control character 0x1b"),
    "two documents": ("---\nx: y\n", "another document"),
    "twice": ("description: again\n", "a second time"),
    "no word": ("? [a]\n: 2\n", "plain word"),
    "tab": ("z:\n\ty: 1\n", "is not YAML"),
}


@pytest.mark.parametrize("name", YAML)
def test_yaml_that_means_more_than_it_says(room: Room, name: str) -> None:
    text, words = YAML[name]
    path = room.root / "targets/t.yaml"
    path.write_text(path.read_text() + text.replace("*x0", "a"))
    said = refused(room)
    assert words in said and "targets/t.yaml:" in said


def test_encodings_that_are_not_utf8(room: Room) -> None:
    path = room.root / "targets/t.yaml"
    text = path.read_text()
    for data, words in ((b"\xef\xbb\xbf" + text.encode(), "byte order mark"), (text.encode("utf-16"), "not UTF-8")):
        path.write_bytes(data)
        assert words in refused(room)


def test_every_problem_of_every_file_at_once(room: Room) -> None:
    (room.root / "targets/t.yaml").write_text(
        "description: 5\nwrok: y\nupstreams: {}\nenvironments: {e: {pyhton: x}}\n"
    )
    (room.root / "up/series").write_text("../x\n device/one.patch\ndevice/one.patch -R\n")
    said = refused(room)
    for place in ("t.yaml:1", "t.yaml:2", "t.yaml:4", "series:1", "series:2", "series:3"):
        assert place in said
    assert "did you mean 'work'" in said and "did you mean 'python'" in said


def _socket(root: Path) -> None:
    os.chdir(root)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("sock")


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "link": (lambda root: (root / "targets/l.yaml").symlink_to("t.yaml"), "not a plain file"),
    "folder behind a link": (lambda root: (root / "linked").symlink_to("up"), "not a plain file"),
    "link to itself": (lambda root: (root / "loop").symlink_to("loop"), "not a plain file"),
    "FIFO": (lambda root: os.mkfifo(root / "up/fifo"), "not a plain file"),
    "socket": (_socket, "not a plain file"),
    "twins": (lambda root: (root / "targets/T.yaml").write_bytes((root / "targets/t.yaml").read_bytes()), "case only"),
    "twin folders": (lambda root: [(root / "up/Tests").mkdir(), (root / "up/Tests/a").touch(),
                                   (root / "up/tests").mkdir(), (root / "up/tests/b").touch()], "case only"),
    "newline": (lambda root: (root / "up/a\nb").touch(), "no name for a file"),
    "no text": (lambda root: (root / "up" / os.fsdecode(b"\xff")).touch(), "no name for a file"),
    "yml": (lambda root: (root / "targets/u.yml").touch(), "has to end in .yaml"),
    "patch is a folder": (lambda root: (root / "up/device/two.patch").mkdir(), ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files_that_no_bundle_could_carry(room: Room, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, words = FILES[name]
    monkeypatch.chdir(room.folder)
    make(room.root)
    if words:
        assert words in refused(room)
    else:
        assert load_queue(room.root)


@pytest.mark.parametrize("lock", [b'{"a":1,"a":2}', b"[" * 100_000, b'{"schema": NaN}', b"\xff\xfe", b"9" * 5000])
def test_a_lock_that_is_none_is_said_in_one_line(
    room: Room, lock: bytes, capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(room.root)
    (room.root / "patchq.lock").write_bytes(lock)
    assert run(["check", "--json"]) == 2
    steps = json.loads(capsysbinary.readouterr().out)["steps"]
    assert [step["state"] for step in steps if step["name"] == "lock"] == ["malformed"]


GOOD = [
    "description: |\n  two\n  lines\n",
    "description: 2026-01-01\n",
    'description: "\\u4e2d\\ttab"\n',
    "description: 中文\n",
]


@pytest.mark.parametrize("text", GOOD)
def test_good_yaml_is_taken(room: Room, text: str) -> None:
    path = room.root / "targets/t.yaml"
    path.write_text(path.read_text().replace("description: t\n", text))
    assert load_queue(room.root).target("t").description


def test_a_source_of_a_variable_is_judged_by_check_also_where_nothing_is_fetched(
    own: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = own.root / "alpha/baseline.yaml"
    path.write_text(path.read_text().replace(f'"{own.alpha}"', '"${ALPHA_SOURCE}"'))
    own.locked()
    for value, said in (("-oops", "looks like an option"), ("ext::sh -c x", "names a remote helper"), (None, "")):
        monkeypatch.setenv("ALPHA_SOURCE", value) if value else monkeypatch.delenv("ALPHA_SOURCE")
        assert patchq("check", "--target", "blind", "--queue", own.root) == (2 if value else 0)
        assert said in capsys.readouterr().err
