"""One rank of a piece of work. Started by `ranks` with NUMBER, WORLD, BACKEND, cpu or cuda, and the WORK as words.

Question: {"meeting": a file that all ranks share, …}; the rest is for WORK, a script beside this one whose `work` is
handed the rank and the question and returns what the rank answers.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

MARK = "patchq-rank:"
LIMIT = timedelta(seconds=300)


def tell(**words: Any) -> None:
    print(MARK + json.dumps(words), flush=True)


def work_of(name: str) -> Callable[[Rank, dict[str, Any]], dict[str, Any]]:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec and spec.loader
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    found: Callable[[Rank, dict[str, Any]], dict[str, Any]] = script.work
    return found


class Rank:
    """A process with its number among `world`, its device, and its place in the process group."""

    def __init__(self, number: int, world: int, backend: str, kind: str, meeting: str) -> None:
        import torch
        import torch.distributed as dist

        tell(stage="torch imported")
        self.number, self.world = number, world
        self.device = torch.device(kind, number) if kind == "cuda" else torch.device(kind)
        if kind == "cuda":
            torch.cuda.set_device(self.device)
        # A port that is free now may be taken by the time torch is imported; and whoever serves it has to leave last.
        self.store = dist.FileStore(meeting, world)
        dist.init_process_group(backend, store=self.store, rank=number, world_size=world, timeout=LIMIT)
        tell(stage="met the others")

    def tell(self, stage: str) -> None:
        tell(stage=stage)

    def leave(self) -> None:
        """Once all are here: one that leaves while another still reads cuts it off."""
        import torch.distributed as dist

        until = time.monotonic() + LIMIT.total_seconds()
        self.store.add("leaving", 1)
        while self.store.add("leaving", 0) < self.world and time.monotonic() < until:
            time.sleep(0.02)
        dist.destroy_process_group()


def run() -> None:
    number, world, backend, kind, name = sys.argv[1:]
    question = json.load(sys.stdin)
    rank = Rank(int(number), int(world), backend, kind, question["meeting"])
    answer = work_of(name)(rank, question)
    rank.leave()
    tell(answer={"device": str(rank.device), **answer})


def main() -> None:
    """Ends without Python's own end: gloo's threads may let go of a tensor just then, which aborts the process."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    code = 0
    try:
        run()
    except Exception:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
