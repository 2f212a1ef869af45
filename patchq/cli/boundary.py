"""The one error boundary: a report or an error becomes output and an exit code."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sys
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
# BadParameter < UsageError < ClickException: newer typers carry click inside, older ones import it.
CommandError: type[Exception] = typer.BadParameter.__mro__[2]


_VERBS = (queue_verbs, authoring, moving, machine, record_verbs)  # imported for what they register


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code. Every error ends here, as one line a problem."""
    as_json = "--json" in itertools.takewhile(lambda word: word != "--", argv)  # what follows is another's
    command = typer.main.get_command(app)
    try:
        with _signals():
            with _progress(as_json):
                answer = command.main(args=list(argv) or ["--help"], prog_name="patchq", standalone_mode=False)
            return _answer(answer, as_json) if isinstance(answer, Report) else int(answer or 0)
    except PatchqError as error:
        return _fail(error.problems, error.exit_code, argv, as_json)
    except CommandError as error:
        return _fail([_usage(error)], Invalid.exit_code, argv, as_json)
    except (KeyboardInterrupt, typer.Abort):
        return _fail([Problem("interrupted")], INTERRUPTED, argv, as_json)
    except Terminated:
        return _fail([Problem("terminated")], TERMINATED, argv, as_json)
    except BrokenPipeError:
        _silence_stdout()
        return BROKEN_PIPE
    except OSError as error:
        problem = Problem(f"the machine said: {error.strerror or error}", str(error.filename or ""))
        return _fail([problem], Prevented.exit_code, argv, as_json)
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
        from patchq.render import clean

        sys.stdout.writelines(f"{clean(line)}\n" for line in output.removesuffix("\n").split("\n"))
    else:
        sys.stdout.buffer.write(output.encode("utf-8", "surrogateescape"))
    sys.stdout.flush()


def _fail(problems: Sequence[Problem], code: int, argv: Sequence[str], as_json: bool) -> int:
    verb = next((word for word in argv if not word.startswith("-")), "")
    if as_json:
        listed = [{"what": one.what, "where": one.where, "hint": one.hint} for one in problems]
        _print_json({"schema": SCHEMA, "verb": verb, "exit": code, "errors": listed})
        return code
    from patchq import render

    render.show_problems(problems)
    if verb == "env":
        from patchq.launch import FAIL_CLOSED

        sys.stdout.write(f"{FAIL_CLOSED}\n")
    return code


def _print_json(document: dict[str, Any], stream: TextIO | None = None) -> None:
    from patchq.mask import mask_values

    text = json.dumps(mask_values(document), ensure_ascii=False, indent=2)
    stream = stream or sys.stdout
    stream.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
    stream.flush()


def _usage(error: Exception) -> Problem:
    context = getattr(error, "ctx", None)
    what: str = error.format_message() if hasattr(error, "format_message") else str(error)
    return Problem(what.rstrip("."), hint=f"see: {context.command_path if context else 'patchq'} --help")


def _bug(error: Exception) -> Problem:
    """A bug is named with its place, and its traceback goes to a file, not to the terminal."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile("w", prefix="patchq-bug-", suffix=".txt", delete=False) as stream:
        traceback.print_exc(file=stream)
    return Problem(f"a bug in patchq: {type(error).__name__}: {error}", hint=f"please report it with {stream.name}")


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM, and SIGHUP where nobody ignores it, end the block through its context managers."""
    before: dict[int, Any] = {}

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated

    handle: Callable[[int, FrameType | None], Any] = end
    with contextlib.suppress(ValueError):  # not in the main thread
        before[signal.SIGTERM] = signal.signal(signal.SIGTERM, handle)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            before[signal.SIGHUP] = signal.signal(signal.SIGHUP, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _silence_stdout() -> None:
    """Keep Python from failing once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
