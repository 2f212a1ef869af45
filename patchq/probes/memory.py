"""How much device memory is free, and the largest single block that can really be had. Prints one JSON document.

Question: {}. The block is found by allocating: free memory in pieces looks the same as free memory in one.
"""

from __future__ import annotations

import json
import sys
from typing import Any

GRAIN = 64 << 20


def largest(torch: Any, index: int, free: int) -> int:
    """The largest block in bytes, to within `GRAIN`."""
    low, high = 0, free + GRAIN
    while high - low > GRAIN:
        middle = (low + high) // 2
        try:
            block = torch.empty(middle, dtype=torch.uint8, device=f"cuda:{index}")
            del block
            low = middle
        except RuntimeError:
            high = middle
        torch.cuda.empty_cache()
    return low


def device(torch: Any, index: int) -> dict[str, Any]:
    free, total = torch.cuda.mem_get_info(index)
    name = torch.cuda.get_device_name(index)
    return {"index": index, "name": name, "total": total, "free": free, "largest": largest(torch, index, free)}


def answer() -> dict[str, Any]:
    try:
        import torch
    except ImportError as error:
        return {"not_run": f"torch cannot be imported: {error}"}
    if not torch.cuda.is_available():
        return {"not_run": "torch sees no device"}
    return {"devices": [device(torch, index) for index in range(torch.cuda.device_count())]}


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    json.load(sys.stdin)
    print("\n" + json.dumps(answer()))


if __name__ == "__main__":
    main()
