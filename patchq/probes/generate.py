"""A short vLLM generation, in this process or in a Ray actor. Prints one JSON document.

Question: {"model": FOLDER, "prompt": TEXT, "tokens": N, "options": {…of vllm.LLM…}, "actor": true or false}. This is a
real file with a `__main__` guard because vLLM's spawned children import it again.
"""

from __future__ import annotations

import importlib.util
import json
import os
import secrets
import sys
from typing import Any


def generate(question: dict[str, Any]) -> dict[str, Any]:
    import sys

    import torch
    import vllm

    options = {"tensor_parallel_size": 1, "max_model_len": 512, "enforce_eager": True, **question.get("options", {})}
    llm = vllm.LLM(model=question["model"], **options)
    sampling = vllm.SamplingParams(max_tokens=int(question.get("tokens", 8)), temperature=0.0)
    output = llm.generate([question["prompt"]], sampling, use_tqdm=False)[0].outputs[0]
    return {
        "text": output.text,
        "tokens": list(output.token_ids),
        "executable": sys.executable,
        "torch": [torch.__version__, torch.__file__],
        "vllm": [vllm.__version__, vllm.__file__],
    }


def in_actor(question: dict[str, Any]) -> dict[str, Any]:
    if not (os.environ.get("RAY_ADDRESS") or os.environ.get("RAY_AUTH_MODE")):
        # Otherwise Ray writes a token to the home, and every later `ray start` asks for it.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    import ray

    gpus = question.get("gpus", 1)
    remote = ray.remote(num_gpus=gpus)(generate)
    ray.init(address=os.environ.get("RAY_ADDRESS") or None, log_to_driver=False, include_dashboard=False)
    try:
        there = ray.cluster_resources().get("GPU", 0)
        if there < gpus:  # the actor would wait for them for ever
            return {"not_run": f"the Ray cluster has {there:g} GPUs, and the actor asks for {gpus:g}"}
        answer: dict[str, Any] = ray.get(remote.remote(question))
        return answer
    finally:
        ray.shutdown()


def missing(question: dict[str, Any]) -> str:
    needed = ["vllm", "torch", *(["ray"] if question.get("actor") else [])]
    lacking = [name for name in needed if importlib.util.find_spec(name) is None]
    if lacking:
        return f"{', '.join(lacking)} not installed"
    return "" if os.path.exists(question["model"]) else f"the model {question['model']} is not there"


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    question = json.load(sys.stdin)
    work = in_actor if question.get("actor") else generate
    why = missing(question)
    answer = {"not_run": why} if why else work(question)
    print("\n" + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
