"""A training environment for CPUs: built from the package index once a session, or named by
PATCHQ_TEST_TRAINING_PYTHON. One with what verl imports is named by PATCHQ_TEST_VERL_PYTHON, and never built here."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from patchq.exclusive import exclusive

# Read here: tests run without PATCHQ_ variables.
TRAINING_PYTHON, VERL_PYTHON = (os.environ.get(f"PATCHQ_TEST_{name}_PYTHON") for name in ("TRAINING", "VERL"))
# torch first and by its exact version: anything looser brings gigabytes of CUDA.
TORCH = "torch==2.13.0"
LLAMAFACTORY = (
    "transformers>=5.0,<5.6", "datasets>=2.16.0,<=4.0.0", "accelerate>=1.3.0,<=1.11.0", "peft>=0.18.0,<=0.18.1",
    "trl>=0.18.0,<=0.24.0", "torchdata>=0.10.0,<=0.11.0", "tyro<0.9.0", "einops", "numpy", "pandas", "scipy",
    "sentencepiece", "tiktoken", "modelscope", "hf-transfer", "safetensors", "av>=10.0.0,<=16.0.0", "fire",
    "omegaconf", "packaging", "protobuf", "pyyaml", "pydantic", "uvicorn", "fastapi", "sse-starlette",
    "matplotlib>=3.7.0", "setuptools", "wheel", "ninja", "hjson", "py-cpuinfo", "msgpack", "psutil",
    "ray[default]>=2.41", "pyarrow>=19.0.0",
)  # fmt: skip
DEEPSPEED = "deepspeed==0.18.4"

# What LLaMA-Factory imports at its top and uses for audio only; the index's build does not load beside a CPU torch.
AUDIO = 'def load(*words, **options):\n    raise RuntimeError("there is no torchaudio here")\n'
# Every rank says which allocator settings it was started with.
RANKS_SPEAK = """\
import os
if "LOCAL_RANK" in os.environ:
    said = [f"{name}={os.environ.get(name)}" for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")]
    os.write(1, f"\\nrank={os.environ['RANK']}/{os.environ['WORLD_SIZE']} {' '.join(said)}\\n".encode())
"""
MODEL = """\
import sys, torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

torch.manual_seed(0)
corpus = [f"What is {a} plus {b}? The answer is {a + b}." for a in range(40) for b in range(10)]
corpus += ["You are a helpful assistant. system user assistant"] * 20
words = Tokenizer(models.BPE())
words.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
words.decoder = decoders.ByteLevel()
special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
alphabet = pre_tokenizers.ByteLevel.alphabet()
trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, special_tokens=special)
words.train_from_iterator(corpus, trainer)
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=words, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=512
)
tokenizer.save_pretrained(sys.argv[1])
config = Qwen3Config(
    vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, max_position_embeddings=512, tie_word_embeddings=False, bos_token_id=None,
    eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
)
Qwen3ForCausalLM(config).save_pretrained(sys.argv[1])
"""


def training_python(room: Path) -> Path:
    """The interpreter, built below `room` by the first who asks; skips, with the reason, where it cannot be built."""
    if TRAINING_PYTHON:
        return Path(TRAINING_PYTHON)
    folder, said = room / "training", room / "training.txt"
    with exclusive(room / "training.lock", "pytest", free="the training environment", wait=3600):
        if not said.exists():
            said.write_text(_built(folder))
    if why := said.read_text():
        pytest.skip(f"the training environment cannot be built: {why}")
    return folder / "bin/python"


def _built(folder: Path) -> str:
    """Build the environment; why that failed, in a line, or nothing."""
    if not (3, 10) <= sys.version_info[:2] <= (3, 13):
        return "the training packages have no wheels for this Python"
    venv.create(folder, with_pip=True)
    for words in ([TORCH], list(LLAMAFACTORY), ["--no-build-isolation", "--no-deps", DEEPSPEED]):
        pip = [folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
        done = subprocess.run(pip, capture_output=True, text=True, check=False)
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            return f"pip install {words[0]}: {said[0]}"
    return ""
