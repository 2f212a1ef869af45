"""Every test runs as a stranger: a home of its own, and nothing inherited that steers git or patchq."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from world import World, make_world

_STEERING = ("GIT_", "XDG_", "PATCHQ_")
_PIP_FILES = (".config/pip/pip.conf", ".pip/pip.conf")


@pytest.fixture(scope="session", autouse=True)
def _stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    home = tmp_path_factory.mktemp("home")
    pip = next((path for name in _PIP_FILES if (path := Path.home() / name).is_file()), None)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(_STEERING)]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        for name in ("CONFIG", "DATA", "STATE", "CACHE"):
            patch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
        if pip and "PIP_CONFIG_FILE" not in os.environ:
            patch.setenv("PIP_CONFIG_FILE", str(pip))  # where packages come from is the machine's, not the user's
        yield


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, _stranger: None) -> World:
    """The sources and the locked queue that most tests share; nobody changes it."""
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def own(world: World, tmp_path: Path) -> World:
    """A queue to change, with a work area of its own; sources and store are the shared ones."""
    return world.copy(tmp_path / "own")
