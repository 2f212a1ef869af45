"""What environment variables become on the way down, and which launchers the shell would find.

Question: {"names": [VARIABLE...], "launchers": [PROGRAM...]}. Each process of the chain (the one that the shell starts,
its child, its grandchild) tells what it was given and what Python made of it. Prints one JSON document.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

GENERATIONS = 3


def given() -> dict[str, str]:
    """The environment that this process was started with, before any Python code could change it."""
    pairs = (item.partition(b"=") for item in Path("/proc/self/environ").read_bytes().split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def chain(names: list[str], generation: int = 1) -> list[dict[str, dict[str, str]]]:
    """This process's variables and those of its descendants, one entry a generation."""
    first = given()
    mine = {
        "given": {name: first[name] for name in names if name in first},
        "python": {name: os.environ[name] for name in names if name in os.environ},
    }
    if generation == GENERATIONS:
        return [mine]
    argv = [sys.executable, "-B", __file__, str(generation + 1)]
    # No pipe, which may be held open by what start-up leaves running; here, in a folder that goes.
    with tempfile.TemporaryFile(dir=".") as out:
        subprocess.run(argv, input=json.dumps(names).encode(), stdout=out, check=True)
        out.seek(0)
        rest = next(line for line in reversed(out.read().splitlines()) if line.startswith(b'[{"given": '))
    return [mine, *json.loads(rest)]


def launcher(name: str) -> dict[str, Any]:
    """The file that a launcher's name finds, and the interpreter that its first line names."""
    path = shutil.which(name)
    if path is None:
        return {"path": None}
    if not os.path.isfile(path):
        return {"path": path, "interpreter": "nothing: it is no regular file", "ours": False}
    with open(path, "rb") as stream:
        head = stream.read(1024)
    interpreter = interpreter_of(head.decode("utf-8", "replace"))
    return {"path": path, "interpreter": interpreter, "ours": is_ours(interpreter) if interpreter else None}


def interpreter_of(head: str) -> str | None:
    """The program of a `#!` line: direct, by way of env, or in the form that installers use for long paths."""
    first, _, rest = head.partition("\n")
    if not first.startswith("#!"):
        return None
    words = first[2:].split()
    if not words:
        return None
    long = re.match(r"'''exec' (?:\"([^\"]+)\"|(\S+))", rest)
    if words[0].endswith("/sh") and long:
        return long[1] or long[2]
    if words[0].endswith("/env"):
        program = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), "")
        return shutil.which(program) or program
    return words[0]


def is_ours(interpreter: str) -> bool:
    """Whether it runs in this environment."""
    return home(interpreter) == home(sys.executable)


def home(interpreter: str) -> str:
    """What tells environments apart: a virtual environment's folder, else the very binary.

    Virtual environments link to one binary, and one binary has many names.
    """
    folder = os.path.dirname(os.path.dirname(os.path.abspath(interpreter)))
    is_virtual = os.path.exists(os.path.join(folder, "pyvenv.cfg"))
    return os.path.realpath(folder if is_virtual else interpreter)


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    question = json.load(sys.stdin)
    if sys.argv[1:]:
        print("\n" + json.dumps(chain(question, int(sys.argv[1]))))
        return
    answer = {
        "executable": sys.executable,
        "generations": chain(question["names"]),
        "launchers": {name: launcher(name) for name in question["launchers"]},
    }
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    main()
