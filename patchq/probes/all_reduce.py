"""One rank of three sums: every rank's number, over all ranks and within groups; random bf16; and a timed one.

Run by `rank`. Question: {"groups": size of a group or null, "mib": MiB of random bf16 or null, "timed_mib": MiB or
null}. By default 64 MiB on devices and 1 on CPUs are compared with their sum in float64, and with several devices 1024
MiB are timed.
"""

from __future__ import annotations

import time
from typing import Any

REPEATS = 5
ROUNDOFF = 2.0**-8  # of bfloat16: N numbers added in any order are off by at most N of it times the sum of their sizes


def random(number: int, elements: int) -> Any:
    """The same numbers for a rank wherever they are made."""
    import torch

    return torch.randn(elements, generator=torch.Generator().manual_seed(number)).bfloat16()


def random_sum(number: int, world: int, mib: float, device: Any) -> dict[str, float]:
    """The largest error of a sum of random bf16, as a share of the sum of the sizes, and what rounding explains."""
    import torch
    import torch.distributed as dist

    elements = int(mib * (1 << 20)) // 2
    value = random(number, elements).to(device)
    dist.all_reduce(value)
    exact = torch.zeros(elements, dtype=torch.float64, device=device)
    sizes = torch.zeros_like(exact)
    for other in range(world):
        part = random(other, elements).to(device)
        exact += part
        sizes += part.abs()
    error = ((value.double() - exact).abs() / sizes.clamp(min=1e-30)).max().item()
    return {"mib": mib, "error": error, "bound": world * ROUNDOFF}


def timed(mib: float, device: Any) -> dict[str, float]:
    """The median seconds of an all-reduce; GB/s on the bus is 2 (N - 1) / N of the bytes a second."""
    import torch
    import torch.distributed as dist

    value = torch.zeros(int(mib * (1 << 20)) // 2, dtype=torch.bfloat16, device=device)
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    seconds = []
    for _ in range(2 + REPEATS):
        dist.barrier()
        wait()
        begun = time.perf_counter()
        dist.all_reduce(value)
        wait()
        seconds.append(time.perf_counter() - begun)
    world = dist.get_world_size()
    median = sorted(seconds[2:])[REPEATS // 2]
    return {"mib": mib, "seconds": median, "bus": 2 * (world - 1) / world * mib * (1 << 20) / median / 1e9}


def group_sum(number: int, world: int, size: int, device: Any) -> float:
    import torch
    import torch.distributed as dist

    groups = [dist.new_group(list(range(first, first + size))) for first in range(0, world, size)]
    value = torch.tensor([float(number + 1)], device=device)
    dist.all_reduce(value, group=groups[number // size])
    return float(value.item())


def work(rank: Any, question: dict[str, Any]) -> dict[str, Any]:
    import torch
    import torch.distributed as dist

    value = torch.tensor([float(rank.number + 1)], device=rank.device)
    dist.all_reduce(value)
    answer: dict[str, Any] = {"sum": value.item()}
    rank.tell("summed the numbers")
    if size := question.get("groups"):
        answer["group_sum"] = group_sum(rank.number, rank.world, size, rank.device)
        rank.tell("summed within groups")
    on_devices = rank.device.type == "cuda"
    mib = question.get("mib")
    answer["random"] = random_sum(
        rank.number, rank.world, (64 if on_devices else 1) if mib is None else mib, rank.device
    )
    rank.tell("summed random numbers")
    mib = question.get("timed_mib")
    if mib := (1024 if on_devices and rank.world > 1 else 0) if mib is None else mib:
        answer["timed"] = timed(mib, rank.device)
    return answer
