"""Every test runs as a stranger: a home of its own, and nothing inherited that steers git or patchq."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from signing import WHO, Host, build, make_key, public
from world import World, make_world

from patchq.audit.variables import LAUNCHERS

_STEERING = ("GIT_", "XDG_", "PATCHQ_")
_PIP_FILES = (".config/pip/pip.conf", ".pip/pip.conf")


@pytest.fixture(scope="session", autouse=True)
def _stranger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a script, also for its children
        signal.signal(signal.SIGINT, signal.default_int_handler)
    home = tmp_path_factory.mktemp("home")
    pip = next((path for name in _PIP_FILES if (path := Path.home() / name).is_file()), None)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(_STEERING)]:
            patch.delenv(name)
        patch.setenv("HOME", str(home))
        patch.setenv("PATH", path_without_launchers(os.environ["PATH"]))
        for name in ("CONFIG", "DATA", "STATE", "CACHE"):
            patch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
        if pip and "PIP_CONFIG_FILE" not in os.environ:
            patch.setenv("PIP_CONFIG_FILE", str(pip))  # where packages come from is the machine's, not the user's
        yield


def path_without_launchers(path: str) -> str:
    """`PATH` without virtual environments that train: a torchrun that is found there is another environment's."""

    def trains(folder: Path) -> bool:
        is_environment = any((folder.parent / mark).exists() for mark in ("pyvenv.cfg", "conda-meta"))
        return is_environment and any((folder / name).exists() for name in LAUNCHERS)

    return os.pathsep.join(folder for folder in path.split(os.pathsep) if not trains(Path(folder)))


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, _stranger: None) -> World:
    """The sources and the locked queue that most tests share; nobody changes it."""
    return make_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def own(world: World, tmp_path: Path) -> World:
    """A queue to change, with a work area of its own; sources and store are the shared ones."""
    return world.copy(tmp_path / "own")


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """`ours`, `theirs`, and `locked` by a passphrase."""
    folder = tmp_path_factory.mktemp("keys")
    made = {name: make_key(folder / name) for name in ("ours", "theirs")}
    return {**made, "locked": make_key(folder / "locked", passphrase="hard to guess")}


@pytest.fixture(scope="session")
def listing(world: World, keys: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> World:
    """A queue whose target `blind` names its signers."""
    queue = world.copy(tmp_path_factory.mktemp("listing"))
    text = (queue.root / "targets/blind.yaml").read_text()
    queue.write(
        {"targets/blind.yaml": f"{text}allowed_signers: signers\n", "signers": f"{WHO} {public(keys['ours'])}\n"}
    )
    return queue.locked()


@pytest.fixture(scope="session")
def sent(listing: World, keys: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Signed by ours, from the queue that names its signers."""
    return build(listing, tmp_path_factory.mktemp("sent") / "bundle", "--sign", keys["ours"])


@pytest.fixture(scope="session")
def bare(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not signed, from a queue that asks for no signature."""
    return build(world, tmp_path_factory.mktemp("bare") / "bundle")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Host:
    for name in ("CONFIG", "DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.setenv("WORK", str(tmp_path / "work"))
    monkeypatch.chdir(tmp_path)
    return Host(tmp_path, capsys)
