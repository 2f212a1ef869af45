"""What is not as it was left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

What = Literal["modified", "missing", "mode", "type", "added", "bytecode", "git"]


@dataclass(frozen=True, order=True)
class Drift:
    """One deviation of a work copy: the path below the copy, its kind, and one line for people.

    `modified`: other bytes or another link target; `missing`; `mode`: the x bit; `type`: a file, folder or
    link where another of these is due; `added`: importable and unaccounted for; `bytecode`: what Python could
    load instead of the source; `git`: something in `.git` that patchq did not write.
    """

    path: str
    what: What
    detail: str = ""
