"""device/vllm-disable-custom-all-reduce: the arguments that verl's own launch code hands to vLLM.

vLLM is not needed: a stand-in answers every `import vllm...` with empty classes, in a child process.
Everything between the rollout configuration and the argument list is verl's. Whether the PPU's collectives
then work is for the device's ladder to say.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.needs("torch", "ray", "tensordict", "transformers", "omegaconf")

FLAG = "--disable_custom_all_reduce"
ENGINE_KWARGS: dict[str, Any] = {
    "nothing said": {"enable_log_requests": True},
    "null": {"disable_custom_all_reduce": None},
    "on": {"disable_custom_all_reduce": True},
    "off": {"disable_custom_all_reduce": False},
}

LAUNCH = """
import importlib.abc, importlib.machinery, sys, types

class Anything(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {"__init__": lambda self, *a, **k: None})

class Module(types.ModuleType):
    __path__, __version__ = [], "0.18.0"
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, Anything(name, (), {"__init__": lambda self, *a, **k: None}))
        return getattr(self, name)

class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "vllm":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        return Module(spec.name)
    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Finder())

import asyncio, json
from types import SimpleNamespace
import verl.workers.rollout.vllm_rollout.vllm_async_server as module
from verl.workers.config import RolloutConfig

class Built(Exception):
    pass

build = module.build_cli_args_from_config

def stop_when_built(args):
    raise Built(build(args))

module.build_cli_args_from_config = stop_when_built

def arguments(engine_kwargs):
    server = object.__new__(module.vLLMHttpServer)
    server.config = RolloutConfig(
        name="vllm", prompt_length=16, response_length=16, engine_kwargs={"vllm": engine_kwargs}
    )
    server.model_config = SimpleNamespace(trust_remote_code=False, local_path="/model", lora_rank=0, lora={})
    server.profiler_controller = SimpleNamespace(config=None, tool_config=None)
    server.node_rank, server.replica_rank, server.nnodes, server.gpus_per_node = 0, 0, 1, 1
    server.workers, server.is_reward_model = [None], False
    server._get_override_generation_config = dict
    server._apply_quantization = lambda: (None, {})
    try:
        asyncio.run(server.launch_server())
    except Built as built:
        return built.args[0]

print(json.dumps({name: arguments(kwargs) for name, kwargs in json.loads(sys.argv[1]).items()}))
"""


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The argument list that vLLM would get, for each entry of ENGINE_KWARGS."""
    folder = tmp_path_factory.mktemp("launch")
    metadata = folder / "vllm-0.18.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.18.0\n")
    (folder / "launch.py").write_text(LAUNCH)
    env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    child = subprocess.run(
        [sys.executable, str(folder / "launch.py"), json.dumps(ENGINE_KWARGS)],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", ["nothing said", "null"])
def test_off_by_default(case: str, arguments: dict[str, list[str]]) -> None:
    """Unpatched, the flag is missing and vLLM tries custom all-reduce."""
    assert arguments[case].count(FLAG) == 1


def test_an_explicit_setting_wins(arguments: dict[str, list[str]]) -> None:
    """True gives the flag once; False leaves it out, which is verl's way to ask for custom all-reduce."""
    assert arguments["on"].count(FLAG) == 1
    assert FLAG not in arguments["off"]


def test_no_other_argument_changes(arguments: dict[str, list[str]]) -> None:
    """The default and the explicit settings differ by the flag and by what each case itself adds."""
    others = {case: sorted(set(args) - {FLAG, "--enable_log_requests"}) for case, args in arguments.items()}
    assert others["nothing said"] == others["null"] == others["on"] == others["off"]
    assert "--enable_log_requests" in arguments["nothing said"]
