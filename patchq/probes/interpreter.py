"""Which interpreter this is and what is installed in it. Standard library only; prints one JSON document."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys


def freeze() -> str:
    done = subprocess.run([sys.executable, "-m", "pip", "freeze", "--all"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout
    from importlib.metadata import distributions

    return "".join(sorted(f"{dist.metadata['Name']}=={dist.version}\n" for dist in distributions()))


def main() -> None:
    question = json.load(sys.stdin)
    answer = {
        "executable": sys.executable,
        "real": os.path.realpath(sys.executable),
        "prefix": sys.prefix,
        "version": platform.python_version(),
        "platform": platform.platform(),
        "path": sys.path[1:],
    }
    if question.get("freeze"):
        answer["freeze"] = freeze()
    print(json.dumps(answer))


main()
