"""Effect of device/p40-float32-eager.patch.

One child process runs verl's own loading, weight sync, generation, checkpoint and merge on a tiny Qwen2
(CPU, one rank, FSDP2) under a verl platform that reports SM 6.1, then SM 8.0. Stand-ins: that platform
(torch.cpu behind the capability of a P40), trl's value-head wrapper so that the second loading place is
reached, and where there is not even a loopback network, which gloo needs, torch's own in-process
collectives. Not shown here: that a P40's kernels run what is chosen.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs("torch", "transformers", "ray", "tensordict", "peft", "accelerate")

TRL = """
class AutoModelForCausalLMWithValueHead:
    @classmethod
    def from_pretrained(cls, model):
        wrapped = cls()
        wrapped.pretrained_model = model
        return wrapped

    def named_parameters(self):
        return self.pretrained_model.named_parameters()
"""

PROBE = """
import json, os, socket, sys, types
from pathlib import Path
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, Qwen2Config, Qwen2ForCausalLM
from verl.plugin.platform import get_platform, set_platform
from verl.plugin.platform.platform_cuda import PlatformCUDA


class CpuModule(types.ModuleType):
    def mem_get_info(self):
        return 1, 1

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(torch.cpu, name, lambda *args, **kwargs: 0)


class TestPlatform(PlatformCUDA):
    device_name, device_module, capability = "cpu", CpuModule("device"), (8, 0)

    def is_available(self):
        return True

    def current_device(self):
        return torch.device("cpu")

    def empty_cache(self):
        pass

    def get_device_capability(self, device_index=0):
        return type(self).capability


set_platform(TestPlatform())
from verl import DataProto
from verl.model_merger.base_model_merger import ModelMergerConfig
from verl.model_merger.fsdp_model_merger import FSDPModelMerger
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
from verl.utils.model import load_valuehead_model
from verl.workers.engine.fsdp.transformer_impl import FSDPEngine
from verl.workers.rollout.hf_rollout import HFRollout

work = Path(sys.argv[1])
config = Qwen2Config(vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                     num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
                     bos_token_id=1, eos_token_id=2, pad_token_id=0,
                     architectures=["Qwen2ForCausalLM"], tie_word_embeddings=False)
model = Qwen2ForCausalLM(config).float()
model.save_pretrained(work / "model")
exact = {name: value.clone() for name, value in model.state_dict().items()}
try:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
    dist.init_process_group("gloo", init_method=f"file://{work}/rendezvous", rank=0, world_size=1)
except OSError:
    from torch.testing._internal.distributed.multi_threaded_pg import _install_threaded_pg
    _install_threaded_pg()
    dist.init_process_group("threaded", store=dist.HashStore(), rank=0, world_size=1)
sharded = Qwen2ForCausalLM(config).float()
sharded.load_state_dict(exact)
fully_shard(sharded, mesh=init_device_mesh("cpu", (1,), mesh_dim_names=("fsdp",)))

reached = []
fail_first = False


def spy(auto_class):
    original = auto_class.from_pretrained

    def from_pretrained(*args, **kwargs):
        attn, dtype = kwargs.get("attn_implementation"), str(kwargs.get("torch_dtype"))
        reached.append([auto_class.__name__, attn, dtype])
        if fail_first and auto_class is AutoModelForTokenClassification:
            raise ValueError("not a token classifier")
        return original(*args, **kwargs)

    auto_class.from_pretrained = from_pretrained


spy(AutoModelForTokenClassification)
spy(AutoModelForCausalLM)


def value_head():
    reached.clear()
    cfg = Qwen2Config.from_pretrained(work / "model", num_labels=1, classifier_dropout=0.0)
    try:
        loaded = load_valuehead_model(str(work / "model"), torch.bfloat16, cfg, False)
    except Exception as error:
        return {"reached": list(reached), "error": type(error).__name__}
    inner = getattr(loaded, "pretrained_model", loaded)
    return {"reached": list(reached), "dtype": str(next(inner.parameters()).dtype),
            "attn": inner.config._attn_implementation,
            "shape": list(inner(torch.ones(1, 4, dtype=torch.long)).logits.shape)}


def weight_sync():
    engine = FSDPEngine.__new__(FSDPEngine)
    engine.module, engine.model_config = sharded, types.SimpleNamespace(lora={})
    engine._uses_fsdp2_cpu_offload_policy = engine._is_offload_param = engine._qat_enabled = False
    sent = dict(engine.get_per_tensor_param()[0])
    return {"dtypes": sorted({str(value.dtype) for value in sent.values()}),
            "exact": all(torch.equal(value, exact[name]) for name, value in sent.items())}


def generation():
    during = {}

    def generate(**kwargs):
        during["autocast"] = torch.is_autocast_enabled("cpu")
        during["dtype"] = str(torch.nn.functional.linear(torch.ones(2, 2), torch.ones(2, 2)).dtype)
        return Qwen2ForCausalLM.generate(model, **kwargs)

    module = types.SimpleNamespace(generate=generate, eval=model.eval, train=model.train)
    rollout = types.SimpleNamespace(module=module, config=types.SimpleNamespace(
        do_sample=False, temperature=1.0, response_length=2, get=lambda key, default=None: default))
    ones = torch.ones(1, 4, dtype=torch.long)
    tensors = {"input_ids": ones, "attention_mask": ones, "position_ids": ones.cumsum(-1) - 1}
    prompts = DataProto.from_dict(tensors, meta_info={"eos_token_id": 2, "pad_token_id": 0})
    during["length"] = HFRollout._generate_minibatch(rollout, prompts).batch["input_ids"].shape[1]
    return during


def saved_dtype(folder):
    saved = json.loads((folder / "config.json").read_text())
    return str(saved.get("dtype", saved.get("torch_dtype")))


def checkpoint(folder):
    manager = FSDPCheckpointManager(sharded, torch.optim.SGD(sharded.parameters(), lr=0.1), None, None,
                                    {"save_contents": ["model", "hf_model"], "load_contents": ["model"]})
    manager.save_checkpoint(str(folder))
    return saved_dtype(folder / "huggingface")


def merge(folder, target):
    merger = FSDPModelMerger(ModelMergerConfig(operation="merge", backend="fsdp", local_dir=str(folder),
                             target_dir=str(target), hf_model_config_path=str(folder / "huggingface")))
    merger.merge_and_save()
    from safetensors.torch import load_file
    tensors = load_file(target / "model.safetensors")
    test = FSDPModelMerger(ModelMergerConfig(operation="test", backend="fsdp", local_dir=str(folder),
                           test_hf_dir=str(target), hf_model_config_path=str(folder / "huggingface")))
    test.merge_and_save()  # compares keys, shapes, dtypes and values with what was merged
    return {"config": saved_dtype(target), "dtypes": sorted({str(value.dtype) for value in tensors.values()}),
            "exact": all(torch.equal(value, exact[name]) for name, value in tensors.items())}


def attempt(function, *args):
    try:
        return function(*args)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def look(name, capability, variable=None):
    global fail_first
    TestPlatform.capability = capability
    os.environ.pop("VERL_FLOAT32_EAGER", None)
    if variable:
        os.environ["VERL_FLOAT32_EAGER"] = variable
    out = {"sync": attempt(weight_sync)}
    for place, fail_first in (("first", False), ("second", True)):
        out[place] = attempt(value_head)
    if variable is None:
        out["generation"] = attempt(generation)
        out["checkpoint"] = attempt(checkpoint, work / name / "ckpt")
        out["merge"] = attempt(merge, work / name / "ckpt", work / name / "merged")
    return out


result = {"sm61": look("sm61", (6, 1)), "sm80": look("sm80", (8, 0)), "cpu": look("cpu", (None, None), None),
          "forced": look("forced", (None, None), "1"), "refused": look("refused", (6, 1), "0")}
print("RESULT", json.dumps(result), flush=True)
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    work = tmp_path_factory.mktemp("p40")
    (work / "trl").mkdir()
    (work / "trl" / "__init__.py").write_text(TRL)
    (work / "probe.py").write_text(PROBE)
    return run_probe(work, work)


def run_probe(work: Path, *args: object) -> dict[str, Any]:
    """Runs probe.py (its own folder, with the stand-in, comes first on sys.path) and reads its one RESULT
    line."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("VERL_", "RAY_"))}
    env |= {"HOME": str(work), "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(work / "probe.py"), *map(str, args)]
    child = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, timeout=120)
    results = [line for line in child.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, f"the probe failed:\n{child.stdout[-2000:]}\n{child.stderr[-4000:]}"
    return json.loads(results[-1].removeprefix("RESULT "))


@pytest.mark.parametrize("case", ["sm61", "forced"])
def test_value_head_loads_in_float32_with_eager_attention(seen: dict[str, Any], case: str) -> None:
    """Without the patch bfloat16 and flash_attention_2 reach from_pretrained at both places, and it
    raises."""
    first, second = seen[case]["first"], seen[case]["second"]
    assert first["reached"] == [["AutoModelForTokenClassification", "eager", "torch.float32"]]
    assert (first["dtype"], first["attn"], first["shape"]) == ("torch.float32", "eager", [1, 4, 1])
    assert second["reached"][1] == ["AutoModelForCausalLM", "eager", "torch.float32"]
    assert (second["dtype"], second["attn"]) == ("torch.float32", "eager")


@pytest.mark.parametrize("case", ["sm61", "forced"])
def test_weight_sync_sends_float32(seen: dict[str, Any], case: str) -> None:
    """Without the patch every sharded parameter is rounded to bfloat16 on its way to the rollout engine."""
    assert seen[case]["sync"] == {"dtypes": ["torch.float32"], "exact": True}


def test_generation_has_no_bfloat16_autocast(seen: dict[str, Any]) -> None:
    """Without the patch generate() runs under a bfloat16 autocast, which torch refuses on a P40."""
    assert seen["sm61"]["generation"] == {"autocast": False, "dtype": "torch.float32", "length": 6}


def test_checkpoint_says_float32(seen: dict[str, Any]) -> None:
    """Without the patch the saved huggingface config declares bfloat16, and the next load rounds to it."""
    assert seen["sm61"]["checkpoint"] == "float32"


def test_merge_keeps_every_bit(seen: dict[str, Any]) -> None:
    """Without the patch merging rounds the float32 weights to bfloat16. (The merger's own `test` agrees,
    too.)"""
    assert seen["sm61"]["merge"] == {"config": "float32", "dtypes": ["torch.float32"], "exact": True}


@pytest.mark.parametrize("case", ["sm80", "cpu", "refused"])
def test_other_devices_are_upstream(seen: dict[str, Any], case: str) -> None:
    """Elsewhere, and where VERL_FLOAT32_EAGER=0 says so: bfloat16 and flash_attention_2, with and without
    the patch."""
    look = seen[case]
    assert look["sync"] == {"dtypes": ["torch.bfloat16"], "exact": False}
    for place in ("first", "second"):
        asked = {tuple(call[1:]) for call in look[place]["reached"]}
        assert asked == {("flash_attention_2", "torch.bfloat16")}
    if case != "refused":
        assert look["generation"] == {"autocast": True, "dtype": "torch.bfloat16", "length": 6}
        assert look["checkpoint"] == "bfloat16"
        assert look["merge"] == {"config": "bfloat16", "dtypes": ["torch.bfloat16"], "exact": False}
