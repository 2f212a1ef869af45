"""Work copies: made against `git archive | tar x`, proved again by content against `cat`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import peers
import pytest
from board import Board, timed
from generated import Series, Tree
from measure import Job, command, compare, forked

from patchq.store import Source, Store, fetch_commit
from patchq.workcopy import create, inspect

pytestmark = pytest.mark.bench


def archive(tree: Tree, folder: Path) -> Job:
    """The floor of any checkout."""

    def prepare() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()

    line = f"git -C {tree.git_dir} archive {tree.commit} | tar x"
    return Job(command(("sh", "-c", line), folder.parent / folder.name), prepare)


def test_the_first_work_copy(board: Board, verl: Tree, fresh: Path) -> None:
    def prepare() -> None:
        for name in ("store", "copy"):
            shutil.rmtree(fresh / name, ignore_errors=True)

    def work() -> None:
        store = Store.open(fresh / "store")
        fetch_commit(store, Source("verl", str(verl.git_dir)), verl.commit)
        create(store, verl.commit, verl.commit, fresh / "copy")

    ratio = compare(Job(forked(work), prepare), archive(verl, fresh / "plain"))
    board.add(timed("work copies", "the first, from the source", "git archive | tar x", ratio, 2.5))


def test_a_work_copy_from_the_store(board: Board, verl: Tree, fresh: Path) -> None:
    store = peers.store_of(verl, fresh / "store")

    def work() -> None:
        create(Store(store), verl.commit, verl.commit, fresh / "copy")

    job = Job(forked(work), lambda: shutil.rmtree(fresh / "copy", ignore_errors=True))
    ratio = compare(job, archive(verl, fresh / "plain"))
    board.add(timed("work copies", "one from the store", "git archive | tar x", ratio, 1.3))


@pytest.mark.parametrize("size", ["verl", "50,000 files"])
def test_a_work_copy_proved_again(board: Board, verl: Tree, large: Series, size: str, fresh: Path) -> None:
    tree = verl if size == "verl" else large.tree
    store = peers.store_of(tree, fresh / "store")
    copy = create(Store(store), tree.commit, tree.commit, fresh / "copy")

    def work() -> None:
        found = inspect(Store(store), copy, tree.commit)
        assert not found.drift and not found.untracked

    names = fresh / "names"
    paths = [path for path in copy.rglob("*") if path.is_file() and ".git" not in path.relative_to(copy).parts]
    names.write_bytes(b"\0".join(map(os.fsencode, paths)))
    cat = Job(command(("sh", "-c", "xargs -0 cat > /dev/null"), fresh, stdin=names))
    ratio = compare(Job(forked(work)), cat)
    board.add(timed("work copies", f"proved by content, {size}", "cat of the same files", ratio, 3))
