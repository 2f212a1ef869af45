"""`targets/NAME.yaml`, `variants/NAME.yaml` and `queue.yaml`: kinds of machine, choices of research, defaults."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from patchq.document import Document, One
from patchq.ladder.model import Ladder
from patchq.queue.baseline import BaselineForm, InnerPath, Name
from patchq.series import TRAIT

Trait = Annotated[str, Field(pattern=f"^{TRAIT}$")]
Variable = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
PythonVersion = Annotated[str, Field(pattern=r"^3\.\d+(\.\d+)?$")]

_CONFLICT = r"(\S+)(?: \S+)? (?:has requirement|requires) (.+?)(?:, which is not installed)?\.?"


def _conflict(value: str) -> str:
    from packaging.requirements import InvalidRequirement, Requirement  # few queues have one

    found = re.fullmatch(_CONFLICT, value)
    try:
        Requirement(found[2] if found else "")
    except InvalidRequirement:
        raise ValueError("write 'NAME VERSION has requirement REQUIREMENT', as pip check does") from None
    return value


Conflict = Annotated[str, AfterValidator(_conflict)]


class Include(Document):
    """An `include` entry that goes against a guard has to say so, and why."""

    match: str
    force: bool = False
    reason: str = ""

    @model_validator(mode="after")
    def _force_has_a_reason(self) -> Include:
        if self.force and not self.reason.strip():
            raise ValueError("force needs a reason")
        return self


class TargetUpstream(Document):
    """How a target uses an upstream: from which baseline form, into which sink, for which environments.

    `imports` are the modules that `apply` really imports in each environment (None: the upstream's packages);
    packages that are not imported are still located.
    """

    baseline: BaselineForm
    sink: Literal["work-copy", "installed"] = "work-copy"
    environments: tuple[Name, ...]
    imports: tuple[str, ...] | None = None

    @model_validator(mode="after")
    def _sink_fits(self) -> TargetUpstream:
        if (self.sink == "installed") != (self.baseline == "installed"):
            raise ValueError("the sink 'installed' goes with the baseline 'installed', and only with it")
        return self


class Folder(Document):
    """A folder that training uses: whether it has to be local and writable, and the GiB that have to be free."""

    path: str
    local: bool = False
    writable: bool = True
    free: float = Field(default=0, ge=0)


class Environment(Document):
    """One training interpreter of a target and what has to hold in it. Values may hold `${VARIABLES}`.

    `version` is the Python that it has to be, `3.N` or exactly `3.N.M` (None: any, and wheels are chosen for the
    running one), `platform` the newest manylinux tag that the machine takes. `without` names modules that the
    interpreter lacks by design, so that CPU tests which need them are excluded rather than not run.

    `pins` are versions that have to be installed, `protected` distributions that must not change, `accepted_edits`
    files (`DISTRIBUTION/PATH`, globs) that may differ from what their `RECORD` says, `accepted_conflicts` what
    `pip check` may say. `device_query` is the shell command that shows the vendor's devices (else NVML is asked),
    `devices` how many there have to be, `folders` what training uses, by name.
    """

    python: str
    version: PythonVersion | None = None
    platform: str = "manylinux_2_17_x86_64"
    profile: str = ""
    pins: dict[Name, str] = {}
    protected: tuple[Name, ...] = ()
    protected_paths: tuple[str, ...] = ()
    accepted_edits: tuple[str, ...] = ()
    accepted_conflicts: tuple[Conflict, ...] = ()
    device_query: str = ""
    devices: int | None = Field(default=None, gt=0)
    folders: dict[Name, Folder] = {}
    wheels: tuple[str, ...] = ()
    require: tuple[Variable, ...] = ()
    forbid: tuple[Variable, ...] = ()
    set: dict[Variable, str] = {}
    without: tuple[Name, ...] = ()
    ladder: Ladder = Ladder()

    @property
    def minor(self) -> str | None:
        """The Python of `version` as `3.N`."""
        return ".".join(self.version.split(".")[:2]) if self.version else None


class Target(Document):
    """A kind of machine: what it is, which patches it takes, where work happens, what has to hold.

    `allowed_signers` is a file of the queue (its path below `series/`): who may sign a bundle that follows this one.
    """

    description: str
    traits: tuple[Trait, ...] = ()
    work: Annotated[str, Field(min_length=1)]
    include: tuple[str | Include, ...] = ()
    exclude: tuple[str, ...] = ()
    upstreams: dict[Name, TargetUpstream]
    environments: dict[Name, Environment]
    allowed_signers: InnerPath | None = None

    def includes(self) -> tuple[Include, ...]:
        """The include entries in their long form."""
        return tuple(Include(match=item) if isinstance(item, str) else item for item in self.include)


class Variant(Document):
    """A named choice of research patches, as globs over `UPSTREAM/LAYER/NAME`."""

    description: str
    research: tuple[str, ...]


class QueueSettings(Document):
    """`queue.yaml`."""

    schema_version: One = Field(alias="schema")
    name: Name
    description: str = ""
