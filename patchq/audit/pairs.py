"""The rules for things that have to fit each other: flash-attn and the torch that it was built against."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from patchq.audit.subject import Answer, Subject
from patchq.report import State, Step


def question(subject: Subject, settings: Any) -> dict[str, Any]:
    return {}


def steps(subject: Subject, settings: Any, answer: Answer) -> Iterator[Step]:
    subject.keep("pairs", answer)
    version = answer["flash_attn"]
    if version is None:
        yield subject.step("flash-attn", State.NOTE, "is not installed")
    elif answer.get("error"):
        what = f"flash-attn {version} is installed, but does not load: {answer['error']}"
        hint = f"build it for torch {answer.get('torch', '?')}, or remove it and set sdpa"
        yield subject.step("flash-attn", State.FAILED, what, hint=hint)
    else:
        yield subject.step("flash-attn", State.PASSED, f"{version}, with its extension, beside torch {answer['torch']}")
