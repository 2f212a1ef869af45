"""Imports go one way: down the list of rooms, never up, never sideways; and each library has one door."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import patchq

PACKAGE = Path(patchq.__file__).parent

# Top to bottom. A room (a module or package of patchq) imports from the rows below its own, and from itself.
ROOMS: tuple[frozenset[str], ...] = tuple(
    frozenset(row.split())
    for row in (
        "__main__",
        "cli",
        "commands",
        "audit",
        "transfer rebase environment",
        "importing lock",
        "authoring sources installed",
        "engine proof",
        "queue",
        "ladder",
        "machine sdist workcopy",
        "patch store index evidence queuejournal workarea",
        "document process series ownwheel render location",
        "exclusive printable",
        "errors leash mask report progress",
    )
)
DOORS = {"yaml": "document", "subprocess": "process", "git": "store", "gitdb": "store", "unidiff": "patch",
         "typer": "cli", "rich": "render", "unearth": "index", "tempfile": "exclusive"}  # fmt: skip
SCANNERS = frozenset({"patch", "evidence", "mask"})  # they go over every line of a patch, of a log, of the output
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "probes" not in path.relative_to(PACKAGE).parts)
PROBES = sorted((PACKAGE / "probes").glob("*.py"))


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text())))


def imported(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "patchq" else [node.module]
            )
            yield from names
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def own_room(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_imports_go_down() -> None:
    level = {room: number for number, row in enumerate(ROOMS) for room in row}
    upwards = [
        f"{name_of(path)} imports {name}"
        for path in MODULES
        if (own := own_room(path)) != "__init__"
        for name in imported(path)
        if name.startswith("patchq.")
        and (room := room_of(name)) not in (own, "__version__", "probes")
        and level[room] <= level[own]
    ]
    assert not upwards


def test_each_library_has_one_door() -> None:
    wrong = [
        f"{name_of(path)} imports {name}"
        for path in MODULES
        for name in imported(path)
        if DOORS.get(name.split(".")[0], own_room(path)) != own_room(path)
    ]
    assert not wrong


def test_every_row_names_rooms_that_are_there() -> None:
    there = {own_room(path) for path in MODULES} - {"__init__"}
    assert there == {room for row in ROOMS for room in row}


@pytest.mark.parametrize("path", PROBES, ids=lambda path: path.name)
def test_probes_need_nothing_but_the_standard_library(path: Path) -> None:
    """What a probe is there to probe may be imported, inside a function only."""
    tree = ast.parse(path.read_text())
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in top if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names
    assert not any(name.split(".")[0] == "patchq" for name in imported(path))


def test_patterns_are_compiled_where_they_are_first_used() -> None:
    """`re` keeps what it has compiled; at import it is a good part of every start, whatever the verb."""
    early = [
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        if own_room(path) not in SCANNERS
        for statement in ast.parse(path.read_text()).body
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef)
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and called(node.func) == "re.compile"
    ]
    assert not early


def called(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def test_nothing_below_the_command_line_prints_or_exits() -> None:
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        if own_room(path) not in ("__main__", "cli")
        for node in nodes(path)
        if isinstance(node, ast.Call) and called(node.func) in ("print", "exit", "quit", "sys.exit")
    ]
    assert not found
