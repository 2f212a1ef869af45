"""What the CUDA allocator really uses, by torch's own snapshot, in children of this process. Prints one JSON document.

Question: {"launcher": [WORD...], "combinations": [{VARIABLE: VALUE...}...]}. The first child gets the environment as it
is, started through `launcher` if there is one; then one child for each combination of the two variable names.
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
    block = torch.zeros(1, device="cuda")
    settings = torch.cuda.memory._snapshot().get("allocator_settings", {})
    del block
    seen = {name: os.environ.get(name) for name in NAMES}
    plain = {
        name: value if isinstance(value, (bool, int, float, str)) else str(value) for name, value in settings.items()
    }
    print(MARK + json.dumps({"torch": torch.__version__, "seen": seen, "settings": plain}))


def told(launcher: list[str], env: dict[str, str]) -> dict[str, Any]:
    argv = [*(launcher or [sys.executable]), __file__, "child"]
    try:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"error": str(error)}
    lines = [line for line in done.stdout.splitlines() if MARK in line]
    if not lines:
        return {"error": (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]}
    answer: dict[str, Any] = json.loads(lines[0].partition(MARK)[2])
    return answer


def main() -> None:
    sys.path.pop(0)  # the folder of this script
    if sys.argv[1:] == ["child"]:
        child()
        return
    question = json.load(sys.stdin)
    mine = told(question.get("launcher", []), dict(os.environ))
    if "not_run" in mine:
        print("\n" + json.dumps({"not_run": mine["not_run"]}))
        return
    bare = {name: value for name, value in os.environ.items() if name not in NAMES}
    combinations = [{"given": given, **told([], {**bare, **given})} for given in question.get("combinations", [])]
    print("\n" + json.dumps({"in_force": mine, "combinations": combinations}))


if __name__ == "__main__":
    main()
