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
from patchq.location import local_path

_REFERENCE = r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}"


HOST_FILE = "host.yaml"


class HostFile(Document):
    """`host.yaml`: values for variables that the shell does not set, and whose signatures count here.

    `allowed_signers` is the path of a list in OpenSSH's form, a relative one from the work area; `~` and `${VARIABLES}`
    may stand in it.
    """

    variables: dict[str, str] = {}
    allowed_signers: str = ""


def read_host_file(work: Path) -> HostFile:
    """`host.yaml` of a work area; empty where there is none."""
    path = work / HOST_FILE
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return HostFile()
    return load_yaml(path, HostFile)


@dataclass(frozen=True)
class Host:
    """The variables of this host; the shell's win over `host.yaml`."""

    variables: Mapping[str, str]

    @classmethod
    def here(cls, work: Path | None = None) -> Host:
        """This host, with `host.yaml` of a work area. `PATCHQ_PYTHON` is the interpreter that runs patchq."""
        written = read_host_file(work).variables if work else {}
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

        return re.sub(_REFERENCE, value, text)

    def path(self, text: str, where: str, base: Path) -> Path:
        """`text` expanded, as an absolute path; a relative one is taken from `base`."""
        return (base / local_path(self.expand(text, where), where)).absolute()
