"""Bundles: the same bytes from the same lock wherever the objects come from, and what each carries."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hostile import be_hostile
from world import CORE, World, contents, diff_of, git, patchq

from patchq.errors import Invalid, Prevented
from patchq.lock import load_lock
from patchq.store import BundleFile, Store, write_bundle_files
from patchq.transfer.bundle import commits_of, read_old_lock
from patchq.transfer.instructions import instructions
from patchq.transfer.manifest import check_bundle


def bundle(world: World, out: Path, *more: object, target: str = "blind") -> Path:
    """The bundle of a target, built by the command line."""
    assert patchq("bundle", "--target", target, "--out", out, "--queue", world.root, *more) == 0
    check_bundle(out)
    return out


@pytest.fixture(scope="module")
def plain(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle(world, tmp_path_factory.mktemp("bundle") / "plain")


def _pack(clone: Path, *words: str) -> None:
    git(clone, "repack", "-adfq", *words)


def _loosen(clone: Path) -> None:
    packs = [pack.rename(clone / pack.name) for pack in (clone / ".git/objects/pack").glob("*.pack")]
    for index in (clone / ".git/objects/pack").glob("*"):
        index.unlink()
    for pack in packs:
        git(clone, "unpack-objects", "-q", stdin=pack.read_bytes())


PACKINGS = {
    "loose": _loosen,
    "flat": lambda clone: _pack(clone, "--depth=1", "--window=1"),
    "deep": lambda clone: _pack(clone, "--depth=50", "--window=100", "-F"),
    "bitmaps": lambda clone: (_pack(clone, "-b"), git(clone, "commit-graph", "write", "--reachable")),
    "more refs": lambda clone: (git(clone, "tag", "-a", "-m", "v", "v1"), git(clone, "branch", "other", "HEAD~1")),
    "shallow": lambda clone: (git(clone, "fetch", "-q", "--depth=1", "origin", "main"), git(clone, "gc", "-q")),
}


@pytest.mark.parametrize("packing", PACKINGS)
def test_bundles_from_differently_packed_clones_are_the_same_bytes(
    world: World, plain: Path, packing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", f"file://{world.alpha}", str(clone))
    PACKINGS[packing](clone)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    again = bundle(world, tmp_path / "again", "--source", f"alpha={clone}")
    assert contents(again) == contents(plain)


def test_the_stores_own_packing_changes_nothing(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    first = bundle(world, tmp_path / "first", "--history")
    store = tmp_path / "data/patchq/store"
    git(store, "--git-dir=.", "repack", "-adfbq", "--depth=1")
    git(store, "--git-dir=.", "commit-graph", "write", "--reachable")
    assert contents(bundle(world, tmp_path / "second", "--history")) == contents(first)


def test_a_shallow_bundle_has_one_commit_and_a_whole_one_all(world: World, plain: Path, tmp_path: Path) -> None:
    whole = bundle(world, tmp_path / "whole", "--history")
    for folder, commits in ((plain, "1"), (whole, "3")):
        place = tmp_path / f"clone-{commits}"
        git(tmp_path, "init", "-q", str(place))
        if folder == plain:
            (place / ".git/shallow").write_text(f"{world.base}\n")
        git(place, "fetch", "-q", str(folder / "git/alpha.bundle"), "refs/heads/base:refs/heads/base")
        assert git(place, "rev-parse", "base") == world.base
        assert git(place, "rev-list", "--count", "base") == commits
        assert git(place, "fsck", "--strict") == ""


def test_the_same_place_again_is_unchanged_and_another_thing_there_is_refused(
    world: World, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = shutil.copytree(plain, tmp_path / "there")
    bundle(world, out)
    assert "= bundle" in capsys.readouterr().out
    (out / "INSTRUCTIONS.txt").write_text("changed")
    assert patchq("bundle", "--target", "blind", "--out", out, "--queue", world.root) == 1
    assert "does not have the SHA-256" in capsys.readouterr().err
    (out / "SHA256SUMS").write_text("changed")
    assert patchq("bundle", "--target", "blind", "--out", out, "--queue", world.root) == 1
    assert "holds something else" in capsys.readouterr().err
    assert not list(tmp_path.glob(".new-*"))


def test_the_tar_is_the_folder_with_nothing_of_this_machine(world: World, plain: Path, tmp_path: Path) -> None:
    out = bundle(world, tmp_path / "b", "--tar")
    with tarfile.open(tmp_path / "b.tar") as archive:
        members = archive.getmembers()
        assert {member.name: archive.extractfile(member).read() for member in members} == {  # type: ignore[union-attr]
            f"b/{name}": data for name, (_, data) in contents(out).items()
        }
    assert {(member.uid, member.gid, member.uname, member.mtime, member.mode) for member in members} == {
        (0, 0, "", 0, 0o644)
    }


def test_the_next_bundle_carries_only_what_changed(own: World, tmp_path: Path) -> None:
    old = bundle(own, tmp_path / "old")
    text = (own.root / "alpha/device/small-only.patch").read_bytes()
    own.write({"alpha/device/small-only.patch": text.replace(b"Only on", b"Just on")}).locked()
    new = bundle(own, tmp_path / "new", "--since", old)
    manifest = check_bundle(new)
    carried = {path.relative_to(new).as_posix() for path in new.rglob("*") if path.is_file()}
    assert "series/alpha/device/small-only.patch" in carried
    assert not any(name.startswith(("git/", "wheels/", "sdist/")) or "rename-it" in name for name in carried)
    assert manifest.requires is not None
    assert manifest.requires.lock == read_old_lock(old).digest
    assert world_commits(old) <= set(manifest.requires.commits)
    assert sum(path.stat().st_size for path in new.rglob("*") if path.is_file()) < 100_000


def world_commits(folder: Path) -> set[str]:
    """The commits that a bundle's manifest carries."""
    return {carried["commit"] for carried in json.loads((folder / "MANIFEST.json").read_bytes())["commits"]}


def test_a_new_baseline_comes_as_a_difference(own: World, tmp_path: Path) -> None:
    """With `--since` an older baseline's lock, the pack builds on the commit that the receiver has."""
    old = bundle(own, tmp_path / "old")
    clone = tmp_path / "alpha"
    git(tmp_path, "clone", "-q", str(own.alpha), str(clone))
    diff_of(clone, {"alpha/core.py": CORE + b"# more\n"})
    baseline = own.root / "alpha/baseline.yaml"
    text = baseline.read_text().replace(own.base, git(clone, "rev-parse", "HEAD"))
    baseline.write_text(text.replace(str(own.alpha), str(clone)))
    own.locked()
    new = bundle(own, tmp_path / "new", "--since", old)
    (carried,) = json.loads((new / "MANIFEST.json").read_bytes())["commits"]
    assert carried["since"] == own.base
    place = tmp_path / "place"
    git(tmp_path, "init", "-q", str(place))
    (place / ".git/shallow").write_text(f"{own.base}\n{carried['commit']}\n")
    for folder in (old, new):
        git(place, "fetch", "-q", str(folder / "git/alpha.bundle"), "+refs/heads/base:refs/heads/base")
    assert git(place, "ls-tree", "-r", "base") == git(clone, "ls-tree", "-r", "HEAD")


def test_what_is_no_lock_is_no_since(own: World, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="there is no lock here"):
        read_old_lock(tmp_path)
    (tmp_path / "lock").write_text("{}")
    with pytest.raises(Invalid, match="is missing"):
        read_old_lock(tmp_path / "lock")


def test_a_stale_lock_is_refused_with_the_file(own: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own.write({"variants/study.yaml": "description: another\nresearch: [alpha/research/later]\n"})
    assert patchq("bundle", "--target", "blind", "--out", tmp_path / "b", "--queue", own.root) == 1
    assert "variants/study.yaml: differs from the lock" in capsys.readouterr().err
    assert list(tmp_path.glob("*b*")) == []


def test_a_submodule_in_a_folder_has_a_flat_name(own: World) -> None:
    locked = load_lock(own.place.queue)
    deep = locked.selections["blind/alpha"].model_copy(update={"submodules": {"a/b": "1" * 40}})
    found = commits_of(locked.model_copy(update={"selections": {"blind/alpha": deep}}), "blind")
    assert [carried.path for carried in found] == ["git/alpha.bundle", "git/alpha.a.b.bundle"]


@pytest.mark.parametrize("variant", ["", "deep"])
def test_instructions_do_the_same_with_nothing_but_git(
    world: World, plain: Path, variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = load_lock(world.place.queue).of("blind", variant or None)["alpha"]
    moved = shutil.copytree(plain, tmp_path / "moved elsewhere")
    mark = be_hostile(monkeypatch, tmp_path / "user")
    argv = ["sh", str(moved / "INSTRUCTIONS.txt"), "a b", *([variant] if variant else [])]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = contents(tmp_path / "a b/alpha")
    monkeypatch.undo()
    assert found["alpha/dos.py"][1].count(b"\r\n") == 5
    assert found["plug/plug/__init__.py"][1] == b"PLUG = 1\n"
    tree = git(tmp_path / "a b/alpha", "-c", "core.attributesFile=/dev/null", "write-tree")
    assert tree == locked.tree
    assert not mark.exists()


def test_no_name_in_a_queue_is_run_by_the_instructions(world: World, plain: Path, tmp_path: Path) -> None:
    """The script itself, with stand-ins for what it calls; names as wild as YAML holds them."""
    wild = "a $(touch owned)`touch owned`'\"\ntouch owned #\x1b[31m"
    locked = load_lock(world.place.queue)
    hostile = locked.selections["blind/alpha"].model_copy(update={"submodules": {wild: "1" * 40}, "version": wild})
    lock = locked.model_copy(update={"selections": {"blind/alpha": hostile}})
    text = instructions(world.place.queue, lock, "blind", check_bundle(plain))
    assert "\x1b" not in text.replace(shlex.quote(f"alpha/{wild}"), "").replace(shlex.quote(f"alpha.{wild}.bundle"), "")
    stand_ins = 'start() { echo "$1"; }; git() { :; }; same() { :; }; put() { :; }; cd() { :; }\n'
    script = stand_ins + "BUNDLE=b WORK=w VARIANT=\n" + text.partition('echo "applied $2"\n}\n')[2]
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"w/alpha/{wild}" in done.stdout and done.stdout.endswith("done\n")
    assert {path.name for path in tmp_path.iterdir()} <= {".git"}


def test_instructions_stop_at_whatever_is_not_as_it_was_sent(plain: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(plain, tmp_path / "moved")
    patch = moved / "series/alpha/device/small-only.patch"
    patch.write_bytes(patch.read_bytes().replace(b"+    a = 20", b"+    a = 21"))
    done = subprocess.run(
        ["sh", str(moved / "INSTRUCTIONS.txt"), str(tmp_path / "w")], capture_output=True, check=False
    )
    assert done.returncode != 0
    assert not (tmp_path / "w/alpha").exists()


def test_a_bundle_file_is_written_only_of_what_the_store_has(world: World, tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    with pytest.raises(Prevented, match="pack-objects failed"):
        write_bundle_files(store, [BundleFile(tmp_path / "x.bundle", "1" * 40)])
    assert not (tmp_path / "x.bundle").exists()
