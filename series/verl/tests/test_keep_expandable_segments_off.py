"""device/keep-expandable-segments-off: what verl's run-time allocator calls really hand to torch.

No GPU is needed: torch's setter is replaced by a list that keeps each string it would have got. That torch
then obeys the string can only be seen on a GPU, in `torch.cuda.memory._snapshot()["allocator_settings"]`.
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

pytestmark = pytest.mark.needs("torch", "ray", "tensordict", "transformers", "omegaconf")

OLD, NEW = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
FULL = "backend:native,expandable_segments:False,max_split_size_mb:512"
KEPT = "backend:native,max_split_size_mb:512,expandable_segments:False"


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The strings that reach torch's allocator, on the platform that an NVIDIA machine gets."""
    import torch
    from verl.plugin.platform.platform_cuda import PlatformCUDA
    from verl.utils import device

    strings: list[str] = []
    monkeypatch.setattr(torch.cuda.memory, "_set_allocator_settings", strings.append)
    monkeypatch.setattr(device, "get_platform", PlatformCUDA)
    for name in (OLD, NEW):
        monkeypatch.delenv(name, raising=False)
    return strings


@pytest.mark.parametrize("name", [OLD, NEW])
def test_false_in_the_environment_holds_and_keeps_the_options(
    name: str, handed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unpatched, torch gets `expandable_segments:True` alone: on, and the 512 MiB split size is gone."""
    from verl.utils.device import set_expandable_segments

    monkeypatch.setenv(name, FULL)
    set_expandable_segments(True)
    set_expandable_segments(False)
    assert handed == [KEPT, KEPT]


@pytest.mark.parametrize("old, new", [("expandable_segments:True", FULL), (FULL, "expandable_segments:True")])
def test_one_false_beats_a_true(old: str, new: str, handed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Launchers write True under one name against the False of the other; unpatched, True wins."""
    from verl.utils.device import set_expandable_segments

    monkeypatch.setenv(OLD, old)
    monkeypatch.setenv(NEW, new)
    set_expandable_segments(True)
    assert handed == [KEPT]


@pytest.mark.parametrize("conf", [None, "", "max_split_size_mb:512"])
def test_off_is_the_default(conf: str | None, handed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpatched, an environment that says nothing about expandable segments gets them."""
    from verl.utils.device import set_expandable_segments

    if conf is not None:
        monkeypatch.setenv(NEW, conf)
    set_expandable_segments(True)
    assert handed == [",".join(filter(None, [conf, "expandable_segments:False"]))]


def test_an_explicit_true_is_obeyed(handed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The way back without touching the series: on and off as upstream, with the other options kept."""
    from verl.utils.device import set_expandable_segments

    monkeypatch.setenv(OLD, "expandable_segments:True,garbage_collection_threshold:0.8")
    set_expandable_segments(False)
    set_expandable_segments(True)
    others = "garbage_collection_threshold:0.8"
    assert handed == [f"{others},expandable_segments:False", f"{others},expandable_segments:True"]


def test_an_option_with_commas_of_its_own_survives(handed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Splitting at commas must not tear a list value; torch ignores blanks, so blanks may go."""
    from verl.utils.device import set_expandable_segments

    monkeypatch.setenv(NEW, "roundup_power2_divisions:[256:1, 512:2,>:4], expandable_segments : False")
    set_expandable_segments(True)
    assert handed == ["roundup_power2_divisions:[256:1,512:2,>:4],expandable_segments:False"]


def test_weight_sync_of_the_trainer(handed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpatched, every weight sync of a colocated run ends with expandable segments on."""
    from verl.workers import engine_workers

    async def done(*args: object, **kwargs: object) -> None: ...

    engine = SimpleNamespace(get_per_tensor_param=lambda **_: (iter(()), None), is_param_offload_enabled=False)
    worker = SimpleNamespace(
        config=SimpleNamespace(
            rollout=SimpleNamespace(checkpoint_engine=SimpleNamespace(backend="naive"), free_cache_engine=False)
        ),
        actor=SimpleNamespace(engine=engine),
        rollout=SimpleNamespace(update_weights=done),
        layered_summon=False,
        peft_merge=False,
    )
    monkeypatch.setattr(engine_workers, "log_gpu_memory_usage", lambda *_, **__: None)
    monkeypatch.setattr(engine_workers, "aggressive_empty_cache", lambda **_: None)
    monkeypatch.setenv(NEW, FULL)

    asyncio.run(engine_workers.ActorRolloutRefWorker.update_weights(worker, global_steps=1))
    assert worker.base_sync_done
    assert handed == [KEPT, KEPT]


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


def test_start_of_the_vllm_server(handed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpatched, a vLLM server without sleep mode turns expandable segments on before it loads the model.

    A stand-in answers every `import vllm...` with empty classes; it is gone afterwards, with what was imported on it.
    """
    from verl.workers.config import RolloutConfig

    class Enough(Exception):
        pass

    def enough() -> None:
        raise Enough

    monkeypatch.setenv(NEW, FULL)
    with stand_in_for_vllm(tmp_path) as server_module:
        server = object.__new__(server_module.vLLMHttpServer)
        server.config = RolloutConfig(name="vllm", prompt_length=16, response_length=16, enable_sleep_mode=False)
        server.node_rank = 0
        server._get_override_generation_config = dict
        server._apply_quantization = enough
        with pytest.raises(Enough):
            asyncio.run(server.launch_server())
    assert handed == [KEPT]
