"""Effect of device/attn-implementation-from-env.patch: the attn_implementation that reaches transformers.

A tiny Qwen2 is loaded through verl with VERL_ATTN_IMPLEMENTATION unset, empty and set, and what reaches from_pretrained
is noted. Stand-in: trl (its value-head wrapper only), so that the second loading place of load_valuehead_model is
reached. Everything else is real, the Ray worker included.
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
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = pytest.mark.needs("torch", "transformers", "ray", "tensordict")

NAME = "VERL_ATTN_IMPLEMENTATION"
SETTINGS = {"unset": None, "empty": "", "sdpa": "sdpa"}
Variables = dict[str, str]


class ValueHead:
    """Stands in for trl's AutoModelForCausalLMWithValueHead."""

    @classmethod
    def from_pretrained(cls, model: Any) -> Any:
        wrapped = cls()
        wrapped.pretrained_model = model
        return wrapped

    def named_parameters(self) -> Any:
        return self.pretrained_model.named_parameters()


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    folder = str(tmp_path_factory.mktemp("model"))
    config = Qwen2Config(
        vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=64, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def set_variable(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERL_FLOAT32_EAGER", "0")  # should the P40 patch be selected, too, and this be a P40
    monkeypatch.delenv(NAME, raising=False)
    if SETTINGS[setting] is not None:
        monkeypatch.setenv(NAME, SETTINGS[setting])


def default_config(model_folder: str, **override: str) -> Any:
    from verl.workers.config import HFModelConfig

    return HFModelConfig(path=model_folder, load_tokenizer=False, override_config=override).hf_config


class Loading:
    """Loads a value-head model through verl and keeps what reaches from_pretrained, in `reached`."""

    def __init__(self, model_folder: str, is_token_classifier: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        import torch
        import transformers
        import verl.utils.model

        self.reached: list[tuple[str, Any]] = []
        self.model = self.logits = None
        trl = ModuleType("trl")
        trl.AutoModelForCausalLMWithValueHead = ValueHead
        monkeypatch.setitem(sys.modules, "trl", trl)
        monkeypatch.setattr(verl.utils.model, "is_trl_available", lambda: True)  # it remembers its answer
        for name in ("AutoModelForTokenClassification", "AutoModelForCausalLM"):
            refuse = name == "AutoModelForTokenClassification" and not is_token_classifier
            self.spy(getattr(transformers, name), refuse, monkeypatch)
        config = default_config(model_folder)
        config.num_labels, config.classifier_dropout = 1, 0.0
        try:
            self.model = verl.utils.model.load_valuehead_model(model_folder, torch.float32, config, False)
            self.inner = getattr(self.model, "pretrained_model", self.model)
            self.logits = self.inner(torch.ones(1, 4, dtype=torch.long)).logits
        except Exception as error:  # flash_attention_2, which a CPU does not have
            self.error = error

    def spy(self, auto_class: Any, refuse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        original = auto_class.from_pretrained

        def from_pretrained(*args: Any, **kwargs: Any) -> Any:
            self.reached.append((auto_class.__name__, kwargs.get("attn_implementation")))
            if refuse:
                raise ValueError("not a token classifier")
            return original(*args, **kwargs)

        monkeypatch.setattr(auto_class, "from_pretrained", from_pretrained)


def test_model_config_default_is_the_variable(model_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the patch HFModelConfig asks for flash_attention_2 whatever the variable says."""
    set_variable("sdpa", monkeypatch)
    assert default_config(model_folder)._attn_implementation == "sdpa"


def test_token_classifier_loads_without_flash_attn(model_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the patch flash_attention_2 reaches from_pretrained, and loading dies where flash-attn is missing."""
    set_variable("sdpa", monkeypatch)
    loading = Loading(model_folder, True, monkeypatch)
    assert loading.reached == [("AutoModelForTokenClassification", "sdpa")]
    assert loading.inner.config._attn_implementation == "sdpa" and loading.logits.shape == (1, 4, 1)


def test_trl_value_head_loads_without_flash_attn(model_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the patch the second place, behind trl, asks for flash_attention_2 too."""
    set_variable("sdpa", monkeypatch)
    loading = Loading(model_folder, False, monkeypatch)
    assert loading.reached == [("AutoModelForTokenClassification", "sdpa"), ("AutoModelForCausalLM", "sdpa")]
    assert type(loading.model) is ValueHead and loading.inner.config._attn_implementation == "sdpa"
    assert loading.logits is not None


@pytest.mark.parametrize("setting", ["unset", "empty"])
def test_unset_is_upstream(setting: str, model_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset or empty: flash_attention_2 reaches every place, and nothing is forwarded. Same with and without it."""
    set_variable(setting, monkeypatch)
    assert default_config(model_folder)._attn_implementation == "flash_attention_2"
    for is_token_classifier in (True, False):
        with monkeypatch.context() as inner:
            reached = Loading(model_folder, is_token_classifier, inner).reached
        assert {attn for _, attn in reached} == {"flash_attention_2"}
    assert NAME not in forwarded()


@pytest.mark.parametrize("setting", SETTINGS)
def test_explicit_override_wins(setting: str, model_folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """override_config.attn_implementation is the user's own word, with and without the patch."""
    set_variable(setting, monkeypatch)
    assert default_config(model_folder, attn_implementation="eager")._attn_implementation == "eager"


def forwarded() -> Variables:
    """The variables that verl asks Ray to start its workers with."""
    from verl.trainer.constants_ppo import get_ppo_ray_runtime_env

    return get_ppo_ray_runtime_env()["env_vars"]


def test_the_variable_is_forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the patch it stays in the driver, but it is the workers that load the models."""
    set_variable("sdpa", monkeypatch)
    assert forwarded().get(NAME) == "sdpa"


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


def test_ray_worker_gets_the_variable(workers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the patch a worker of a raylet that was started without the variable does not have it."""
    assert NAME not in workers.environment({})
    set_variable("sdpa", monkeypatch)
    assert workers.environment(forwarded()).get(NAME) == "sdpa"
