"""What a git that was killed leaves in the store: the next who is alone there clears it, and nobody who is not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from world import World, contents, write

from patchq.errors import Prevented
from patchq.store import Source, Store, fetch_commit
from patchq.store.fetch import is_complete

# As git 2.25 to 2.50 name them.
LEFT = ("objects/ab/tmp_obj_Xa19bQ", "objects/pack/tmp_pack_a8Zb2x", "objects/pack/tmp_idx_K2j5aa", "shallow.lock",
        "objects/pack/tmp_rev_K2j5aa", "objects/tmp_objdir-bulk-fsync-Zx81ab/cd/0011", "shallow_a1b2c3",
        "refs/patchq/baseline/1234.lock", "packed-refs.lock", "objects/info/alternates.lock")  # fmt: skip
WORK = """
import os, sys
from pathlib import Path
from patchq.store import Source, Store, fetch_commit
store = Store.open(Path(sys.argv[1]))
print("there", flush=True)
if sys.argv[2:]:
    fetch_commit(store, Source("alpha", sys.argv[2]), sys.argv[3])
sys.stdin.read()
"""


def user(store: Path, *fetch: str) -> subprocess.Popen[str]:
    """Another process that uses the store, and fetches; until its stdin ends."""
    child = subprocess.Popen([sys.executable, "-c", WORK, str(store), *fetch], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, start_new_session=True,
                             env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])})  # fmt: skip
    assert child.stdout and child.stdout.readline() == "there\n"
    return child


def killed(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


def leave(folder: Path) -> None:
    write(folder, dict.fromkeys(LEFT, b"half"))


def left(folder: Path) -> set[str]:
    return {path for path in LEFT if (folder / path).exists()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with an object, which nobody uses."""
    Store.open(tmp_path / "store").write("blob", b"whole")
    return tmp_path / "store"


def test_what_the_dead_left_is_cleared_by_the_next(folder: Path) -> None:
    before = contents(folder)
    child = user(folder)
    leave(folder)
    killed(child)
    store = Store.open(folder)
    assert not left(folder)
    del store
    assert contents(folder) == before, "and nothing else, also of what says that somebody is there"


def test_what_the_living_are_at_stays(folder: Path) -> None:
    """Also when another died meanwhile; and it goes when the last of them is gone."""
    first, second = user(folder), user(folder)
    leave(folder)
    killed(second)
    for _ in range(2):
        Store.open(folder)
        assert left(folder) == set(LEFT)
    first.communicate()
    assert first.returncode == 0
    Store.open(folder)
    assert not left(folder)


def test_who_ends_well_leaves_nothing_to_look_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Path] = []
    monkeypatch.setattr("patchq.store.objects.clear_leftovers", looked.append)
    user(folder).communicate()
    Store.open(folder)
    assert not looked
    killed(user(folder))
    Store.open(folder)
    assert looked == [folder]


@pytest.mark.parametrize("end", ["kill -9 $$", "exit 128"])
def test_a_git_that_died_alone_is_cleared_after_as_well(
    end: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """patchq went on, and ended by itself."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text(f"#!/bin/sh\n{end}\n")
    (tmp_path / "bin/git").chmod(0o755)
    store = Store.open(folder)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
        with pytest.raises(Prevented):
            store.git.run(("gc",))
    leave(folder)
    del store
    Store.open(folder)
    assert not left(folder)


def test_a_store_that_cannot_be_written_is_opened(folder: Path) -> None:
    (folder / ".in-use").unlink()
    (folder / ".in-use").mkdir()
    assert Store.open(folder).has(Store(folder).write("blob", b"whole"))


def test_a_link_in_its_place_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (folder / ".in-use").unlink()
    (folder / ".in-use").symlink_to(tmp_path / "elsewhere")
    Store.open(folder)
    assert not (tmp_path / "elsewhere").exists()


def children(pid: int) -> Iterator[int]:
    """Those of a process, and theirs (proc(5))."""
    for place in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, place.read_text().split()):
            yield from (child, *children(child))


def until(happens: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.fault
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="finds children in /proc")
def test_a_fetch_that_is_killed_with_all_its_gits_is_done_by_the_next(world: World, folder: Path) -> None:
    """Its lock on the list of shallow commits would have every later fetch refused; while its git lives, it is its."""
    config = folder / "home/.gitconfig"
    before = config.read_text()
    config.write_text(f"{before}[uploadpack]\n\tpackObjectsHook = \"sh -c 'sleep 60'\"\n")
    child = user(folder, str(world.alpha), world.base)
    until(lambda: any(_is_called(pid, "sleep") for pid in children(child.pid)))
    gits = list(children(child.pid))
    killed(child)
    config.write_text(before)
    Store.open(folder)
    assert (folder / "shallow.lock").exists(), "a git that outlived its patchq is at it"
    for pid in gits:
        os.kill(pid, signal.SIGKILL)

    def is_cleared() -> bool:
        Store.open(folder)
        return not (folder / "shallow.lock").exists()

    until(is_cleared)
    store = Store.open(folder)
    fetch_commit(store, Source("alpha", str(world.alpha)), world.base)
    assert is_complete(store, world.base)


def _is_called(pid: int, name: str) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == name
    except OSError:
        return False
