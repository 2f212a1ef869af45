"""`baseline.yaml`: where an upstream's source is, what it is exactly, and what to do with a work copy of it."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from patchq.document import Document
from patchq.location import check_location

BaselineForm = Literal["git", "sdist", "installed"]


def _full_id(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{40}", value):
        raise ValueError("a full commit id of 40 hex digits is due; a branch, tag or short id can move")
    return value


def _digest(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", value):
        raise ValueError("a SHA-256 of 64 hex digits is due")
    return value


def _inner_path(value: str) -> str:
    parts = value.split("/")
    if value.startswith("/") or any(part in ("", "..", ".git") for part in parts) or "\0" in value:
        raise ValueError("a relative path inside the tree is due")
    return value


def _location(value: str) -> str:
    """A source that holds a variable is checked when it is known what stands for it."""
    if reason := None if "${" in value else check_location(value):
        raise ValueError(f"the source {reason}")
    return value


CommitId = Annotated[str, AfterValidator(_full_id)]
Sha256 = Annotated[str, AfterValidator(_digest)]
InnerPath = Annotated[str, AfterValidator(_inner_path)]


def _file_path(value: str) -> str:
    from patchq.patch import check_path  # only a lock and a bundle hold one

    if reason := check_path(value):
        raise ValueError(f"the path {reason}")
    return value


FilePath = Annotated[str, AfterValidator(_file_path)]
Location = Annotated[str, AfterValidator(_location)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class GitSubmodule(Document):
    """A submodule of a git baseline: the commit that its gitlink names, and where to have it from."""

    commit: CommitId
    source: Location


class GitBaseline(Document):
    """A full commit id; `source` is a path or URL and may hold `${VARIABLES}`."""

    commit: CommitId
    source: Location
    submodules: dict[InnerPath, GitSubmodule] = {}


class SdistBaseline(Document):
    """A source distribution of the package index, pinned by its digest."""

    project: Name
    version: str
    filename: Name
    sha256: Sha256


class InstalledBaseline(Document):
    """A distribution as installed; `like` names the baseline form whose files it has to equal."""

    distribution: Name
    version: str
    like: Literal["git", "sdist"]


class Baseline(Document):
    """One upstream. `root` is the folder of a work copy that goes on the import path ('.': the top)."""

    upstream: Name
    version: str
    description: str = ""
    git: GitBaseline | None = None
    sdist: SdistBaseline | None = None
    installed: InstalledBaseline | None = None
    root: InnerPath = "."
    packages: tuple[Name, ...]
    compile: tuple[InnerPath, ...] = ()

    @model_validator(mode="after")
    def _has_a_form(self) -> Baseline:
        if not (self.git or self.sdist):
            raise ValueError("one of git, sdist is due")
        if self.installed and not getattr(self, self.installed.like):
            raise ValueError(f"installed is like {self.installed.like}, which is not declared here")
        return self

    def forms(self) -> tuple[BaselineForm, ...]:
        """The baseline forms that this upstream declares."""
        declared: tuple[BaselineForm, ...] = ("git", "sdist", "installed")
        return tuple(form for form in declared if getattr(self, form))
