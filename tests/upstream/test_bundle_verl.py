"""The bundle of the real verl: small, the same bytes wherever it is built, and any flipped byte in it is found.

Needs a clone in `VERL_SOURCE` (and one of its recipes in `VERL_RECIPE_SOURCE`), and the package index for wheels.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile import be_hostile
from verl_source import BASELINE, verl_source
from world import contents, git, patchq

from patchq.store import BundleFile, Source, Store, fetch_commit, read_bundle_file, write_bundle_files

pytestmark = pytest.mark.upstream

ROOT = Path(__file__).resolve().parents[2] / "series"
FLIPS = 60


def store_from(folder: Path, source: Path, *, history: bool = False) -> Store:
    store = Store.open(folder)
    fetch_commit(store, Source("verl", str(source)), BASELINE, history=history)
    return store


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bare clone with the last 60 commits up to the baseline."""
    folder = tmp_path_factory.mktemp("small") / "verl.git"
    git(folder.parent, "init", "-q", "--bare", str(folder))
    git(
        folder,
        "-c",
        "protocol.version=2",
        "fetch",
        "-q",
        "--depth=60",
        str(verl_source()),
        f"{BASELINE}:refs/heads/main",
    )
    return folder


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bundle file from the clone as it is."""
    folder = tmp_path_factory.mktemp("expected")
    write_bundle_files(store_from(folder / "store", verl_source()), [BundleFile(folder / "verl.bundle", BASELINE)])
    return (folder / "verl.bundle").read_bytes()


def _loosen(clone: Path) -> None:
    packs = [pack.rename(clone / pack.name) for pack in (clone / "objects/pack").glob("*.pack")]
    for left in (clone / "objects/pack").glob("*"):
        left.unlink()
    for pack in packs:
        git(clone, "unpack-objects", "-q", stdin=pack.read_bytes())
        pack.unlink()


PACKINGS: dict[str, Callable[[Path], object]] = {
    "as fetched": lambda clone: None,
    "flat": lambda clone: git(clone, "repack", "-adfq", "--depth=1", "--window=2"),
    "deep": lambda clone: git(clone, "-c", "pack.threads=2", "repack", "-adFq", "--depth=250", "--window=20"),
    "many packs": lambda clone: git(clone, "-c", "pack.packSizeLimit=1m", "repack", "-adfq"),
    "loose": _loosen,
}


@pytest.mark.parametrize("packing", PACKINGS)
def test_differently_packed_clones_give_the_same_file(
    small: Path, expected: bytes, packing: str, tmp_path: Path
) -> None:
    clone = shutil.copytree(small, tmp_path / "clone")
    PACKINGS[packing](clone)
    write_bundle_files(store_from(tmp_path / "store", clone), [BundleFile(tmp_path / "x.bundle", BASELINE)])
    assert (tmp_path / "x.bundle").read_bytes() == expected


def test_a_store_with_the_whole_history_and_bitmaps_gives_the_same_file(expected: bytes, tmp_path: Path) -> None:
    store = store_from(tmp_path / "store", verl_source(), history=True)
    git(store.folder, "--git-dir=.", "repack", "-adbq")
    assert list(store.folder.glob("objects/pack/*.bitmap"))
    write_bundle_files(store, [BundleFile(tmp_path / "x.bundle", BASELINE)])
    assert (tmp_path / "x.bundle").read_bytes() == expected


def test_it_is_small_and_true(expected: bytes, tmp_path: Path) -> None:
    assert len(expected) < 3_000_000
    (tmp_path / "verl.bundle").write_bytes(expected)
    store = Store.open(tmp_path / "store")
    read_bundle_file(store, tmp_path / "verl.bundle", BASELINE)
    assert store.commit(BASELINE).tree == git(verl_source(), "rev-parse", f"{BASELINE}^{{tree}}")
    assert git(store.folder, "--git-dir=.", "fsck", "--strict", "--no-dangling") == ""


@pytest.fixture(scope="module")
def queue(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a copy of the shipped queue, locked as it is now; skips where sources or wheels can't be had."""
    folder = tmp_path_factory.mktemp("queue")
    shutil.copytree(ROOT, folder / "series")
    if patchq("lock", "--queue", folder):
        pytest.skip("sources or wheels cannot be had here")
    return folder


def ppu(queue: Path, out: Path, *more: object) -> Path:
    """The whole bundle for the PPU, by the command line; skips where the package index has no answer."""
    code = patchq("bundle", "--target", "ppu", "--out", out, "--queue", queue, *more)
    if code == 5:
        pytest.skip("wheels or sources cannot be had here")
    assert code == 0
    return out


def test_the_whole_bundle_is_the_same_under_a_hostile_configuration_and_no_flipped_byte_passes(
    queue: Path, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    first = ppu(queue, tmp_path / "first")
    with monkeypatch.context() as patch:
        mark = be_hostile(patch, tmp_path / "user")
        patch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
        shutil.copytree(tmp_path / "data/patchq/store/wheels", tmp_path / "other/patchq/store/wheels")
        second = ppu(queue, tmp_path / "second", "--source", f"verl={small}")
        assert not mark.exists()
    assert contents(second) == contents(first)
    _flip(first, tmp_path, monkeypatch, capsys)


def _flip(bundle: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One byte at a time, in every file, at places drawn by lot; `apply` says no, names the file, and makes nothing."""
    monkeypatch.setenv("LOCAL_SCRATCH", str(folder / "scratch"))
    capsys.readouterr()
    chance = random.Random(20)
    files = sorted(path for path in bundle.rglob("*") if path.is_file() and path.stat().st_size)
    for number in range(max(FLIPS, len(files))):
        path = files[number % len(files)]
        at = chance.randrange(path.stat().st_size)
        with path.open("r+b") as stream:
            stream.seek(at)
            byte = stream.read(1)
            for data in (bytes([byte[0] ^ chance.randrange(1, 256)]), byte):
                stream.seek(at)
                stream.write(data)
                stream.flush()
                if data != byte:
                    assert patchq("apply", "--target", "ppu", "--bundle", bundle) == 1, (path, at)
        said = capsys.readouterr().err
        assert path.relative_to(bundle).as_posix() in said or path.name == "SHA256SUMS", said
        assert not (folder / "scratch").exists()


def test_the_second_transfer_of_a_changed_patch_is_small(
    queue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    verl_source()
    shutil.copytree(queue, tmp_path / "q")
    path = tmp_path / "q/series/verl/device/ppu-platform.patch"
    path.write_bytes(path.read_bytes().replace(b"Description:", b"Description: Again:", 1))
    assert patchq("lock", "--queue", tmp_path / "q") == 0
    out = ppu(tmp_path / "q", tmp_path / "second", "--since", queue)
    assert (out / "series/verl/device/ppu-platform.patch").is_file()
    assert sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) < 100_000
