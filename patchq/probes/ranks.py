"""Starts the ranks of a piece of work and gathers what each says. Prints one JSON document.

Question: {"work": "all_reduce" or "fsdp", "ranks": N or null, "backend": NAME or "", "seconds": for all of them}; the
rest is for the work's own script beside this one, which every rank runs by `rank`. Without a number there is one rank a
device, or two on CPUs where torch sees no device.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MARK = "patchq-rank:"  # a rank prints {"stage": NAME} as it goes on, and {"answer": {…}} at last
MADE = ".made-by-patchq"  # in a checkpoint folder that may be written again
SECONDS = 300


def start(words: list[str], question: dict[str, Any], env: dict[str, str]) -> subprocess.Popen[str]:
    one = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           text=True, errors="replace")  # fmt: skip
    assert one.stdin
    one.stdin.write(json.dumps(question))
    one.stdin.close()
    one.stdin = None  # communicate() would flush it
    return one


def spread(question: dict[str, Any], world: int, backend: str, kind: str) -> list[dict[str, Any]]:
    """What each rank says."""
    with tempfile.TemporaryDirectory(prefix=".patchq-ranks-", dir=".") as room:
        return gathered({**question, "meeting": os.path.abspath(f"{room}/meeting")}, world, backend, kind)


def gathered(question: dict[str, Any], world: int, backend: str, kind: str) -> list[dict[str, Any]]:
    """What each rank says. One that fails ends the wait for the others, which hang without it."""
    script = str(Path(__file__).with_name("rank.py"))
    words = [str(world), backend, kind, question["work"]]
    ranks = [
        start([sys.executable, "-s", "-B", script, str(number), *words], question,
              {**os.environ, "RANK": str(number), "LOCAL_RANK": str(number), "WORLD_SIZE": str(world)})
        for number in range(world)
    ]  # fmt: skip
    until = time.monotonic() + float(question.get("seconds", SECONDS))
    while (
        time.monotonic() < until and any(one.poll() is None for one in ranks) and not any(one.poll() for one in ranks)
    ):
        time.sleep(0.05)
    running = [one.poll() is None for one in ranks]
    for one in ranks:
        one.kill()
    is_late = not any(one.poll() for one, left in zip(ranks, running, strict=True) if not left)
    return [
        {"rank": number, **said(*one.communicate(), one.returncode, left, is_late)}
        for number, (one, left) in enumerate(zip(ranks, running, strict=True))
    ]


def said(out: str, err: str, code: int, left: bool, is_late: bool) -> dict[str, Any]:
    """A rank's answer, its last stage and how many it had; its error, unless it only waited for one that failed."""
    told = [json.loads(line.partition(MARK)[2]) for line in out.splitlines() if MARK in line]
    stages = ["its start", *(one["stage"] for one in told if "stage" in one)]
    answer = next((one["answer"] for one in told if "answer" in one), None)
    error = ""
    if left:
        error = "did not end in time" if is_late else ""
    elif code:
        lines = [line for line in err.splitlines() if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
        error = f"killed by {signal.Signals(-code).name}" if code < 0 else (lines or [f"exit status {code}"])[-1]
    elif answer is None:
        error = "ended without an answer"
    return {"stage": stages[-1], "stages": len(stages), "answer": answer, "error": error}


def link_rate() -> float | None:
    """GB/s of all NVLinks of the first device in one direction, as its driver says; None where there are none."""
    tool = shutil.which("nvidia-smi")
    if not tool:
        return None
    words = [tool, "nvlink", "--status", "-i", "0"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    rates = re.findall(r"Link \d+: ([\d.]+) GB/s", done.stdout)
    return sum(map(float, rates)) or None


def prepared(folder: str) -> str:
    """Why a checkpoint may not be written below `folder`; empty once there is room for one."""
    place = Path(folder)
    if place.exists() and any(place.iterdir()) and not (place / MADE).is_file():
        return f"{place} holds something else: name an empty folder for the shards"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / MADE).touch()
    return ""


def answer(question: dict[str, Any]) -> dict[str, Any]:
    try:
        import torch
    except ImportError as error:
        return {"not_run": f"torch cannot be imported: {error}"}
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    world = int(question.get("ranks") or devices or 2)
    kind = "cuda" if world <= devices else "cpu"
    backend = question.get("backend") or ("nccl" if kind == "cuda" else "gloo")
    facts = {"world": world, "backend": backend, "torch": torch.__version__}
    if question["work"] == "fsdp":
        question["folder"] = os.path.abspath(question.get("folder") or "fsdp")
        if refused := prepared(question["folder"]):
            return {"not_run": refused}
        facts["ranks"] = spread(question, world, backend, kind)
        if all(one["answer"] for one in facts["ranks"]):
            facts["resumed"] = spread({**question, "resume": True}, world, backend, kind)
        return facts
    facts["ranks"] = spread(question, world, backend, kind)
    return {**facts, "link": link_rate() if kind == "cuda" and world > 1 else None}


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    print("\n" + json.dumps(answer(json.load(sys.stdin))))


if __name__ == "__main__":
    main()
