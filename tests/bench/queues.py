"""Queues around generated series, for measuring whole verbs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from generated import Series

UPSTREAM = "bench"
_BASELINE = """\
upstream: bench
version: "1"
git: {{commit: "{commit}", source: "{source}"}}
packages: [{package}]
compile: [{package}]
"""
_TARGET = """\
description: a kind of machine
work: {work}
exclude: {exclude}
upstreams:
  bench: {{baseline: git, environments: []}}
environments: {{}}
"""


def make_queue(folder: Path, series: Series, targets: Sequence[Sequence[str]] = ((),)) -> Path:
    """A queue that holds the series for some targets, each of which excludes some patches by name; returns its root."""
    root = folder / "series"
    (root / "targets").mkdir(parents=True)
    (root / UPSTREAM / "device").mkdir(parents=True)
    (root / "queue.yaml").write_text("schema: 1\nname: bench\n")
    package = "verl" if series.tree.name == "verl" else "pkg"
    text = _BASELINE.format(commit=series.tree.commit, source=series.tree.git_dir, package=package)
    (root / UPSTREAM / "baseline.yaml").write_text(text)
    for patch in series.git_form:
        (root / UPSTREAM / "device" / patch.name).write_bytes(patch.read_bytes())
    (root / UPSTREAM / "series").write_text("".join(f"device/{patch.name}\n" for patch in series.git_form))
    for number, names in enumerate(targets):
        exclude = [f"{UPSTREAM}/device/{name}" for name in names]
        text = _TARGET.format(work=folder / "work", exclude=exclude)
        (root / "targets" / f"t{number}.yaml").write_text(text)
    return root


def independent(series: Series) -> list[str]:
    """The patches that none behind them builds on: each may be left out alone. The last comes first."""
    found: list[str] = []
    later: set[bytes] = set()
    for patch in reversed(series.git_form):
        rows = patch.read_bytes().split(b"\n")
        names = {word[2:] for row in rows if row.startswith(b"diff --git ") for word in row.split(b" ")[2:]}
        if not names & later:
            found.append(patch.name)
        later |= names
    return found
