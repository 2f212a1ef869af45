"""A Ray cluster that runs already keeps its own environment: an actor in that cluster is asked."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from patchq.commands.ready import Ready
from patchq.errors import PatchqError
from patchq.probe import PROBES, ask
from patchq.proof import scratch
from patchq.report import State, Step

SECONDS = 120


def running_cluster(now: Ready, variables: Mapping[str, str]) -> Iterator[Step]:
    """Whether the cluster that `ray.init` would join sees the same environment; nothing where there is none.

    `variables` is the environment of the command.
    """
    address = _address(variables)
    if not address:
        return
    if not _answers(address):
        yield Step("ray cluster", State.NOTE, f"{address} does not answer: no cluster is joined", "launch")
        return
    if not (PROBES / "ray.py").is_file():
        yield Step("ray cluster", State.NOT_RUN, f"{address} runs, and no probe asks it yet", "launch")
        return
    roots = [str(root) for root in now.launch.import_roots]
    question = {"address": address, "python": str(now.launch.python), "roots": roots}
    try:
        with scratch() as room:
            answer = ask(now.launch, "ray", question, cwd=room, timeout=SECONDS)
    except PatchqError as error:
        yield Step("ray cluster", State.FAILED, error.problems[0].what, "launch", hint=error.problems[0].hint)
        return
    yield _compared(now, address, answer)


def _compared(now: Ready, address: str, answer: Mapping[str, object]) -> Step:
    actor = answer.get("actor")
    if not isinstance(actor, dict):
        why = str(answer.get("error", "no actor answered"))
        return Step("ray cluster", State.FAILED, f"{address}: {why}", "launch")
    wanted = [str(root) for root in now.launch.import_roots]
    seen = [str(entry) for entry in actor.get("path", [])]
    differs = [f"imports without {root}" for root in wanted if root not in seen]
    if Path(str(actor.get("executable", ""))).resolve() != now.launch.python.resolve():
        differs.insert(0, f"runs {actor.get('executable')}")
    variables = actor.get("variables", {})
    for name, value in now.launch.variables:
        if isinstance(variables, dict) and variables.get(name) != value:
            differs.append(f"has {name}={variables.get(name)!r}")
    if differs:
        return Step("ray cluster", State.FAILED, f"{address} runs with another environment", "launch", tuple(differs),
                    hint="stop it (ray stop) and start it with: patchq run ... -- ray start --block")  # fmt: skip
    return Step("ray cluster", State.PASSED, f"{address} runs with this environment", "launch")


def _address(variables: Mapping[str, str]) -> str:
    """What `ray.init()` would join: `RAY_ADDRESS`, else the address that `ray start` left in its folder."""
    given = variables.get("RAY_ADDRESS", "")
    if given and given != "auto":
        return "" if given == "local" else given
    folder = Path(variables.get("RAY_TMPDIR") or variables.get("TMPDIR") or "/tmp")
    try:
        return (folder / "ray" / "ray_current_cluster").read_text().strip()
    except OSError:
        return ""


def _answers(address: str) -> bool:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]") or "127.0.0.1", int(port)), timeout=2):
            return True
    except (OSError, ValueError):
        return False
