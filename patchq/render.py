"""Reports for people. The only door to rich; nothing of a name or a log reaches the terminal raw."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from patchq.errors import Problem
from patchq.printable import clean
from patchq.report import Report, State, Step

_MARKS = {
    State.PASSED: ("✓", "green"),
    State.APPLIED: ("✓", "green"),
    State.UNCHANGED: ("=", "green"),
    State.EXCLUDED: ("–", "dim"),
    State.NOTE: ("·", "default"),
    State.WARNING: ("!", "yellow"),
    State.NOT_RUN: ("?", "yellow"),
}
_BAD = ("✗", "bold red")
_WIDE = 10_000
_CELL = 72  # widest cell of a table; the whole text is in --json and in the record
_QUIET_STATES = (State.APPLIED, State.EXCLUDED)


def show(report: Report, *, to_stderr: bool) -> None:
    """Print a report for people, on stdout or, where stdout is data, on stderr."""
    console = _console(to_stderr)
    if "headline" in report.data:
        console.print(Text(clean(f"{report.verb}: {report.data['headline']}"), style="bold red"))
    if report.verb == "check":
        _show_matrix(console, report.steps)
    elif report.verb == "status":
        _show_status(console, report)
    elif report.verb == "rebase" and "matrix" in report.data:
        _show_plan(console, report)
    for group, steps in _grouped(_worth_lines(report)):
        if group:
            console.print(Text(clean(group), style="bold"))
        for step in steps:
            _show_step(console, step)
    if "table" in report.data:
        _show_table(console, report.data["table"])
    if len(report.steps) > 1:
        console.print(_summary(report))


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Shows on stderr what takes long: one line that goes again on a terminal, a plain line each elsewhere."""
    console = _console(True)
    if not console.is_terminal:
        yield lambda text: console.print(Text(f"… {clean(text)}"))
        return
    with console.status("") as status:
        yield lambda text: status.update(Text(clean(text)))


def show_problems(problems: Iterable[Problem]) -> None:
    """Print errors, one line each: where, what, and the nearest right thing."""
    console = _console(True)
    for problem in problems:
        line = Text("error: ", style="bold red")
        line.append(clean(f"{problem.where}: " if problem.where else ""), style="default")
        line.append(clean(problem.what), style="default")
        if problem.hint:
            line.append(f" ({clean(problem.hint)})", style="cyan")
        console.print(line)


class _Console(Console):
    """A console that leaves a closed pipe to the command line, which has an exit code for it."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _console(to_stderr: bool) -> Console:
    stream = sys.stderr if to_stderr else sys.stdout
    width = None if stream.isatty() else _WIDE
    return _Console(file=stream, markup=False, highlight=False, emoji=False, soft_wrap=True, width=width)


def _worth_lines(report: Report) -> list[Step]:
    """`check` has its matrix for what went well; what several selections share is said once."""
    if report.verb != "check":
        return list(report.steps)
    shared: dict[tuple[object, ...], list[Step]] = {}
    for step in report.steps:
        if step.state not in _QUIET_STATES or step.detail:
            shared.setdefault((step.name, step.state, step.summary, step.detail), []).append(step)
    return [
        replace(steps[0], group=", ".join(dict.fromkeys(step.group for step in steps))) for steps in shared.values()
    ]


def _grouped(steps: list[Step]) -> list[tuple[str, list[Step]]]:
    groups: dict[str, list[Step]] = {}
    for step in steps:
        groups.setdefault(step.group, []).append(step)
    return list(groups.items())


def _show_step(console: Console, step: Step) -> None:
    mark, style = _MARKS.get(step.state, _BAD)
    line = Text(f"  {mark} ", style=style)
    line.append(clean(step.name), style="default")
    if step.state not in _MARKS or step.state is State.NOT_RUN:
        line.append(f"  {step.state.value}", style=style)
    if step.summary:
        line.append(f"  {clean(step.summary)}", style="default")
    if step.seconds is not None and step.seconds >= 1:
        line.append(f"  {step.seconds:.1f} s", style="dim")
    console.print(line)
    for row in step.detail:
        console.print(Text(f"      {clean(row)}", style="default"))
    if step.hint:
        console.print(Text(f"      → {clean(step.hint)}", style="cyan"))


def _summary(report: Report) -> Text:
    counts = ", ".join(f"{count} {name}" for name, count in report.counts.items())
    style = "green" if report.exit_code == 0 else "yellow" if report.exit_code == 4 else "bold red"
    return Text(f"{report.verb}: {counts} (exit {report.exit_code})", style=style)


def _show_table(console: Console, table: Mapping[str, Any]) -> None:
    """`{"title": …, "columns": […], "rows": [[…]]}` in a verb's data."""
    console.print(Text(clean(table["title"]), style="bold"))
    shown = Table(box=None, padding=(0, 2, 0, 2), pad_edge=True)
    for column in table["columns"]:
        shown.add_column(column, no_wrap=True)
    for row in table["rows"]:
        shown.add_row(*(Text(_shortened(clean(cell))) for cell in row))
    console.print(shown)


def _shortened(text: str) -> str:
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"


def _show_matrix(console: Console, steps: tuple[Step, ...]) -> None:
    """Patches down, targets and variants across."""
    scoped = [step for step in steps if step.group != "queue" and "/" in step.name]
    scopes = list(dict.fromkeys(step.group for step in scoped))
    names = list(dict.fromkeys(step.name for step in scoped))
    if not names:
        return
    cells = {(step.name, step.group): step.state for step in scoped}
    table = Table(box=None, pad_edge=False)
    table.add_column("patch")
    for scope in scopes:
        table.add_column(clean(scope), justify="center")
    for name in names:
        marks = [_MARKS.get(cells[name, scope], _BAD) if (name, scope) in cells else ("", "dim") for scope in scopes]
        table.add_row(clean(name), *(Text(mark, style=style) for mark, style in marks))
    console.print(table)


def _show_status(console: Console, report: Report) -> None:
    matrix: dict[str, dict[str, Any]] = report.data["matrix"]
    targets = list(dict.fromkeys(target for row in matrix.values() for target in row))
    table = Table(box=None, pad_edge=False)
    table.add_column("patch")
    for target in targets:
        table.add_column(clean(target), justify="center")
    signs = {"in": Text("✓", style="green"), "out": Text("–", style="dim")}
    for name, row in matrix.items():
        table.add_row(
            clean(name),
            *(signs.get(row.get(target, ""), Text(clean(row.get(target, "")))) for target in targets),
        )
    console.print(table)


def _show_plan(console: Console, report: Report) -> None:
    """Patches down, candidates across; a patch whose files fare differently has a row for each of them."""
    columns: list[str] = report.data["candidates"]
    table = Table(box=None, pad_edge=False)
    table.add_column("patch")
    for column in columns:
        table.add_column(clean(column))
    for name, cells in report.data["matrix"].items():
        table.add_row(clean(name), *(_fate(cells[column]["fate"], cells[column]["findings"]) for column in columns))
        files = {path: None for column in columns for path in cells[column]["files"]}
        mixed = any(len(set(cells[column]["files"].values())) > 1 for column in columns)
        for path in files if mixed else ():
            fates = (cells[column]["files"].get(path, "") for column in columns)
            table.add_row(f"    {clean(path)}", *(_fate(fate, []) for fate in fates))
    console.print(table)


def _fate(fate: str, findings: list[str]) -> Text:
    style = {"unchanged": "green", "shifted": "green", "merged": "yellow", "conflict": "bold red"}.get(fate, "cyan")
    return Text(f"{fate} !" if findings and fate != "conflict" else fate, style=style)
