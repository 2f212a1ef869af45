"""The rules for services: a short generation, alone and below Ray, and an embedding endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import Field, JsonValue

from patchq.audit.subject import Answer, Subject
from patchq.document import Document
from patchq.report import State, Step


class Generate(Document):
    """The model's folder, what it is asked, how many tokens it may say, and options for `vllm.LLM`."""

    model: str
    prompt: str = "2 + 3 = ?"
    tokens: int = Field(default=8, gt=0)
    gpus: float = 1
    options: dict[str, JsonValue] = {}


class Embedding(Document):
    """The service's address, the model it has to name, and the length of its vectors."""

    url: str
    model: str
    dimension: int = Field(gt=0)
    health: str = "/health"
    path: str = "/v1/embeddings"
    text: str = "2 + 3 = ?"


def question(subject: Subject, settings: Generate) -> dict[str, Any]:
    return {**settings.model_dump(), "actor": False}


def actor_question(subject: Subject, settings: Generate) -> dict[str, Any]:
    return {**settings.model_dump(), "actor": True}


def steps(subject: Subject, settings: Generate, answer: Answer) -> Iterator[Step]:
    subject.keep("generate", answer)
    if answer["tokens"]:
        yield subject.step("generate", State.PASSED, f"{answer['text']!r}, vllm {answer['vllm'][0]}")
    else:
        yield subject.step(
            "generate", State.FAILED, "the model said nothing", hint="is its chat template or its end token off?"
        )


def actor_steps(subject: Subject, settings: Generate, answer: Answer) -> Iterator[Step]:
    """Below Ray the same packages have to say the same words."""
    subject.keep("generate_in_actor", answer)
    alone = subject.answers.get(
        "generate", subject.evidence.facts.get("audit", {}).get(subject.name, {}).get("generate", {})
    )
    name = "generate in actor"
    for key in ("executable", "torch", "vllm"):
        if alone.get(key, answer[key]) != answer[key]:
            what = f"the actor has {key} {_word(answer[key])}, a plain process has {_word(alone[key])}"
            yield subject.step(
                name, State.FAILED, what, hint="an inherited PYTHONPATH or PATH: start Ray from `patchq env`"
            )
            return
    if not answer["tokens"]:
        yield subject.step(name, State.FAILED, "the model said nothing in a Ray actor")
    elif alone.get("tokens", answer["tokens"]) != answer["tokens"]:
        what = f"{answer['text']!r} in a Ray actor, {alone['text']!r} in a plain process"
        yield subject.step(name, State.WARNING, what, hint="greedy decoding should agree: compare the devices of both")
    else:
        yield subject.step(name, State.PASSED, f"{answer['text']!r}{', as in a plain process' if alone else ''}")


def _word(value: Any) -> str:
    return " from ".join(map(str, value)) if isinstance(value, list) else str(value)


def embedding_question(subject: Subject, settings: Embedding) -> dict[str, Any]:
    return settings.model_dump()


def embedding_steps(subject: Subject, settings: Embedding, answer: Answer) -> Iterator[Step]:
    subject.keep("embedding", answer)
    hint = f"curl -v {settings.url.rstrip('/')}{settings.health}"
    if answer["health"]:
        yield subject.step("embedding", State.FAILED, f"{settings.url} is not healthy: {answer['health']}", hint=hint)
    elif "error" in answer:
        what = f"{settings.url} is healthy, but a real request fails: {answer['error']}"
        yield subject.step("embedding", State.FAILED, what, hint="an open port is no proof: read the service's log")
    elif answer["model"] != settings.model or answer["dimension"] != settings.dimension:
        found = f"answered as {answer['model']} with {answer['dimension']} numbers"
        what = f"{found}; {settings.model} with {settings.dimension} are due"
        yield subject.step("embedding", State.FAILED, what, hint="the service and the training configuration differ")
    elif not answer["norm"]:
        yield subject.step("embedding", State.FAILED, "the vector is zero", hint="the model's weights did not load")
    else:
        yield subject.step("embedding", State.PASSED, f"{answer['model']}, {answer['dimension']} numbers")
