"""What a verb loads before it does its work: every module costs each call of every verb."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from world import World

PACKAGE_PARENT = Path(__file__).resolve().parents[1]


def loaded(*words: str | Path, **variables: str) -> set[str]:
    """The modules that a whole verb imports, and all that they are part of."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE_PARENT), **variables}
    argv = [sys.executable, "-X", "importtime", "-m", "patchq", *words]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    return {row.rpartition("|")[2].strip() for row in done.stderr.splitlines() if row.startswith("import time:")}


def test_verbs_are_named_and_helped_with_by_typer_alone() -> None:
    completion = {"_PATCHQ_COMPLETE": "complete_bash", "COMP_WORDS": "patchq se", "COMP_CWORD": "1"}
    for modules in (loaded(**completion), loaded("--help"), loaded("series", "--help")):
        assert "patchq.cli.boundary" in modules
        assert not modules & {"pydantic", "yaml", "rich", "git", "unidiff", "patchq.commands"}


def test_a_selection_is_listed_without_git_and_without_a_look_into_patches(world: World) -> None:
    modules = loaded("series", "--target", "small", "--json", "--queue", world.root)
    assert "patchq.queue.selection" in modules
    assert not modules & {"patchq.patch", "patchq.store", "patchq.process", "patchq.engine", "git", "unidiff", "rich",
                          "packaging", "platformdirs"}  # fmt: skip
