"""The engine, in this process, against what else applies a series."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import peers
import pytest
from board import Board, Row, timed
from generated import Series
from measure import Job, compare, quotient

pytestmark = pytest.mark.bench

AM = {10: 2.0, 50: 1.5, 100: 1.0, 1000: 1.0}
QUILT = {10: 0.6, 50: 0.4, 100: 0.3, 1000: 0.3}
OTHERS: dict[str, tuple[str, Callable[[Series, Path], Job]]] = {
    "gbp pq import": ("gbp", peers.gbp_pq),
    "stg import -M": ("stg", peers.stgit),
}
GROWTH = 1.2


@pytest.mark.parametrize("count", AM)
def test_git_am(board: Board, thousand: Series, count: int, fresh: Path) -> None:
    series = thousand.first(count)
    ratio = compare(peers.engine(series, fresh), peers.git_am(series, fresh))
    board.add(timed("engine, verl's tree", f"{count} patches", "git am", ratio, AM[count]))


@pytest.mark.parametrize("count", QUILT)
def test_quilt(board: Board, thousand: Series, count: int, fresh: Path) -> None:
    series = thousand.first(count)
    if not shutil.which("quilt"):
        board.add(Row("engine, verl's tree", f"{count} patches", "quilt push -a", note="not run: not installed"))
        return
    ratio = compare(peers.engine(series, fresh, plain=True), peers.quilt(series, fresh), warm=count < 1000)
    board.add(timed("engine, verl's tree", f"{count} patches", "quilt push -a", ratio, QUILT[count]))


@pytest.mark.parametrize("count", [10, 50, 100])
@pytest.mark.parametrize("name", OTHERS)
def test_others(board: Board, thousand: Series, name: str, count: int, fresh: Path) -> None:
    program, peer = OTHERS[name]
    series = thousand.first(count)
    if not shutil.which(program):
        board.add(Row("engine, verl's tree", f"{count} patches", name, note="not run: not installed"))
        return
    ratio = compare(peers.engine(series, fresh), peer(series, fresh))
    board.add(timed("engine, verl's tree", f"{count} patches", name, ratio))


@pytest.mark.parametrize("count", [10, 100])
def test_a_large_tree(board: Board, large: Series, count: int, fresh: Path) -> None:
    series = large.first(count)
    ratio = compare(peers.engine(series, fresh), peers.git_am(series, fresh))
    board.add(timed("engine, 50,000 files", f"{count} patches", "git am", ratio, AM[count]))


def test_growth_with_the_series(board: Board, thousand: Series, fresh: Path) -> None:
    ratio = compare(peers.engine(thousand, fresh), peers.engine(thousand.first(100), fresh))
    board.add(timed("growth", "a patch of 1,000", "a patch of 100", quotient(ratio, 10), GROWTH))


def test_growth_with_the_tree(board: Board, large: Series, small: Series, fresh: Path) -> None:
    (fresh / "large").mkdir()
    (fresh / "small").mkdir()
    ratio = compare(peers.engine(large, fresh / "large"), peers.engine(small, fresh / "small"))
    share = large.touched() / small.touched()
    board.add(timed("growth", "a touched file of 50,000", "a touched file of 1,000", quotient(ratio, share), GROWTH))
