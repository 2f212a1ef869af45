"""Running children: argv in, a frozen `Outcome` out. The only door to subprocess."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from patchq.errors import Prevented

LEASH = Path(__file__).parent / "leash.py"
LET_GO_SECONDS = 15.0


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


@dataclass
class Running:
    """A command on a leash (`leash.py`), started at `started` on the monotonic clock."""

    argv: tuple[str, ...]
    started: float
    _child: subprocess.Popen[bytes]
    _lead: int
    _stdout: BinaryIO
    _stderr: BinaryIO

    def outcome(self, timeout: float | None = None) -> Outcome:
        """Wait for its end, at most until `timeout` seconds after its start."""
        timed_out = False
        try:
            self._child.wait(None if timeout is None else max(0.0, self.started + timeout - time.monotonic()))
        except subprocess.TimeoutExpired:
            timed_out = True
            self.let_go()
        seconds = time.monotonic() - self.started
        return Outcome(
            self.argv, self._child.returncode, _all_of(self._stdout), _all_of(self._stderr), seconds, timed_out
        )

    def let_go(self) -> None:
        """End it with everything that it started, now."""
        if self._lead >= 0:
            os.close(self._lead)
            self._lead = -1
        try:
            self._child.wait(LET_GO_SECONDS)
        except subprocess.TimeoutExpired:
            _kill_group(self._child)
            self._child.wait()


@contextlib.contextmanager
def leashed(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None, stdin: bytes = b""
) -> Iterator[Running]:
    """Start `argv`; when the block ends, and also when this process is killed in it, nothing of it is left running.

    What it and its children write is kept in unnamed files, so it never waits for a reader. Raises `Prevented` when
    it cannot be started.
    """
    with contextlib.ExitStack() as stack:
        question, stdout, stderr = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        question.write(stdin)
        question.seek(0)
        held, lead = os.pipe()
        try:
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", str(LEASH), str(held), *argv],
                env=env,
                cwd=cwd,
                stdin=question,
                stdout=stdout,
                stderr=stderr,
                pass_fds=(held,),
                start_new_session=True,
            )
        except OSError as error:
            os.close(lead)
            raise Prevented(f"cannot start {argv[0]}: {error.strerror or error}") from error
        finally:
            os.close(held)
        running = Running(tuple(argv), time.monotonic(), child, lead, stdout, stderr)
        stack.callback(running.let_go)
        yield running


def become(argv: Sequence[str]) -> NoReturn:
    """Replace this process by `argv`, which keeps its pid, its terminal and every descriptor made to be inherited.

    The signals that Python ignores for itself are as a shell would leave them. Raises `Prevented` where it can't be.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(argv[0], list(argv))
    except OSError as error:
        raise Prevented(f"cannot start {argv[0]}: {error.strerror or error}") from error


def _all_of(stream: BinaryIO) -> bytes:
    stream.seek(0)
    return stream.read()


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
