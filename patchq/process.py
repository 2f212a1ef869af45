"""Running children: argv in, a frozen `Outcome` out. The only door to subprocess."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

from patchq.errors import Prevented
from patchq.exclusive import temporary, unnamed

LEASH = Path(__file__).parent / "leash.py"
LET_GO_SECONDS = 15.0
END_SECONDS = 5.0  # that a program gets to clean up after SIGTERM
MAX_OUTPUT = 256 << 20  # bytes of one stream of a leashed command: more is no output but a flood
_PAUSE = 0.05
_TAIL = 64 << 10


@dataclass(frozen=True)
class Outcome:
    """How a child ended. `code` is the exit status, negative for the signal that ended it.

    `flooded` means that a leashed command wrote more than `MAX_OUTPUT` bytes, and was ended for it.
    """

    argv: tuple[str, ...]
    code: int
    stdout: bytes
    stderr: bytes
    seconds: float
    timed_out: bool = False
    flooded: bool = False

    @property
    def ok(self) -> bool:
        return self.code == 0 and not self.timed_out and not self.flooded

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        return self.stderr.decode("utf-8", "replace").strip()

    @property
    def last_words(self) -> str:
        """The last line that it wrote, to stderr if it wrote there; else its exit status."""
        lines = (_tail(self.stderr) or _tail(self.stdout)).splitlines()
        return lines[-1].strip()[:300] if lines else f"exit status {self.code}"


def _tail(data: bytes) -> str:
    return data[-_TAIL:].decode("utf-8", "replace").strip()


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes = b"",
    timeout: float | None = None,
    kept: Sequence[int] = (),
) -> Outcome:
    """Run `argv` to its end in a process group of its own, which is killed on timeout, ^C and SIGTERM.

    `argv[0]` is found by `find_program`. `env` replaces the whole environment (None: inherited); `timeout` is in
    seconds; `kept` are descriptors that it inherits. Raises `Prevented` when the program cannot be started.
    """
    started = time.monotonic()
    child = _start(argv, env, cwd, kept)
    timed_out = False
    try:
        stdout, stderr = child.communicate(stdin, timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
        _kill_group(child)
        stdout, stderr = child.communicate()
    except BaseException:
        _end_group(child, child.communicate)
        raise
    seconds = time.monotonic() - started
    return Outcome(tuple(argv), child.returncode, stdout, stderr, seconds, timed_out)


def run_together(
    commands: Sequence[tuple[Sequence[str], bytes]],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    kept: Sequence[int] = (),
) -> list[Outcome]:
    """Like `run` for several commands (argv, stdin) at the same time; all of them end on ^C and SIGTERM."""
    from concurrent.futures import ThreadPoolExecutor  # most verbs have no use for it

    started = time.monotonic()
    children: list[subprocess.Popen[bytes]] = []

    def ended(argv: Sequence[str], stdin: bytes, child: subprocess.Popen[bytes]) -> Outcome:
        stdout, stderr = child.communicate(stdin)
        return Outcome(tuple(argv), child.returncode, stdout, stderr, time.monotonic() - started)

    with ThreadPoolExecutor(max(1, len(commands))) as pool:
        try:
            waiting = []
            for argv, stdin in commands:
                children.append(_start(argv, env, cwd, kept))
                waiting.append(pool.submit(ended, argv, stdin, children[-1]))
            return [future.result() for future in waiting]
        except BaseException:
            for child in children:
                _end_group(child, child.wait)
            raise


def find_program(name: str, env: Mapping[str, str] | None = None) -> str | None:
    """Where a program is by the folders that `PATH` names in full; None where it is in none of them.

    What `PATH` calls `.`, or leaves empty, is the folder where one happens to be: a bundle that nobody has checked yet
    can bring a `git` or an `ssh-keygen` of its own.
    """
    folders = [folder for folder in os.get_exec_path(env) if folder.startswith("/")]
    return shutil.which(name, path=os.pathsep.join(folders))


def _start(
    argv: Sequence[str], env: Mapping[str, str] | None, cwd: Path | None, kept: Sequence[int]
) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    try:
        program = find_program(argv[0], env)
        if program is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return subprocess.Popen(argv, executable=program, env=env, cwd=cwd, stdin=pipe, stdout=pipe, stderr=pipe,
                                pass_fds=kept, start_new_session=True)  # fmt: skip
    except OSError as error:
        raise Prevented(f"cannot start {argv[0]}: {error.strerror or error}") from error


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
        deadline = float("inf") if timeout is None else self.started + timeout
        while not (self._has_ended(deadline) or self._is_flooded()):
            if timed_out := time.monotonic() >= deadline:
                break
        self.let_go()
        seconds = time.monotonic() - self.started
        stdout, stderr = _head_of(self._stdout), _head_of(self._stderr)
        return Outcome(self.argv, self._child.returncode, stdout, stderr, seconds, timed_out, self._is_flooded())

    def _has_ended(self, deadline: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(max(0.0, min(_PAUSE, deadline - time.monotonic())))
        return self._child.returncode is not None

    def _is_flooded(self) -> bool:
        return any(os.fstat(stream.fileno()).st_size > MAX_OUTPUT for stream in (self._stdout, self._stderr))

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
        question, stdout, stderr = (stack.enter_context(unnamed()) for _ in range(3))
        _fill(question, stdin)
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


def _fill(stream: BinaryIO, data: bytes) -> None:
    """Not by its buffer, which would be written once more where a full disk has said no already."""
    left = memoryview(data)
    try:
        while left:
            left = left[os.write(stream.fileno(), left) :]
    except OSError as error:
        raise Prevented(f"cannot be written: {error.strerror or error}", where=str(temporary())) from error
    os.lseek(stream.fileno(), 0, os.SEEK_SET)


def _head_of(stream: BinaryIO) -> bytes:
    stream.seek(0)
    return stream.read(MAX_OUTPUT)


def _end_group(child: subprocess.Popen[bytes], wait: Callable[..., object]) -> None:
    """Let it clean up: a git that is killed leaves its locks, and every later git refuses to work there."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    try:
        wait(timeout=END_SECONDS)
    except BaseException:
        _kill_group(child)
        child.wait()


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
