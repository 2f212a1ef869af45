"""What was measured: one row a figure, as a table, as JSON and as a picture."""

from __future__ import annotations

import json
import math
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from xml.sax.saxutils import escape

from measure import Ratio

_WIDTH, _LINE, _LEFT, _RIGHT = 980, 20, 470, 90
_FLOOR, _CEILING = 0.005, 100.0


@dataclass(frozen=True)
class Row:
    """One figure: `what` against `against`. `cpu` and `wall` are ratios of time; `figure` anything else, in `unit`.

    `least` and `most` are the CPU ratio's over the pairs, `ours` and `theirs` the medians of CPU seconds. A row
    without a figure says in `note` why it has none.
    """

    group: str
    what: str
    against: str
    goal: float | None = None
    cpu: float | None = None
    wall: float | None = None
    least: float | None = None
    most: float | None = None
    ours: float | None = None
    theirs: float | None = None
    figure: float | None = None
    unit: str = "× CPU"
    note: str = ""
    date: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.group, self.what, self.against

    @property
    def value(self) -> float | None:
        return self.cpu if self.cpu is not None else self.figure

    @property
    def is_met(self) -> bool:
        return self.goal is None or self.value is None or self.value <= self.goal

    @property
    def verdict(self) -> str:
        if self.value is None:
            return self.note
        return "" if self.goal is None else "met" if self.is_met else "missed"


def timed(group: str, what: str, against: str, ratio: Ratio, goal: float | None = None) -> Row:
    """The row of a ratio of times."""
    return Row(group, what, against, goal, ratio.cpu, ratio.wall, ratio.cpu_least, ratio.cpu_most,
               ratio.ours.cpu, ratio.theirs.cpu)  # fmt: skip


class Board:
    """The rows of one run. Where there is a `folder` each goes into the files of the release `version` at once, over an
    older one of the same name: a figure says with its date when it was taken."""

    def __init__(self, folder: Path | None, version: str) -> None:
        self.rows: list[Row] = []
        self._folder, self._version = folder, version

    def add(self, row: Row) -> None:
        """Take a row down, and fail where it misses its goal."""
        self.rows.append(row)
        if self._folder:
            self._keep(self._folder, self._version, row)
        assert row.is_met, f"{row.what} / {row.against}: {_number(row.value)} is more than {_number(row.goal)}"

    def _keep(self, folder: Path, version: str, row: Row) -> None:
        path = folder / f"{version}.json"
        known = {row.key: row for row in read_rows(path)}
        known[row.key] = replace(row, date=datetime.now(timezone.utc).date().isoformat())
        rows = sorted(known.values(), key=lambda row: row.group)
        folder.mkdir(parents=True, exist_ok=True)
        document = {"schema": 1, "version": version, "machine": machine(), "rows": [asdict(row) for row in rows]}
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
        (folder / f"{version}.svg").write_text(picture(rows, f"patchq {version}, {machine()}"))
        (folder / f"{version}.md").write_text(f"patchq {version} on {machine()}.\n\n{table(rows)}")


def read_rows(path: Path) -> list[Row]:
    """The rows of a kept file; none where there is no file."""
    return [Row(**row) for row in json.loads(path.read_text())["rows"]] if path.exists() else []


def machine() -> str:
    """What figures depend on, and nothing that names a machine."""
    said = subprocess.run(("git", "--version"), capture_output=True, text=True, check=True).stdout.split()[2]
    return f"2 cores, git {said}, Python {platform.python_version()}"


def table(rows: Iterable[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| what | against | figure | goal | | wall | CPU, least to most | CPU s, ours / theirs |",
             "| --- | --- | --- | --- | --- | --- | --- | --- |"]  # fmt: skip
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            lines.append(f"| **{group}** | | | | | | | |")
        spread = f"{_number(row.least)} to {_number(row.most)}" if row.least is not None else ""
        seconds = f"{_number(row.ours)} / {_number(row.theirs)}" if row.ours is not None else ""
        figure = f"{_number(row.value)} {row.unit}" if row.value is not None else ""
        goal = f"≤ {_number(row.goal)}" if row.goal is not None else ""
        against = row.against.replace("|", "\\|")
        lines.append(f"| {row.what} | {against} | {figure} | {goal} | {row.verdict} | {_number(row.wall)} "
                     f"| {spread} | {seconds} |")  # fmt: skip
    return "\n".join(lines) + "\n"


def picture(rows: Sequence[Row], title: str) -> str:
    """The ratios as bars on a logarithmic scale, with a mark at each goal."""
    shown = [row for row in rows if row.value is not None and row.unit.startswith("×")]
    height = (len(shown) + 4) * _LINE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="{_LINE}" font-size="14" font-weight="bold">{escape(title)}</text><g font-size="12">',
    ]
    for at in (0.01, 0.1, 1, 10, 100):
        x = _x(at)
        parts.append(f'<path d="M{x:.1f} {2 * _LINE}V{height - _LINE}" stroke="#ccc"/>'
                     f'<text x="{x:.1f}" y="{height - 5}" text-anchor="middle" fill="#666">{at:g}×</text>')  # fmt: skip
    for number, row in enumerate(shown):
        assert row.value is not None
        y = (number + 2) * _LINE + 4
        colour = "#999" if row.goal is None else "#2a7f3f" if row.is_met else "#b33"
        parts.append(f'<text x="{_LEFT - 8}" y="{y + 11}" text-anchor="end">{escape(row.what)} / '
                     f'{escape(row.against)}</text><rect x="{_LEFT}" y="{y}" height="14" '
                     f'width="{max(_x(row.value) - _LEFT, 1):.1f}" fill="{colour}"/>'
                     f'<text x="{_x(row.value) + 4:.1f}" y="{y + 11}">{_number(row.value)}</text>')  # fmt: skip
        if row.goal is not None:
            parts.append(f'<path d="M{_x(row.goal):.1f} {y - 2}v18" stroke="black" stroke-width="2"/>')
    return "\n".join([*parts, "</g></svg>\n"])


def _x(value: float) -> float:
    share = math.log(max(min(value, _CEILING), _FLOOR) / _FLOOR) / math.log(_CEILING / _FLOOR)
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
