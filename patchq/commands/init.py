"""`init`: starts a queue in a folder."""

from __future__ import annotations

import re
from pathlib import Path

from patchq.document import validate, write_atomic
from patchq.errors import Invalid, Refused
from patchq.queue.target import QueueSettings
from patchq.report import Report, State, Step

_QUEUE = """\
schema: 1
name: "{name}"
"""
_TARGET = """\
description: This machine, for trying things out
work: ${{PATCHQ_WORK:-work}}
upstreams: {{}}
environments:
  local:
    python: ${{PATCHQ_PYTHON}}
"""
_ATTRIBUTES = "*.patch -text -whitespace\n"


def init(folder: Path, name: str | None = None) -> Report:
    """Write `series/queue.yaml` and a first target; raises `Refused` where there is a queue already.

    Without a `name` the queue is called after the folder, as far as its letters allow.
    """
    root = folder / "series"
    if (root / "queue.yaml").exists():
        raise Refused("there is a queue here already", where=str(root))
    if not folder.is_dir():
        raise Invalid("there is no such folder", where=str(folder))
    files = {
        root / "targets" / "local.yaml": _TARGET.format(),
        root / ".gitattributes": _ATTRIBUTES,
        root / "queue.yaml": _QUEUE.format(name=_checked(name) if name else _name_of(folder)),
    }
    for path, text in files.items():
        write_atomic(path, text.encode())
    steps = tuple(Step(str(path.relative_to(folder)), State.PASSED, "written") for path in files)
    return Report("init", steps, {"queue": str(root)})


def _checked(name: str) -> str:
    """`name` if a queue may be called so; raises `Invalid`."""
    return validate({"schema": 1, "name": name}, QueueSettings, "--name", {}).name


def _name_of(folder: Path) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).lstrip("._-") or "queue"
