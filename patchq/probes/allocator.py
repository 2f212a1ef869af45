"""What the CUDA allocator really uses, by torch's own snapshot, in children of this process. Prints one JSON document.

Question: {"launcher": [WORD...], "combinations": [{VARIABLE: VALUE...}...]}. The first child gets the environment as it
is, started through `launcher` if there is one, which may start several ranks; then one child for each combination of
the two variable names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

NAMES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
SECONDS = 240
MARK = "patchq-allocator:"


def child() -> None:
    """Allocate once, so that the settings are in force, and print them."""
    import torch

    if not torch.cuda.is_available():
        print(MARK + json.dumps({"not_run": "torch sees no device", "torch": torch.__version__}))
        return
    block = torch.zeros(1, device=f"cuda:{int(os.environ.get('LOCAL_RANK') or 0) % torch.cuda.device_count()}")
    settings = torch.cuda.memory._snapshot().get("allocator_settings", {})
    del block
    seen = {name: os.environ.get(name) for name in NAMES}
    plain = {
        name: value if isinstance(value, (bool, int, float, str)) else str(value) for name, value in settings.items()
    }
    print(MARK + json.dumps({"torch": torch.__version__, "seen": seen, "settings": plain, **rank_of()}), flush=True)


def rank_of() -> dict[str, int]:
    """Which rank of how many this is, where a launcher says so."""
    number, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    return {"rank": int(number), "world": int(world)} if number.isdigit() and world.isdigit() else {}


def told(launcher: list[str], env: dict[str, str]) -> list[dict[str, Any]]:
    """What each child says that the launcher starts, or one error."""
    argv = [*(launcher or [sys.executable]), __file__, "child"]
    try:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return [{"error": str(error)}]
    # Ranks share a pipe: two may stand on one line.
    texts = [text for line in done.stdout.splitlines() for text in line.split(MARK)[1:]]
    if not texts or done.returncode:
        return [{"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}]
    return sorted((json.JSONDecoder().raw_decode(text)[0] for text in texts), key=lambda one: one.get("rank", 0))


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    if sys.argv[1:] == ["child"]:
        child()
        return
    question = json.load(sys.stdin)
    mine = told(question.get("launcher", []), dict(os.environ))
    if any("not_run" in one for one in mine):
        print("\n" + json.dumps({"not_run": next(one["not_run"] for one in mine if "not_run" in one)}))
        return
    bare = {name: value for name, value in os.environ.items() if name not in NAMES}
    combinations = [{"given": given, **told([], {**bare, **given})[0]} for given in question.get("combinations", [])]
    print("\n" + json.dumps({"ranks": mine, "combinations": combinations}))


if __name__ == "__main__":
    main()
