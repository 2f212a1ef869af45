"""Effect of device/attn-implementation-from-env.patch.

One child process loads a tiny Qwen2 through verl, once with VERL_ATTN_IMPLEMENTATION unset and once with
it set, and notes the attn_implementation that reaches transformers' from_pretrained. Stand-in: trl (its
value-head wrapper only), so that the second loading place of load_valuehead_model is reached; everything
else is real, the Ray worker included.
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
import json, os, sys
import ray, torch, transformers
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, Qwen2Config, Qwen2ForCausalLM
from verl.trainer.constants_ppo import get_ppo_ray_runtime_env
from verl.utils.model import load_valuehead_model
from verl.workers.config import HFModelConfig

work, ray_dir = sys.argv[1:]
os.environ.pop("VERL_ATTN_IMPLEMENTATION", None)
ray.init(num_cpus=1, include_dashboard=False, _temp_dir=ray_dir, object_store_memory=80 << 20,
         log_to_driver=False)
config = Qwen2Config(vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                     num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
                     bos_token_id=1, eos_token_id=2)
Qwen2ForCausalLM(config).save_pretrained(work)
reached = []


def spy(auto_class, fail):
    original = auto_class.from_pretrained

    def from_pretrained(*args, **kwargs):
        reached.append([auto_class.__name__, kwargs.get("attn_implementation")])
        if fail():
            raise ValueError("not a token classifier")
        return original(*args, **kwargs)

    auto_class.from_pretrained = from_pretrained


fail_first = False
spy(AutoModelForTokenClassification, lambda: fail_first)
spy(AutoModelForCausalLM, lambda: False)


def hf_config(**override):
    return HFModelConfig(path=work, load_tokenizer=False, override_config=override).hf_config


def value_head():
    reached.clear()
    cfg = hf_config()
    cfg.num_labels, cfg.classifier_dropout = 1, 0.0
    try:
        model = load_valuehead_model(work, torch.float32, cfg, False)
    except Exception as error:
        return {"reached": list(reached), "error": type(error).__name__}
    inner = getattr(model, "pretrained_model", model)
    return {"reached": list(reached), "loaded": type(model).__name__,
            "attn": inner.config._attn_implementation,
            "shape": list(inner(torch.ones(1, 4, dtype=torch.long)).logits.shape)}


@ray.remote(num_cpus=1)
def worker_env():
    return os.environ.get("VERL_ATTN_IMPLEMENTATION")


def worker(runtime_env):
    task = worker_env.options(runtime_env={"env_vars": runtime_env["env_vars"]})
    return ray.get(task.remote(), timeout=120)


def look(value):
    global fail_first
    os.environ.pop("VERL_ATTN_IMPLEMENTATION", None)
    if value is not None:
        os.environ["VERL_ATTN_IMPLEMENTATION"] = value
    out = {"default": hf_config()._attn_implementation,
           "override": hf_config(attn_implementation="eager")._attn_implementation}
    for place, fail_first in (("first", False), ("second", True)):
        out[place] = value_head()
    runtime_env = get_ppo_ray_runtime_env()
    out["forwarded"] = runtime_env["env_vars"].get("VERL_ATTN_IMPLEMENTATION")
    if value == "sdpa":
        out["worker"] = worker(runtime_env)
    return out


print("RESULT", json.dumps({"unset": look(None), "empty": look(""), "sdpa": look("sdpa")}), flush=True)
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    work = tmp_path_factory.mktemp("attn")
    (work / "trl").mkdir()
    (work / "trl" / "__init__.py").write_text(TRL)
    (work / "probe.py").write_text(PROBE)
    return run_probe(work, work / "model")


def run_probe(work: Path, *args: object) -> dict[str, Any]:
    """Runs probe.py (its own folder, with the stand-ins, comes first on sys.path) and reads its one RESULT
    line."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("VERL_", "RAY_"))}
    env |= {"HOME": str(work), "HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    env["VERL_FLOAT32_EAGER"] = "0"  # should the P40 patch be selected, too, and this be a P40
    ray_dir = tempfile.mkdtemp(prefix="pq", dir="/tmp")  # short: a Unix socket path ends at 107 bytes
    try:
        child = subprocess.run(
            [sys.executable, str(work / "probe.py"), *map(str, args), ray_dir],
            cwd=work, env=env, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    finally:
        shutil.rmtree(ray_dir, ignore_errors=True)
    results = [line for line in child.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, f"the probe failed:\n{child.stdout[-2000:]}\n{child.stderr[-4000:]}"
    return json.loads(results[-1].removeprefix("RESULT "))


def test_model_config_default_is_the_variable(seen: dict[str, Any]) -> None:
    """Without the patch HFModelConfig asks for flash_attention_2 whatever the variable says."""
    assert seen["sdpa"]["default"] == "sdpa"


def test_token_classifier_loads_without_flash_attn(seen: dict[str, Any]) -> None:
    """Without the patch flash_attention_2 reaches from_pretrained, and loading dies where flash-attn is
    missing."""
    first = seen["sdpa"]["first"]
    assert first["reached"] == [["AutoModelForTokenClassification", "sdpa"]]
    assert first["attn"] == "sdpa" and first["shape"] == [1, 4, 1]


def test_trl_value_head_loads_without_flash_attn(seen: dict[str, Any]) -> None:
    """Without the patch the second place, behind trl, asks for flash_attention_2 too."""
    second = seen["sdpa"]["second"]
    assert second["reached"][0] == ["AutoModelForTokenClassification", "sdpa"]
    assert second["reached"][1:] == [["AutoModelForCausalLM", "sdpa"]]
    assert second["loaded"] == "AutoModelForCausalLMWithValueHead" and second["attn"] == "sdpa"


def test_ray_worker_gets_the_variable(seen: dict[str, Any]) -> None:
    """Without the patch a worker of a raylet that was started without the variable does not have it."""
    assert seen["sdpa"]["worker"] == "sdpa"


@pytest.mark.parametrize("value", ["unset", "empty"])
def test_unset_is_upstream(seen: dict[str, Any], value: str) -> None:
    """Unset or empty: flash_attention_2 reaches every place, and nothing is forwarded. Same with and
    without it."""
    look = seen[value]
    assert look["default"] == "flash_attention_2"
    reached = look["first"]["reached"] + look["second"]["reached"]
    assert {attn for _, attn in reached} == {"flash_attention_2"}
    assert not look["forwarded"]


def test_explicit_override_wins(seen: dict[str, Any]) -> None:
    """override_config.attn_implementation is the user's own word, with and without the patch."""
    assert {look["override"] for look in seen.values()} == {"eager"}
