"""Imports go one way: down the list of rooms, never up and never sideways where it says so."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import patchq

PACKAGE = Path(patchq.__file__).parent

# Top to bottom; a room may import only from rows below its own (and from itself).
ROOMS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli",),
    ("commands", "render"),
    ("report", "errors"),
)


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "patchq"


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names if node.module == "patchq")
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found
