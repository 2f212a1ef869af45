"""What differs from host to host: `${VARIABLES}` in targets and baselines, and `host.yaml` in the work area."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from patchq.document import Document, load_yaml
from patchq.errors import Invalid

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class HostFile(Document):
    """`host.yaml`: values for variables that the shell does not set."""

    variables: dict[str, str] = {}


@dataclass(frozen=True)
class Host:
    """The variables of this host; the shell's win over `host.yaml`."""

    variables: Mapping[str, str]

    @classmethod
    def here(cls, work: Path | None = None) -> Host:
        """This host, with `host.yaml` of a work area. `PATCHQ_PYTHON` is the interpreter that runs patchq."""
        path = work / "host.yaml" if work else None
        written = load_yaml(path, HostFile).variables if path and path.exists() else {}
        return cls({"PATCHQ_PYTHON": sys.executable, **written, **os.environ})

    def expand(self, text: str, where: str) -> str:
        """Replace `${NAME}` and `${NAME:-DEFAULT}`; raises `Invalid` naming an unset variable and the file."""

        def value(found: re.Match[str]) -> str:
            name, default = found[1], found[2]
            known = self.variables.get(name) or default
            if known is None:
                raise Invalid(f"the variable {name} is not set", where=where,
                              hint="set it in the shell or in host.yaml of the work area")  # fmt: skip
            return known

        return _REFERENCE.sub(value, text)

    def path(self, text: str, where: str, base: Path) -> Path:
        """`text` expanded, as an absolute path; a relative one is taken from `base`."""
        return (base / Path(self.expand(text, where)).expanduser()).absolute()
