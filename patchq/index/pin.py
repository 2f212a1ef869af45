"""What is pinned of a package index, and the kind of machine that wheels are chosen for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from patchq.document import Document
from patchq.errors import Invalid

_MANYLINUX = r"manylinux_2_(?P<minor>[1-9][0-9]?)_(?P<machine>[a-z0-9_]+)"
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_ALIASES = {name: f"manylinux_2_{minor}" for minor, name in _LEGACY.items()}
_OLDEST = {"x86_64": 5, "i686": 5}


class Pin(Document):
    """One file of a package index, an sdist or a wheel: no address, only what the file is.

    `name` is the normalised project name, `sha256` 64 lower-case hex digits.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    version: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+!_-]*$")]
    filename: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+!_-]*$")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    def __str__(self) -> str:
        return f"{self.name} {self.version} ({self.filename})"


@dataclass(frozen=True)
class Platform:
    """The newest manylinux tag that a machine takes, as `manylinux_2_28_x86_64` or `manylinux2014_x86_64`.

    Source of the form: PEP 600 and the older tags that it names. Raises `Invalid` for anything else.
    """

    tag: str

    def __post_init__(self) -> None:
        if not re.fullmatch(_MANYLINUX, self._modern):
            raise Invalid(
                f"{self.tag!r} is no manylinux platform",
                hint="such as manylinux_2_28_x86_64: the glibc version and the machine of the target",
            )

    @property
    def machine(self) -> str:
        """The machine as `uname -m` says it there."""
        return self._parts[1]

    @property
    def tags(self) -> tuple[str, ...]:
        """Every platform tag that such a machine takes, the best first."""
        newest, machine = self._parts
        found: list[str] = []
        for minor in range(newest, _OLDEST.get(machine, 17) - 1, -1):
            found.append(f"manylinux_2_{minor}_{machine}")
            if minor in _LEGACY:
                found.append(f"{_LEGACY[minor]}_{machine}")
        return (*found, f"linux_{machine}")

    @property
    def _modern(self) -> str:
        head, _, machine = self.tag.partition("_")
        return f"{_ALIASES[head]}_{machine}" if head in _ALIASES else self.tag

    @property
    def _parts(self) -> tuple[int, str]:
        match = re.fullmatch(_MANYLINUX, self._modern)
        assert match, "checked when it was made"
        return int(match["minor"]), match["machine"]
