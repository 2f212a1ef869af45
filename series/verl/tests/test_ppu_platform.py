"""Effect of device/ppu-platform.patch: which platform verl picks on one host after the other.

verl's own detection runs. Stand-ins: executables that play nvidia-smi and ppu-smi, and a torch.cuda that answers with
a PPU's public facts (device name PPU-ZW810, capability 8.0, device type "cuda"). Not shown here: that a PPU computes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytestmark = pytest.mark.needs("torch", "transformers", "ray", "tensordict")


class Host(NamedTuple):
    """A host: the variables that are set, the device that torch.cuda has, the tools on PATH."""

    variables: dict[str, str] = {}
    device: str | None = None
    tools: tuple[str, ...] = ()


SDK = {"PPU_SDK": "/vendor/sdk"}
NAMED = Host({"VERL_PLATFORM": "ppu"}, "PPU-ZW810E")
PPU = {
    "named": NAMED,
    "sdk": Host(SDK, "PPU-ZW810"),
    "sdk, cpu-only actor": Host(SDK),
    "sdk, nvidia-smi too": Host(SDK, "PPU-ZW810", ("nvidia-smi",)),
    "device name": Host({}, "PPU-ZW810"),
    "device name, nvidia-smi too": Host({}, "PPU-ZW810", ("nvidia-smi",)),
    "ppu-smi, cpu-only actor": Host({}, None, ("ppu-smi",)),
}
NVIDIA = {
    "nvidia": Host({}, "NVIDIA A100-SXM4-80GB", ("nvidia-smi",)),
    "nvidia, cpu-only actor": Host({}, None, ("nvidia-smi",)),
    "nvidia, named on a PPU": Host({"VERL_PLATFORM": "nvidia", **SDK}, "PPU-ZW810"),
    "nothing": Host(),
}


def become(host: Host, room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process look like that host, to a verl that has not chosen its platform yet."""
    import torch
    from verl.plugin.platform import PlatformRegistry, platform_manager

    for name in ("VERL_PLATFORM", "PPU_SDK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in host.variables.items():
        monkeypatch.setenv(name, value)
    folders = [tool_on_path(room, tool) for tool in host.tools]
    monkeypatch.setenv("PATH", os.pathsep.join([*folders, "/nonexistent"]))
    monkeypatch.setattr(os.path, "isfile", partial(is_file_of_the_host, room, os.path.isfile))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: host.device is not None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *args: host.device)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *args: (8, 0))
    builtin = {
        name: platform
        for name, platform in PlatformRegistry._platforms.items()
        if platform.__module__.startswith("verl.plugin.platform.")  # not those of other installed packages
    }
    monkeypatch.setattr(PlatformRegistry, "_platforms", builtin)
    monkeypatch.setattr(platform_manager, "_current_platform", None)


def is_file_of_the_host(room: Path, isfile: Callable[[Any], bool], path: Any) -> bool:
    """verl also looks in /usr/bin and the like, where this machine has its own tools."""
    return isfile(path) and (not str(path).endswith("-smi") or str(path).startswith(str(room)))


def tool_on_path(room: Path, tool: str) -> str:
    folder = room / f"with-{tool}"
    folder.mkdir()
    (folder / tool).write_text("#!/bin/sh\nexit 0\n")
    (folder / tool).chmod(0o755)
    return str(folder)


def chosen(host: Host, room: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The platform that verl chooses on a host."""
    from verl.plugin.platform import get_platform

    become(host, room, monkeypatch)
    return get_platform()


@pytest.mark.parametrize("host", PPU.values(), ids=PPU.keys())
def test_ppu_hosts_get_the_ppu_platform(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the patch VERL_PLATFORM=ppu is "Unknown platform 'ppu'", and every PPU host is taken for nvidia."""
    platform = chosen(host, tmp_path, monkeypatch)
    assert (type(platform).__name__, platform.vendor_name) == ("PlatformPPU", "thead")


def test_a_ppu_stays_torch_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the patch there is no such platform; with it device type, module, backend and Ray resource are CUDA's."""
    from verl.utils import device

    platform = chosen(NAMED, tmp_path, monkeypatch)
    assert platform.device_module.__name__ == "torch.cuda"
    assert device.get_vendor() == "thead"
    assert (device.get_device_name(), device.get_nccl_backend()) == ("cuda", "nccl")
    assert (device.get_resource_name(), device.get_visible_devices_keyword()) == ("GPU", "CUDA_VISIBLE_DEVICES")
    assert tuple(device.get_device_capability()) == (8, 0)


@pytest.mark.parametrize("host", NVIDIA.values(), ids=NVIDIA.keys())
def test_other_hosts_are_upstream(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No PPU, or nvidia by name: the nvidia platform, with and without the patch."""
    platform = chosen(host, tmp_path, monkeypatch)
    assert (type(platform).__name__, platform.vendor_name) == ("PlatformCUDA", "nvidia")
