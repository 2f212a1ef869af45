"""A hostile but ordinary git configuration changes no byte of any result: lock, bundle, work copy, commit ids."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hostile import be_hostile
from world import World, contents, git, patchq

SYSTEM_UID = 65534


def results(world: World, folder: Path, patch: pytest.MonkeyPatch) -> dict[str, dict[str, tuple[str, bytes]]]:
    """Lock, bundle, exports and a work copy, made with a store of their own, by content."""
    patch.setenv("XDG_DATA_HOME", str(folder / "data"))
    patch.setenv("XDG_STATE_HOME", str(folder / "state"))
    mine = world.copy(folder / "queue")
    (mine.root / "patchq.lock").unlink()
    queue = ("--queue", mine.root.parent)
    assert patchq("lock", *queue) == 0
    assert patchq("check", "--target", "blind", *queue) == 0
    assert patchq("bundle", "--target", "blind", "--out", folder / "bundle", *queue) == 0
    assert patchq("apply", "--target", "blind", "--variant", "deep", *queue) == 4
    assert patchq("export", "--target", "blind", "--format", "git-am", "--out", folder / "am", *queue) == 0
    copy = (mine.work / "alpha/current").resolve()
    made = {name: contents(folder / name) for name in ("bundle", "am")}
    lines = {"lock": ("file", (mine.root / "patchq.lock").read_bytes()), "commit": ("id", copy.name.encode())}
    return {**made, "copy": contents(copy), "lines": lines}


@pytest.fixture
def offline_world(world: World, tmp_path: Path) -> World:
    """The world with a queue that needs no package index."""
    mine = world.copy(tmp_path / "plain")
    shutil.rmtree(mine.root / "beta")
    for name in ("small", "site"):
        (mine.root / f"targets/{name}.yaml").unlink()
    return mine.locked()


def test_no_byte_of_any_result_depends_on_the_users_git(
    offline_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        expected = results(offline_world, tmp_path / "clean", patch)
    mark = be_hostile(monkeypatch, tmp_path / "user")
    before = os.umask(0o077)
    try:
        found = results(offline_world, tmp_path / "hostile", monkeypatch)
    finally:
        os.umask(before)
    assert found == expected
    assert not mark.exists(), mark.read_text()
    assert expected["copy"]["core"] == ("link", b"alpha/core.py")
    assert expected["copy"]["alpha/dos.py"][1].count(b"\r\n") == 5


@pytest.mark.fault
@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
def test_a_source_of_another_user_is_read_and_left_alone(
    offline_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = shutil.copytree(offline_world.alpha.parent, tmp_path / "sources", symlinks=True)
    for path in [sources, *sources.rglob("*")]:
        os.chown(path, SYSTEM_UID, SYSTEM_UID, follow_symlinks=False)
    before = contents(sources)
    be_hostile(monkeypatch, tmp_path / "user")
    for number, source in enumerate((str(sources), f"file://{sources}")):
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / f"data-{number}"))
        given = (f"--source=alpha={source}/alpha", f"--source=alpha.plug={source}/plug")
        assert patchq("lock", "--check", *given, "--queue", offline_world.root) == 0
        assert contents(sources) == before


def test_the_sources_own_configuration_counts_for_nothing(
    offline_world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = shutil.copytree(offline_world.alpha, tmp_path / "alpha", symlinks=True)
    mark = tmp_path / "ran"
    (clone / ".git/hooks").mkdir(exist_ok=True)
    (clone / ".git/hooks/post-upload-pack").write_text(f"#!/bin/sh\ntouch {mark}\n")
    (clone / ".git/hooks/post-upload-pack").chmod(0o755)
    for key, value in (
        ("core.fsmonitor", f"touch {mark}"),
        ("uploadpack.packObjectsHook", f"touch {mark}"),
        ("uploadpack.allowAnySHA1InWant", "false"),
        ("transfer.hideRefs", "refs/"),
        ("core.hooksPath", str(clone / ".git/hooks")),
    ):
        git(clone, "config", key, value)
    git(clone, "replace", "-f", "HEAD", git(clone, "commit-tree", "-m", "other", "HEAD~1^{tree}"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    before = (offline_world.root / "patchq.lock").read_bytes()
    assert patchq("lock", "--check", "--source", f"alpha={clone}", "--queue", offline_world.root) == 0
    assert (offline_world.root / "patchq.lock").read_bytes() == before
    assert not mark.exists()
