"""The allocator settings that torchrun's children get from both launchers, for driver 470.

The launchers run for real, through `llamafactory.cli`, in a process of their own. Most tests need no torch:
what the launchers import (torch, transformers, ...) is replaced by empty stand-ins, and so is torchrun: it
writes down the environment that it was really started with and stops. One test starts the real torchrun where
torch is there.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

OLD, NEW, NCCL = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "TORCH_NCCL_AVOID_RECORD_STREAMS"
WANTED = "backend:native,expandable_segments:False,max_split_size_mb:512"
ON = "expandable_segments:True"

# Which variables a torch reads. 2.9 knows only the old name; measured on 2.11: both, and the old one wins.
READERS: dict[str, Callable[[dict[str, str]], str | None]] = {
    "old name only": lambda env: env.get(OLD),
    "new name only": lambda env: env.get(NEW),
    "both, the old wins": lambda env: env.get(OLD, env.get(NEW)),
    "both, the new wins": lambda env: env.get(NEW, env.get(OLD)),
}
INHERITED: dict[str, dict[str, str]] = {
    "nothing": {},
    "old name says True": {OLD: ON},
    "new name says True": {NEW: ON},
    "both names say True, OPTIM_TORCH off": {OLD: ON, NEW: ON, "OPTIM_TORCH": "0"},
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
import json, os
with open(os.environ["RECORD_TO"], "w") as file:
    json.dump(dict(os.environ), file)
"""
TRAINER = """
import json, os
import torch
import torch.distributed as dist

def run_exp():
    dist.init_process_group("gloo")
    total = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(total)
    path = f"{os.environ['RECORD_TO']}.{dist.get_rank()}"
    with open(path, "w") as file:
        json.dump({"env": dict(os.environ), "total": int(total)}, file)
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


def write_fake_torchrun(at: Path) -> None:
    """One recorder, as `torchrun` on PATH and as `python -m torch.distributed.run`: either route will do."""
    (at / "torch" / "distributed" / "run.py").write_text(RECORDER)
    (at / "torchrun").write_text(f'#!/bin/sh\nexec "{sys.executable}" "{at}/torch/distributed/run.py" "$@"\n')
    (at / "torchrun").chmod(0o755)


def need_loopback() -> None:
    """A real torchrun talks to itself over 127.0.0.1, which is down in a namespace without any network."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError:
        pytest.skip("no loopback network")


def launch(cwd: Path, path: list[Path], package_root: Path, extra: dict[str, str]) -> None:
    """Runs `llamafactory-cli train a.yaml` in a process of its own; `path` comes first on both paths."""
    dropped = {OLD, NEW, NCCL, "OPTIM_TORCH", "RDZV_ID", "NNODES", "USE_V1", "USE_RAY", "USE_MCA"}
    env = {name: value for name, value in os.environ.items() if name not in dropped}
    env |= {"FORCE_TORCHRUN": "1", "NPROC_PER_NODE": "2", "RECORD_TO": str(cwd / "record")} | extra
    env["PATH"] = os.pathsep.join([*map(str, path), str(Path(sys.executable).parent), env.get("PATH", "")])
    env["PYTHONPATH"] = os.pathsep.join([*map(str, path), str(package_root), env.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", DRIVER, "train", "a.yaml"]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def recorded(tmp_path: Path, v1: str, inherited: dict[str, str]) -> dict[str, str]:
    """The environment that torchrun was started with."""
    stubs = tmp_path / "stand-ins"
    write_stand_ins(stubs, "torch", "torch.distributed", "numpy", *IMPORTED)
    write_fake_torchrun(stubs)
    launch(tmp_path, [stubs], package_dir().parent, {"USE_V1": v1} | inherited)
    return json.loads((tmp_path / "record").read_text())


@pytest.mark.parametrize("inherited", INHERITED.values(), ids=INHERITED.keys())
@pytest.mark.parametrize("v1", ["0", "1"], ids=["launcher", "v1.launcher"])
def test_every_torch_reads_the_wanted_settings(tmp_path: Path, v1: str, inherited: dict[str, str]) -> None:
    """Without the patch the children get expandable_segments:True, whatever the shell said."""
    env = recorded(tmp_path, v1, inherited)
    read = {reader: setting(env) for reader, setting in READERS.items()}
    assert read == dict.fromkeys(READERS, WANTED)


@pytest.mark.parametrize("v1", ["0", "1"], ids=["launcher", "v1.launcher"])
def test_optim_torch_still_sets_what_else_it_sets(tmp_path: Path, v1: str) -> None:
    """Upstream's behaviour, kept: OPTIM_TORCH, on by default, sets TORCH_NCCL_AVOID_RECORD_STREAMS."""
    on, off = tmp_path / "on", tmp_path / "off"
    on.mkdir()
    off.mkdir()
    assert recorded(on, v1, {})[NCCL] == "1"
    assert NCCL not in recorded(off, v1, {"OPTIM_TORCH": "0"})


@pytest.mark.needs("torch")
def test_ranks_of_a_real_torchrun_get_the_settings(tmp_path: Path) -> None:
    """Without the patch both ranks of a real torchrun run with expandable_segments:True.

    Real: torch, torchrun, two gloo ranks and the launcher. Stand-ins: transformers, peft and huggingface_hub,
    which the launcher imports, and `llamafactory.train`, so that a rank does an all-reduce, no training.
    """
    need_loopback()
    stubs, package = tmp_path / "stand-ins", tmp_path / "copy" / "llamafactory"
    write_stand_ins(stubs, *IMPORTED)
    (package / "train").mkdir(parents=True)
    (package / "train" / "tuner.py").write_text(TRAINER)
    for entry in package_dir().iterdir():
        if entry.name not in {"train", "__pycache__"}:
            (package / entry.name).symlink_to(entry)
    inherited = {OLD: ON, NEW: ON, "OMP_NUM_THREADS": "1"}
    launch(tmp_path, [stubs], package.parent, inherited)
    ranks = [json.loads((tmp_path / f"record.{rank}").read_text()) for rank in (0, 1)]
    assert [rank["total"] for rank in ranks] == [3, 3]
    assert [[rank["env"][name] for name in (OLD, NEW, NCCL)] for rank in ranks] == [[WANTED, WANTED, "1"]] * 2
