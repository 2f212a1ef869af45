"""The environment that training is launched in, as shell lines: printed by `env`, used for every child.

One text serves both, so that what was tested is what is run.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.errors import Invalid
from patchq.workarea import RAY_BYTES, SOCKET_BYTES

FAIL_CLOSED = "return 1 2>/dev/null || exit 1"
CLEARED = ("PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONPLATLIBDIR")


@dataclass(frozen=True)
class Launch:
    """All that the shell lines of one environment hold; every value is already expanded for this host."""

    title: str
    python: Path
    profile: str
    import_roots: tuple[Path, ...]
    pycache: Path
    ray_folder: Path
    variables: tuple[tuple[str, str], ...] = ()
    forbidden: tuple[str, ...] = ()
    required: tuple[str, ...] = ()

    def lines(self, *, check: bool = True) -> str:
        """The shell lines (POSIX sh, to be sourced or evaluated); `check` adds the demands on variables.

        Raises `Invalid`, where `check` is asked for, when Ray's sockets do not fit below `RAY_TMPDIR`.
        """
        settings = dict(self.variables)
        ray = settings.setdefault("RAY_TMPDIR", str(self.ray_folder))
        room = SOCKET_BYTES - RAY_BYTES
        if check and len(os.fsencode(ray)) > room:
            raise Invalid(f"RAY_TMPDIR has {len(os.fsencode(ray))} bytes; Ray's socket names leave room for {room}",
                          where=ray, hint="choose a shorter path on a local disk")  # fmt: skip
        path = ":".join(map(str, self.import_roots))
        rows = [f"# {self.title}", f"unset {' '.join(CLEARED)}"]
        if self.profile:
            rows += [*_sourced(self.profile)]
        rows += [f"unset {name}" for name in self.forbidden]
        rows += [
            "export PYTHONNOUSERSITE=1",
            f'export PYTHONPATH={shlex.quote(path)}"${{PYTHONPATH:+:$PYTHONPATH}}"' if path else "",
            f'export PATH={shlex.quote(str(self.python.parent))}:"$PATH"',
            f"export PYTHONPYCACHEPREFIX={shlex.quote(str(self.pycache))}",
            *(f"export {name}={shlex.quote(value)}" for name, value in sorted(settings.items())),
            f"mkdir -p {shlex.quote(ray)} || {FAIL_CLOSED}",
        ]
        rows += [_demand(name, self.title) for name in self.required] if check else []
        return "".join(f"{row}\n" for row in rows if row)

    def argv(self, command: Sequence[str], *, check: bool = False) -> list[str]:
        """The argv that runs `command` in this environment."""
        return ["bash", "-c", self.lines(check=check) + 'exec "$@"\n', "patchq", *command]


def _sourced(profile: str) -> Iterator[str]:
    """A profile sets variables; what it reads, prints, or changes the directory to is not the command's."""
    yield "PATCHQ_HERE=$PWD"
    yield f". {shlex.quote(profile)} </dev/null >&2 || {FAIL_CLOSED}"
    yield f'[ "$PWD" = "$PATCHQ_HERE" ] || cd "$PATCHQ_HERE" || {FAIL_CLOSED}'
    yield "unset PATCHQ_HERE"


def _demand(name: str, title: str) -> str:
    message = shlex.quote(f"patchq: {name} is not set, and {title.split(' (')[0]} requires it")
    return f'[ -n "${{{name}:-}}" ] || {{ echo {message} >&2; {FAIL_CLOSED}; }}'
