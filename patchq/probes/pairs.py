"""Whether flash-attn, where it is installed, loads its extension beside this torch. Prints one JSON document.

Question: {}. torch is imported only where there is a flash-attn to load.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
from typing import Any

EXTENSION = "flash_attn_2_cuda"


def flash_attn() -> dict[str, Any]:
    try:
        version = importlib.metadata.version("flash-attn")
    except importlib.metadata.PackageNotFoundError:
        return {"flash_attn": None}
    answer: dict[str, Any] = {"flash_attn": version}
    try:
        answer["torch"] = importlib.import_module("torch").__version__
        importlib.import_module("flash_attn")
        answer["extension"] = importlib.import_module(EXTENSION).__file__
    except BaseException as error:
        answer["error"] = f"{type(error).__name__}: {error}"
    return answer


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    json.load(sys.stdin)
    print("\n" + json.dumps(flash_attn()))


if __name__ == "__main__":
    main()
