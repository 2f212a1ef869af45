"""What both launchers start for a distributed training: which interpreter, and with which arguments.

The launchers run for real, through `llamafactory.cli`, in a process of their own. Most tests need no torch:
what the launchers import (torch, transformers, ...) is replaced by empty stand-ins, and so is torchrun: it
writes down the interpreter and the arguments that it was really started with and stops. One test starts the
real torchrun where torch is there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

LAUNCHERS = pytest.mark.parametrize("v1", ["0", "1"], ids=["launcher", "v1.launcher"])
ELASTIC = {"RDZV_ID": "7", "MIN_NNODES": "1", "MAX_NNODES": "3", "MAX_RESTARTS": "4"}
RENDEZVOUS = pytest.mark.parametrize("rdzv", [{}, ELASTIC], ids=["static", "elastic"])
STATIC_OPTIONS = {
    "--nnodes": "2",
    "--node-rank": "1",
    "--nproc-per-node": "1",
    "--master-addr": "10.0.0.1",
    "--master-port": "29500",
}
ELASTIC_OPTIONS = {
    "--nnodes": "1:3",
    "--nproc-per-node": "1",
    "--rdzv-id": "7",
    "--rdzv-backend": "c10d",
    "--rdzv-endpoint": "10.0.0.1:29500",
    "--max-restarts": "4",
}
IMPORTED = (  # by the launchers, besides torch and numpy
    "transformers",
    "transformers.dynamic_module_utils",
    "transformers.utils",
    "transformers.utils.versions",
    "peft",
    "peft.utils",
    "huggingface_hub",
    "huggingface_hub.utils",
)
DRIVER = """
import enum, typing
if not hasattr(enum, "StrEnum"):  # Python 3.10, where upstream itself does not run
    class StrEnum(str, enum.Enum): pass
    enum.StrEnum, typing.NotRequired = StrEnum, typing.Optional
from llamafactory.cli import main
main()
"""
STAND_IN = """
class Anything:  # not unittest.mock: importing that takes longer than everything else that is launched here
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments, **options):
        return False

__getattr__ = Anything().__getattr__
"""
RECORDER = """
import json, os, sys
with open(os.environ["RECORD_TO"], "w") as file:
    json.dump({"route": os.environ.get("ROUTE", "-m"), "python": sys.executable, "argv": sys.argv[1:]}, file)
"""
TRAINER = """
import json, os, sys
import torch.distributed as dist

def run_exp():
    dist.init_process_group("gloo")
    with open(os.environ["RECORD_TO"], "w") as file:
        json.dump({"python": sys.executable, "argv": sys.argv, "world": dist.get_world_size()}, file)
    dist.destroy_process_group()
"""


def package_dir() -> Path:
    """Where the llamafactory that is to be tested lies; nothing of it is imported here."""
    spec = importlib.util.find_spec("llamafactory")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def write_stand_ins(at: Path, *names: str) -> None:
    for name in names:
        path = at / name.replace(".", "/") / "__init__.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STAND_IN)


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    """Everything that the launchers import, and a recorder as `python -m torch.distributed.run`."""
    at = tmp_path / "stand-ins"
    write_stand_ins(at, "torch", "torch.distributed", "numpy", *IMPORTED)
    (at / "torch" / "distributed" / "run.py").write_text(RECORDER)
    return at


def write_torchrun(at: Path, content: str) -> None:
    at.mkdir()
    (at / "torchrun").write_text(f"#!/bin/sh\n{content}\n")
    (at / "torchrun").chmod(0o755)


@pytest.fixture
def other(tmp_path: Path, stand_ins: Path) -> str:
    """A PATH that begins with the torchrun of another environment; that one records too."""
    recorder = stand_ins / "torch" / "distributed" / "run.py"
    write_torchrun(tmp_path / "other", f'ROUTE=PATH exec "{sys.executable}" "{recorder}" "$@"')
    return os.pathsep.join([str(tmp_path / "other"), os.environ.get("PATH", os.defpath)])


def need_loopback() -> None:
    """A real torchrun talks to itself over 127.0.0.1, which is down in a namespace without any network."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError:
        pytest.skip("no loopback network")


def launch(cwd: Path, roots: list[Path], arguments: list[str], variables: dict[str, str]) -> Any:
    """Runs `llamafactory-cli ARGUMENTS` in a process of its own and returns what was recorded."""
    dropped = {"USE_RAY", "USE_MCA", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT", "NNODES", *ELASTIC}
    env = {name: value for name, value in os.environ.items() if name not in dropped}
    env |= {"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": "1", "RECORD_TO": str(cwd / "record")} | variables
    env["PYTHONPATH"] = os.pathsep.join([*map(str, roots), env.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", DRIVER, *arguments]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((cwd / "record").read_text())


@LAUNCHERS
@RENDEZVOUS
def test_torchrun_of_another_environment_is_not_taken(
    tmp_path: Path, stand_ins: Path, other: str, v1: str, rdzv: dict[str, str]
) -> None:
    """Without the patch the first torchrun on PATH is started, though it is not of this interpreter."""
    variables = {"USE_V1": v1, "PATH": other} | rdzv
    started = launch(tmp_path, [stand_ins, package_dir().parent], ["train", "a.yaml"], variables)
    assert (started["route"], started["python"]) == ("-m", sys.executable)


@LAUNCHERS
def test_no_torchrun_on_path_is_needed(tmp_path: Path, stand_ins: Path, v1: str) -> None:
    """Without the patch: FileNotFoundError, no such file or directory: 'torchrun'."""
    (tmp_path / "empty").mkdir()
    variables = {"USE_V1": v1, "PATH": str(tmp_path / "empty")}
    started = launch(tmp_path, [stand_ins, package_dir().parent], ["train", "a.yaml"], variables)
    assert started["python"] == sys.executable


@LAUNCHERS
@RENDEZVOUS
def test_a_space_in_a_path_cuts_nothing(
    tmp_path: Path, stand_ins: Path, other: str, v1: str, rdzv: dict[str, str]
) -> None:
    """Without the patch the paths of work copy and configuration arrive in pieces (v1 is right already)."""
    root = tmp_path / "work copy"
    root.mkdir()
    (root / "llamafactory").symlink_to(package_dir())
    arguments = ["my run/a.yaml", "output_dir=my run/out"]
    variables = {"USE_V1": v1, "PATH": other} | rdzv
    argv = launch(tmp_path, [stand_ins, root], ["train", *arguments], variables)["argv"]
    script = str(root / "llamafactory" / ("v1/launcher.py" if v1 == "1" else "launcher.py"))
    assert argv[argv.index(script) :] == [script, *(["train"] if v1 == "1" else []), *arguments]


@LAUNCHERS
@RENDEZVOUS
def test_the_options_are_those_of_upstream(
    tmp_path: Path, stand_ins: Path, other: str, v1: str, rdzv: dict[str, str]
) -> None:
    """Upstream's behaviour, kept (passes unpatched too): the same options and values reach torchrun."""
    static = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    variables = {"USE_V1": v1, "PATH": other} | static | rdzv
    arguments = ["a.yaml", "seed=1"]
    argv = launch(tmp_path, [stand_ins, package_dir().parent], ["train", *arguments], variables)["argv"]
    script = next(index for index, item in enumerate(argv) if item.endswith("launcher.py"))
    names = [name.replace("_", "-") for name in argv[:script:2]]
    assert dict(zip(names, argv[1:script:2], strict=True)) == (ELASTIC_OPTIONS if rdzv else STATIC_OPTIONS)
    assert argv[script + 1 :] == [*(["train"] if v1 == "1" else []), *arguments]


@pytest.mark.needs("torch")
def test_a_real_rank_runs_with_this_interpreter(tmp_path: Path) -> None:
    """Without the patch the torchrun on PATH, which fails here, is started instead.

    Real: torch, torchrun, one gloo rank and the launcher, from a path with a space. Stand-ins: transformers,
    peft and huggingface_hub, which the launcher imports, and `llamafactory.train`, so that the rank reports
    and stops.
    """
    need_loopback()
    stubs, package = tmp_path / "stand-ins", tmp_path / "work copy" / "llamafactory"
    write_stand_ins(stubs, *IMPORTED)
    (package / "train").mkdir(parents=True)
    (package / "train" / "tuner.py").write_text(TRAINER)
    for entry in package_dir().iterdir():
        if entry.name not in {"train", "__pycache__"}:
            (package / entry.name).symlink_to(entry)
    write_torchrun(tmp_path / "other", "echo 'the torchrun of another environment' >&2; exit 9")
    path = os.pathsep.join([str(tmp_path / "other"), os.environ.get("PATH", os.defpath)])
    variables = {"PATH": path, "OMP_NUM_THREADS": "1", "USE_V1": "0"}
    rank = launch(tmp_path, [stubs, package.parent], ["train", "my run/a.yaml"], variables)
    argv = [str(package / "launcher.py"), "my run/a.yaml"]
    assert rank == {"python": sys.executable, "argv": argv, "world": 1}
