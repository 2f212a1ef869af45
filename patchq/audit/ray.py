"""The rules for Ray: whole, reachable, with the resources that are due, and actors that see what training sees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from patchq.audit.origins import MODULES
from patchq.audit.subject import Answer, Subject
from patchq.audit.variables import expected, ray_budget
from patchq.document import Document
from patchq.report import State, Step

_LOOPBACK = ("localhost", "127.0.0.1", "::1", "[::1]")


class Cluster(Document):
    """The address (empty: RAY_ADDRESS, else a cluster of its own), and the resources that have to be there."""

    address: str = ""
    resources: dict[str, float] = {}
    seconds: int = Field(default=120, gt=0)


def question(subject: Subject, settings: Cluster) -> dict[str, Any]:
    names = sorted({*expected(subject), *subject.declared.require, *subject.declared.forbid, "RAY_TMPDIR"})
    modules = sorted({*MODULES, *subject.copies})
    return {"address": settings.address, "modules": modules, "names": names, "seconds": settings.seconds}


def steps(subject: Subject, settings: Cluster, answer: Answer) -> Iterator[Step]:
    subject.keep("ray", {key: answer.get(key) for key in ("version", "address", "resources")})
    if answer["lacking"]:
        what = f"`import ray` gives {answer['origin']}, which has no {', '.join(answer['lacking'])}"
        yield subject.step(
            "ray", State.FAILED, what, hint="two builds are mixed: remove the ray folder, install one of them"
        )
        return
    yield from ray_budget(subject, answer["mine"]["variables"].get("RAY_TMPDIR", ""))
    yield from _cluster(subject, settings, answer)
    for actor in answer.get("actors", ()):
        yield from _actor(subject, answer["mine"], actor)


def _cluster(subject: Subject, settings: Cluster, answer: Answer) -> Iterator[Step]:
    address = answer["address"]
    host = address.rpartition("://")[2].rpartition(":")[0]
    if answer.get("asks_token"):
        what = f"{address}: it asks for a token, and this process hands in none that it knows"
        hint = "set RAY_AUTH_MODE=token in the target, with the token of that cluster in ~/.ray/auth_token"
        yield subject.step("ray cluster", State.FAILED, what, hint=hint)
        return
    why = answer.get("unreachable") or answer.get("error")
    if why:
        loop = host in _LOOPBACK
        hint = (
            "in a container localhost is the container: name the address that `ray start` printed"
            if loop
            else "ray status"
        )
        yield subject.step("ray cluster", State.FAILED, f"{address or 'a cluster of its own'}: {why}", hint=hint)
        return
    if not answer["actors"]:
        yield subject.step("ray cluster", State.FAILED, f"{address}: no node of it is alive", hint="ray status")
        return
    found: Answer = answer["resources"]
    short = [
        f"{name} {found.get(name, 0):g} of {due:g}"
        for name, due in settings.resources.items()
        if found.get(name, 0) < due
    ]
    if short:
        yield subject.step(
            "ray cluster", State.FAILED, f"lacks resources: {', '.join(short)}", hint="ray status shows each node"
        )
    else:
        said = f"ray {answer['version']}, {address or 'started for this question'}, {len(answer['actors'])} nodes"
        yield subject.step("ray cluster", State.PASSED, said)


def _actor(subject: Subject, mine: Answer, actor: Answer) -> Iterator[Step]:
    """An actor against this process: the raylet keeps the environment that it was started with."""
    name = f"actor on {actor['host']}"
    hint = "that cluster was started from another environment: `ray stop`, then start it from `patchq env`"
    # python and python3.11 of one folder are one environment: scripts name either in their first line.
    folders = [(Path(one["executable"]).parent, one["version"]) for one in (actor, mine)]
    if folders[0] != folders[1]:
        what = f"runs {actor['executable']} {actor['version']}, training runs {mine['executable']} {mine['version']}"
        yield subject.step(name, State.FAILED, what, hint=hint)
        return
    others = {key: value for key, value in actor["origins"].items() if value != mine["origins"][key]}
    if others:
        key, value = next(iter(others.items()))
        yield subject.step(
            name, State.FAILED, f"imports {key} from {value}, training from {mine['origins'][key]}", hint=hint
        )
        return
    declared, seen = subject.declared, actor["variables"]
    wrong = [
        f"{key} is {seen.get(key, 'not set')}, {value} is due"
        for key, value in expected(subject).items()
        if seen.get(key) != value
    ]
    wrong += [f"{key} is not set" for key in declared.require if not seen.get(key)]
    wrong += [f"{key} is set, which the target forbids" for key in declared.forbid if key in seen]
    if wrong:
        yield subject.step(name, State.FAILED, wrong[0], detail=tuple(wrong[1:]), hint=hint)
    else:
        yield subject.step(name, State.PASSED, "the same interpreter, origins and variables")
