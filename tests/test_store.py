"""The store: objects by their ids, written and read in this process, and git that nothing of the user's reaches."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import World, git, git_bytes

from patchq.errors import Invalid, Prevented, Refused
from patchq.location import check_location
from patchq.store import (
    BundleFile,
    Entry,
    Source,
    Store,
    blob_id,
    fetch_commit,
    read_bundle_file,
    tree_id_of_files,
    write_bundle_files,
)
from patchq.store.fetch import is_complete
from patchq.store.git import require_git
from patchq.store.index import hidden_paths, read_index, write_index
from patchq.store.trees import FOLDER, format_tree, object_id, parse_tree

TIME = "1700000000 +0000"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(tmp_path_factory.mktemp("store") / "store")


def tree_of(store: Store, files: Mapping[str, bytes]) -> str:
    return store.write_tree((path, Entry("100644", store.write("blob", data))) for path, data in files.items())


def plain(store: Store, *words: str) -> bytes:
    return git_bytes(store.folder, "--git-dir", str(store.folder), *words)


def files_of(store: Store) -> tuple[int, int]:
    """How many loose objects and how many packs a store has."""
    folder = store.folder / "objects"
    return len(list(folder.glob("??/*"))), len(list(folder.glob("pack/*.pack")))


def test_many_objects_written_at_once_are_one_pack_and_never_a_second(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    sizes = [0, 1, 15, 16, 2047, 2048, 70_000, *range(100, 200)]
    for _ in range(2):
        with store.at_once():
            blobs = [store.write("blob", b"x" * size) for size in sizes]
            tree = store.write_tree((f"f{n}", Entry("100644", blob)) for n, blob in enumerate(blobs))
            commit = store.write_commit(tree, (), "a <a@b>", TIME, TIME, b"one\n")
            assert files_of(store)[1] <= 1
            assert store.read(blobs[5], "blob") == b"x" * sizes[5]
        assert files_of(store) == (0, 1)
    assert [len(Store(store.folder).read(blob, "blob")) for blob in blobs] == sizes
    assert plain(store, "fsck", "--strict", "--no-dangling", commit) == b""


def test_few_objects_written_at_once_are_loose_and_none_where_the_block_fails(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    with pytest.raises(RuntimeError), store.at_once():
        lost = store.write("blob", b"lost")
        raise RuntimeError
    assert files_of(store) == (0, 0)
    with pytest.raises(Prevented):
        store.read(lost, "blob")
    with store.at_once():
        kept = store.write("blob", b"kept")
    assert files_of(store) == (1, 0)
    assert plain(store, "cat-file", "blob", kept) == b"kept"


_NAMES = st.text(st.characters(exclude_characters="/\0\n", exclude_categories=["Cs"]), min_size=1, max_size=4).filter(
    lambda name: name not in (".", "..", ".git")
)
_PATHS = st.lists(_NAMES, min_size=1, max_size=3).map("/".join)
_TREES = st.dictionaries(_PATHS, st.binary(max_size=4), max_size=5).filter(
    lambda files: not any(other.startswith(f"{path}/") for path in files for other in files)
)


@settings(max_examples=25, deadline=None)
@given(files=_TREES, more=_TREES)
def test_trees_are_those_of_git(store: Store, files: Mapping[str, bytes], more: Mapping[str, bytes]) -> None:
    tree = tree_of(store, files)
    listed = plain(store, "ls-tree", "-r", "-z", tree).split(b"\0")[:-1]
    assert {os.fsdecode(row.split(b"\t", 1)[1]): row.split()[2].decode() for row in listed} == {
        path: blob_id(data) for path, data in files.items()
    }
    assert tree == tree_id_of_files((path, Entry("100644", blob_id(data))) for path, data in files.items())
    assert dict(store.walk(tree)) == {path: Entry("100644", blob_id(data)) for path, data in files.items()}
    kept = {path: data for path, data in files.items() if not _collides(path, more)}
    changes: dict[str, Entry | None] = {path: Entry("100644", store.write("blob", data)) for path, data in more.items()}
    changes |= {path: None for path in files if path not in kept and path not in more}
    assert store.update_tree(tree, changes) == tree_of(store, {**kept, **more})


def _collides(path: str, others: Mapping[str, bytes]) -> bool:
    return any(other == path or other.startswith(f"{path}/") or path.startswith(f"{other}/") for other in others)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(_NAMES, st.sampled_from(["100644", "100755", "120000", FOLDER, "160000"]), max_size=6))
def test_tree_objects_read_back(modes: Mapping[str, str]) -> None:
    entries = {name: Entry(mode, f"{number:040x}") for number, (name, mode) in enumerate(modes.items())}
    assert parse_tree(format_tree(entries)) == entries


def test_entries_are_what_stands_in_the_way_of_a_path(store: Store) -> None:
    tree = tree_of(store, {"a/b/c": b"1", "a/b/d": b"2", "e": b"3"})
    one = {path: entry.id for path, entry in store.entries(tree, ["a/b/c", "none", "a/none/x"]).items()}
    assert one == {"a/b/c": blob_id(b"1")}
    assert set(store.entries(tree, ["a"])) == set(store.entries(tree, ["a/b"])) == {"a/b/c", "a/b/d"}
    assert set(store.entries(tree, ["e/deeper/path"])) == {"e"}
    assert store.entries(tree, ["E"]) == {}


def test_an_empty_folder_goes_with_its_last_file(store: Store) -> None:
    tree = tree_of(store, {"a/b/c": b"1", "e": b"3"})
    assert store.update_tree(tree, {"a/b/c": None}) == tree_of(store, {"e": b"3"})
    assert store.update_tree(tree, {"a/b/c": None, "a/b": Entry("100644", blob_id(b"1"))}) == tree_of(
        store, {"a/b": b"1", "e": b"3"}
    )


def test_objects_are_hashed_again_when_they_are_read(store: Store, tmp_path: Path) -> None:
    identity = store.write("blob", b"some content")
    assert store.read(identity, "blob") == b"some content" == plain(store, "cat-file", "blob", identity)
    with pytest.raises(Prevented, match=f"{identity} is a blob, not a tree"):
        store.read(identity, "tree")
    with pytest.raises(Prevented, match="the store has no blob"):
        store.read("1" * 40, "blob")
    loose = store.folder / "objects" / identity[:2] / identity[2:]
    loose.chmod(0o644)
    for damage in (b"", b"garbage", loose.read_bytes()[:-4], Path(_other(store)).read_bytes()):
        loose.write_bytes(damage)
        with pytest.raises(Refused, match=r"is damaged \(remove this file, and run it again\)") as caught:
            store.read(identity, "blob")
        assert caught.value.problems[0].where == str(loose)
    loose.unlink()
    assert store.write("blob", b"some content") == identity
    assert store.read(identity, "blob") == b"some content"


def _other(store: Store) -> Path:
    other = store.write("blob", b"other content")
    return store.folder / "objects" / other[:2] / other[2:]


def test_commits_are_written_byte_for_byte_as_git_reads_them(store: Store) -> None:
    tree = tree_of(store, {"a": b"1"})
    first = store.write_commit(tree, [], "Zoë <z@example.org>", "5 -0330", TIME, b"one\n")
    second = store.write_commit(tree, [first, first], "a <b>", TIME, TIME, b"\xff\n")
    raw = f"tree {tree}\nauthor Zoë <z@example.org> 5 -0330\ncommitter patchq <patchq@invalid> {TIME}\n\none\n"
    assert store.read(first, "commit") == raw.encode() and object_id("commit", raw.encode()) == first
    assert store.commit(second).parents == (first, first) and store.commit(first).committed == TIME
    assert plain(store, "fsck", "--strict", "--no-dangling", first) == b""


def test_a_commit_with_more_headers_is_read(store: Store) -> None:
    tree = tree_of(store, {"a": b"1"})
    raw = f"tree {tree}\nauthor a <b> 1 +0000\ncommitter C D <e f@g> 2 +0100\n"
    raw += "gpgsig -----BEGIN\n committer x <y> 9 +0900\n -----END\n\ntree no\n"
    commit = store.commit(store.write("commit", raw.encode()))
    assert (commit.tree, commit.parents, commit.committed) == (tree, (), "2 +0100")


def test_an_index_is_read_by_git_and_back(store: Store, tmp_path: Path) -> None:
    entries = {
        name: Entry(mode, store.write("blob", name.encode("utf-8", "surrogateescape")))
        for name, mode in {
            "a": "100644",
            "d/ü": "100755",
            "x" * 300: "120000",
            "b\udcff": "100644",
            'q"\\\t': "100644",
        }.items()
    }
    write_index(tmp_path / "index", entries)
    assert read_index(tmp_path / "index") == entries
    index = store.git.with_variables({"GIT_INDEX_FILE": str(tmp_path / "index")})
    rows = index.run(("ls-files", "--stage", "-z")).split(b"\0")[:-1]
    assert {os.fsdecode(row.split(b"\t", 1)[1]): row.split()[0].decode() for row in rows} == {
        name: entry.mode for name, entry in entries.items()
    }
    assert read_index(tmp_path / "none") == {} and hidden_paths((tmp_path / "index").read_bytes()) == {}
    (tmp_path / "index").write_bytes(b"DIRC\0\0\0\4\0\0\0\0")
    with pytest.raises(Prevented, match="an index of version 4"):
        read_index(tmp_path / "index")


@pytest.mark.parametrize(
    ("location", "what"),
    [
        ("", "is empty"), ("-u", "looks like an option"), ("--upload-pack=x", "looks like an option"),
        ("ext::sh -c x", "remote helper"), ("a\nb", "control character"), ("ftp://x/y", "has the scheme 'ftp'"),
        ("https://me:pw@x/y", "holds a password"), ("\x7f", "control character"), ("fd::3", "remote helper"),
        ("https://token@x/y", "holds credentials"), ("https://x/y?access_token=abc", "holds credentials"),
        ("me:pw@host:x", "holds a password"), ("ssh://me:pw@x/y", "holds a password"), (" ", "is empty"),
        ("HTTPS://x/y", "has the scheme 'HTTPS'"), ("ssh://-oProxyCommand=x/y", "looks like an option"),
        ("git@-oProxyCommand=x:y", "looks like an option"), ("host:-x", "looks like an option"),
        ("/a\u202eb", "control character"),
    ],
)  # fmt: skip
def test_locations_that_git_must_not_see(store: Store, location: str, what: str) -> None:
    assert what in (check_location(location) or "")
    with pytest.raises(Invalid, match="the source of up"):
        fetch_commit(store, Source("up", location), "1" * 40)


@pytest.mark.parametrize(
    "location",
    [
        "https://host/x",
        "ssh://git@host/x",
        "git@host:x/y",
        "/a path/x",
        "../x",
        "file:///x",
        "/a:b@c",
        "/数据/x",
        "./-x",
    ],
)
def test_locations_that_are_fine(location: str) -> None:
    assert check_location(location) is None


def test_a_fetched_commit_is_complete_shallow_and_asked_for_once(world: World, tmp_path: Path) -> None:
    store = Store.open(tmp_path / "store")
    fetch_commit(store, Source("alpha", str(world.alpha)), world.base)
    assert is_complete(store, world.base) and store.shallow() == {world.base}
    fetch_commit(store, Source("alpha", "/nowhere"), world.base)
    fetch_commit(store, Source("alpha", str(world.alpha)), world.base, history=True)
    assert store.shallow() == frozenset() and plain(store, "rev-list", "--count", world.base) == b"3\n"
    with pytest.raises(Prevented, match=r"it has no such commit \(name one: --source alpha=PATH\|URL\)"):
        fetch_commit(store, Source("alpha", str(world.alpha)), "1" * 40)
    with pytest.raises(Prevented, match="could not be had from /nowhere"):
        fetch_commit(store, Source("alpha", "/nowhere"), "1" * 40)


def test_a_partial_clone_is_named_as_such(world: World, tmp_path: Path) -> None:
    git(world.alpha, "config", "uploadpack.allowFilter", "true")
    git(tmp_path, "clone", "-q", "--bare", "--filter=blob:none", f"file://{world.alpha}", str(tmp_path / "partial"))
    git(tmp_path / "partial", "config", "remote.origin.url", "/nowhere")
    with pytest.raises(Prevented, match="it is a partial clone that lacks file contents"):
        fetch_commit(Store.open(tmp_path / "store"), Source("alpha", str(tmp_path / "partial")), world.base)


BROKEN = {
    "cut off": lambda data: data[:-30],
    "one bit": lambda data: data[:-60] + bytes([data[-60] ^ 1]) + data[-59:],
    "no pack": lambda data: data.partition(b"\n\n")[0] + b"\n\n",
    "no header": lambda data: data.partition(b"\n\n")[2],
    "version 3": lambda data: data.replace(b"v2", b"v3", 1),
    "other ref": lambda data: data.replace(b"refs/heads/base", b"refs/heads/evil", 1),
    "a ref of no name": lambda data: data.replace(b" refs/heads/base", b"", 1),
    "needs another": lambda data: data.replace(b"bundle\n", b"bundle\n-" + b"1" * 40 + b"\n", 1),
    "empty": lambda data: b"",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_bundle_file_leaves_nothing_that_a_ref_names(world: World, name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.bundle"
    write_bundle_files(world.place.store, [BundleFile(path, world.base)])
    path.write_bytes(BROKEN[name](path.read_bytes()))
    store = Store.open(tmp_path / "store")
    with pytest.raises(Refused, match=r"x\.bundle"):
        read_bundle_file(store, path, world.base)
    assert plain(store, "for-each-ref") == b"" and not is_complete(store, world.base)


def test_objects_that_git_would_not_take_are_refused(tmp_path: Path) -> None:
    """A tree with a `.git` in it, well packed."""
    evil, store = Store.open(tmp_path / "evil"), Store.open(tmp_path / "store")
    blob = evil.write("blob", b"[core]\n\tfsmonitor = touch /tmp/x\n")
    inner = evil.write("tree", format_tree({"config": Entry("100644", blob)}))
    tree = evil.write("tree", format_tree({".git": Entry(FOLDER, inner)}))
    commit = evil.write_commit(tree, [], "a <b@c>", TIME, TIME, b"x\n")
    write_bundle_files(evil, [BundleFile(tmp_path / "x.bundle", commit)])
    with pytest.raises(Refused, match="its pack is not sound"):
        read_bundle_file(store, tmp_path / "x.bundle", commit)


def test_git_is_asked_for_and_named_where_it_is_missing_or_too_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store
) -> None:
    assert require_git((2, 25), "apply").startswith("2.")
    with pytest.raises(Prevented, match=r"is too old for bundle; 99\.0 is the oldest that will do"):
        require_git((99, 0), "bundle")
    identity = store.write("blob", b"x")
    monkeypatch.setenv("PATH", str(tmp_path))
    for call in (lambda: require_git((2, 25), "apply"), lambda: store.has(identity),
                 lambda: Store(store.folder).read(identity, "blob")):  # fmt: skip
        with pytest.raises(Prevented, match="cannot start git"):
            call()


def test_patchq_starts_without_git_and_whatever_gitpython_is_told(tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path), "PYTHONPATH": str(Path(__file__).parents[1]), "GIT_PYTHON_REFRESH": "raise",
           "GIT_PYTHON_GIT_EXECUTABLE": "/nowhere"}  # fmt: skip
    code = "import os; told = dict(os.environ); import patchq.store.gitpython; print(dict(os.environ) == told)"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_gitpython_asks_no_git_for_its_version(tmp_path: Path) -> None:
    (tmp_path / "git").write_text("#!/bin/sh\n: > asked\n")
    (tmp_path / "git").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(Path(__file__).parents[1])}
    code = "from patchq.store.gitpython import GitCommand; print(GitCommand.GIT_PYTHON_GIT_EXECUTABLE)"
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "git\n" and not (tmp_path / "asked").exists()


@pytest.mark.parametrize("name", ["HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"])
def test_a_user_s_broken_configuration_is_no_missing_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / ".gitconfig").write_text("garbage\n[")
    broken = {"HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "perhaps"}
    monkeypatch.setenv(name, broken.get(name, str(tmp_path / ".gitconfig")))
    assert require_git((2, 25), "apply").startswith("2.")


def test_a_failed_git_is_named_by_its_command(store: Store) -> None:
    with pytest.raises(Prevented, match="git cat-file failed: fatal: "):
        store.git.run(("-c", "core.x=y", "-c", "a.b=c", "cat-file", "-t", "1" * 40))
