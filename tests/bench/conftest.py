"""Measuring: `pytest -n 0 -m bench tests/bench` prints a table, with `--keep` also into `docs/bench`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from board import Board, table
from generated import Series, Tree, generate, one_large, synthetic
from realverl import verl_tree

import patchq

DOCS = Path(__file__).resolve().parents[2] / "docs/bench"
_BOARD = pytest.StashKey[Board]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep", action="store_true", help="keep the figures for this release in docs/bench")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_BOARD] = Board(DOCS if config.getoption("--keep") else None, patchq.__version__)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    board = config.stash[_BOARD]
    if board.rows:
        terminalreporter.write_line("\n" + table(board.rows))
    if board.rows and config.getoption("--keep"):
        terminalreporter.write_line(f"kept in docs/bench/{patchq.__version__}.json, .md and .svg")


@pytest.fixture(scope="session")
def board(request: pytest.FixtureRequest) -> Board:
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.fail("figures of two at once are worth nothing: say -n 0")
    return request.config.stash[_BOARD]


@pytest.fixture(scope="session")
def room(tmp_path_factory: pytest.TempPathFactory, _stranger: None) -> Path:
    return tmp_path_factory.mktemp("bench")


@pytest.fixture(scope="session")
def verl(room: Path) -> Tree:
    return verl_tree(room / "verl.git")


@pytest.fixture(scope="session")
def thousand(verl: Tree, room: Path) -> Series:
    """A thousand patches on verl's tree."""
    return generate(verl, room / "verl-series", 1000)


@pytest.fixture(scope="session")
def large(room: Path) -> Series:
    """A hundred patches on fifty thousand files."""
    return generate(synthetic(room / "large.git", 50_000), room / "large-series", 100)


@pytest.fixture(scope="session")
def small(room: Path) -> Series:
    """A hundred patches on a thousand files."""
    return generate(synthetic(room / "small.git", 1000), room / "small-series", 100)


@pytest.fixture(scope="session")
def large_patch(room: Path) -> Series:
    """One patch that touches a hundred files at once."""
    return one_large(synthetic(room / "wide.git", 1000), room / "wide-series", files=103, lines=140)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path.resolve()
