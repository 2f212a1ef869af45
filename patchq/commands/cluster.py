"""A Ray cluster that runs already keeps its own environment: an actor in that cluster is asked.

Which cluster `ray.init` joins: `RAY_ADDRESS`; else the one that `ray start` noted in Ray's folder; and where the
address is `auto`, without a note or with a single cluster on this host, any that runs here
(`ray._private.services.get_ray_address_from_environment`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from patchq.audit import Subject, surveying
from patchq.report import State, Step

_FLAG = "--gcs-address="


def running_cluster(subject: Subject, variables: Mapping[str, str]) -> Iterator[Step]:
    """Whether each cluster that `ray.init` would join sees the same environment; nothing where there is none.

    `variables` is the environment of the command.
    """
    given = variables.get("RAY_ADDRESS", "")
    if given and given != "auto":
        yield from () if given == "local" else _asked(subject, given)
        return
    noted, here = _noted(variables), _running()
    joined = [noted] if noted else []
    if given == "auto" and (not noted or len(here) == 1):
        joined = here or joined
    for address in joined:
        yield from _asked(subject, address)
    for address in here:
        if address not in joined:
            what = f"{address} runs on this host too: a program that says address='auto' may join it unproved"
            yield Step("ray cluster", State.WARNING, what, "launch", hint=f"RAY_ADDRESS={address} has it asked")


def _asked(subject: Subject, address: str) -> Iterator[Step]:
    if not _answers(address):
        yield Step("ray cluster", State.NOTE, f"{address} does not answer: no cluster is joined", "launch")
        return
    with surveying(subject, ("ray",), {"ray": {"address": address}}) as asked:
        for step in asked.steps():
            # Where Ray can't be imported, no cluster can be joined either.
            state = State.NOTE if step.state is State.NOT_RUN else step.state
            yield replace(step, group="launch", state=state)


def _noted(variables: Mapping[str, str]) -> str:
    """The address that `ray start` left in its folder."""
    folder = Path(variables.get("RAY_TMPDIR") or variables.get("TMPDIR") or "/tmp")
    try:
        return (folder / "ray" / "ray_current_cluster").read_text().strip()
    except OSError:
        return ""


def _running() -> list[str]:
    """The clusters that have a node on this host, by what their raylets were started with."""
    found = set()
    for folder in Path("/proc").iterdir():
        try:
            words = os.fsdecode((folder / "cmdline").read_bytes()).split("\0") if folder.name.isdigit() else [""]
        except OSError:
            continue
        if Path(words[0]).name == "raylet":
            found |= {word.removeprefix(_FLAG) for word in words if word.startswith(_FLAG)}
    return sorted(found)


def _answers(address: str) -> bool:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    try:
        with socket.create_connection((host.strip("[]") or "127.0.0.1", int(port)), timeout=2):
            return True
    except (OSError, ValueError):
        return False
