"""device/vllm-disable-custom-all-reduce: the arguments that verl's own launch code hands to vLLM.

vLLM is not needed: a stand-in answers every `import vllm...` with empty classes, and is gone afterwards with all that
was imported on top of it. Everything between the rollout configuration and the argument list is verl's. Whether the
PPU's collectives then work is for the device's ladder to say.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.needs("torch", "ray", "tensordict", "transformers", "omegaconf", "uvicorn", "fastapi")

FLAG = "--disable_custom_all_reduce"
ENGINE_KWARGS: dict[str, Any] = {
    "nothing said": {"enable_log_requests": True},
    "null": {"disable_custom_all_reduce": None},
    "on": {"disable_custom_all_reduce": True},
    "off": {"disable_custom_all_reduce": False},
}


class AnyClass(type):
    """A class whose every attribute is such a class; what its objects are made with does not matter."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return any_class(name)


def any_class(name: str) -> AnyClass:
    return AnyClass(name, (), {"__init__": lambda self, *args, **kwargs: None})


class StandIn(types.ModuleType):
    __version__ = "0.18.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, any_class(name))
        return getattr(self, name)


class StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] == "vllm":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def set_aside_vllm() -> dict[str, types.ModuleType]:
    """Take vLLM, and the modules of verl that stand on it, out of what is imported."""
    names = [name for name in sys.modules if name.partition(".")[0] in {"vllm", "verl"} and "vllm" in name]
    for name in names:
        parent, _, child = name.rpartition(".")
        vars(sys.modules.get(parent, types)).pop(child, None)
    return {name: sys.modules.pop(name) for name in names}


@contextmanager
def stand_in_for_vllm(folder: Path) -> Iterator[Any]:
    """verl's module of the vLLM server, imported on top of the stand-in."""
    import verl.workers.rollout.replica  # what does not need vLLM is to stay imported  # noqa: F401

    metadata = folder / "vllm-0.18.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.18.0\n")
    before, environment = set_aside_vllm(), dict(os.environ)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setattr(sys, "meta_path", [StandInFinder(), *sys.meta_path])
        try:
            yield importlib.import_module("verl.workers.rollout.vllm_rollout.vllm_async_server")
        finally:
            set_aside_vllm()
            for name, module in before.items():
                sys.modules[name] = module
                parent, _, child = name.rpartition(".")
                if parent:
                    setattr(sys.modules[parent], child, module)
            os.environ.clear()
            os.environ.update(environment)


class Built(Exception):
    pass


def launch_arguments(server_module: Any, engine_kwargs: dict[str, Any]) -> list[str]:
    """What `launch_server` builds for vLLM's command line; it is stopped there."""
    from verl.workers.config import RolloutConfig

    server = object.__new__(server_module.vLLMHttpServer)
    server.config = RolloutConfig(
        name="vllm", prompt_length=16, response_length=16, engine_kwargs={"vllm": engine_kwargs}
    )
    server.model_config = SimpleNamespace(trust_remote_code=False, local_path="/model", lora_rank=0, lora={})
    server.profiler_controller = SimpleNamespace(config=None, tool_config=None)
    server.node_rank, server.replica_rank, server.nnodes, server.gpus_per_node = 0, 0, 1, 1
    server.workers, server.is_reward_model = [None], False
    server._get_override_generation_config = dict
    server._apply_quantization = lambda: (None, {})
    with pytest.raises(Built) as built:
        asyncio.run(server.launch_server())
    return built.value.args[0]


@pytest.fixture(scope="module")
def arguments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """The argument list that vLLM would get, for each entry of ENGINE_KWARGS."""
    with stand_in_for_vllm(tmp_path_factory.mktemp("vllm")) as server_module:
        build = server_module.build_cli_args_from_config

        def stop_when_built(args: Any) -> None:
            raise Built(build(args))

        server_module.build_cli_args_from_config = stop_when_built
        yield {case: launch_arguments(server_module, kwargs) for case, kwargs in ENGINE_KWARGS.items()}


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
