"""`init`: starts a queue in a folder."""

from __future__ import annotations

from pathlib import Path

from patchq.document import write_atomic
from patchq.errors import Invalid, Refused
from patchq.report import Report, State, Step

_QUEUE = """\
schema: 1
name: {name}
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
    """Write `series/queue.yaml` and a first target; raises `Refused` where there is a queue already."""
    root = folder / "series"
    if (root / "queue.yaml").exists():
        raise Refused("there is a queue here already", where=str(root))
    if not folder.is_dir():
        raise Invalid("there is no such folder", where=str(folder))
    files = {
        root / "targets" / "local.yaml": _TARGET.format(),
        root / ".gitattributes": _ATTRIBUTES,
        root / "queue.yaml": _QUEUE.format(name=name or folder.resolve().name or "queue"),
    }
    for path, text in files.items():
        write_atomic(path, text.encode())
    steps = tuple(Step(str(path.relative_to(folder)), State.PASSED, "written") for path in files)
    return Report("init", steps, {"queue": str(root)})
