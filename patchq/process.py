"""Running children: argv in, a frozen `Outcome` out. The only door to subprocess."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.errors import Prevented


@dataclass(frozen=True)
class Outcome:
    """How a child ended. `code` is the exit status, negative for the signal that ended it."""

    argv: tuple[str, ...]
    code: int
    stdout: bytes
    stderr: bytes
    seconds: float
    timed_out: bool = False

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.timed_out

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        return self.stderr.decode("utf-8", "replace").strip()


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes = b"",
    timeout: float | None = None,
) -> Outcome:
    """Run `argv` to its end in a process group of its own, which is killed on timeout, ^C and SIGTERM.

    `env` replaces the whole environment (None: inherited); `timeout` is in seconds. Raises `Prevented` when
    the program cannot be started.
    """
    started = time.monotonic()
    try:
        child = subprocess.Popen(
            argv,
            env=env,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise Prevented(f"cannot start {argv[0]}: {error.strerror or error}") from error
    timed_out = False
    try:
        stdout, stderr = child.communicate(stdin, timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
        _kill_group(child)
        stdout, stderr = child.communicate()
    except BaseException:
        _kill_group(child)
        child.wait()
        raise
    seconds = time.monotonic() - started
    return Outcome(tuple(argv), child.returncode, stdout, stderr, seconds, timed_out)


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
