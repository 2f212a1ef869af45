"""Imports go one way: down the list of rooms, never up, never sideways; and each library has one door."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
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
        "receive",
        "audit bundle rebase refresh",
        "environment instructions edited importing",
        "lock merging versions",
        "sources relations explain install portion",
        "conditions engine proof manifest editcopy interchange",
        "queue recordpage",
        "ladder probe",
        "launch places sdist workcopy newdiff newheader undo lease outgoing privatepytest recorddiff",
        "workarea patch queuejournal store index record installed",
        "document first_error process series ownwheel render",
        "errors leash logline mask report progress",
    )
)
DOORS = {"yaml": "document", "subprocess": "process", "git": "store", "gitdb": "store", "unidiff": "patch",
         "typer": "cli", "rich": "render", "unearth": "index"}  # fmt: skip
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "probes" not in path.relative_to(PACKAGE).parts)
PROBES = sorted((PACKAGE / "probes").glob("*.py"))


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
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


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_go_down(path: Path) -> None:
    level = {room: number for number, row in enumerate(ROOMS) for room in row}
    own = own_room(path)
    if own == "__init__":
        return
    assert own in level, f"{own} stands in no row"
    rooms = {room_of(name) for name in imported(path) if name.startswith("patchq.")} - {own, "__version__", "probes"}
    upwards = sorted(room for room in rooms if level[room] <= level[own])
    assert not upwards, f"{own} imports {upwards}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_each_library_has_one_door(path: Path) -> None:
    libraries = {name.split(".")[0] for name in imported(path)}
    wrong = sorted(name for name in libraries & DOORS.keys() if DOORS[name] != own_room(path))
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


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_nothing_below_the_command_line_prints_or_exits(path: Path) -> None:
    if own_room(path) in ("__main__", "cli"):
        return
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    assert not [call for call in calls if isinstance(call, ast.Name) and call.id in ("print", "exit", "quit")]
    assert not [call for call in calls if isinstance(call, ast.Attribute) and ast.unparse(call) == "sys.exit"]
