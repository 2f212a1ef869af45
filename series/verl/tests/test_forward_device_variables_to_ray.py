"""Effect of device/forward-device-variables-to-ray.patch: what `run_ppo` gives to Ray, and what its workers then have.

`run_ppo` runs for real up to its call of `ray.init`, which is kept instead of made: that needs no network. A Ray of its
own (in a child process that knows nothing of verl) then starts workers with what was kept. Its raylet has none of the
variables, as when it was started from another shell. Nothing of Ray is mocked there.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs("torch", "transformers", "ray", "tensordict", "omegaconf", "hydra")

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
PPU = {"PPU_SDK": "/vendor/sdk"}
ALWAYS = {"PYTHONHASHSEED": "0", "VERL_FULL_DETERMINISM": "0", "VLLM_BATCH_INVARIANT": "0"}

Variables = dict[str, str]


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Variables]:
    """What a driver with certain variables hands to `ray.init` for its workers."""
    import ray
    from omegaconf import OmegaConf
    from verl.trainer.main_ppo import run_ppo

    class Handed(Exception):
        pass

    def init(**arguments: Any) -> None:
        raise Handed(arguments)

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", init)

    def hand(variables: Variables, own: Variables | None = None) -> Variables:
        config = OmegaConf.create(
            {
                "actor_rollout_ref": {"rollout": {"full_determinism": False}},
                "reward": {"reward_model": {"enable": False, "rollout": {}}},
                "transfer_queue": {"enable": False},
                "ray_kwargs": {"ray_init": {"runtime_env": {"env_vars": own}} if own else {}},
            }
        )
        with monkeypatch.context() as driver:
            for name in (*DEVICE, *SDK, *PPU, *ALWAYS):
                driver.delenv(name, raising=False)
            for name, value in variables.items():
                driver.setenv(name, value)
            with pytest.raises(Handed) as called:
                run_ppo(config, None)
        return dict(called.value.args[0]["runtime_env"]["env_vars"])

    return hand


def test_device_variables_are_handed_to_ray(handed: Callable[..., Variables]) -> None:
    """Without the patch none of them is: the workers allocate, attend and pick a platform otherwise than the driver."""
    given = handed({**DEVICE, **SDK})
    assert {name: given.get(name) for name in DEVICE} == DEVICE


def test_the_vendor_sdk_is_handed_on_where_there_is_one(handed: Callable[..., Variables]) -> None:
    """Without the patch os.path.join(os.environ.get("CUDA_PATH"), ...) in the vendor's code meets None."""
    given = handed({**DEVICE, **SDK, **PPU})
    assert {name: given.get(name) for name in (*DEVICE, *SDK, *PPU)} == {**DEVICE, **SDK, **PPU}


def test_without_ppu_sdk_each_node_keeps_its_own_paths(handed: Callable[..., Variables]) -> None:
    """Without PPU_SDK nothing about PATH, LD_LIBRARY_PATH and CUDA_* is handed on: as upstream."""
    assert not set(SDK) & set(handed({**DEVICE, **SDK}))
    assert not set(SDK) & set(handed({**DEVICE, **SDK, "PPU_SDK": ""}))


def test_unset_variables_are_not_handed_on(handed: Callable[..., Variables]) -> None:
    """With none of them set the runtime environment is upstream's: not one name, not one empty string more."""
    for none in ({}, dict.fromkeys(DEVICE, "")):
        given = handed(none)
        assert not {*DEVICE, *SDK, *PPU} & set(given)
        assert {name: given[name] for name in ALWAYS} == ALWAYS


def test_an_entry_of_the_configuration_wins(handed: Callable[..., Variables]) -> None:
    """As upstream: ray_kwargs.ray_init.runtime_env.env_vars is the user's own word."""
    own = {"VERL_ATTN_IMPLEMENTATION": "eager", "PYTORCH_ALLOC_CONF": "backend:native"}
    given = handed(DEVICE, own)
    assert {name: given[name] for name in own} == own


WORKERS = """
import json, os, sys
import ray

folder, *names = sys.argv[1:]
for name in names:
    os.environ.pop(name, None)  # only now: this interpreter may have needed them to start at all
ray.init(num_cpus=1, include_dashboard=False, _temp_dir=folder, object_store_memory=80 << 20, log_to_driver=False)


@ray.remote(num_cpus=1)
def environment():
    return dict(os.environ)


for line in sys.stdin:
    task = environment.options(runtime_env={"env_vars": json.loads(line)})
    print("WORKER", json.dumps(ray.get(task.remote())), flush=True)
"""


class RayWorkers:
    """A Ray whose raylet has none of the variables; test files of one pytest process share it, as starting it is slow.

    Its folder's name is short, as a Unix socket path ends at 107 bytes.
    """

    NAME, SECONDS = "patchq-ray-workers", 120

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pq", dir="/tmp"))
        env = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "VERL_", "PYTORCH_"))}
        env["RAY_USAGE_STATS_ENABLED"] = "0"
        unset = ("PPU_SDK", "CUDA_PATH", "CUDA_HOME", "LD_LIBRARY_PATH")
        self.errors = (self.folder / "errors").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-c", WORKERS, str(self.folder), *unset],
            cwd=self.folder, env=env, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
        )  # fmt: skip

    @classmethod
    def of(cls, config: pytest.Config) -> Any:
        """The one that an earlier file of this pytest process started, or a new one."""
        if not config.pluginmanager.has_plugin(cls.NAME):
            workers = cls()
            config.pluginmanager.register(workers, cls.NAME)
            config.add_cleanup(workers.stop)
        return config.pluginmanager.get_plugin(cls.NAME)

    def environment(self, env_vars: Variables) -> Variables:
        """The environment of a worker that is started with these variables in its runtime environment."""
        assert self.process.stdin and self.process.stdout
        alarm = threading.Timer(self.SECONDS, self.process.kill)
        alarm.start()
        try:
            print(json.dumps(env_vars), file=self.process.stdin, flush=True)
            answers = (line for line in self.process.stdout if line.startswith("WORKER "))
            answer = next(answers, None)
        except BrokenPipeError:
            answer = None
        finally:
            alarm.cancel()
        self.errors.seek(0)
        assert answer, f"Ray gave no worker within {self.SECONDS} s:\n{self.errors.read()[-4000:]}"
        return json.loads(answer.removeprefix("WORKER "))

    def stop(self) -> None:
        try:
            self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def workers(request: pytest.FixtureRequest) -> Any:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError:
        pytest.skip("no loopback network")
    return RayWorkers.of(request.config)


def test_real_workers_get_what_is_handed_on(handed: Callable[..., Variables], workers: Any) -> None:
    """Without the patch a worker of a raylet that was started from another shell has none of the variables."""
    raylet = workers.environment({})
    assert not ({*DEVICE, *SDK, *PPU} - {"PATH"}) & set(raylet), "the set-up is not what it claims to be"
    assert raylet["PATH"] != SDK["PATH"]

    gpu = workers.environment(handed({**DEVICE, **SDK}))
    assert {name: gpu.get(name) for name in DEVICE} == DEVICE
    assert gpu["PATH"] == raylet["PATH"]
    ppu = workers.environment(handed({**DEVICE, **SDK, **PPU}))
    assert {name: ppu.get(name) for name in (*DEVICE, *SDK, *PPU)} == {**DEVICE, **SDK, **PPU}
