"""Exported selections: real quilt and real `git am` make the very tree that the lock names."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from world import ALPHA, CORE, World, diff_of, git, header, patchq

from patchq.errors import Refused
from patchq.lock import load_lock
from patchq.queue.load import QueuedPatch
from patchq.series import SeriesEntry
from patchq.transfer.interchange import git_am_files, mail, quilt_files

needs_quilt = pytest.mark.skipif(not shutil.which("quilt"), reason="quilt is not installed")


def tree_of(folder: Path, alpha: Path) -> str:
    """The tree of a folder's files, with the submodule that no patch touches as it is in `alpha`."""
    index = {
        "GIT_INDEX_FILE": str(folder.parent / "index"),
        "GIT_DIR": str(alpha / ".git"),
        "GIT_WORK_TREE": str(folder),
    }
    settings = ("-c", "core.autocrlf=false", "-c", "core.attributesFile=/dev/null")
    link = git(alpha, "rev-parse", "main:plug")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**index, "GIT_CONFIG_GLOBAL": "/dev/null"}.items():
            patch.setenv(name, value)
        env = {**os.environ}
    env |= index

    def run(*words: str) -> str:
        done = subprocess.run(
            ("git", *settings, *words), cwd=folder, env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    run("read-tree", "--empty")
    run("add", "-A", "-f", ".")
    run("update-index", "--add", "--cacheinfo", f"160000,{link},plug")
    return run("write-tree")


def checkout(world: World, folder: Path) -> Path:
    git(folder, "clone", "-q", str(world.alpha), str(folder / "tree"))
    return folder / "tree"


def by_quilt(world: World, exported: Path, folder: Path) -> str:
    """The tree after `quilt push -a --fuzz=0` on a plain folder."""
    tree = checkout(world, folder)
    shutil.rmtree(tree / ".git")
    env = {**os.environ, "QUILT_PATCHES": str(exported), "QUILTRC": "/dev/null", "LC_ALL": "C"}
    done = subprocess.run(
        ("quilt", "push", "-a", "--fuzz=0"), cwd=tree, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(tree / ".pc")
    return tree_of(tree, world.alpha)


def by_git_am(world: World, exported: Path, folder: Path) -> str:
    """The tree after `git am --keep-cr`."""
    tree = checkout(world, folder)
    git(tree, "am", "-q", "--keep-cr", *sorted(str(path) for path in exported.glob("*.patch")))
    return git(tree, "rev-parse", "HEAD^{tree}")


@needs_quilt
@pytest.mark.parametrize("variant", ["", "deep"])
def test_quilt_makes_the_locked_tree(own: World, variant: str, tmp_path: Path) -> None:
    """Binary patches are beyond quilt: the queue is without its one."""
    text = (own.root / "alpha/device/all-kinds.patch").read_bytes()
    before, _, rest = text.partition(b"diff --git a/alpha/data.bin")
    own.write({"alpha/device/all-kinds.patch": before + rest[rest.index(b"diff --git ") :]}).locked()
    words = ("--variant", variant) if variant else ()
    assert (
        patchq("export", "--target", "blind", *words, "--format", "quilt", "--out", tmp_path / "q", "--queue", own.root)
        == 0
    )
    locked = load_lock(own.place.queue).of("blind", variant or None)["alpha"]
    assert by_quilt(own, tmp_path / "q/alpha", tmp_path) == locked.tree


@pytest.mark.parametrize("variant", ["", "deep"])
def test_git_am_makes_the_locked_tree_and_the_locked_authors(world: World, variant: str, tmp_path: Path) -> None:
    words = ("--variant", variant) if variant else ()
    assert (
        patchq(
            "export", "--target", "blind", *words, "--format", "git-am", "--out", tmp_path / "m", "--queue", world.root
        )
        == 0
    )
    locked = load_lock(world.place.queue).of("blind", variant or None)["alpha"]
    assert by_git_am(world, tmp_path / "m/alpha", tmp_path) == locked.tree
    log = ("log", "--format=%an <%ae> %ad %B", "--date=raw", f"-{len(locked.patches)}")
    ours = git(world.folder, "--git-dir", str(world.place.store.folder), *log, locked.commit)
    assert git(tmp_path / "tree", *log) == ours


def queued(diff: bytes, head: bytes, name: str = "device/a.patch", strip: int = 1) -> QueuedPatch:
    return QueuedPatch("alpha", SeriesEntry(name, strip), head + diff)


HEADS = {
    "dep3": header("Say “ü” — and more"),
    "long": header("word " * 60),
    "mail": b"From: =?utf-8?q?Zo=C3=AB?= <z@example.org>\nDate: Mon, 5 Jan 2026 10:00:00 +0530\n"
            b"Subject: [PATCH] [x] Do\n\nbody\n---\n x | 1 +\n\n",
    "scissors": header("s") + b"before\n-- >8 --\nafter\n\n",
    "separator": header("s") + b"a line of dashes:\n---\nand more\n\n",
    "from": header("s") + b"From here on, nothing is as it was.\nFrom me Mon Sep 17 00:00:00 2001\n\n",
    "quoted diff": header("s") + b" diff --git a/x b/x\n --- a/x\n +++ b/x\n\n",
    "in-body header": b"Description: s\nAuthor: A <a@example.org>\nOrigin: other\n\n"
            b"From: Mallory <m@example.org>\nSubject: other\n\nbody\n\n",
    "index": header("s") + b"Index: of things\n\ndiff -u is how it was made\n\n",
    "signature": header("s") + b"-- \nyours\n\n",
    "latin-1": b"Description: gr\xfc\xdfe\nAuthor: J\xfcrgen <j@example.org>\n\n",
    "nothing": b"",
    "odd author": b"Description: s\nAuthor: a,b \"c\" (d) <e@example.org>\n\n",
    "no date": b"Description: s\nAuthor: A <a@example.org>\n\n",
}  # fmt: skip


@pytest.mark.parametrize("name", HEADS)
def test_whatever_a_header_says_git_am_makes_the_same_tree(world: World, name: str, tmp_path: Path) -> None:
    tree = checkout(world, tmp_path)
    new = CORE.replace(b"a = 3\n", b"a = 33 # \xff\n")
    made = diff_of(tree, {"alpha/core.py": new, "alpha/dos.py": ALPHA["alpha/dos.py"] + b"six = 6\r\n"})
    expected = git(tree, "rev-parse", "HEAD^{tree}")
    git(tree, "reset", "-q", "--hard", "HEAD~1")
    (file,) = git_am_files([queued(made, HEADS[name])]).values()
    (tmp_path / "0001.patch").write_bytes(file)
    git(tree, "am", "-q", "--keep-cr", str(tmp_path / "0001.patch"))
    assert git(tree, "rev-parse", "HEAD^{tree}") == expected
    patch = queued(made, HEADS[name]).patch
    assert patch
    assert git(tree, "log", "-1", "--format=%an <%ae>") == patch.header.author


def test_what_another_tool_cannot_take_is_refused_by_name(world: World, tmp_path: Path) -> None:
    out = tmp_path / "q"
    assert patchq("export", "--target", "blind", "--format", "quilt", "--out", out, "--queue", world.root) == 1
    assert not out.exists()
    plain = b"--- core.py\n+++ core.py\n@@ -1,2 +1,2 @@\n def f0():\n-    a = 0\n+    a = 1\n"
    with pytest.raises(Refused, match=r"alpha/device/a\.patch: is not for -p1"):
        git_am_files([queued(plain, b"", strip=0)])


def test_a_patch_without_a_diff_is_left_out(world: World, tmp_path: Path) -> None:
    nothing = queued(b"", header("nothing yet"))
    assert quilt_files([nothing]) == {"series": b""}
    assert git_am_files([nothing]) == {}


def test_a_series_is_written_without_guards_and_with_its_strip_levels(world: World) -> None:
    made = b"--- core.py\n+++ core.py\n@@ -1,2 +1,2 @@\n def f0():\n-    a = 0\n+    a = 1\n"
    files: Mapping[str, bytes] = quilt_files([queued(made, header("x"), strip=0)])
    assert files["series"] == b"device/a.patch -p0\n"
    assert files["device/a.patch"] == header("x") + made


def test_a_mail_is_plain_ascii_in_its_head(world: World, tmp_path: Path) -> None:
    patch = queued(b"", HEADS["dep3"]).patch
    assert patch
    head = mail(patch).split(b"\n\n")[0]
    assert head.isascii()
