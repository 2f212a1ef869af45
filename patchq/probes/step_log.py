"""The gates that a log of one training step has to pass. Prints one JSON document.

Question: {"log": FILE, "exit": N or null, "kind": "grpo" or "sft", "step": N, "limits": {NAME: [LOWEST, HIGHEST]...},
"loss_sign": "", "positive" or "negative"}. Reads VERL's console lines (`step:1 - actor/pg_loss:0.1 - …`) and the
dictionaries that Transformers' trainer prints (`{'loss': 0.5, 'grad_norm': 1.2, …}`).
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NUMBER = r"(?:np\.float\d+\()?([-+]?(?:nan|inf|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?))\)?"
VERL = re.compile(rf"(?:^|\s-\s|\s)([A-Za-z_][\w.@/-]*):\s?{NUMBER}(?=\s|$)")
TRAINER = re.compile(rf"'([\w/]+)':\s*'?{NUMBER}'?")
Seen = dict[str, tuple[float, int]]  # metric → its value and the line it stands in

GRPO = {
    "loss": ("actor/pg_loss", "actor/loss"),
    "gradient": ("actor/grad_norm",),
    "entropy": ("actor/entropy", "actor/entropy_loss"),
    "kl": ("actor/ppo_kl", "actor/kl_loss", "actor/reward_kl_penalty"),
    "response length": ("response_length/mean",),
    "rewards": ("critic/rewards/min", "critic/rewards/max"),
    "scores": ("critic/score/min", "critic/score/max"),
    "advantages": ("critic/advantages/min", "critic/advantages/max"),
}
SFT = {"loss": ("train/loss", "loss", "train_loss"), "gradient": ("train/grad_norm", "grad_norm")}


def metrics(text: str) -> Seen:
    """The metrics of the log; of several values the last one counts."""
    seen: Seen = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r"\x1b\[[0-9;]*m", "", line)
        pairs = VERL.findall(line) if re.search(r"\bstep:\d", line) else TRAINER.findall(line) if "{'" in line else ()
        for name, value in pairs:
            seen[name] = (float(value), number)
    return seen


def first(seen: Seen, names: tuple[str, ...]) -> tuple[str, float, int] | None:
    return next(((name, *seen[name]) for name in names if name in seen), None)


Gate = dict[str, Any]


def gate(name: str, passed: bool, said: str, line: int | None = None) -> Gate:
    return {"gate": name, "passed": passed, "said": said, "line": line}


def finite(seen: Seen, name: str, names: tuple[str, ...], nonzero: bool = False) -> Gate:
    found = first(seen, names)
    if found is None:
        return gate(name, False, f"the log has no {' or '.join(names)}")
    metric, value, line = found
    good = math.isfinite(value) and not (nonzero and value == 0)
    return gate(name, good, f"{metric} is {value:g}", line)


def spread(seen: Seen, name: str, pairs: list[tuple[str, ...]], what: str) -> Gate:
    """That the smallest and the largest of a batch differ."""
    for low, high in pairs:
        if low in seen and high in seen:
            (least, _), (most, line) = seen[low], seen[high]
            return gate(name, most > least, f"{what} lie between {least:g} and {most:g}", line)
    return gate(name, False, f"the log has no {' and '.join(pairs[0])}")


def advantages(seen: Seen) -> Gate:
    low, high = GRPO["advantages"]
    if low not in seen or high not in seen:
        return gate("advantages", False, f"the log has no {low} and {high}")
    (least, _), (most, line) = seen[low], seen[high]
    return gate("advantages", least != 0 or most != 0, f"advantages lie between {least:g} and {most:g}", line)


def step_reached(seen: Seen, step: int) -> Gate:
    found = first(seen, ("training/global_step",))
    if found is None:
        return gate("step", False, "the log has no training/global_step: no step was finished")
    return gate("step", found[1] >= step, f"training/global_step is {found[1]:g}, {step} is due", found[2])


def grpo(seen: Seen, question: dict[str, Any]) -> Iterator[Gate]:
    yield step_reached(seen, int(question.get("step", 1)))
    yield finite(seen, "loss", GRPO["loss"])
    yield finite(seen, "gradient", GRPO["gradient"], nonzero=True)
    yield spread(seen, "rewards", [GRPO["rewards"], GRPO["scores"]], "rewards")
    yield advantages(seen)


def sft(seen: Seen) -> Iterator[Gate]:
    yield finite(seen, "loss", SFT["loss"])
    yield finite(seen, "gradient", SFT["gradient"], nonzero=True)


def limits(seen: Seen, question: dict[str, Any], names: dict[str, tuple[str, ...]]) -> Iterator[Gate]:
    """KL, entropy, response length, and any metric that the log names."""
    for name, (low, high) in question.get("limits", {}).items():
        found = first(seen, names.get(name, (name,)))
        if found is None:
            yield gate(name, False, f"the log has no {' or '.join(names.get(name, (name,)))}")
            continue
        metric, value, line = found
        good = math.isfinite(value) and (low is None or value >= low) and (high is None or value <= high)
        bounds = f"{'' if low is None else f'{low:g}'}…{'' if high is None else f'{high:g}'}"
        yield gate(name, good, f"{metric} is {value:g}, allowed is {bounds}", line)


def sign(seen: Seen, wanted: str, names: tuple[str, ...]) -> Iterator[Gate]:
    found = first(seen, names)
    if wanted and found and math.isfinite(found[1]):
        metric, value, line = found
        good = value >= 0 if wanted == "positive" else value <= 0
        yield gate("loss sign", good, f"{metric} is {value:g}, {wanted} is due", line)


def clean_exit(code: int | None) -> Iterator[Gate]:
    if code is not None:
        yield gate("exit", code == 0, f"the command ended with status {code}")


def answer(question: dict[str, Any]) -> dict[str, Any]:
    path = Path(question["log"])
    if not path.is_file():
        return {"not_run": f"the log {path} is not there"}
    seen = metrics(path.read_text(errors="replace"))
    is_grpo = question.get("kind", "grpo") == "grpo"
    names = GRPO if is_grpo else SFT
    gates = [
        *(grpo(seen, question) if is_grpo else sft(seen)),
        *limits(seen, question, names),
        *sign(seen, question.get("loss_sign", ""), names["loss"]),
        *clean_exit(question.get("exit")),
    ]
    return {"gates": gates, "metrics": len(seen)}


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    print("\n" + json.dumps(answer(json.load(sys.stdin))))


if __name__ == "__main__":
    main()
