"""Faults on the way: work done in a child process that is killed, interrupted or told no at one of its file operations.

Counted are, from 0, what changes files (opening for writing, rename, remove, mkdir, …), every fsync, and every start of
a program such as git. What a started program does itself is not counted.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TypeVar

from patchq.errors import PatchqError, Prevented
from patchq.report import Report

_CHANGING = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink",
                       "os.truncate", "os.utime", "os.setxattr"})  # fmt: skip
_OF_TWO = frozenset({"os.rename", "os.link", "os.symlink"})
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CALLS = frozenset({"open", "rename", "replace", "remove", "unlink", "mkdir", "rmdir", "chmod", "link", "symlink",
                    "truncate", "utime", "setxattr", "fsync", "fork_exec"})  # fmt: skip
EVERY = bool(os.environ.get("PATCHQ_EVERY"))
Case = TypeVar("Case")
KILLED, INTERRUPTED = -signal.SIGKILL, 130


@dataclass(frozen=True)
class Fault:
    """What happens at one file operation: before it SIGKILL or another `signal`, or with an `error` (an errno) an
    OSError. `after` is for the signal that arrives while the operation is done, and is heard when it is over.

    `at` is the number of the operation, or the path whose rename into place is hit; None is no fault. Only operations
    below `within` are counted, and those that say no full path. With `lasting`, all later operations fail too, as on
    a full disk.
    """

    at: int | str | None = None
    error: int = 0
    within: Path = Path("/")
    lasting: bool = False
    signal: int = signal.SIGKILL
    after: bool = False

    def codes(self, undisturbed: int, is_struck: bool) -> tuple[int, ...]:
        """With what a call may end that ends with `undisturbed` by itself.

        It may have an operation less than the first call: the last is not reached then.
        """
        if not is_struck:
            return (undisturbed,)
        if self.error:
            return undisturbed, 1, 4, 5  # 4: what was to be looked at afterwards was not, and that is said
        return (INTERRUPTED,) if self.signal == signal.SIGINT else (KILLED,)


@dataclass(frozen=True)
class Ended:
    """A child's exit code (negative: a signal), how many operations it had begun, and whether the fault struck."""

    code: int
    operations: int
    is_struck: bool


def in_child(work: Callable[[], object], fault: Fault = Fault()) -> Ended:
    """Do `work` in a forked child under a fault. Its code is what `work` returns (a code, or a report's), or what the
    command line makes of what it raised; a bug's traceback is shown."""
    shared = mmap.mmap(-1, 16)
    child = os.fork()
    if child == 0:
        code = 70
        try:
            _Armed(fault, shared)
            code = _code(work())
        except PatchqError as error:
            code = error.exit_code
        except OSError:
            code = Prevented.exit_code
        except KeyboardInterrupt:
            code = INTERRUPTED
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return Ended(code, _number(shared, 0), bool(_number(shared, 1)))


def points(operations: int, most: int = 0) -> list[int]:
    """Where to strike in work of so many operations: everywhere, or at `most` places, the first and last among them.

    `PATCHQ_EVERY=1` has the tests of kills take every one.
    """
    if not most or operations <= most:
        return list(range(operations))
    return sorted({round(number * (operations - 1) / (most - 1)) for number in range(most)})


def sampled(cases: Iterable[Case], most: int) -> list[Case]:
    """All of the cases with `PATCHQ_EVERY`, else at most so many of them, the first and last among them."""
    every = list(cases)
    return [every[number] for number in points(len(every), 0 if EVERY else most)]


def _code(result: object) -> int:
    if isinstance(result, Report):
        return result.exit_code
    return result if isinstance(result, int) and not isinstance(result, bool) else 0


def _number(shared: mmap.mmap, slot: int, value: int | None = None) -> int:
    place = slice(slot * 8, slot * 8 + 8)
    if value is not None:
        shared[place] = value.to_bytes(8, "little")
    return int.from_bytes(shared[place], "little")


class _Armed:
    """The fault, laid in this process for good."""

    def __init__(self, fault: Fault, shared: mmap.mmap) -> None:
        self.fault, self.shared = fault, shared
        self.within = f"{fault.within}/".replace("//", "/")
        sys.dont_write_bytecode = True  # whether a module is compiled yet is no operation of the work
        real, os.fsync = os.fsync, self.fsync  # type: ignore[assignment]
        self.real_fsync = real
        sys.addaudithook(self.audit)
        self.listen(0)

    def audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "os.rename" and _text(arguments[1]) == self.fault.at:
            self.strike()
        opens = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING
        paths = arguments[: 2 if event in _OF_TWO else 1]
        if event == "subprocess.Popen" or ((event in _CHANGING or opens) and _is_below(paths, self.within)):
            self.tick()

    def fsync(self, descriptor: int) -> None:
        self.tick()
        self.real_fsync(descriptor)

    def tick(self) -> None:
        count, at = _number(self.shared, 0), self.fault.at
        _number(self.shared, 0, count + 1)
        self.listen(count + 1)
        if count == at or (self.fault.lasting and isinstance(at, int) and count > at):
            self.strike()

    def strike(self) -> None:
        _number(self.shared, 1, 1)
        if self.fault.error:
            raise OSError(self.fault.error, os.strerror(self.fault.error))
        if not self.fault.after:
            os.kill(os.getpid(), self.fault.signal)

    def listen(self, next_one: int) -> None:
        if self.fault.after and next_one == self.fault.at:
            sys.setprofile(self.heard)  # now: for a call that has begun Python does not say when it returns

    def heard(self, _: FrameType, event: str, called: object) -> None:
        """Python hears a signal between two of its instructions: here between the call and what is done with it."""
        if _number(self.shared, 1) and event == "c_return" and getattr(called, "__name__", "") in _CALLS:
            sys.setprofile(None)
            os.kill(os.getpid(), self.fault.signal)


def _is_below(paths: tuple[object, ...], within: str) -> bool:
    return any(not text.startswith("/") or text.startswith(within) for text in map(_text, paths))


def _text(argument: object) -> str:
    """A path as text; nothing for a descriptor."""
    return os.fsdecode(argument) if isinstance(argument, (str, bytes, os.PathLike)) else ""
