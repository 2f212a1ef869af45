"""Where packages would be imported from, and what importing them gives. Prints one JSON document.

Question: {"locate": [PACKAGE...], "import": [MODULE...]}.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import traceback
from typing import Any


def locate(name: str) -> Any:
    try:
        spec = importlib.util.find_spec(name)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    if spec is None:
        return {"error": "not found"}
    return {"origin": spec.origin, "folders": list(spec.submodule_search_locations or [])}


def load(name: str) -> Any:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        return {"missing": error.name or str(error), "error": str(error), "trace": traceback.format_exc()}
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
    return {"file": getattr(module, "__file__", None), "version": str(getattr(module, "__version__", ""))}


def main() -> None:
    question = json.load(sys.stdin)
    sys.path.pop(0)  # the folder of this script
    answer = {
        "located": {name: locate(name) for name in question.get("locate", [])},
        "imported": {name: load(name) for name in question.get("import", [])},
    }
    sys.stdout.flush()
    print("\n" + json.dumps(answer))


main()
