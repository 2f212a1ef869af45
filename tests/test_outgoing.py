"""Across the gap and back: `export --since`, its `import`, and the next baseline in a bundle."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from authoring import Room, commit, make_room, numbered
from hypothesis import given, settings
from hypothesis import strategies as st
from world import git_bytes as git
from world import write

import patchq
from patchq.cli import run
from patchq.commands import rebase as verbs
from patchq.commands.bundle import bundle
from patchq.commands.edit import edit
from patchq.commands.export import export_since
from patchq.commands.import_ import add_upstream, import_
from patchq.commands.lock import lock
from patchq.commands.place import Place
from patchq.commands.refresh import Wish, refresh
from patchq.document import sha256
from patchq.errors import Invalid, Prevented, Refused
from patchq.importing.desk import Wanted
from patchq.transfer.outgoing import Outgoing, outgoing, parse_outgoing
from patchq.transfer.receive import receive

START = {"pkg/__init__.py": b"", "pkg/a.py": numbered(60), "pkg/b.py": numbered(40)}
CONTENTS = st.one_of(
    st.binary(max_size=40),
    st.lists(st.sampled_from(["", "a", "|b", "end: x", "file: y", " ", "ü\t", "\r", "\x0c", "\u2028", "-"])).map(
        lambda rows: "".join(f"{row}\n" for row in rows).encode()
    ),
)
FILES = st.dictionaries(
    st.sampled_from(["up/series", "up/device/a.patch", "queue.yaml", "up/tests/test_a.py"]), CONTENTS
)


@settings(max_examples=150, deadline=None)
@given(then=FILES, now=FILES)
def test_changes_go_through_the_text_file_byte_for_byte(then: dict[str, bytes], now: dict[str, bytes]) -> None:
    digests = {path: sha256(data) for path, data in then.items()}
    changes = outgoing("q", "0" * 64, digests, now, None)
    text = changes.to_bytes()
    for sent in (text, text.replace(b"\n", b"\r\n"), b"\xef\xbb\xbf" + text):
        assert parse_outgoing(sent, "x") == changes
    done: dict[str, bytes | None] = {**then, **changes.changes_for(digests)}
    assert {path: data for path, data in done.items() if data is not None} == now


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damage_is_named_and_never_a_traceback(data: st.DataObject) -> None:
    text = outgoing("q", "0" * 64, {}, {"up/series": b"a\nb\n", "x": b"\0\1"}, None).to_bytes()
    at = data.draw(st.integers(0, len(text) - 1))
    new = data.draw(st.sampled_from([b"", b"\n", b"x", b"\xff", b"|"]))
    broken = text[:at] + new + text[at + 1 :]
    try:
        assert parse_outgoing(broken, "x") == parse_outgoing(text, "x")
    except Invalid as error:
        assert error.problems[0].where.startswith("x")


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Room:
    """A queue of two upstreams, of which the target `ppu` uses one, with a lock."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    room = make_room(tmp_path, START)
    one, two = numbered(60, {10: "one"}), numbered(60, {10: "one", 40: "two"})
    room.fill(
        room.stack([("device/one.patch", {"pkg/a.py": one}), ("device/two.patch", {"pkg/a.py": two})]),
        "# first\ndevice/one.patch #+ppu # why\ndevice/two.patch\n",
    )
    other = tmp_path / "other"
    commit(other, {"lib/__init__.py": b"", "lib/b.py": numbered(9)}, "start")
    add_upstream(room.place, str(other), "lib", "HEAD")
    path = room.root / "targets/gpu.yaml"
    path.write_text(path.read_text().replace("  up:", "  lib: {baseline: git, environments: [local]}\n  up:"))
    lock(room.place)
    return room


def carried_over(room: Room, monkeypatch: pytest.MonkeyPatch, **options: object) -> tuple[Place, Path]:
    """The queue of a bundle for `ppu` as it is on a host with nothing else: no clone, no store of its own."""
    folder = room.folder / "bundle"
    bundle(room.place, "ppu", folder, **options)  # type: ignore[arg-type]
    room.clone.rename(room.folder / "away")
    (room.folder / "other").rename(room.folder / "other-away")
    monkeypatch.setenv("XDG_DATA_HOME", str(room.folder / "there"))
    area, digest, _ = receive(folder, "ppu")
    return Place(area.queue(digest) / "series", area), folder


def at_home(room: Room, monkeypatch: pytest.MonkeyPatch) -> Place:
    (room.folder / "away").rename(room.clone)
    (room.folder / "other-away").rename(room.folder / "other")
    monkeypatch.setenv("XDG_DATA_HOME", str(room.folder / "data"))
    return room.place


def test_the_round_trip_ends_in_the_same_lock(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    there, folder = carried_over(room, monkeypatch)
    copy = Path(edit(there, "ppu").data["copies"]["up"])
    write(copy, {"pkg/a.py": numbered(60, {10: "uno", 40: "two"})})
    git(copy, "commit", "-qam", "fixup! device/one.patch")
    write(copy, {"pkg/b.py": numbered(40, {7: "seven \xe9"})})
    git(copy, "commit", "-qam", "Third\n\nPatchq-Layer: device")
    authored = Place(there.area("ppu").authoring / "series", there.home)
    refresh(authored, copy, Wish("", "", False, False), lambda question: True)
    authored = Place(authored.root, there.home)
    assert lock(authored).exit_code == 0
    lock_there = (authored.root / "patchq.lock").read_bytes()
    out = room.folder / "changes.txt"
    report = export_since(Place(authored.root, there.home), folder, out)
    assert report.exit_code == 0 and report.data["lock"] == sha256(lock_there)
    with pytest.raises(Refused, match="is there already"):
        export_since(Place(authored.root, there.home), folder, out)
    home = at_home(room, monkeypatch)
    report = import_(home, str(out), Wanted())
    assert report.exit_code == 0
    assert (
        (room.root / "up/series").read_bytes().startswith(b"# first\ndevice/one.patch #+ppu # why\ndevice/two.patch\n")
    )
    lock(room.place)
    assert (room.root / "patchq.lock").read_bytes() == lock_there
    again = import_(room.place, str(out), Wanted())
    assert again.data["files"] == [] and again.exit_code == 0


EDIT_THERE = """\
set -e
"$PYTHON" -c 'import socket, sys; sys.exit(not socket.socket().connect_ex(("127.0.0.1", int(sys.argv[1]))))' "$PORT"
cd "$HOME"
patchq() { "$PYTHON" -m patchq "$@" < /dev/null; }
patchq apply --target ppu --bundle "$BUNDLE" || [ $? -eq 4 ]
patchq edit --target ppu up
cd "$AREA/authoring/edit/ppu/up"
sed -i 's/^one$/uno/' pkg/a.py
git commit -qam 'fixup! device/one.patch'
sed -i 's/^line 7$/sieben é/' pkg/b.py
git add pkg/b.py
git commit -qm 'Third' -m 'Patchq-Layer: device'
patchq refresh
patchq lock --queue "$AREA/authoring/series"
patchq export --since "$BUNDLE" --out "$HOME/changes.txt" --queue "$AREA/authoring/series"
"""


@pytest.mark.upstream
def test_the_edit_side_has_no_network(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way by the command line; what is done there is done where not even this machine can be reached."""
    if subprocess.run(("unshare", "-rn", "true"), check=False, capture_output=True).returncode:
        pytest.skip("a namespace without network is not permitted here: unshare -rn")
    folder, home = room.folder / "bundle", room.folder / "home there"
    home.mkdir()
    assert run(["bundle", "--target", "ppu", "--out", str(folder), "--queue", str(room.root)]) == 0
    room.clone.rename(room.folder / "away")
    (room.folder / "other").rename(room.folder / "other-away")
    (home / ".gitconfig").write_text("[user]\nname = There\nemail = there@example.org\n")
    monkeypatch.undo()
    with socket.create_server(("127.0.0.1", 0)) as server:
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHON": sys.executable, "BUNDLE": str(folder),
               "PYTHONPATH": str(Path(patchq.__file__).parents[1]), "AREA": str(room.folder / "work-ppu"),
               "PORT": str(server.getsockname()[1])}  # fmt: skip
        argv = ("unshare", "-rn", "sh", "-c", EDIT_THERE)
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
        socket.create_connection(server.getsockname()).close()
    assert done.returncode == 0, done.stdout + done.stderr
    lock_there = (room.folder / "work-ppu/authoring/series/patchq.lock").read_bytes()
    assert lock_there != (room.root / "patchq.lock").read_bytes()
    monkeypatch.setenv("XDG_STATE_HOME", str(room.folder / "state"))
    at_home(room, monkeypatch)
    assert run(["import", str(home / "changes.txt"), "--queue", str(room.root)]) == 0
    assert run(["lock", "--queue", str(room.root)]) == 0
    assert (room.root / "patchq.lock").read_bytes() == lock_there
    assert run(["check", "--queue", str(room.root)]) == 0


def test_what_changed_at_home_meanwhile_is_named(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    then = dict(room.place.queue.digests)
    old = room.place.queue.files["patchq.lock"]
    now = {**{path: data for path, data in room.place.queue.files.items() if path != "patchq.lock"}}
    now["up/series"] += b"# more\n"
    out = room.folder / "changes.txt"
    out.write_bytes(outgoing("trial", sha256(old), then, now, None).to_bytes())
    write(room.root, {"up/series": b"device/two.patch\ndevice/one.patch\n"})
    before = dict(room.place.queue.files)
    with pytest.raises(Refused, match="up/series: was changed here since the lock"):
        import_(room.place, str(out), Wanted())
    out.write_bytes(Outgoing("other", "0" * 64, None, ()).to_bytes())
    with pytest.raises(Invalid, match="is of the queue 'other'"):
        import_(room.place, str(out), Wanted())
    assert room.place.queue.files == before


def test_a_file_that_leads_out_of_the_queue_is_refused(room: Room) -> None:
    out = room.folder / "changes.txt"
    for path in ("../x", "/x", "up/../../x", "up/.git/config", "up/.hidden", "patchq.lock"):
        out.write_bytes(outgoing("trial", "0" * 64, {}, {path: b"x\n"}, None).to_bytes())
        with pytest.raises(Invalid, match="the path"):
            import_(room.place, str(out), Wanted())
    assert not (room.folder / "x").exists()


def test_the_next_baseline_comes_with_the_bundle(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(room.clone, {"pkg/a.py": b"top\n" + numbered(60)}, "next")
    git(room.clone, "tag", "v2.0")
    there, _ = carried_over(room, monkeypatch, rebase_to=("v2.0",))
    with pytest.raises(Prevented, match=r"up v3\.0 is not in the store"):
        verbs.rebase(there, "up", "v3.0")
    report = verbs.rebase(there, "up", "v2.0")
    assert report.exit_code == 0
    authored = Place(there.area("ppu").authoring / "series", there.home)
    assert authored.queue.upstream("up").baseline.version == "2.0"
    assert lock(authored).exit_code == 0


def test_the_command_line(room: Room, capsys: pytest.CaptureFixture[str]) -> None:
    queue = ("--queue", str(room.root))
    out = str(room.folder / "out.txt")
    assert run(["export", "--since", str(room.root), "--out", out, *queue]) == 1
    assert "nothing changed since that lock" in capsys.readouterr().err
    assert run(["export", "--since", str(room.root), "--format", "quilt", "--out", out, *queue]) == 2
    (room.root / "up/device/one.patch").write_bytes((room.root / "up/device/one.patch").read_bytes() + b"\n")
    assert run(["export", "--since", str(room.root), "--out", out, *queue]) == 0
