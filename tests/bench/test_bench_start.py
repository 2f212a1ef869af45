"""What it takes before anything is done: the start of Python and of patchq."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from board import Board, timed
from measure import Job, command, compare, patchq

pytestmark = pytest.mark.bench

ROOT = Path(__file__).resolve().parents[2]
MORE = 15


def bare(folder: Path) -> Job:
    return Job(command((sys.executable, "-c", "pass"), folder))


def test_version(board: Board, fresh: Path) -> None:
    ratio = compare(Job(patchq("--version", cwd=fresh, PYTHONPATH=str(ROOT))), bare(fresh), MORE)
    board.add(timed("start", "--version", "python -c pass", ratio, 2))


def test_completion(board: Board, fresh: Path) -> None:
    asked = {"_PATCHQ_COMPLETE": "complete_bash", "COMP_WORDS": "patchq se", "COMP_CWORD": "1"}
    ratio = compare(Job(patchq(cwd=fresh, PYTHONPATH=str(ROOT), **asked)), bare(fresh), MORE)
    board.add(timed("start", "completion of a verb", "python -c pass", ratio, 16))


def test_libraries(board: Board, fresh: Path) -> None:
    """The two libraries that a verb's options and its files are read with, imported and not used."""
    words = "import typer.main, pydantic; pydantic.BaseModel, pydantic.AfterValidator, pydantic.model_validator"
    ratio = compare(Job(command((sys.executable, "-c", words), fresh)), bare(fresh), MORE)
    board.add(timed("start", "import of typer and pydantic", "python -c pass", ratio))


def test_libraries_at_work(board: Board, fresh: Path) -> None:
    """The floor of a verb that has an option and reads a file: typer makes itself an adapter of pydantic's for it."""
    words = "import typer.main, yaml, pydantic; pydantic.TypeAdapter(str)"
    ratio = compare(Job(command((sys.executable, "-c", words), fresh)), bare(fresh), MORE)
    board.add(timed("start", "import of typer and yaml, one adapter of pydantic", "python -c pass", ratio))


def test_series(board: Board, fresh: Path) -> None:
    verb = Job(patchq("series", "--target", "ppu", "--json", "--queue", ROOT, cwd=fresh, PYTHONPATH=str(ROOT)))
    board.add(timed("start", "series", "python -c pass", compare(verb, bare(fresh), MORE), 16))
