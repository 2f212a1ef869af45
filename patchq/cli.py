"""The command line: options in, a verb's report out. The only door to typer and the one error boundary."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from patchq.errors import Invalid, PatchqError, Prevented, Problem, Terminated
from patchq.report import SCHEMA, Report

BUG, INTERRUPTED, BROKEN_PIPE, TERMINATED = 70, 130, 141, 143
# BadParameter < UsageError < ClickException: newer typers carry click inside, older ones import it.
CommandError: type[Exception] = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="patchq",
    help="Patches for VERL, LLaMA-Factory and DeepSpeed, chosen per machine and carried offline.",
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

QueueOption = Annotated[
    Path | None,
    typer.Option("--queue", metavar="FOLDER", help="The folder that holds series/, or a work area."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, and nothing else there.")]
OneTarget = Annotated[str, typer.Option("--target", metavar="TARGET", help="The kind of machine.")]
ManyTargets = Annotated[
    list[str],
    typer.Option("--target", metavar="TARGET", help="Only this target; may be given more than once."),
]
VariantOption = Annotated[
    str | None, typer.Option("--variant", metavar="VARIANT", help="A choice of research patches.")
]
SourceOption = Annotated[
    list[str],
    typer.Option(
        "--source",
        metavar="NAME=LOCATION",
        help="A clone, mirror or URL to take an upstream's baseline from.",
    ),
]
Wait = Annotated[float, typer.Option("--wait", metavar="SECONDS", help="Wait so long for a lock that is held.")]


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from patchq import __version__

        typer.echo(f"patchq {__version__}")
        raise typer.Exit


def _sources(given: list[str]) -> dict[str, str]:
    pairs = {}
    for item in given:
        name, equals, location = item.partition("=")
        if not (name and equals and location):
            raise Invalid(f"cannot read --source {item!r}", hint="write NAME=PATH or NAME=URL")
        pairs[name] = location
    return pairs


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="Where series/ is to be.")] = Path(),
    name: Annotated[str | None, typer.Option(help="The queue's name; else the folder's.")] = None,
    as_json: Json = False,
) -> Report:
    """Start a queue in this repository."""
    from patchq.commands.init import init

    return init(folder, name)


@app.command()
def status(queue: QueueOption = None, as_json: Json = False) -> Report:
    """Show the queue at a glance: targets across, patches down, the lock, what was applied here."""
    from patchq.commands.place import Place
    from patchq.commands.status import status

    return status(Place.find(queue))


@app.command()
def series(
    target: OneTarget,
    variant: VariantOption = None,
    why: Annotated[bool, typer.Option("--why", help="Every patch, in or out, with the reason.")] = False,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """List a target's ordered selection."""
    from patchq.commands.place import Place
    from patchq.commands.series import series

    return series(Place.find(queue, target), target, variant, why=why)


@app.command()
def check(
    target: ManyTargets = [],  # noqa: B006
    source: SourceOption = [],  # noqa: B006
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Prove that every target's selection applies; lint headers, guards, layers and dependencies."""
    from patchq.commands.check import check
    from patchq.commands.place import Place

    return check(Place.find(queue, target[0] if target else None), target, _sources(source))


@app.command()
def lock(
    check: Annotated[bool, typer.Option("--check", help="Only compare; write nothing.")] = False,
    source: SourceOption = [],  # noqa: B006
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Resolve every selection and write series/patchq.lock."""
    from patchq.commands.lock import lock
    from patchq.commands.place import Place

    return lock(Place.find(queue), check=check, sources=_sources(source))


@app.command()
def bundle(
    target: OneTarget,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="The bundle's folder (default: bundles/…).")
    ] = None,
    since: Annotated[
        Path | None,
        typer.Option("--since", metavar="LOCK", help="Leave out what the receiver of this lock has."),
    ] = None,
    history: Annotated[bool, typer.Option("--history", help="Carry the whole history of the baselines.")] = False,
    tar: Annotated[bool, typer.Option("--tar", help="Also write one uncompressed tar of the folder.")] = False,
    source: SourceOption = [],  # noqa: B006
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Build the folder that crosses the air gap."""
    from patchq.commands.bundle import bundle
    from patchq.commands.place import Place

    return bundle(
        Place.find(queue, target),
        target,
        out,
        since=since,
        history=history,
        tar=tar,
        sources=_sources(source),
    )


@app.command()
def apply(
    target: OneTarget,
    bundle: Annotated[
        Path | None, typer.Option("--bundle", metavar="FOLDER", help="The bundle, as a folder or a tar.")
    ] = None,
    variant: VariantOption = None,
    source: SourceOption = [],  # noqa: B006
    wait: Wait = 0,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Apply a target's selection into new work copies; compile, import, test and record them."""
    from patchq.commands.apply import apply
    from patchq.commands.place import Place

    if bundle is not None:
        if queue or source:
            raise Invalid("--bundle brings its own queue and sources", hint="leave out --queue and --source")
        from patchq.receive import receive

        area, digest, steps = receive(bundle, target, wait)
        return apply(Place(area.queue(digest) / "series", area), target, variant, wait=wait, before=steps)
    return apply(Place.find(queue, target), target, variant, wait=wait, sources=_sources(source))


@app.command()
def verify(
    target: OneTarget,
    variant: VariantOption = None,
    wait: Wait = 0,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Prove again, before a long run, that what was applied is what is there."""
    from patchq.commands.place import Place
    from patchq.commands.verify import verify

    return verify(Place.find(queue, target), target, variant, wait=wait)


@app.command()
def revert(target: OneTarget, wait: Wait = 0, queue: QueueOption = None, as_json: Json = False) -> Report:
    """Take the last apply of a target back."""
    from patchq.commands.place import Place
    from patchq.commands.revert import revert

    return revert(Place.find(queue, target), target, wait=wait)


@app.command()
def env(
    target: OneTarget,
    env: Annotated[str | None, typer.Option("--env", metavar="ENV", help="Which of the target's environments.")] = None,
    variant: VariantOption = None,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Print an environment's shell lines, for launch scripts to source."""
    from patchq.commands.env import env as print_env
    from patchq.commands.place import Place

    return print_env(Place.find(queue, target), target, env, variant)


@app.command()
def export(
    target: OneTarget,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="A folder that is not there yet.")],
    form: Annotated[
        str, typer.Option("--format", metavar="quilt|git-am", help="For quilt push, or for git am --keep-cr.")
    ],
    variant: VariantOption = None,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Write a selection for other tools, one folder an upstream."""
    from patchq.commands.export import export
    from patchq.commands.place import Place

    return export(Place.find(queue, target), target, variant, form, out)


@app.command()
def prune(
    target: OneTarget,
    keep: Annotated[
        int, typer.Option("--keep", metavar="N", min=1, help="Keep the newest N copies of each upstream.")
    ] = 2,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    wait: Wait = 0,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Remove old copies, failed copies and what nothing refers to any more."""
    from patchq.commands.place import Place
    from patchq.commands.prune import prune

    return prune(Place.find(queue, target), target, keep=keep, dry_run=dry_run, wait=wait)


record_app = typer.Typer(help="Read the evidence that was written.", rich_markup_mode=None)
app.add_typer(record_app, name="record")


@record_app.command("list")
def record_list(target: OneTarget, queue: QueueOption = None, as_json: Json = False) -> Report:
    """List the records of a target's work area, oldest first."""
    from patchq.commands.place import Place
    from patchq.commands.record import list_all

    return list_all(Place.find(queue, target), target)


@record_app.command("show")
def record_show(
    identity: Annotated[str, typer.Argument(metavar="ID", help="A record's id, or its beginning.")],
    target: OneTarget,
    queue: QueueOption = None,
    as_json: Json = False,
) -> Report:
    """Show one record, its digests checked."""
    from patchq.commands.place import Place
    from patchq.commands.record import show

    return show(Place.find(queue, target), target, identity)


def run(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code. Every error ends here, as one line a problem."""
    as_json = "--json" in argv
    command = typer.main.get_command(app)
    try:
        with _signals():
            answer = command.main(args=list(argv) or ["--help"], prog_name="patchq", standalone_mode=False)
            return _answer(answer, argv, as_json) if isinstance(answer, Report) else int(answer or 0)
    except PatchqError as error:
        return _fail(error.problems, error.exit_code, argv, as_json)
    except CommandError as error:
        return _fail([_usage(error, argv)], Invalid.exit_code, argv, as_json)
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


def _answer(report: Report, argv: Sequence[str], as_json: bool) -> int:
    if as_json:
        _print_json(report.as_json())
        return report.exit_code
    from patchq import render

    render.show(report, to_stderr=bool(report.output))
    if report.output:
        sys.stdout.write(report.output)
        sys.stdout.flush()
    return report.exit_code


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


def _print_json(document: dict[str, Any]) -> None:
    from patchq.mask import mask_values

    text = json.dumps(mask_values(document), ensure_ascii=False, indent=2)
    sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace") + b"\n")
    sys.stdout.flush()


def _usage(error: Exception, argv: Sequence[str]) -> Problem:
    context = getattr(error, "ctx", None)
    what = getattr(error, "message", "") or str(error)
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
    """SIGTERM and SIGHUP end the block through its context managers."""
    before: dict[int, Any] = {}

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise Terminated

    handle: Callable[[int, FrameType | None], Any] = end
    with contextlib.suppress(ValueError):  # not in the main thread
        before[signal.SIGTERM] = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _silence_stdout() -> None:
    """Keep Python from failing once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
