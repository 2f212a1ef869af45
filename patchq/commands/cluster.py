"""A Ray cluster that runs already keeps its own environment: an actor in that cluster is asked."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from patchq.audit import Subject, surveying
from patchq.report import State, Step


def running_cluster(subject: Subject, variables: Mapping[str, str]) -> Iterator[Step]:
    """Whether the cluster that `ray.init` would join sees the same environment; nothing where there is none.

    `variables` is the environment of the command.
    """
    address = _address(variables)
    if not address:
        return
    if not _answers(address):
        yield Step("ray cluster", State.NOTE, f"{address} does not answer: no cluster is joined", "launch")
        return
    with surveying(subject, ("ray",), {"ray": {"address": address}}) as asked:
        for step in asked.steps():
            # Where Ray can't be imported, no cluster can be joined either.
            state = State.NOTE if step.state is State.NOT_RUN else step.state
            yield replace(step, group="launch", state=state)


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
