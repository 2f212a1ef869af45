"""Whole verbs, from the start of Python to its end, beside the engine that they use."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import peers
import pytest
from board import Board, Row, timed
from generated import Series
from measure import Job, compare, forked, patchq, peak_memory
from queues import independent, make_queue

from patchq.commands.apply import apply
from patchq.commands.place import Place

pytestmark = pytest.mark.bench

SHIPPED = Path(__file__).resolve().parents[2] / "series"
TARGETS = 4
AGAIN = 0.05
MEGABYTE = 1 << 20


class Verbs:
    """A queue with everything of patchq's own below one folder, and its verbs."""

    def __init__(self, folder: Path, series: Series, targets: int = 1) -> None:
        self.folder = folder
        spare = independent(series)[: targets - 1]
        self.root = make_queue(folder, series, [(), *([name] for name in spare)])

    def variables(self) -> dict[str, str]:
        kinds = ("DATA", "STATE", "CACHE", "CONFIG")
        return {f"XDG_{kind}_HOME": str(self.folder / kind.lower()) for kind in kinds} | {"PYTHONPATH": PACKAGE}

    def job(self, *words: str) -> Job:
        return Job(patchq(*words, "--queue", self.root, cwd=self.folder, **self.variables()))

    def run(self, *words: str) -> None:
        self.job(*words).work()

    def apply_again(self) -> Job:
        """`apply` with nothing to do, in this process, which has its modules already."""

        def work() -> None:
            os.environ.update(self.variables())
            report = apply(Place.find(self.root), "t0")
            assert [step.state.value for step in report.steps] == ["unchanged"]

        return Job(forked(work))


PACKAGE = str(Path(__file__).resolve().parents[2])


@pytest.mark.parametrize("count", [10, 100])
def test_check_and_apply_beside_git_am(board: Board, thousand: Series, count: int, fresh: Path) -> None:
    series = thousand.first(count)
    verbs = Verbs(fresh / "queue", series)
    verbs.run("lock")
    am = peers.git_am(series, fresh)
    board.add(timed("whole verbs", f"check, {count} patches", "git am", compare(verbs.job("check"), am)))
    verbs.run("apply", "--target", "t0")
    again = compare(verbs.job("apply", "--target", "t0"), am)
    board.add(timed("whole verbs", f"apply again, {count} patches", "git am", again))


def test_apply_again(board: Board, thousand: Series, fresh: Path) -> None:
    verbs = Verbs(fresh / "queue", thousand)
    verbs.run("lock")
    verbs.run("apply", "--target", "t0")
    am = peers.git_am(thousand, fresh)
    inside = compare(verbs.apply_again(), am, warm=0)
    board.add(timed("whole verbs", "apply again without its start, 1,000 patches", "git am", inside, AGAIN))
    whole = compare(verbs.job("apply", "--target", "t0"), am, warm=0)
    board.add(timed("whole verbs", "apply again, 1,000 patches", "git am", whole, AGAIN))


def test_check_of_targets_that_share_most(board: Board, thousand: Series, fresh: Path) -> None:
    series = thousand.first(100)
    (fresh / "one").mkdir()
    (fresh / "many").mkdir()
    one, many = Verbs(fresh / "one", series), Verbs(fresh / "many", series, TARGETS)
    ratio = compare(many.job("check"), one.job("check"))
    goal = 1 + 0.25 * (TARGETS - 1)
    board.add(timed("whole verbs", f"check of {TARGETS} targets", "check of one", ratio, goal))


def test_peak_memory(board: Board, thousand: Series, fresh: Path) -> None:
    verbs = Verbs(fresh, thousand)
    for words in (("lock",), ("apply", "--target", "t0")):
        argv = (sys.executable, "-m", "patchq", *words, "--queue", verbs.root)
        used = peak_memory(argv, fresh, **verbs.variables()) / MEGABYTE
        row = Row("memory", f"{words[0]}, 1,000 patches", "", 200, figure=used, unit="MB")
        board.add(row)


def test_peak_memory_of_a_large_patch(board: Board, large_patch: Series, fresh: Path) -> None:
    verbs = Verbs(fresh, large_patch)
    size = large_patch.git_form[0].stat().st_size
    argv = (sys.executable, "-m", "patchq", "check", "--queue", verbs.root)
    used = peak_memory(argv, fresh, **verbs.variables()) / MEGABYTE
    what = f"check, a patch of {size // 1000} kB in {large_patch.touched()} files"
    board.add(Row("memory", what, "", 200, figure=used, unit="MB"))


COUNTED = {
    "check": ("check",), "lock": ("lock",), "apply": ("apply", "--target", "t0"),
    "apply again": ("apply", "--target", "t0"), "verify": ("verify", "--target", "t0"),
    "bundle": ("bundle", "--target", "t0"), "edit": ("edit", "--target", "t0"), "refresh": ("refresh", "edit/t0/bench"),
}  # fmt: skip


@contextmanager
def counting(folder: Path) -> Iterator[tuple[str, Path]]:
    """A `PATH` on which `git` takes itself down; and what it writes."""
    folder.mkdir()
    taken = folder / "taken"
    real = next(path for place in os.get_exec_path() if (path := Path(place, "git")).is_file())
    shim = folder / "git"
    shim.write_text(f'#!/bin/sh\necho "$*" >> "{taken}"\nexec "{real}" "$@"\n')
    shim.chmod(0o755)
    yield f"{folder}:{os.environ['PATH']}", taken


@pytest.mark.parametrize("count", [10, 100, 1000])
def test_git_processes(board: Board, thousand: Series, count: int, fresh: Path) -> None:
    verbs = Verbs(fresh / "queue", thousand.first(count))
    with counting(fresh / "bin") as (path, taken):
        for verb, words in COUNTED.items():
            taken.write_text("")
            at = () if verb == "refresh" else ("--queue", verbs.root)
            patchq(*words, *at, cwd=verbs.folder, **verbs.variables() | {"PATH": path})()
            started = len(taken.read_text().splitlines())
            board.add(Row("git processes", f"{verb}, {count} patches", "", figure=started, unit="processes"))


def test_the_shipped_queue(board: Board, fresh: Path) -> None:
    """`check` of every target, variant and upstream, against one process of git for each patch of the queue."""
    if not os.environ.get("VERL_SOURCE"):
        board.add(Row("whole verbs", "check, shipped queue", "bare python", note="not run: VERL_SOURCE is not set"))
        return
    variables = {f"XDG_{kind}_HOME": str(fresh / kind.lower()) for kind in ("DATA", "STATE", "CACHE", "CONFIG")}
    variables["PYTHONPATH"] = PACKAGE
    check = Job(patchq("check", "--queue", SHIPPED.parent, cwd=fresh, **variables))
    bare = Job(patchq("series", "--target", "gpu", "--queue", SHIPPED.parent, cwd=fresh, **variables))
    board.add(timed("whole verbs", "check, the shipped queue", "series of it", compare(check, bare)))
