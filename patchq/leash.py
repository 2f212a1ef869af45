"""Holds a command on a leash: when whoever started it ends, however it ends, nothing of the command is left.

Run as a script: `python -I -S leash.py FD COMMAND...`. FD is the reading end of a pipe that only the starter can
write to; it closes when the starter lets go or dies. Whatever the command left running is killed then, and also when
the command itself ends. Grandchildren that detached themselves are found because this process is their subreaper
(prctl(2), Linux 3.4). Ends with the command's own status or signal. Standard library only.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterator

_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
_NOT_STARTED = 127
_SWEEP_SECONDS = 10.0


def main() -> None:
    lead, command = int(sys.argv[1]), sys.argv[2:]
    os.set_inheritable(lead, False)
    _prctl(_SET_CHILD_SUBREAPER, 1)
    wake = _wakes_on(signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    child = _start(command)
    status = _wait(child, lead, wake)
    _sweep()
    _end_like(status)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _wakes_on(*signals: signal.Signals) -> int:
    """A descriptor that can be read once one of `signals` has arrived."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writing)
    for number in signals:
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # whoever started patchq may have blocked what is waited for
    return reading


def _start(command: list[str]) -> int:
    leash = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != leash:
            os._exit(_NOT_STARTED)
        os.setsid()
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, os.fsencode(f"{command[0]}: {error.strerror}\n"))
    os._exit(_NOT_STARTED)


def _wait(child: int, lead: int, wake: int) -> int | None:
    """The command's wait status; None when it was not waited for, because the leash was let go."""
    while True:
        ready, _, _ = select.select([lead, wake], [], [])
        stopped = wake in ready and any(number != signal.SIGCHLD for number in os.read(wake, 512))
        for pid, status in _reaped():
            if pid == child:
                return status
        if lead in ready or stopped:
            return None


def _reaped() -> Iterator[tuple[int, int]]:
    """Every child that has ended, with its wait status."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, status


def _sweep() -> None:
    """Kill what is left, until nothing is; a process that even SIGKILL does not end at once is not waited for."""
    deadline = time.monotonic() + _SWEEP_SECONDS
    while _has_children() and time.monotonic() < deadline:
        for pid in _descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:  # noqa: PERF203 - gone by itself; contextlib would double the start-up time
                continue
        time.sleep(0.002)


def _has_children() -> bool:
    """Whether there is a child that lives; as orphans become children of this process, none means no descendant."""
    for _ in _reaped():
        pass
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _descendants(ancestor: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (parent := _parent(name)):
            children.setdefault(parent, []).append(int(name))
    found = list(children.get(ancestor, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def _parent(pid: str) -> int:
    """The parent of a process, 0 where it is gone; field 4 of proc(5)'s stat, after the parenthesised name."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:
            return int(stream.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _end_like(status: int | None) -> None:
    if status is None:
        os._exit(_NOT_STARTED)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main()
