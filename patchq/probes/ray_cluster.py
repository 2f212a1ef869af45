"""Whether Ray is whole, its address answers, its resources are there, and what its actors see.

Question: {"address": HOST:PORT or "", "modules": [NAME...], "names": [VARIABLE...], "seconds": N}. Without an address
(and without RAY_ADDRESS) a cluster is started for the question and ends with it. Prints one JSON document.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
from typing import Any


def describe(modules: list[str], names: list[str]) -> dict[str, Any]:
    """What a process sees: interpreter, import path, origins, variables. Runs in actors too."""
    import importlib.util
    import os
    import platform
    import socket
    import sys

    def origin(name: str) -> Any:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
        return spec.origin if spec else None

    return {
        "host": socket.gethostname(),
        "executable": sys.executable,
        "version": platform.python_version(),
        "path": sys.path,
        "origins": {name: origin(name) for name in modules},
        "variables": {name: os.environ[name] for name in names if name in os.environ},
    }


def reachable(address: str, seconds: float) -> str:
    """Why nothing answers at an address; empty where something does."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not port.isdigit():
        return "is not HOST:PORT"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=seconds):
            return ""
    except OSError as error:
        return f"{error.strerror or error}"


def actors(ray: Any, question: dict[str, Any]) -> list[dict[str, Any]]:
    """What an actor on each living node of the cluster sees."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    remote = ray.remote(num_cpus=0)(describe)
    seen = []
    for node in ray.nodes():
        if node["Alive"]:
            pinned = remote.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
            seen.append(pinned.remote(question.get("modules", []), question.get("names", [])))
    answers: list[dict[str, Any]] = ray.get(seen, timeout=question.get("seconds", 120))
    return answers


def hand_in_token(address: str) -> None:
    """Do about a token what Ray does for training, but leave none in the home.

    Newer Rays ask for a token in a cluster that `ray.init` starts, and write a new one to `~/.ray`, which every later
    `ray start` would ask for. A cluster that Ray finds by itself gets this user's token, one in `RAY_ADDRESS` does not
    (`ray._private.authentication.authentication_token_setup`).
    """
    if "RAY_AUTH_MODE" in os.environ or os.environ.get("RAY_ADDRESS", "auto") not in ("", "auto"):
        return
    place = os.environ.get("RAY_AUTH_TOKEN_PATH") or os.path.expanduser("~/.ray/auth_token")
    if not (os.environ.get("RAY_AUTH_TOKEN") or os.path.exists(place)):
        if address:
            return
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    os.environ["RAY_AUTH_MODE"] = "token"


def causes(error: BaseException) -> list[str]:
    """The error and what caused it, outermost first: Ray's own words often end at "Failed to connect"."""
    line = f"{type(error).__name__}: {error}"
    return [line, *(causes(error.__cause__) if error.__cause__ else [])]


def answer(question: dict[str, Any]) -> dict[str, Any]:
    address = question.get("address") or os.environ.get("RAY_ADDRESS", "")
    hand_in_token(address)
    try:
        import ray
    except ImportError as error:
        return {"not_run": f"ray cannot be imported: {error}"}
    lacking = [name for name in ("init", "remote", "get", "shutdown") if not hasattr(ray, name)]
    facts: dict[str, Any] = {"origin": getattr(ray, "__file__", None), "lacking": lacking}
    if lacking:
        return facts
    facts |= {
        "version": ray.__version__,
        "address": address,
        "mine": describe(question.get("modules", []), question.get("names", [])),
    }
    if address and address != "auto":
        facts["unreachable"] = reachable(address, 5)
        if facts["unreachable"]:
            return facts
    options = {} if address else {"include_dashboard": False, "num_cpus": 1}
    try:
        ray.init(address=address or None, log_to_driver=False, logging_level="ERROR", **options)
        facts["resources"] = ray.cluster_resources()
        facts["actors"] = actors(ray, question)
    except Exception as error:
        said = causes(error)
        facts["error"] = said[0].splitlines()[0]
        facts["asks_token"] = any("InvalidAuthToken" in line for line in said)
    finally:
        ray.shutdown()
    return facts


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    print("\n" + json.dumps(answer(json.load(sys.stdin)), default=str), flush=True)


if __name__ == "__main__":
    main()
