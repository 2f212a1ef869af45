"""The kit of the authoring verbs: a `Bench` to edit on, and a `Room` whose upstream has a history to move along.

A bench is a queue of up to ten patches, its clone, and a user whose git configuration is as unhelpful as it gets.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from world import git_bytes as git
from world import header, write

from patchq.commands.edit import edit
from patchq.commands.place import Place
from patchq.commands.refresh import Wish, refresh
from patchq.report import Report

USER = """\
[user]
	name = Zoë Úser
	email = zoe@example.org
[core]
	autocrlf = true
	quotePath = true
[diff]
	noprefix = true
	renames = copies
	algorithm = patience
	context = 1
	interHunkContext = 9
	mnemonicPrefix = true
	external = false
[merge]
	conflictStyle = diff3
[commit]
	verbose = true
[sequence]
	editor = true
"""
BLOCKS = 12
FILES = {
    "app.py": "".join(
        f"def f{n}():\n" + "".join(f"    line {n}.{k}\n" for k in range(8)) + "\n" for n in range(BLOCKS)
    ),
    "README": "hello\n",
    "déjà vu.txt": "é\n",
    "crlf.txt": "one\r\ntwo\r\n",
}
TARGET = """\
description: a machine
traits: [{traits}]
work: ${{WORK:-work}}
upstreams:
  up:
    baseline: git
    environments: [local]
environments:
  local:
    python: /usr/bin/python3
"""


@dataclass(frozen=True)
class Bench:
    """A queue below `folder`, its upstream's clone, and the functions of a day's work."""

    folder: Path
    clone: Path

    @property
    def root(self) -> Path:
        return self.folder / "series"

    @property
    def copy(self) -> Path:
        return self.folder / "edit" / "ppu" / "up"

    @property
    def place(self) -> Place:
        return Place.find(self.folder)

    def write(self, path: str, text: str | bytes) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text.encode() if isinstance(text, str) else text)

    def read(self, path: str) -> bytes:
        return (self.root / path).read_bytes()

    def files(self) -> dict[str, bytes]:
        """Every file of the queue, whatever its name."""
        return {p.relative_to(self.root).as_posix(): p.read_bytes() for p in self.root.rglob("*") if p.is_file()}

    def edit(self, target: str = "ppu", variant: str | None = None) -> Path:
        report = edit(self.place, target, variant, "up")
        return Path(report.data["copies"]["up"])

    def refresh(self, folder: Path | None = None, *, yes: bool = False, **wish: object) -> Report:
        return refresh(self.place, folder or self.copy, Wish(**wish), lambda _: yes)  # type: ignore[arg-type]

    def git(self, *args: str, folder: Path | None = None, **environment: str) -> str:
        """The user's own git in the edit copy."""
        done = subprocess.run(["git", *args], cwd=folder or self.copy, env={**os.environ, **environment},
                              capture_output=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode("utf-8", "surrogateescape").strip()

    def change(self, path: str, old: str, new: str) -> None:
        """Replace text in a file of the edit copy."""
        place = self.copy / path
        text = place.read_bytes().decode()
        assert text.count(old) == 1, (path, old)
        place.write_bytes(text.replace(old, new).encode())


def make_bench(folder: Path, patches: dict[str, bytes], lines: list[str], monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench whose series has `lines` and whose upstream `up` has `patches` by LAYER/NAME."""
    home = folder / "home"
    home.mkdir(parents=True)
    (home / ".gitconfig").write_text(USER)
    for name, value in (("HOME", home), ("XDG_DATA_HOME", home / "data"), ("XDG_STATE_HOME", home / "state"),
                        ("XDG_CONFIG_HOME", home / "config"), ("GIT_CEILING_DIRECTORIES", folder.parent)):  # fmt: skip
        monkeypatch.setenv(name, str(value))
    bench = Bench(folder / "project", folder / "clone")
    commit = make_clone(bench)
    bench.write("queue.yaml", "schema: 1\nname: bench\n")
    for target, traits in (("ppu", "ppu"), ("gpu", "gpu")):
        bench.write(f"targets/{target}.yaml", TARGET.format(traits=traits))
    bench.write("variants/loss.yaml", "description: another loss\nresearch: [up/research/*]\n")
    bench.write("up/baseline.yaml", f"upstream: up\nversion: '1'\ngit:\n  commit: {commit}\n"
                                    f"  source: {bench.clone}\npackages: [app]\n")  # fmt: skip
    bench.write("up/series", "".join(f"{line}\n" for line in lines))
    for name, data in patches.items():
        bench.write(f"up/{name}", data)
    return bench


def make_clone(bench: Bench) -> str:
    bench.clone.mkdir()
    for path, text in FILES.items():
        (bench.clone / path).write_bytes(text.encode())
    bench.git("init", "-q", folder=bench.clone)
    bench.git("-c", "core.autocrlf=false", "add", ".", folder=bench.clone)
    bench.git("commit", "-q", "-m", "base", folder=bench.clone,
              GIT_COMMITTER_DATE="1700000000 +0100", GIT_AUTHOR_DATE="1700000000 +0100")  # fmt: skip
    return bench.git("rev-parse", "HEAD", folder=bench.clone)


def numbered_patch(number: int, header: str = "") -> bytes:
    """A patch, as somebody else's tool wrote it, that changes the function `f{number}` of app.py."""
    head = header or f"Description: Change {number}\n Why {number}.\nAuthor: A <a@b.c>\nLast-Update: 2026-01-02\n"
    first = number * 10 + 3
    return (
        f"{head}\nIndex: app.py\n{'=' * 67}\n--- old/app.py\t2026-01-01\n+++ new/app.py\t2026-01-02\n"
        f"@@ -{first},5 +{first},6 @@\n"
        f"     line {number}.1\n     line {number}.2\n-    line {number}.3\n+    line {number}.3 patched\n"
        f"+    more {number}\n     line {number}.4\n     line {number}.5\n"
    ).encode()


def name(number: int) -> str:
    return f"device/change-{number}.patch"


def ten(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Ten patches, two of them for one target only, with comments, guards and -pN in their series."""
    patches = {name(n): numbered_patch(n) for n in range(10)}
    lines = ["# Top", *(name(n) for n in range(10))]
    lines[3] = f"{name(2)}  -p1   #+ppu  # only there"
    lines[5] = f"{name(4)} #-ppu"
    lines[7:7] = ["", "# Middle"]
    patches["research/loss.patch"] = numbered_patch(10)
    lines.append("research/loss.patch")
    return make_bench(folder, patches, lines, monkeypatch)


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
