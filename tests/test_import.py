"""`import`: patches from wherever people have them, without losing a byte."""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from authoring import Room, commit, first, make_room, numbered
from world import git_bytes as git
from world import header, write

from patchq.cli import run
from patchq.commands.check import check
from patchq.commands.import_ import add_upstream, import_
from patchq.engine import Engine
from patchq.errors import DoesNotApply, Invalid, Refused
from patchq.importing.desk import Wanted
from patchq.patch import parse_patch
from patchq.queue.selection import select

DEVICE = Wanted(layer="device")
START = {
    "pkg/__init__.py": b"",
    "pkg/a.py": numbered(30),
    "pkg/blank.py": b"one\nmore\n\n",
    "pkg/crlf.py": b"a = 1\r\nb = 2\r\nc = 3\r\n",
    "pkg/数据 x.txt": "一\n二\n三\n".encode("gbk"),
    "data.bin": bytes(range(256)),
    "run.sh": b"#!/bin/sh\n",
    "old name.txt": numbered(9, name="kept"),
}


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return make_room(tmp_path, START)


def tree_of(room: Room, target: str = "gpu") -> dict[str, bytes]:
    """Path → bytes after a target's selection."""
    place = room.place
    selection = select(place.queue, target, None, "up")
    with Engine.on(place.store) as engine:
        base = place.sources().base(selection.upstream, "git")
        placed = engine.apply(base, selection.chosen)
        assert all(step.ok for step in placed)
        tree = placed[-1].tree if placed else base.tree
        return {path: place.store.read(entry.id, "blob") for path, entry in place.store.walk(tree)}


def put(folder: Path, name: str, data: bytes) -> str:
    path = folder / name
    path.write_bytes(data)
    return str(path)


def test_a_loose_diff_gets_a_header_and_keeps_its_bytes(room: Room) -> None:
    diff = room.diff({"pkg/a.py": numbered(30, {5: "five"})})
    report = import_(room.place, put(room.folder, "0003-make_five.diff", diff), DEVICE)
    made = (room.root / "up/device/make_five.patch").read_bytes()
    assert report.exit_code == 0 and report.data["patches"] == ["up/device/make_five.patch"]
    assert made.startswith(b"Description: Make five\nOrigin: other, 0003-make_five.diff\nLast-Update: 20")
    assert made.endswith(b"\n\n" + diff)
    assert tree_of(room)["pkg/a.py"] == numbered(30, {5: "five"})
    assert [step.summary for step in check(room.place).steps if step.state.code] == []


def test_a_complete_patch_is_taken_byte_for_byte_with_its_strip_and_guards(room: Room) -> None:
    diff = room.diff({"pkg/a.py": numbered(30, {5: "five"})}).replace(b" a/pkg", b" pkg").replace(b" b/pkg", b" pkg")
    data = header("Five") + diff
    wanted = Wanted(layer="device", guards=("+ppu",), name="other-name")
    import_(room.place, put(room.folder, "x.patch", data), wanted)
    assert (room.root / "up/device/other-name.patch").read_bytes() == data
    assert (room.root / "up/series").read_bytes() == b"device/other-name.patch -p0 #+ppu\n"


def test_encodings_line_ends_binaries_modes_renames_and_names_survive(room: Room) -> None:
    clone = room.clone
    changed = {
        "pkg/crlf.py": b"a = 1\r\nb = 22\r\nc = 3\r\n",
        "pkg/数据 x.txt": "一\n贰\n三\n".encode("gbk"),
        "data.bin": bytes(range(255, -1, -1)),
        "old name.txt": None,
        'new "name".txt': numbered(9, name="kept"),
        "no newline": b"x",
        "empty": b"",
    }
    write(clone, changed)
    (clone / "run.sh").chmod(0o755)
    report = import_(room.place, str(clone), DEVICE)
    assert report.exit_code == 0
    after = tree_of(room)
    wanted = {**START, **{path: data for path, data in changed.items() if data is not None}}
    del wanted["old name.txt"]
    assert after == wanted
    text = (room.root / "up/device/clone.patch").read_bytes()
    assert b"new mode 100755" in text and b"rename from old name.txt" in text and b"GIT binary patch" in text
    assert git(clone, "status", "--porcelain").count(b"\n") == 7 + 1, "the clone is as it was"


def test_a_mixed_dirty_tree_is_taken_in_parts(room: Room) -> None:
    write(room.clone, {"pkg/a.py": numbered(30, {2: "two"}), "pkg/new.py": b"new\n", "ignored.log": b""})
    write(room.clone, {".git/info/exclude": b"*.log\n"})
    import_(room.place, str(room.clone), Wanted(layer="device", only=("pkg/a.py",), name="a"))
    import_(room.place, str(room.clone), Wanted(layer="research", only=("pkg/new.py",), name="b"))
    assert (room.root / "up/series").read_bytes() == b"device/a.patch\nresearch/b.patch\n"
    assert b"ignored" not in (room.root / "up/research/b.patch").read_bytes()
    with pytest.raises(Invalid, match=r"'nothing\*' matches no changed file"):
        import_(room.place, str(room.clone), Wanted(layer="device", only=("nothing*",)))


def test_commits_of_a_clone_keep_author_message_and_origin(room: Room) -> None:
    one = commit(room.clone, {"pkg/a.py": numbered(30, {2: "two"})}, "Make two\n\nBecause.\n\nFixes: #3")
    two = commit(room.clone, {"pkg/a.py": numbered(30, {2: "two", 20: "twenty"})}, "Make twenty")
    report = import_(room.place, str(room.clone), Wanted(layer="backport", span=f"{first(room.clone)}..HEAD"))
    assert report.data["patches"] == ["up/backport/Make-two.patch", "up/backport/Make-twenty.patch"]
    patch = room.place.queue.upstream("up").patches[0].patch
    assert patch and patch.header.author == "Ada Author <ada@example.org>" and patch.header.subject == "Make two"
    assert patch.header.body == "Because.\n\nFixes: #3" and patch.header.origin == f"other, commit:{one}"
    assert tree_of(room)["pkg/a.py"] == numbered(30, {2: "two", 20: "twenty"})
    squashed = Wanted(layer="device", span=f"{first(room.clone)}...{two}", name="all")
    with pytest.raises(DoesNotApply, match="is there already"):
        import_(room.place, str(room.clone), squashed)


def test_a_pull_request_is_one_patch_from_where_it_left(room: Room) -> None:
    git(room.clone, "checkout", "-q", "-b", "topic")
    commit(room.clone, {"pkg/a.py": numbered(30, {2: "two"})})
    commit(room.clone, {"pkg/new.py": b"new\n"})
    git(room.clone, "checkout", "-q", "main")
    commit(room.clone, {"pkg/a.py": numbered(30, {25: "main"})})
    import_(room.place, str(room.clone), Wanted(layer="device", span="main...topic"))
    assert tree_of(room)["pkg/a.py"] == numbered(30, {2: "two"})
    assert (room.root / "up/device/topic.patch").exists()


def test_mails_of_format_patch_in_files_and_in_an_mbox(room: Room) -> None:
    commit(room.clone, {"pkg/a.py": numbered(30, {2: "zwö"})}, "Mäke two")
    commit(room.clone, {"pkg/a.py": numbered(30, {2: "zwö", 20: "twenty"})}, "Make twenty")
    folder = room.folder / "mails"
    git(room.clone, "format-patch", "-q", "-o", str(folder), "--cover-letter", first(room.clone))
    (folder / "0000-cover-letter.patch").unlink()
    names = import_(room.place, str(folder), DEVICE).data["patches"]
    assert names == ["up/device/M-ke-two.patch", "up/device/Make-twenty.patch"]
    originals = [path.read_bytes() for path in sorted(folder.iterdir())]
    assert [(room.root / name).read_bytes() for name in names] == originals
    mbox = git(room.clone, "format-patch", "--stdout", "--cover-letter", first(room.clone))
    again = make_room(room.folder / "again", START)
    names = import_(again.place, put(room.folder, "all.mbox", mbox), DEVICE).data["patches"]
    assert [name.rpartition("/")[2] for name in names] == ["M-ke-two.patch", "Make-twenty.patch"]
    assert tree_of(again)["pkg/a.py"] == numbered(30, {2: "zwö", 20: "twenty"})


@pytest.mark.parametrize("encoding", ["base64", "quoted-printable"])
def test_mail_that_was_encoded_for_transport_is_decoded(room: Room, encoding: str) -> None:
    import quopri

    diff = room.diff({"pkg/数据 x.txt": "一\n贰=\n三\n".encode("gbk")})
    body = b"Why.\n---\n" + diff
    packed = base64.encodebytes(body) if encoding == "base64" else quopri.encodestring(body)
    head = "From: Ada <ada@example.org>\nDate: Fri, 2 Jan 2026 03:04:05 +0100\nSubject: [PATCH] Two\n"
    mail = f"{head}X-Spam: no\nContent-Transfer-Encoding: {encoding}\n\n".encode() + packed
    import_(room.place, put(room.folder, "two.eml", mail), DEVICE)
    assert (room.root / "up/device/two.patch").read_bytes() == head.encode() + b"\n" + body
    assert tree_of(room)["pkg/数据 x.txt"] == "一\n贰=\n三\n".encode("gbk")


@pytest.mark.parametrize("option", ["--attach", "--inline"])
def test_a_mail_of_several_parts_is_put_together(room: Room, option: str) -> None:
    commit(room.clone, {"pkg/a.py": numbered(30, {2: "zwö"}), "pkg/gbk": "贰\n".encode("gbk")}, "Make two\n\nWhy.")
    mail = git(room.clone, "format-patch", "-1", "--stdout", option)
    import_(room.place, put(room.folder, "two.eml", mail), DEVICE)
    assert tree_of(room)["pkg/a.py"] == numbered(30, {2: "zwö"})
    assert tree_of(room)["pkg/gbk"] == "贰\n".encode("gbk")
    patch = parse_patch("up/device/two", (room.root / "up/device/two.patch").read_bytes(), "p")
    assert (patch.header.subject, patch.header.body.splitlines()[0]) == ("Make two", "Why.")


def test_a_quilt_series_is_brought_into_our_grammar(room: Room) -> None:
    folder = room.folder / "debian/patches"
    one, two = numbered(30, {2: "two"}), numbered(30, {2: "two", 20: "twenty"})
    stack = room.stack([("one", {"pkg/a.py": one}), ("two", {"pkg/a.py": two}), ("three", {"pkg/new.py": b"x\n"})])
    git(room.clone, "checkout", "-q", "--detach", first(room.clone))
    write(room.clone, {"pkg/crlf.py": b"gone\n"})
    reverse = git(room.clone, "diff", "-R", "--full-index")
    git(room.clone, "checkout", "-q", "-f", "main")
    files = {"sub/one.diff": stack["one"], "two.patch": stack["two"], "three@x.patch": stack["three"],
             "back.patch": header("back") + reverse}  # fmt: skip
    series = (
        "# why one\nsub/one.diff -pab\t# a note\n  # indented\n#off.patch\ntwo.patch#+PPU\n"
        "three@x.patch -p1 #-Old_GPU\nback.patch -R\r\n"
    )
    write(folder, {**files, "series": series.encode()})
    report = import_(room.place, str(room.folder), DEVICE)
    assert (room.root / "up/series").read_text() == (
        "# why one\ndevice/sub-one.patch # a note\n# indented\n#off.patch\ndevice/two.patch #+ppu\n"
        "device/three-x.patch #-old-gpu\ndevice/back.patch\n"
    )
    assert (room.root / "up/device/two.patch").read_bytes() == stack["two"]
    after = tree_of(room, "ppu")
    assert (after["pkg/a.py"], after["pkg/new.py"], after["pkg/crlf.py"]) == (two, b"x\n", b"gone\n")
    assert "guard #+PPU became #+ppu" in str(report.steps)


def test_an_edited_folder_is_compared_with_what_the_queue_makes(room: Room) -> None:
    room.fill(room.stack([("device/one.patch", {"pkg/a.py": numbered(30, {2: "two"})})]))
    folder = room.folder / "copy"
    write(folder, {**START, "pkg/a.py": numbered(30, {2: "two", 20: "twenty"}), "pkg/a.pyc": b""})
    (folder / "data.bin").unlink()
    import_(room.place, str(folder), Wanted(layer="device", name="mine"))
    text = (room.root / "up/device/mine.patch").read_bytes()
    assert b"+two" not in text and b"+twenty" in text and b"pyc" not in text and b"deleted file mode" in text
    assert tree_of(room)["pkg/a.py"] == numbered(30, {2: "two", 20: "twenty"})


def test_a_hand_edited_installed_package_is_compared_by_its_record(room: Room) -> None:
    path = room.root / "up/baseline.yaml"
    more = 'installed: {distribution: Up-Pkg, version: "1.0", like: git}\npackages:'
    path.write_text(path.read_text().replace("packages:", more))
    site = room.folder / "site-packages"
    generated = {"pkg/made_by_setup.py": b"x = 1\n"}
    files = {path: data for path, data in START.items() if path.startswith("pkg/")} | generated
    write(site, files)
    rows = [
        f'"{name}",sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")},{len(data)}'
        for name, data in files.items()
    ]
    write(site, {"up_pkg-1.0.dist-info/RECORD": "\n".join([*rows, "up_pkg-1.0.dist-info/RECORD,,"]).encode()})
    write(site, {"pkg/a.py": numbered(30, {3: "three"}), "pkg/mine.py": b"mine\n", "other/x.py": b""})
    import_(room.place, str(site), Wanted(layer="device", name="mine"))
    after = tree_of(room)
    assert after == {**START, "pkg/a.py": numbered(30, {3: "three"}), "pkg/mine.py": b"mine\n"}
    write(site, {"pkg/made_by_setup.py": b"x = 2\n"})
    with pytest.raises(Refused, match="not the baseline's to begin with"):
        import_(room.place, str(site / "pkg"), Wanted(layer="device", name="more"))
    (site / "up_pkg-1.0.dist-info").rename(site / "up_pkg-1.1.dist-info")
    with pytest.raises(Refused, match=r"Up-Pkg 1\.1 is installed; the baseline is 1\.0"):
        import_(room.place, str(site), DEVICE)
    (site / "up_pkg-1.1.dist-info").rename(site / "else-1.1.dist-info")
    with pytest.raises(Invalid, match="no upstream of this queue is installed there"):
        import_(room.place, str(site), DEVICE)


def test_a_patch_for_another_base_is_re_anchored_or_told_where_it_fits(room: Room) -> None:
    commit(room.clone, {"pkg/a.py": numbered(30, {14: "moved on"})})
    git(room.clone, "tag", "v2.0")
    git(room.clone, "commit", "-q", "--allow-empty", "-m", "later")
    patch = put(room.folder, "p.patch", header("p") + room.diff({"pkg/a.py": numbered(30, {14: "moved on", 16: "x"})}))
    before = (room.root / "up/series").read_bytes()
    with pytest.raises(DoesNotApply, match=r"it fits v2\.0; --3way may re-anchor it"):
        import_(room.place, patch, DEVICE)
    assert (room.root / "up/series").read_bytes() == before and not (room.root / "up/device").exists()
    report = import_(room.place, patch, Wanted(layer="device", three_way=True))
    assert "re-anchored by a 3-way merge" in report.steps[0].detail
    assert tree_of(room)["pkg/a.py"] == numbered(30, {16: "x"})
    clash = put(room.folder, "q.patch", header("q") + room.diff({"pkg/a.py": numbered(30, {14: "y"})}))
    with pytest.raises(DoesNotApply, match=r"leaves conflicts in pkg/a\.py"):
        import_(room.place, clash, Wanted(layer="device", three_way=True))


def test_a_patch_that_was_changed_by_hand_says_how_to_mend_it(room: Room) -> None:
    """Its index line is of the text before: known by the file that it was made for, and the result."""
    diff = room.diff({"pkg/a.py": numbered(30, {5: "five"})}).replace(b"+five\n", "+fünf\n".encode())
    path = put(room.folder, "by-hand.patch", diff)
    for wanted in (DEVICE, Wanted(layer="device", three_way=True)):
        with pytest.raises(DoesNotApply, match=r"pkg/a\.py: made for this very file, but"):
            import_(room.place, path, wanted)
    with pytest.raises(DoesNotApply) as caught:
        import_(room.place, path, DEVICE)
    assert "take its index lines out" in caught.value.problems[0].hint
    Path(path).write_bytes(b"".join(row for row in diff.splitlines(True) if not row.startswith(b"index ")))
    assert import_(room.place, path, DEVICE).exit_code == 0


def crlf(data: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


def deep(diff: bytes) -> bytes:
    """A diff of two folders far below the one that it was made in."""
    rows = b"".join(row for row in diff.splitlines(True) if not row.startswith((b"diff ", b"index ")))
    return rows.replace(b"--- a", b"--- me/src/up.orig").replace(b"+++ b", b"+++ me/src/up")


TRANSIT: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "line ends of a mail": (crlf, "with CRLF, now with LF"),
    "pasted on Windows": (lambda diff: crlf(diff)[:-2], "with CRLF, now with LF"),
    "pasted": (lambda diff: diff[:-1], "newline at its end was lost"),
    "an editor that strips the end": (bytes.rstrip, "blank line at its end was lost"),
    "PowerShell": (lambda diff: ("\ufeff" + crlf(diff).decode()).encode("utf-16-le"), "now with LF"),
    "UTF-16, the other way round": (lambda diff: ("\ufeff" + diff.decode()).encode("utf-16-be"), ""),
    "a mark in front": (lambda diff: b"\xef\xbb\xbf" + diff, ""),
    "folders far down": (deep, ""),
    "a backup with another ending": (lambda diff: deep(diff).replace(b"a.py\n", b"a.py.dist-1\n", 1), ""),
}


def test_what_happened_to_a_patch_on_its_way_is_undone_and_said(room: Room) -> None:
    """Its last line is a blank one of context."""
    diff = room.diff({"pkg/blank.py": b"two\nmore\n\n"})
    kept = room.folder / "kept"
    shutil.copytree(room.root, kept)
    for name, (change, note) in TRANSIT.items():
        step = import_(room.place, put(room.folder, "x.patch", change(diff)), DEVICE).steps[0]
        assert note in " ".join(step.detail), name
        assert tree_of(room)["pkg/blank.py"] == b"two\nmore\n\n", name
        shutil.rmtree(room.root)
        shutil.copytree(kept, room.root)


def test_half_a_line_that_a_patch_adds_is_not_taken_for_a_whole_one(room: Room) -> None:
    path = put(room.folder, "x.patch", room.diff({"pkg/new.py": b"return total\n"})[:-4])
    with pytest.raises(Invalid, match="was it cut off"):
        import_(room.place, path, DEVICE)


def test_an_empty_patch_of_a_series_is_taken_with_a_header(room: Room) -> None:
    folder = room.folder / "patches"
    write(folder, {"series": b"empty.patch\ntold.patch\n", "empty.patch": b"", "told.patch": b"Description: Nothing\n"})
    assert import_(room.place, str(folder), DEVICE).exit_code == 0
    assert (room.root / "up/device/empty.patch").read_bytes().startswith(b"Description: Empty\nOrigin: other, empty")
    assert [step for step in check(room.place).steps if step.state.code] == []
    with pytest.raises(Invalid, match="holds no diff"):
        import_(room.place, str(folder / "told.patch"), DEVICE)


def test_of_a_folder_all_or_nothing_is_imported(room: Room) -> None:
    folder = room.folder / "loose"
    good = room.diff({"pkg/a.py": numbered(30, {5: "five"})})
    write(folder, {"1-good.patch": good, "2-bad.patch": good.replace(b"line 4", b"line X")})
    files = sorted(room.root.rglob("*"))
    with pytest.raises(DoesNotApply, match=r"2-bad\.patch: does not apply: pkg/a\.py:2"):
        import_(room.place, str(folder), DEVICE)
    assert sorted(room.root.rglob("*")) == files


def test_the_upstream_is_the_one_that_takes_the_patch(room: Room) -> None:
    other = room.folder / "other"
    commit(other, {"lib/__init__.py": b""}, "history, which the store does not need")
    commit(other, {"lib/b.py": numbered(9)}, "start")
    git(other, "tag", "v2.1.0")
    report = add_upstream(room.place, str(other), "lib", "v2.1.0")
    text = (room.root / "lib/baseline.yaml").read_text()
    assert 'version: "2.1.0"\n' in text and "packages: [lib]\n" in text and report.exit_code == 0
    write(other, {"lib/b.py": numbered(9, {3: "x"})})
    names = import_(room.place, str(other), DEVICE).data["patches"]
    assert names == ["lib/device/other.patch"]
    with pytest.raises(Refused, match="such an upstream already"):
        add_upstream(room.place, str(other), "lib", "HEAD")


def test_what_cannot_be_imported_is_one_line(room: Room, capsys: pytest.CaptureFixture[str]) -> None:
    queue = ("--queue", str(room.root))
    empty = room.folder / "empty"
    write(empty, {"keep.txt": b""})
    for argv, code, said in (
        (("nothing",), 2, "no such file or folder"),
        (("~nobody-of-that-name/x.patch",), 2, "there is no home for '~nobody-of-that-name'"),
        ((put(room.folder, "x.patch", b"no diff\n"), "--layer", "device"), 2, "holds no diff"),
        ((put(room.folder, "y.patch", room.diff({"n": b"1\n"})),), 2, "which layer?"),
        ((str(room.clone), "--range", "a..b", "--layer", "device"), 2, "no commit 'a'"),
        ((str(room.clone), "--range", "main..main", "--layer", "device"), 2, "is empty"),
        ((str(room.clone), "--layer", "device"), 1, "nothing differs"),
        ((str(room.clone), "--layer", "dev"), 2, "did you mean 'device'?"),
    ):
        assert run(["import", *argv, *queue]) == code, argv
        assert said in capsys.readouterr().err
