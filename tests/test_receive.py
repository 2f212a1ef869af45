"""Taking a bundle in: all of it is checked before anything is made, and nothing but the bundle is needed."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from world import World, contents, git, patchq

from patchq.document import sha256, to_json
from patchq.lock import load_lock
from patchq.queuejournal import LOCK_NAME
from patchq.store import BundleFile, Entry, Store, write_bundle_files
from patchq.store.trees import format_tree
from patchq.transfer.manifest import MANIFEST, digests_of, write_sums

FLIPS = 40


@pytest.fixture(scope="module")
def sent(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of the target `blind`, and its tar beside it."""
    out = tmp_path_factory.mktemp("sent") / "bundle"
    assert patchq("bundle", "--target", "blind", "--out", out, "--tar", "--queue", world.root) == 0
    return out


@pytest.fixture
def received(sent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The bundle on another host: another folder, another home, a work area of its own at `tmp_path / "work"`."""
    monkeypatch.setenv("WORK", str(tmp_path / "work"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(sent, tmp_path / "received")


def apply(bundle: Path, *more: str) -> int:
    return patchq("apply", "--target", "blind", "--bundle", bundle, *more)


def test_a_bundle_alone_makes_the_locked_work_copy(world: World, received: Path, tmp_path: Path) -> None:
    hidden = world.alpha.rename(world.alpha.with_name("hidden"))
    try:
        assert apply(received) == 4
    finally:
        hidden.rename(world.alpha)
    shutil.rmtree(received)
    locked = load_lock(world.place.queue).of("blind", None)["alpha"]
    copy = tmp_path / "work/alpha/current"
    assert git(copy, "rev-parse", "HEAD", "HEAD^{tree}", "patchq~4") == "\n".join(
        (locked.commit, locked.tree, world.base)
    )
    assert git(copy / "plug", "rev-parse", "HEAD") == locked.submodules["plug"]
    assert git(copy, "status", "--porcelain", "--ignored") == ""
    assert git(copy, "fsck", "--strict", "--no-dangling") == ""
    assert patchq("apply", "--target", "blind", "--variant", "deep") == 4, "the queue was kept, and all that it needs"
    assert git(copy, "rev-parse", "HEAD") == load_lock(world.place.queue).of("blind", "deep")["alpha"].commit
    assert not (tmp_path / "data").exists()


@pytest.mark.fault
def test_a_flipped_byte_anywhere_is_answered_no_before_anything_is_made(
    received: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(8)
    files = sorted(path for path in received.rglob("*") if path.is_file() and path.stat().st_size)
    for number in range(FLIPS):
        path = files[number % len(files)]
        whole = path.read_bytes()
        at = chance.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ chance.randrange(1, 256)]) + whole[at + 1 :])
        assert apply(received) == 1, (path, at)
        said = capsys.readouterr().err
        assert path.relative_to(received).as_posix() in said or path.name == "SHA256SUMS", said
        assert not (tmp_path / "work").exists()
        path.write_bytes(whole)


@pytest.mark.fault
def test_a_flipped_byte_in_the_tar_is_answered_no(
    sent: Path, received: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Headers, contents, the padding between them, and the end."""
    whole = sent.with_name("bundle.tar").read_bytes()
    tar = tmp_path / "sent.tar"
    chance = random.Random(3)
    with tarfile.open(sent.with_name("bundle.tar")) as archive:
        members = archive.getmembers()
    headers = [member.offset + at for member in members for at in (0, 100, 124, 148, 156, 257, 300, 500)]
    padding = [member.offset_data + member.size for member in members if member.size % 512]
    places = chance.sample(headers, 16) + chance.sample(padding, 5) + [len(whole) - 1, len(whole) - 5000]
    for at in (*places, *(chance.randrange(len(whole)) for _ in range(4))):
        tar.write_bytes(whole[:at] + bytes([whole[at] ^ 0x11]) + whole[at + 1 :])
        assert apply(tar) == 1, at
        assert capsys.readouterr().err.startswith("error: ")
        assert not (tmp_path / "work").exists()
    tar.write_bytes(whole)
    assert apply(tar) == 4


@pytest.mark.fault
def test_a_tar_made_by_tar_itself_serves_as_well(received: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "own.tar", "w", format=tarfile.GNU_FORMAT) as archive:
        archive.add(received, "any name")
    assert apply(tmp_path / "own.tar") == 4


def test_another_targets_bundle_is_wrong_usage(received: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert patchq("apply", "--target", "small", "--bundle", received) == 2
    assert "the bundle is for the target 'blind', not 'small'" in capsys.readouterr().err


def test_the_bundle_brings_its_own_queue(received: Path, world: World) -> None:
    assert apply(received, "--queue", str(world.root)) == 2
    assert apply(received, "--source", "alpha=/nowhere") == 2


def _resum(folder: Path, **changes: object) -> None:
    """Make the manifest and the sums agree with a changed folder, as an attacker would."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    (folder / MANIFEST).write_bytes(to_json({**manifest, **changes, "files": digests_of(folder)}))
    write_sums(folder)


def _other_patch(folder: Path) -> None:
    path = folder / "series/alpha/device/small-only.patch"
    path.write_bytes(path.read_bytes().replace(b"+    a = 20", b"+    a = 21"))
    _resum(folder)


def _other_lock(folder: Path) -> None:
    path = folder / "series" / LOCK_NAME
    path.write_bytes(path.read_bytes().replace(b'"queue": "trial"', b'"queue": "other"'))
    _resum(folder)


def _other_pack(folder: Path) -> None:
    path = folder / "git/alpha.bundle"
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(bytes(data))
    _resum(folder)


def _other_commit(folder: Path) -> None:
    shutil.copyfile(folder / "git/alpha.plug.bundle", folder / "git/alpha.bundle")
    _resum(folder)


def _no_commit(folder: Path) -> None:
    manifest = json.loads((folder / MANIFEST).read_bytes())
    (folder / "git/alpha.bundle").unlink()
    _resum(folder, commits=[item for item in manifest["commits"] if item["path"] != "git/alpha.bundle"])


def _more_refs(folder: Path) -> None:
    path = folder / "git/alpha.bundle"
    head, gap, pack = path.read_bytes().partition(b"\n\n")
    path.write_bytes(head + b"\n" + b"1" * 40 + b" refs/heads/more" + gap + pack)
    _resum(folder)


def _no_patch(folder: Path) -> None:
    (folder / "series/alpha/device/small-only.patch").unlink()
    _resum(folder)


def _relock(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Make lock, manifest and sums agree with each other."""
    path = folder / "series" / LOCK_NAME
    lock = json.loads(path.read_bytes())
    change(lock)
    path.write_bytes(to_json(lock))
    _resum(folder, lock=hashlib.sha256(path.read_bytes()).hexdigest())


def _lock_leads_out(folder: Path) -> None:
    (folder.parent / "more").write_bytes(b"x")
    _relock(folder, lambda lock: lock["files"].update({"../../more": hashlib.sha256(b"x").hexdigest()}))


def _prerequisite(folder: Path) -> None:
    path = folder / "git/alpha.bundle"
    head, line, rest = path.read_bytes().partition(b"# v2 git bundle\n")
    path.write_bytes(head + line + b"-" + b"1" * 40 + b"\n" + rest)
    _resum(folder)


def _tree_with(name: str, mode: str = "100644", data: bytes = b"x") -> Callable[[Path], None]:
    """The bundle of a commit whose tree git itself would never write, with lock, manifest and sums that agree."""

    def forge(folder: Path) -> None:
        store = Store.open(folder.parent / "forge")
        entry = Entry(mode, store.write("blob", data))
        inner = store.write("tree", format_tree({name: entry}))
        tree = store.write("tree", format_tree({"alpha": Entry("40000", inner)}) if name != ".gitmodules" else
                           format_tree({name: entry}))  # fmt: skip
        commit = store.write_commit(tree, [], "a <a@b>", "1 +0000", "1 +0000", b"x\n")
        write_bundle_files(store, [BundleFile(folder / "git/alpha.bundle", commit)])

        def change(lock: dict[str, Any]) -> None:
            for selection in lock["selections"].values():
                if selection["upstream"] == "alpha":
                    selection |= {"base_commit": commit, "base_tree": tree}

        manifest = json.loads((folder / MANIFEST).read_bytes())
        (item,) = (item for item in manifest["commits"] if item["path"] == "git/alpha.bundle")
        item["commit"] = commit
        (folder / MANIFEST).write_bytes(to_json(manifest))
        _relock(folder, change)

    return forge


_URL = b'[submodule "x"]\n\tpath = x\n\turl = -u./payload\n'
FORGED: dict[str, tuple[Callable[[Path], None], int, str]] = {
    "patch": (_other_patch, 1, "small-only.patch: does not have the digest that the lock names"),
    "lock": (_other_lock, 1, "patchq.lock: is not the lock that the manifest names"),
    "pack": (_other_pack, 1, "alpha.bundle: its pack is not sound"),
    "commit": (_other_commit, 1, "alpha.bundle: holds"),
    "no commit": (_no_commit, 1, "git/alpha.bundle: is needed, and neither in the bundle nor here"),
    "more refs": (_more_refs, 1, "alpha.bundle: holds"),
    "no patch": (_no_patch, 2, "small-only.patch: there is no such file"),
    "lock leads out": (_lock_leads_out, 2, "which leads out of its place"),
    "prerequisite": (_prerequisite, 1, "which is not here"),
    "tree with .git": (_tree_with(".git"), 1, "its pack is not sound"),
    "tree with .GIT": (_tree_with(".GIT"), 1, "its pack is not sound"),
    "tree with git~1": (_tree_with("git~1"), 1, "its pack is not sound"),
    "tree with ..": (_tree_with(".."), 1, "its pack is not sound"),
    "tree with a slash": (_tree_with("../x"), 1, "its pack is not sound"),
    "submodule's url": (_tree_with(".gitmodules", data=_URL), 1, "its pack is not sound"),
    "submodules as link": (_tree_with(".gitmodules", "120000", b"x"), 1, "its pack is not sound"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_bundle_whose_sums_agree_and_whose_lock_does_not_is_refused(
    name: str, received: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forge, code, expected = FORGED[name]
    forge(received)
    assert apply(received) == code
    assert expected in capsys.readouterr().err
    assert not list(tmp_path.glob("work/alpha/*"))
    assert not list(tmp_path.glob("work/store/refs/patchq/**/" + "[0-9a-f]" * 40)) or name in (
        "no commit",
        "commit",
        "prerequisite",
    )


def test_the_second_bundle_needs_the_first(
    world: World, own: World, received: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = received
    text = (own.root / "alpha/device/small-only.patch").read_bytes()
    own.write({"alpha/device/small-only.patch": text.replace(b"a = 20", b"a = 21").replace(b"index", b"index")})
    text = (own.root / "alpha/device/small-only.patch").read_text()
    own.write(
        {"alpha/device/small-only.patch": "\n".join(row for row in text.split("\n") if not row.startswith("index"))}
    )
    (own.root / "alpha/research/deeper.patch").unlink()
    series = (own.root / "alpha/series").read_text().replace("research/deeper.patch        #+small\n", "")
    own.write({"alpha/series": series, "variants/deep.yaml": None})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(world.folder.parent / "home0/data"))
        own.locked()
        assert (
            patchq("bundle", "--target", "blind", "--since", first, "--out", tmp_path / "second", "--queue", own.root)
            == 0
        )
    assert apply(tmp_path / "second") == 5
    assert "apply the full bundle first" in capsys.readouterr().err
    assert apply(first) == 4
    assert apply(tmp_path / "second") == 4
    assert git(tmp_path / "work/alpha/current", "show", "HEAD:alpha/core.py").count("a = 21") == 1
    kept = tmp_path / f"work/queue/{sha256((own.root / LOCK_NAME).read_bytes())}/series"
    assert contents(kept) == contents(own.root)


def test_a_work_area_that_is_a_file_is_named(
    received: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "work").write_text("")
    assert apply(received) == 5
    assert "the work area cannot be used" in capsys.readouterr().err


def test_an_unset_variable_of_the_target_is_named(
    received: Path, own: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (own.root / "targets/blind.yaml").read_text()
    own.write({"targets/blind.yaml": text.replace("${WORK:-work}", "${NO_SUCH_SCRATCH}/x")}).locked()
    here = replace(own)
    assert patchq("bundle", "--target", "blind", "--out", tmp_path / "b", "--queue", here.root) == 0
    assert apply(tmp_path / "b") == 2
    assert "the variable NO_SUCH_SCRATCH is not set" in capsys.readouterr().err
