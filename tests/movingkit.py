"""A small upstream with history and a queue on it, for tests of the verbs that move patches."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchq.commands.place import Place

ME = {
    "GIT_AUTHOR_NAME": "Ada Author",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada Author",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "GIT_AUTHOR_DATE": "2026-01-02T03:04:05+0100",
    "GIT_COMMITTER_DATE": "2026-01-02T03:04:05+0100",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "LC_ALL": "C",
}


def git(folder: Path, *args: str) -> bytes:
    """What plain git prints; fails the test where git does."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    done = subprocess.run(("git", *args), cwd=folder, env={**clean, **ME}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def write(folder: Path, files: Mapping[str, bytes | None]) -> None:
    """Write files below a folder; None removes one."""
    for path, data in files.items():
        place = folder / path
        if data is None:
            place.unlink()
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)


def commit(clone: Path, files: Mapping[str, bytes | None], message: str = "change") -> str:
    """Commit changed files in a clone, made if it is not there, and return the id."""
    if not (clone / ".git").exists():
        clone.mkdir(parents=True, exist_ok=True)
        git(clone, "init", "-q", "-b", "main", ".")
    write(clone, files)
    git(clone, "add", "-A", "-f")
    git(clone, "commit", "-q", "--allow-empty", "-m", message)
    return git(clone, "rev-parse", "HEAD").decode().strip()


def numbered(count: int, changed: Mapping[int, str] | None = None, name: str = "line") -> bytes:
    """`count` numbered lines, some of them (from 1) replaced."""
    texts = changed or {}
    return "".join(f"{texts.get(number, f'{name} {number}')}\n" for number in range(1, count + 1)).encode()


def header(subject: str, **fields: str) -> bytes:
    """A complete DEP-3 header."""
    rows = {"Description": subject, "Author": "Ada Author <ada@example.org>", "Origin": "other", **fields}
    return "".join(f"{key.replace('_', '-')}: {value}\n" for key, value in rows.items()).encode() + b"\n"


@dataclass
class Room:
    """A folder with a clone of an upstream called `up` and a queue on its first commit."""

    folder: Path
    clone: Path
    root: Path

    @property
    def place(self) -> Place:
        """The queue, read afresh."""
        return Place(self.root)

    def diff(self, files: Mapping[str, bytes | None], base: str = "HEAD") -> bytes:
        """The diff that changing `files` makes on a commit of the clone; the clone stays as it is."""
        git(self.clone, "checkout", "-q", "--detach", base)
        write(self.clone, files)
        git(self.clone, "add", "-A", "-f")
        made = git(self.clone, "diff", "--cached", "--binary", "--full-index", "-M")
        git(self.clone, "reset", "-q", "--hard", "HEAD")
        git(self.clone, "checkout", "-q", "main")
        return made

    def stack(self, changes: Sequence[tuple[str, Mapping[str, bytes | None]]]) -> dict[str, bytes]:
        """Name → patch, each on top of the one before, the first on the clone's first commit."""
        git(self.clone, "checkout", "-q", "--detach", first(self.clone))
        made = {}
        for name, files in changes:
            write(self.clone, files)
            git(self.clone, "add", "-A", "-f")
            made[name] = header(name) + git(self.clone, "diff", "--cached", "--binary", "--full-index", "-M")
            git(self.clone, "commit", "-q", "-m", name)
        git(self.clone, "checkout", "-q", "main")
        return made

    def fill(self, patches: Mapping[str, bytes], series: str | None = None, upstream: str = "up") -> None:
        """Put patches into the queue; `series` is the file's text where it is not just their names."""
        write(self.root / upstream, patches)
        text = "".join(f"{name}\n" for name in patches) if series is None else series
        write(self.root / upstream, {"series": text.encode()})


def first(clone: Path) -> str:
    """The root commit of a clone."""
    return git(clone, "rev-list", "--max-parents=0", "main").decode().strip()


def make_room(folder: Path, files: Mapping[str, bytes], traits: Mapping[str, Sequence[str]] | None = None) -> Room:
    """A room whose upstream starts with `files`, and targets with these traits (`gpu` and `ppu` if None)."""
    clone, root = folder / "clone", folder / "queue" / "series"
    start = commit(clone, files, "start")
    known = {"gpu": [], "ppu": ["ppu"]} if traits is None else traits
    for target, held in known.items():
        text = (
            f"description: {target}\ntraits: [{', '.join(held)}]\nwork: {folder / f'work-{target}'}\n"
            "upstreams:\n  up: {baseline: git, environments: [local]}\n"
            "environments:\n  local:\n    python: ${PATCHQ_PYTHON}\n"
        )
        write(root, {f"targets/{target}.yaml": text.encode()})
    baseline = (
        f'# What the patches start from.\nupstream: up\nversion: "1.0"\ngit:\n  commit: "{start}"\n'
        f"  source: {clone}\npackages: [pkg]\n"
    )
    write(root, {"queue.yaml": b"schema: 1\nname: trial\n", "up/baseline.yaml": baseline.encode(), "up/series": b""})
    return Room(folder, clone, root)
