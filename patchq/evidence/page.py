"""A record as one Markdown page for somebody outside: facts enough to say what to do next, and nothing secret."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from patchq.evidence.first_error import first_error
from patchq.evidence.record import Record
from patchq.printable import clean
from patchq.report import State

# The distributions that decide whether a stack works together; the whole list travels beside the page.
_DECISIVE = re.compile(
    r"(?:torch|torchvision|torchaudio|triton|vllm|sglang|ray|transformers|tokenizers|accelerate|peft|trl|deepspeed"
    r"|flash[-_]attn|xformers|liger[-_]kernel|numpy|pyarrow|verl|llamafactory|tensordict|TransferQueue)(?:==| @ )",
    re.IGNORECASE,
)
_GOOD = (State.PASSED.value, State.APPLIED.value, State.UNCHANGED.value, State.NOTE.value, State.EXCLUDED.value)


def page(folder: Path, record: Record, attached: Sequence[str] = ()) -> str:
    """The page of a record whose digests were checked; `attached` names the files that travel with it."""
    parts = [
        _head(record),
        _trouble(folder, record),
        _commands(record),
        _steps(record),
        _versions(folder),
        _facts(record),
        _section("Attached", [f"- {_code(name)}" for name in attached]),
    ]
    return "\n".join(part for part in parts if part)


def cause(folder: Path, record: Record) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The first step that is not well (empty: none) and the first effective error: the step's own, else a log's."""
    bad = [step for step in record.steps if step["state"] not in _GOOD and step.get("required", True)]
    failed = [step for step in bad if step["state"] not in (State.NOT_RUN.value, State.WARNING.value)]
    first = next(iter(failed or bad), {})
    errors = [step["data"]["first_error"] for step in failed if step.get("data", {}).get("first_error")]
    if errors or not failed:
        return first, errors[0] if errors else None
    for log in sorted((folder / "logs").glob("*")):
        found = first_error(log.read_text("utf-8", "replace").splitlines())
        if found:
            return first, {**found.facts(), "log": f"logs/{log.name}"}
    return first, None


def _head(record: Record) -> str:
    lock = record.lock[:16]
    counts = ", ".join(f"{count} {name}" for name, count in record.counts.items())
    rows = [
        ("verb", record.verb), ("target", record.target), ("variant", record.variant or "none"), ("lock", lock),
        ("host", record.host), ("time", f"{record.began} to {record.ended}"),
        ("exit code", str(record.exit)), ("steps", counts),
    ]  # fmt: skip
    return f"# {_text(record.verb)} on {_text(record.host)}: exit {record.exit}\n\n" + "\n".join(
        f"- {name}: {_text(value)}" for name, value in rows
    ) + f"\n- record: {_code(record.id)}\n"  # fmt: skip


def _trouble(folder: Path, record: Record) -> str:
    step, error = cause(folder, record)
    if not step:
        return ""
    rows = [f"{_code(str(step['name']))} {_text(str(step['state']))}: {_text(str(step.get('summary', '')))}", ""]
    if error:
        place = f"{error.get('log') or step.get('data', {}).get('log', 'the output')}, line {error['line']}"
        place += f", process {error['process']}" if error["process"] else ""
        rows += [f"First effective error ({_text(place)}):", "", *_block(error["excerpt"] or [_shown(error)])]
        rows += [f"It led to {_code(error['led_to'])}.", ""] if error["led_to"] else []
    elif step.get("detail"):
        rows += _block(step["detail"])
    rows += ["**Next check:** " + _text(_next_check(record, step))]
    return _section("What went wrong" if record.exit not in (0, 4) else "What is open", rows)


def _shown(error: dict[str, Any]) -> str:
    return f"{error['kind']}: {error['message']}"


def _next_check(record: Record, step: dict[str, Any]) -> str:
    hint = str(step.get("hint", ""))
    if hint and not hint.startswith("the full output"):
        return hint
    argv = step.get("data", {}).get("argv")
    if argv:
        return f"run the command alone in its environment: patchq run --target {record.target} -- {shlex.join(argv)}"
    if step["state"] == State.NOT_RUN.value:
        return f"provide what it needs, then: patchq {record.verb} --target {record.target}"
    return f"look at the step above, then: patchq {record.verb} --target {record.target}"


def _commands(record: Record) -> str:
    ran = [step for step in record.steps if "argv" in step.get("data", {})]
    rows = [
        (str(step["name"]), shlex.join(step["data"]["argv"]), str(step["data"].get("exit", "")),
         f"{step.get('seconds', 0):.1f}", str(step["state"]))
        for step in ran
    ]  # fmt: skip
    if record.facts.get("argv"):
        rows.append((record.verb, shlex.join(record.facts["argv"]), "", "", "launched"))
    return _section("Commands", _table(("step", "command", "exit", "seconds", "state"), rows)) if rows else ""


def _steps(record: Record) -> str:
    rows = [
        (str(step.get("group", "")), str(step["name"]), str(step["state"]), str(step.get("summary", "")))
        for step in record.steps
    ]
    return _section("Steps", _table(("group", "step", "state", "what"), rows))


def _versions(folder: Path) -> str:
    rows = []
    for path in sorted(folder.glob("pip-freeze-*.txt")):
        kept = [line for line in path.read_text().splitlines() if _DECISIVE.match(line)]
        rows += [f"{path.name} names the whole of it; of weight are:", "", *_block(kept)]
    return _section("Versions", rows)


def _facts(record: Record) -> str:
    rows: list[str] = []
    for name, value in record.facts.items():
        if value in ({}, [], "", None):
            continue
        rows += [f"### {_text(name)}", "", *_block(list(_lines(value)))]
    return _section("Environment", rows)


def _lines(value: Any, indent: str = "") -> Iterator[str]:
    """JSON types for people; whatever is long is cut, the record has it whole."""
    if isinstance(value, dict):
        for key, item in list(value.items())[:200]:
            if isinstance(item, (dict, list)) and item:
                yield f"{indent}{key}:"
                yield from _lines(item, indent + "  ")
            else:
                yield f"{indent}{key}: {str(item)[:300]}"
    elif isinstance(value, list):
        for item in value[:60]:
            yield from (
                _lines(item, indent + "  ") if isinstance(item, (dict, list)) else (f"{indent}- {str(item)[:300]}",)
            )
    else:
        yield f"{indent}{str(value)[:300]}"


def _section(title: str, rows: Sequence[str]) -> str:
    return f"## {title}\n\n" + "\n".join(rows).rstrip("\n") + "\n" if rows else ""


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    head = [" | ".join(columns), " | ".join("---" for _ in columns)]
    return [f"| {row} |" for row in [*head, *(" | ".join(map(_text, row)) for row in rows)]]


def _text(text: str) -> str:
    """A text that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", clean(" ".join(text.split())))


def _code(text: str) -> str:
    return f"`{clean(' '.join(text.split())).replace('`', chr(39))}`"


def _block(rows: Iterable[str]) -> list[str]:
    """Lines as a terminal may be handed them, fenced by more backticks than any of them has."""
    kept = [clean(line) for row in rows for line in row.split("\n")]
    longest = max((len(found) for row in kept for found in re.findall("`+", row)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}text", *kept, fence, ""]
