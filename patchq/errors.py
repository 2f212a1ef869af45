"""What can go wrong for a reason that a person can act on: a few kinds, each with its exit code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: what, where (`FILE:LINE`, or empty), and the nearest right thing."""

    what: str
    where: str = ""
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        return f"{place}{self.what}" + (f" ({self.hint})" if self.hint else "")


class PatchqError(Exception):
    """Base of every error that is not a bug; carries all problems found, not just the first."""

    exit_code: ClassVar[int] = 70

    def __init__(self, what: str | Iterable[Problem], *, where: str = "", hint: str = "") -> None:
        self.problems: tuple[Problem, ...] = (Problem(what, where, hint),) if isinstance(what, str) else tuple(what)
        super().__init__("\n".join(map(str, self.problems)))


class Refused(PatchqError):
    """The answer is no: a check failed, something drifted."""

    exit_code = 1


class Invalid(PatchqError):
    """Bad usage, or a queue file that breaks its format."""

    exit_code = 2


class DoesNotApply(PatchqError):
    """A patch does not apply."""

    exit_code = 3


class Prevented(PatchqError):
    """The machine prevented it: a lock held, a full disk, no git, no network."""

    exit_code = 5


class Terminated(BaseException):
    """SIGTERM arrived; raised in the main thread so that every context manager cleans up."""
