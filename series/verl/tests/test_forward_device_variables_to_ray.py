"""Effect of device/forward-device-variables-to-ray.patch: the environment that real Ray workers get.

A child process starts Ray with none of the variables, sets them only afterwards, and launches workers
with what get_ppo_ray_runtime_env() answers: so the raylet does not have them, as when it was started
from another shell. Nothing is mocked.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs("torch", "transformers", "ray", "tensordict")

DEVICE = {
    "VERL_PLATFORM": "nvidia",
    "VERL_USE_EXTERNAL_MODULES": "json",
    "VERL_ATTN_IMPLEMENTATION": "sdpa",
    "VERL_FLOAT32_EAGER": "0",
    "PYTORCH_ALLOC_CONF": "backend:native,expandable_segments:False,max_split_size_mb:512",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False",
}
SDK = {
    "CUDA_PATH": "/vendor/sdk/CUDA_SDK",
    "CUDA_HOME": "/vendor/sdk/CUDA_SDK",
    "LD_LIBRARY_PATH": "/vendor/sdk/lib",
    "PATH": "/vendor/sdk/bin:/usr/bin:/bin",
}

PROBE = """
import json, os, sys
import ray
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

device, sdk, ray_dir = json.loads(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
names = [*device, *sdk, "PPU_SDK"]
for name in [*names, "PYTHONHASHSEED", "VERL_FULL_DETERMINISM", "VLLM_BATCH_INVARIANT"]:
    if name != "PATH":
        os.environ.pop(name, None)  # only now: a vendor's torch may need them to be imported at all
ray.init(num_cpus=1, include_dashboard=False, _temp_dir=ray_dir, object_store_memory=80 << 20,
         log_to_driver=False)
before = dict(os.environ)


@ray.remote(num_cpus=1)
def worker_env():
    return {name: os.environ.get(name) for name in names}


def look(variables, launch=True):
    os.environ.clear()
    os.environ.update(before)
    os.environ.update(variables)
    forwarded = get_ppo_ray_runtime_env()["env_vars"]
    task = worker_env.options(runtime_env={"env_vars": forwarded})
    worker = launch and ray.get(task.remote(), timeout=120)
    return {"forwarded": forwarded, "worker": worker}


out = {"raylet": ray.get(worker_env.remote(), timeout=120), "none": look({}, launch=False),
       "gpu": look({**device, **sdk}), "ppu": look({**device, **sdk, "PPU_SDK": "/vendor/sdk"})}
print("RESULT", json.dumps(out), flush=True)
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    work = tmp_path_factory.mktemp("forward")
    (work / "probe.py").write_text(PROBE)
    return run_probe(work, json.dumps(DEVICE), json.dumps(SDK))


def run_probe(work: Path, *args: str) -> dict[str, Any]:
    """Runs probe.py and reads its one RESULT line."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    env |= {"HOME": str(work), "PYTHONDONTWRITEBYTECODE": "1"}
    ray_dir = tempfile.mkdtemp(prefix="pq", dir="/tmp")  # short: a Unix socket path ends at 107 bytes
    try:
        child = subprocess.run(
            [sys.executable, str(work / "probe.py"), *args, ray_dir],
            cwd=work, env=env, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    finally:
        shutil.rmtree(ray_dir, ignore_errors=True)
    results = [line for line in child.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, f"the probe failed:\n{child.stdout[-2000:]}\n{child.stderr[-4000:]}"
    return json.loads(results[-1].removeprefix("RESULT "))


def test_the_raylet_itself_has_none_of_them(seen: dict[str, Any]) -> None:
    """The set-up is what it claims: a worker without the runtime environment sees no such variable."""
    assert {name: value for name, value in seen["raylet"].items() if name != "PATH" and value is not None} == {}
    assert seen["raylet"]["PATH"] != SDK["PATH"]


def test_workers_get_the_device_variables(seen: dict[str, Any]) -> None:
    """Without the patch the worker sees None: it allocates, attends and picks a platform otherwise than the
    driver."""
    assert {name: seen["gpu"]["worker"][name] for name in DEVICE} == DEVICE


def test_workers_get_the_vendor_sdk_where_there_is_one(seen: dict[str, Any]) -> None:
    """Without the patch os.path.join(os.environ.get("CUDA_PATH"), ...) in the vendor's code meets None."""
    expected = {**DEVICE, **SDK, "PPU_SDK": "/vendor/sdk"}
    assert seen["ppu"]["worker"] == expected


def test_without_ppu_sdk_each_node_keeps_its_own_paths(seen: dict[str, Any]) -> None:
    """Without PPU_SDK nothing about PATH, LD_LIBRARY_PATH and CUDA_* is forwarded: as upstream."""
    assert not set(SDK) & set(seen["gpu"]["forwarded"])
    assert seen["gpu"]["worker"]["PATH"] == seen["raylet"]["PATH"]


def test_unset_variables_are_not_forwarded(seen: dict[str, Any]) -> None:
    """With none of them set the runtime environment is upstream's: not one name, not one empty string
    more."""
    assert not (set(DEVICE) | set(SDK) | {"PPU_SDK"}) & set(seen["none"]["forwarded"])
    always = {name: seen["none"]["forwarded"][name] for name in ("PYTHONHASHSEED", "VERL_FULL_DETERMINISM")}
    assert always == {"PYTHONHASHSEED": "0", "VERL_FULL_DETERMINISM": "0"}
