"""Asking probes, several at once, and judging each answer by its rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from patchq.audit import (
    devices,
    folders,
    generation,
    interpreter,
    machine,
    origins,
    packages,
    pairs,
    ranks,
    ray,
    training,
    variables,
)
from patchq.audit.subject import Answer, Subject
from patchq.document import Document, nearest, validate
from patchq.errors import Invalid, PatchqError
from patchq.exclusive import scratch
from patchq.machine.probe import Asking, asking, reading
from patchq.report import State, Step


class NoSettings(Document):
    """Of a probe that asks everything from what the environment declares."""


@dataclass(frozen=True)
class Audit:
    """A probe's script, its question, its rules, its time limit in seconds, and the settings a ladder may give it."""

    script: str
    question: Callable[[Subject, Any], Mapping[str, Any]]
    steps: Callable[[Subject, Any, Answer], Iterable[Step]]
    seconds: float = 120
    settings: type[Document] = NoSettings


AUDITS: Mapping[str, Audit] = {
    "interpreter": Audit("interpreter", interpreter.question, interpreter.steps),
    "variables": Audit("variables", variables.question, variables.steps),
    "origins": Audit("origins", origins.question, origins.steps),
    "packages": Audit("packages", packages.question, packages.steps, 900),
    "pairs": Audit("pairs", pairs.question, pairs.steps, 300),
    "machine": Audit("machine", machine.question, machine.steps),
    "folders": Audit("folders", folders.question, folders.steps),
    "cache": Audit("folders", folders.cache_question, folders.cache_steps),
    "memory": Audit("memory", devices.as_given, devices.memory_steps, 300, devices.Memory),
    "allocator": Audit("allocator", devices.allocator_question, devices.allocator_steps, 1800, devices.Allocator),
    "bf16": Audit("bf16", devices.as_given, devices.arithmetic_steps, 300, devices.Arithmetic),
    "all_reduce": Audit("ranks", ranks.all_reduce_question, ranks.all_reduce_steps, 1260, ranks.AllReduce),
    "fsdp": Audit("ranks", ranks.fsdp_question, ranks.fsdp_steps, 2460, ranks.Fsdp),
    "generate": Audit("generate", generation.question, generation.steps, 1800, generation.Generate),
    "generate_in_actor": Audit(
        "generate", generation.actor_question, generation.actor_steps, 1800, generation.Generate
    ),
    "embedding": Audit(
        "embedding", generation.embedding_question, generation.embedding_steps, 180, generation.Embedding
    ),
    "ray": Audit("ray_cluster", ray.question, ray.steps, 300, ray.Cluster),
    "step_log": Audit("step_log", training.as_given, training.log_steps, 120, training.StepLog),
    "checkpoint": Audit("checkpoint", training.as_given, training.checkpoint_steps, 900, training.Checkpoint),
    "copy": Audit("copy_files", training.as_given, training.copy_steps, 86_400, training.Copy),
    "data": Audit("data", training.as_given, training.data_steps, 900, training.Data),
}
# What `verify` asks: no device is used. The first is the ground for the others.
STATIC = ("interpreter", "variables", "origins", "packages", "pairs", "machine", "folders")


@dataclass(frozen=True)
class Survey:
    """Probes of one environment that are under way."""

    subject: Subject
    settings: Mapping[str, Document]
    started: Mapping[str, Asking | PatchqError]

    def steps(self) -> Iterator[Step]:
        """Judge the answers, in the order in which the probes were named; each is waited for at its turn."""
        python = self.subject.launch.python
        if not python.exists():
            yield self.subject.step(f"interpreter {self.subject.name}", State.NOT_RUN, "is not there", hint=str(python))
            return
        for name in self.settings:
            failed = False
            for step in self._judged(name):
                failed |= step.data.get("unanswered", False)
                yield step
            if failed and name == "interpreter":
                yield self.subject.step("other probes", State.NOT_RUN, "the interpreter did not answer")
                return

    def _judged(self, name: str) -> Iterator[Step]:
        started = self.started[name]
        try:
            if isinstance(started, PatchqError):
                raise started
            answer = started.answer()
            self.subject.answers[name] = answer
            if "not_run" in answer:
                yield self.subject.step(name, State.NOT_RUN, str(answer["not_run"]))
                return
            with reading(name, self.subject.launch.python):
                yield from AUDITS[name].steps(self.subject, self.settings[name], answer)
        except PatchqError as error:
            problem = error.problems[0]
            yield self.subject.step(name, State.FAILED, problem.what, hint=problem.hint or problem.where,
                                    data={"unanswered": True})  # fmt: skip


@contextmanager
def surveying(
    subject: Subject, probes: Sequence[str], settings: Mapping[str, Mapping[str, Any]] | None = None
) -> Iterator[Survey]:
    """Start `probes`, all at once; when the block ends, nothing of them is left. `settings` are a ladder's, by probe.

    Raises `Invalid` for a probe or a setting that does not exist.
    """
    chosen = {name: _settings_of(name, (settings or {}).get(name, {})) for name in probes}
    with ExitStack() as stack:
        room = stack.enter_context(scratch())
        started: dict[str, Asking | PatchqError] = {}
        for name, setting in chosen.items() if subject.launch.python.exists() else ():
            audit = AUDITS[name]
            try:
                question = audit.question(subject, setting)
                child = asking(subject.launch, audit.script, question, cwd=room, timeout=audit.seconds)
                started[name] = stack.enter_context(child)
            except PatchqError as error:
                started[name] = error
        yield Survey(subject, chosen, started)


def _settings_of(name: str, given: Mapping[str, Any]) -> Document:
    if name not in AUDITS:
        raise Invalid(f"there is no probe {name!r}", hint=nearest(name, list(AUDITS)))
    return validate(dict(given), AUDITS[name].settings, f"settings of the probe {name}", {})
