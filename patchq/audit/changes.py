"""What is another than in an earlier record: packages, driver, variables, mounts, and where to look closer."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from patchq.document import load_json
from patchq.evidence.record import Record, record_folders
from patchq.mask import mask_values

_GOOD = (0, 4)  # nothing failed in it
ABSENT = "–"


@dataclass(frozen=True)
class Change:
    """One thing that is not as it was: `what` of which environment, the two values, and a command that tells more."""

    environment: str
    what: str
    was: str
    now: str
    closer: str

    def row(self) -> list[str]:
        return [self.environment, self.what, self.was, self.now, self.closer]


COLUMNS = ("environment", "what", "was", "now", "look closer")


def last_good(records: Path, verb: str, target: str) -> Record | None:
    """The newest record of `verb` for a target in which nothing failed and an environment was audited."""
    for folder in reversed(record_folders(records)):
        if f"-{verb}-{target}-" in folder.name:
            record = load_json(folder / "record.json", Record)
            if (record.verb, record.target) == (verb, target) and record.exit in _GOOD and record.facts.get("audit"):
                return record
    return None


def changes(name: str, before: Mapping[str, Any], now: Mapping[str, Any], python: Path) -> Iterator[Change]:
    """Every difference between two audits of an environment (`facts["audit"][name]` of two records)."""
    now = mask_values(dict(now))
    closer = _Closer(str(python))
    for kind in (
        "interpreter",
        "machine",
        "packages",
        "protected",
        "origins",
        "variables",
        "launchers",
        "mounts",
        "caches",
    ):
        if kind not in before or kind not in now:
            continue
        old, new = _flat(kind, before[kind]), _flat(kind, now[kind])
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                words = (_word(old.get(key)), _word(new.get(key)))
                yield Change(name, closer.title(kind, key), *words, closer.command(kind, key))


def expired(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Why smoke results from an earlier audit no longer count: the driver, or a protected package, is another."""
    pairs = [("driver", before.get("machine", {}).get("driver"), now.get("machine", {}).get("driver"))]
    old, new = before.get("protected", {}), now.get("protected", {})
    pairs += [(f"protected {name}", old.get(name), new.get(name)) for name in sorted({*old, *new})]
    return [what for what, was, is_now in pairs if "machine" in before and was != is_now]


def _flat(kind: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    if kind != "interpreter":
        return dict(facts)
    kept = {key: facts.get(key) for key in ("version", "executable", "real", "platform")}
    return {**kept, "path": ":".join(map(str, facts.get("path", ())))}


def _word(value: Any) -> str:
    if value is None or value == "":
        return ABSENT
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


@dataclass(frozen=True)
class _Closer:
    """Titles of facts, and commands that show more of them."""

    python: str

    def title(self, kind: str, key: str) -> str:
        titles = {"packages": f"package {key}", "protected": f"files of {key}", "origins": f"origin of {key}",
                  "variables": f"variable {key}", "launchers": f"launcher {key}", "mounts": f"mount of {key}",
                  "caches": f"cache {key}"}  # fmt: skip
        return titles.get(kind, key)

    def command(self, kind: str, key: str) -> str:
        python = shlex.quote(self.python)
        commands = {
            "interpreter": f"{python} -VV",
            "packages": f"{python} -m pip show {key}",
            "protected": f"{python} -m pip show -f {key}",
            "origins": f"{python} -c 'import {key}; print({key}.__file__)'",
            "variables": f"printenv {key}",
            "launchers": f"command -v {key}",
            "mounts": "findmnt",
            "caches": "findmnt",
        }
        machine = {"kernel": "uname -r", "system": "uname -a", "cpus": "lscpu",
                   "toolkit": f"{python} -c 'import torch; print(torch.version.cuda)'"}  # fmt: skip
        return commands.get(kind) or machine.get(key, "nvidia-smi")
