"""Effect of device/ppu-platform.patch: which platform verl picks, in real child processes.

Stand-ins: an executable that plays nvidia-smi or ppu-smi, and a torch.cuda that answers with a PPU's
public facts (device name PPU-ZW810, capability 8.0, device type "cuda"). Not shown here: that a PPU
computes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs("torch", "transformers", "ray", "tensordict")

PROBE = """
import json, os, sys
import torch
from verl.plugin.platform import PlatformRegistry, platform_manager
from verl.utils import device

smi = sys.argv[1]
isfile = os.path.isfile  # verl also looks in /usr/bin and the like: hide this machine's own tools
os.path.isfile = lambda path: isfile(path) and (not str(path).endswith("-smi") or str(path).startswith(smi))
path = os.environ["PATH"]


def look(variables=(), device_name=None, tools=()):
    # One host after the other: which variables are set, which device torch.cuda has, which tools are on PATH.
    for name in ("VERL_PLATFORM", "PPU_SDK"):
        os.environ.pop(name, None)
    os.environ.update(variables)
    os.environ["PATH"] = os.pathsep.join([*(os.path.join(smi, tool) for tool in tools), "/nonexistent"])
    torch.cuda.is_available = lambda: device_name is not None
    torch.cuda.get_device_name = lambda *args: device_name
    torch.cuda.get_device_capability = lambda *args: (8, 0)
    platform_manager._current_platform = None
    try:
        platform = platform_manager.get_platform()
    except ValueError as error:
        return {"error": str(error)}
    return {"class": type(platform).__name__, "vendor": device.get_vendor(),
            "device": device.get_device_name(), "module": platform.device_module.__name__,
            "ray": device.get_resource_name(),
            "visible": device.get_visible_devices_keyword(), "backend": device.get_nccl_backend(),
            "capability": list(device.get_device_capability())}


out = {
    "named": look({"VERL_PLATFORM": "ppu"}, "PPU-ZW810E"),
    "sdk": look({"PPU_SDK": "/vendor/sdk"}, "PPU-ZW810"),
    "sdk, cpu-only actor": look({"PPU_SDK": "/vendor/sdk"}),
    "sdk, nvidia-smi too": look({"PPU_SDK": "/vendor/sdk"}, "PPU-ZW810", ["nvidia-smi"]),
    "device name": look((), "PPU-ZW810"),
    "device name, nvidia-smi too": look((), "PPU-ZW810", ["nvidia-smi"]),
    "ppu-smi, cpu-only actor": look((), None, ["ppu-smi"]),
    "nvidia": look((), "NVIDIA A100-SXM4-80GB", ["nvidia-smi"]),
    "nvidia, cpu-only actor": look((), None, ["nvidia-smi"]),
    "nvidia, named on a PPU": look({"VERL_PLATFORM": "nvidia", "PPU_SDK": "/vendor/sdk"}, "PPU-ZW810"),
    "nothing": look(),
}
os.environ["PATH"] = path
print("RESULT", json.dumps(out), flush=True)
"""

PPU = [
    "named", "sdk", "sdk, cpu-only actor", "sdk, nvidia-smi too", "device name",
    "device name, nvidia-smi too", "ppu-smi, cpu-only actor",
]  # fmt: skip
NVIDIA = ["nvidia", "nvidia, cpu-only actor", "nvidia, named on a PPU", "nothing"]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    work = tmp_path_factory.mktemp("ppu")
    for tool in ("nvidia-smi", "ppu-smi"):
        (work / tool).mkdir()
        (work / tool / tool).write_text("#!/bin/sh\nexit 0\n")
        (work / tool / tool).chmod(0o755)
    (work / "probe.py").write_text(PROBE)
    return run_probe(work, work)


def run_probe(work: Path, *args: object) -> dict[str, Any]:
    """Runs probe.py and reads its one RESULT line."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("VERL_")}
    env |= {"HOME": str(work), "VERL_USE_EXTERNAL_PLUGINS": "none", "PYTHONDONTWRITEBYTECODE": "1"}
    child = subprocess.run(
        [sys.executable, str(work / "probe.py"), *map(str, args)],
        cwd=work, env=env, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    results = [line for line in child.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, f"the probe failed:\n{child.stdout[-2000:]}\n{child.stderr[-4000:]}"
    return json.loads(results[-1].removeprefix("RESULT "))


@pytest.mark.parametrize("host", PPU)
def test_ppu_hosts_get_the_ppu_platform(seen: dict[str, Any], host: str) -> None:
    """Without the patch VERL_PLATFORM=ppu is "Unknown platform 'ppu'", and every PPU host is taken for
    nvidia."""
    assert seen[host].get("class") == "PlatformPPU", seen[host]
    assert seen[host]["vendor"] == "thead"


def test_a_ppu_stays_torch_cuda(seen: dict[str, Any]) -> None:
    """Without the patch there is no such platform; with it device type, module, backend and Ray resource
    are CUDA's."""
    assert seen["named"] == {
        "class": "PlatformPPU", "vendor": "thead", "device": "cuda", "module": "torch.cuda", "ray": "GPU",
        "visible": "CUDA_VISIBLE_DEVICES", "backend": "nccl", "capability": [8, 0],
    }  # fmt: skip


@pytest.mark.parametrize("host", NVIDIA)
def test_other_hosts_are_upstream(seen: dict[str, Any], host: str) -> None:
    """No PPU, or nvidia by name: the nvidia platform, with and without the patch."""
    assert (seen[host]["class"], seen[host]["vendor"]) == ("PlatformCUDA", "nvidia")
