"""Every rank's number summed over all ranks: 1 + 2 + … + N. Prints one JSON document.

Question: {"ranks": N or null, "backend": NAME or ""}. Without a number there is one rank a device, or two gloo ranks on
CPUs where torch sees no device.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

SECONDS = 300
MARK = "patchq-rank:"


def rank(number: int, world: int, backend: str, on_device: bool) -> None:
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", number) if on_device else torch.device("cpu")
    if on_device:
        torch.cuda.set_device(device)
    dist.init_process_group(backend, rank=number, world_size=world, timeout=timedelta(seconds=SECONDS))
    value = torch.tensor([float(number + 1)], device=device)
    dist.all_reduce(value)
    print(MARK + json.dumps({"rank": number, "sum": value.item(), "device": str(device)}), flush=True)
    dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def spread(world: int, backend: str, on_device: bool) -> dict[str, Any]:
    """Start the ranks and gather what each says; one that fails ends the wait for the others."""
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    words = [str(world), backend, str(int(on_device))]
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, str(number), *words], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL, text=True,
        )
        for number in range(world)
    ]  # fmt: skip
    until = time.monotonic() + SECONDS
    while any(one.poll() is None for one in ranks) and not any(one.poll() for one in ranks):
        if time.monotonic() > until:
            break
        time.sleep(0.05)
    stuck = [number for number, one in enumerate(ranks) if one.poll() is None]
    for one in ranks:
        if one.poll() is None:
            one.kill()
    said = [one.communicate() for one in ranks]
    sums = [json.loads(line.partition(MARK)[2]) for out, _ in said for line in out.splitlines() if MARK in line]
    errors = {
        number: (err.strip().splitlines() or [f"exit status {one.returncode}"])[-1]
        for number, (one, (_, err)) in enumerate(zip(ranks, said, strict=True))
        if one.returncode and number not in stuck
    }
    return {"world": world, "backend": backend, "sums": sums, "errors": errors, "stuck": stuck}


def answer(question: dict[str, Any]) -> dict[str, Any]:
    try:
        import torch
    except ImportError as error:
        return {"not_run": f"torch cannot be imported: {error}"}
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    world = int(question.get("ranks") or devices or 2)
    on_device = 0 < world <= devices
    return spread(world, question.get("backend") or ("nccl" if on_device else "gloo"), on_device)


def main() -> None:
    sys.path.pop(0)  # the folder of this script
    if sys.argv[1:]:
        rank(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] == "1")
        return
    print("\n" + json.dumps(answer(json.load(sys.stdin))))


if __name__ == "__main__":
    main()
