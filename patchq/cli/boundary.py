"""The one error boundary: a report or an error becomes output and an exit code."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NoReturn, TextIO

import typer

from patchq.cli import authoring, machine, moving, queue_verbs, record_verbs
from patchq.cli.app import app
from patchq.errors import Invalid, PatchqError, Prevented, Problem, Terminated
from patchq.progress import listening
from patchq.report import SCHEMA, Report

BUG, INTERRUPTED, BROKEN_PIPE, TERMINATED = 70, 130, 141, 143
_SOON = 0.02  # seconds until a signal that was dropped is raised again
# BadParameter < UsageError < ClickException: newer typers carry click inside, older ones import it.
CommandError: type[Exception] = typer.BadParameter.__mro__[2]


_COMPLETED = {"COMP_WORDS", "_TYPER_COMPLETE_ARGS"}
_VERBS = (queue_verbs, authoring, moving, machine, record_verbs)  # imported for what they register


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code. Every error ends here, as one line a problem."""
    as_json = "--json" in itertools.takewhile(lambda word: word != "--", argv)  # what follows is another's
    _never_at_a_loss_for_a_letter()
    _complete_what_was_begun()
    with _signals() as heard:
        try:
            return _run(argv, as_json, heard)
        except (KeyboardInterrupt, typer.Abort):
            return _fail([Problem("interrupted")], INTERRUPTED, argv, as_json)
        except Terminated:
            return _fail([Problem("terminated")], TERMINATED, argv, as_json)


def _never_at_a_loss_for_a_letter() -> None:
    """A terminal or a locale without the letters that are printed gets them as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _complete_what_was_begun() -> None:
    """A shell that asks for completion hands over the words; the variable alone is left over from somewhere."""
    if not _COMPLETED & os.environ.keys():
        os.environ.pop("_PATCHQ_COMPLETE", None)


def _run(argv: Sequence[str], as_json: bool, heard: Sequence[int]) -> int:
    try:
        command = typer.main.get_command(app)
        with _progress(as_json), _none_lost(heard):
            answer = command.main(args=list(argv) or ["--help"], prog_name="patchq", standalone_mode=False)
        if isinstance(answer, Report):
            return _answer(answer, as_json)
        if answer == INTERRUPTED:
            raise KeyboardInterrupt
        return int(answer or 0)
    except PatchqError as error:
        return _fail(error.problems, error.exit_code, argv, as_json)
    except CommandError as error:
        return _fail([_usage(error)], Invalid.exit_code, argv, as_json)
    except typer.Abort:
        raise
    except BrokenPipeError:
        _silence(sys.stdout)
        return BROKEN_PIPE
    except SystemExit as ended:
        if not isinstance(ended.__context__, BrokenPipeError):
            raise
        _silence(sys.stdout)  # click ends with 1 here, whatever it was asked for
        return BROKEN_PIPE
    except OSError as error:
        is_lost = _drop_what_cannot_be_written()
        return _fail([_machine(error)], Prevented.exit_code, argv, as_json and not is_lost)
    except MemoryError:
        return _fail([Problem("the machine has no more memory for this")], Prevented.exit_code, argv, as_json)
    except Exception as error:
        return _fail([_bug(error)], BUG, argv, as_json)


@contextlib.contextmanager
def _progress(as_json: bool) -> Iterator[None]:
    """People see what takes long; rich is imported when there is something to see."""
    with contextlib.ExitStack() as stack:
        shown: list[Callable[[str], None]] = []

        def hear(text: str) -> None:
            from patchq import render

            if not shown:
                shown.append(stack.enter_context(render.progress()))
            shown[0](text)

        if not as_json:
            stack.enter_context(listening(hear))
        yield


def _answer(report: Report, as_json: bool) -> int:
    is_handed_over = bool(report.become) and report.exit_code == 0  # stdout is the command's then
    if as_json:
        _print_json(report.as_json(), sys.stderr if is_handed_over else sys.stdout)
    else:
        from patchq import render

        render.show(report, to_stderr=bool(report.output) or is_handed_over)
    if is_handed_over:
        from patchq.process import become

        become(report.become)
    if report.output and not as_json:
        _print_output(report.output)
    return report.exit_code


def _print_output(output: str) -> None:
    """A verb's data: byte for byte, except on a terminal, which gets nothing raw."""
    if sys.stdout.isatty():
        from patchq.printable import clean

        sys.stdout.writelines(f"{clean(line)}\n" for line in output.removesuffix("\n").split("\n"))
    else:
        sys.stdout.buffer.write(output.encode("utf-8", "surrogateescape"))
    sys.stdout.flush()


def _machine(error: OSError) -> Problem:
    where = str(error.filename2 or error.filename or "")  # of a copy, what is written comes second
    if isinstance(error, FileNotFoundError) and not where:
        try:
            os.getcwd()  # noqa: PTH109
        except FileNotFoundError:
            return Problem("the folder that this was started in is not there any more", hint="cd to one that is")
    return Problem(f"the machine said: {error.strerror or error}", where)


def _fail(problems: Sequence[Problem], code: int, argv: Sequence[str], as_json: bool) -> int:
    try:
        return _say(problems, code, argv, as_json)
    except OSError as error:  # where nobody can be told, the exit code still is
        _silence(sys.stdout if as_json else sys.stderr)
        if as_json:
            return _fail([*problems, Problem(f"the answer cannot be written: {error.strerror}")], code, argv, False)
        return code


def _say(problems: Sequence[Problem], code: int, argv: Sequence[str], as_json: bool) -> int:
    verb = next((word for word in argv if not word.startswith("-")), "")
    if as_json:
        listed = [{"what": one.what, "where": one.where, "hint": one.hint} for one in problems]
        _print_json({"schema": SCHEMA, "verb": verb, "exit": code, "errors": listed})
        return code
    from patchq import render

    render.show_problems(problems)
    if verb == "env":
        from patchq.machine.launch import FAIL_CLOSED

        sys.stdout.write(f"{FAIL_CLOSED}\n")
    return code


def _print_json(document: dict[str, Any], stream: TextIO | None = None) -> None:
    from patchq.printable import json_text

    stream = stream or sys.stdout
    stream.buffer.write(f"{json_text(document)}\n".encode())
    stream.flush()


def _usage(error: Exception) -> Problem:
    context = getattr(error, "ctx", None)
    what: str = error.format_message() if hasattr(error, "format_message") else str(error)
    return Problem(what.rstrip("."), hint=f"see: {context.command_path if context else 'patchq'} --help")


def _bug(error: Exception) -> Problem:
    """A bug is named with its place, and its traceback goes to a file, not to the terminal."""
    import secrets
    import traceback

    from patchq.exclusive import temporary
    from patchq.printable import clean

    what = f"a bug in patchq: {type(error).__name__}: {error}"
    try:
        told = temporary() / f"patchq-bug-{secrets.token_hex(8)}.txt"
        told.touch(0o600, exist_ok=False)
        told.write_text("".join(f"{clean(line)}\n" for line in traceback.format_exc().split("\n")), "utf-8")
    except (OSError, Prevented):
        place = traceback.extract_tb(error.__traceback__)[-1]
        return Problem(what, hint=f"please report it with its place, {place.filename}:{place.lineno}")
    return Problem(what, hint=f"please report it with {told}")


@contextlib.contextmanager
def _signals() -> Iterator[Sequence[int]]:
    """^C, SIGTERM, and SIGHUP where nobody ignores it, end what runs through its context managers; yields those heard.

    Once is enough: while that cleans up, more of them change nothing. But what is raised in a function that a library
    calls, a destructor for one, may be dropped there: then it is raised once more, soon after.
    """
    before: dict[int, Any] = {}
    heard: list[int] = []
    timers: list[threading.Timer] = []

    def end(number: int, frame: FrameType | None) -> NoReturn:
        heard.append(number)
        for handled in before:
            signal.signal(handled, signal.SIG_IGN)
        raise _ending(number)

    def dropped(told: sys.UnraisableHookArgs) -> None:
        if not heard or not issubclass(told.exc_type, (KeyboardInterrupt, Terminated)):
            said_before(told)
            return
        for handled in before:
            signal.signal(handled, handle)
        timers.append(threading.Timer(_SOON, os.kill, (os.getpid(), heard[-1])))
        timers[-1].start()

    handle: Callable[[int, FrameType | None], Any] = end
    said_before, sys.unraisablehook = sys.unraisablehook, dropped
    with contextlib.suppress(ValueError):  # not in the main thread
        for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if one == signal.SIGTERM or signal.getsignal(one) is not signal.SIG_IGN:
                before[one] = signal.signal(one, handle)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, before)
    try:
        yield heard
    finally:
        for number in before if timers else ():
            signal.signal(number, signal.SIG_IGN)
        for timer in timers:
            timer.cancel()
            timer.join()
        sys.unraisablehook = said_before
        for number, handler in before.items():
            signal.signal(number, handler)


def _ending(number: int) -> BaseException:
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated()


@contextlib.contextmanager
def _none_lost(heard: Sequence[int]) -> Iterator[None]:
    """However the block ends after a signal was heard: it was interrupted, and what it says is not to be relied on."""
    try:
        yield
    finally:
        if heard:
            raise _ending(heard[0])


def _drop_what_cannot_be_written() -> bool:
    """Whether stdout took not all that was written to it."""
    try:
        sys.stdout.flush()
    except OSError:
        _silence(sys.stdout)
        return True
    return False


def _silence(stream: TextIO) -> None:
    """Keep Python from failing once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
