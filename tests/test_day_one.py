"""Day one: a mixed dirty checkout and a hand-edited package become a queue of five headed patches in their layers."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest
from authoring import commit, numbered
from world import git_bytes as git
from world import write

from patchq.commands.check import check
from patchq.commands.edit import edit
from patchq.commands.import_ import add_upstream, import_
from patchq.commands.init import init
from patchq.commands.new import new_in_copy
from patchq.commands.place import Place
from patchq.commands.refresh import Wish, refresh
from patchq.engine import Engine
from patchq.importing.desk import Wanted
from patchq.patch import lint_header
from patchq.queue.selection import select

FRAMEWORK = {
    "frame/__init__.py": b"",
    "frame/launch.py": numbered(400, name="launch"),
    "frame/loss.py": numbered(200, name="loss"),
    "frame/crlf.py": b"".join(b"crlf %d\r\n" % number for number in range(60)),
    "frame/数据.txt": "一\n二\n三\n四\n五\n".encode("gbk"),
    "scripts/run.sh": b"#!/bin/sh\n",
    "data.bin": bytes(range(256)),
}
ADAM = {"speed/__init__.py": b"", "speed/adam.py": numbered(80, name="adam")}
TARGET = """\
description: the machine of day one
work: {work}
upstreams:
  frame: {{baseline: git, environments: [local]}}
  speed: {{baseline: installed, sink: installed, environments: [local]}}
environments:
  local:
    python: ${{PATCHQ_PYTHON}}
"""


def mixed_edits(clone: Path) -> None:
    """Some 300 changed lines: device, research and more, in files of their own and mixed in one."""
    launch = FRAMEWORK["frame/launch.py"].decode().splitlines(keepends=True)
    launch[20:60] = [f"device {number}\n" for number in range(90)]
    launch[300:310] = [f"research {number}\n" for number in range(70)]
    write(
        clone,
        {
            "frame/launch.py": "".join(launch).encode(),
            "frame/loss.py": numbered(200, {number: f"auxiliary {number}" for number in range(50, 90)}, "loss"),
            "frame/platform.py": numbered(60, name="platform") + b"no newline at the end",
            "frame/crlf.py": FRAMEWORK["frame/crlf.py"].replace(b"crlf 30\r\n", b"crlf thirty\r\nmixed\n"),
            "frame/数据.txt": "一\n二\n叁\n四\n五\n".encode("gbk"),
            "data.bin": bytes(range(255, -1, -1)),
        },
    )
    (clone / "scripts/run.sh").chmod(0o755)


def installed(site: Path) -> None:
    """A package as pip leaves it, then edited by hand."""
    write(site, ADAM)
    rows = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},{len(data)}\n"
        for path, data in ADAM.items()
    ]
    write(site, {"speed-1.2.dist-info/RECORD": "".join(rows).encode()})
    write(site, {"speed/adam.py": numbered(80, {40: "bias_correction = group.get('bias_correction', True)"}, "adam")})


def dirty_tree(clone: Path) -> dict[str, tuple[bytes, bool]]:
    """Path → bytes and x bit of every file of the work tree."""
    files = [path for path in clone.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {
        path.relative_to(clone).as_posix(): (path.read_bytes(), bool(path.stat().st_mode & 0o100)) for path in files
    }


def selected(place: Place, upstream: str) -> dict[str, tuple[bytes, bool]]:
    """Path → bytes and x bit after the selection with the variant `mine`."""
    selection = select(place.queue, "local", "mine", upstream)
    with Engine.on(place.store) as engine:
        placed = engine.apply(place.sources().base(selection.upstream, selection.form), selection.chosen)
        assert all(step.ok for step in placed)
        walked = place.store.walk(placed[-1].tree)
        return {path: (place.store.read(entry.id, "blob"), entry.mode == "100755") for path, entry in walked}


@pytest.mark.fault
def test_from_loose_edits_to_a_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    clone, speed, site = tmp_path / "frame", tmp_path / "speed", tmp_path / "site-packages"
    commit(clone, FRAMEWORK, "release")
    git(clone, "tag", "v0.9.0")
    commit(speed, {**ADAM, "pyproject.toml": b'[project]\nname = "speed"\nversion = "1.2"\n'}, "release")
    mixed_edits(clone)
    installed(site)
    room = tmp_path / "queue"
    room.mkdir()

    init(room, "day-one")
    root = room / "series"
    add_upstream(Place(root), str(clone), "frame", "v0.9.0")
    add_upstream(Place(root), str(speed), "speed", "HEAD")
    baseline = root / "speed/baseline.yaml"
    baseline.write_text(baseline.read_text() + 'installed: {distribution: speed, version: "1.2", like: git}\n')
    (root / "targets/local.yaml").write_text(TARGET.format(work=tmp_path / "work"))
    write(root, {"variants/mine.yaml": b"description: mine\nresearch: [frame/research/*]\n"})

    platform = Wanted(layer="device", name="platform", only=("frame/platform.py", "frame/crlf.py", "scripts/*"))
    import_(Place(root), str(clone), platform)
    auxiliary = Wanted(layer="research", name="auxiliary-loss", only=("frame/loss.py", "frame/数据.txt"))
    import_(Place(root), str(clone), auxiliary)
    import_(Place(root), str(site), Wanted(layer="device", name="adam-bias"))

    copy = Path(edit(Place(root), "local", "mine", "frame").data["copies"]["frame"])
    write(copy, {path: (clone / path).read_bytes() for path in ("frame/launch.py", "data.bin")})
    listed = new_in_copy(Place(root), copy, None, (), "", ()).steps
    assert len(listed) == 3, "the binary file, and two hunks of one file"
    new_in_copy(Place(root), copy, "device/allocator", ("2",), "Keep segments off", ())
    new_in_copy(Place(root), copy, "research/metrics", ("frame/launch.py", "data.bin"), "Show the signal", ())
    report = refresh(Place(root), copy, Wish("", "", False, False), lambda question: True)
    assert report.exit_code == 0, report

    queue = Place(root).queue
    patches = [queued for upstream in queue.upstreams.values() for queued in upstream.patches]
    assert sorted(queued.entry.name for queued in patches) == [
        "device/adam-bias.patch", "device/allocator.patch", "device/platform.patch",
        "research/auxiliary-loss.patch", "research/metrics.patch",
    ]  # fmt: skip
    for queued in patches:
        assert queued.patch and queued.patch.header.subject
        missing = {problem.what for problem in lint_header(queued.patch, queued.entry.layer)}
        assert missing == {f"a {queued.entry.layer} patch without Tests"}
    assert selected(Place(root), "frame") == dirty_tree(clone)
    assert selected(Place(root), "speed")["speed/adam.py"] == ((site / "speed/adam.py").read_bytes(), False)
    assert [step for step in check(Place(root)).steps if step.state.code] == []
