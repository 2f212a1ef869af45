"""A small world that is real in every part: a git upstream with a submodule, an sdist, an installed distribution,
and a queue that patches all three for several targets and a variant.

The interpreter of the target `blind` is not there: what needs one is not run, which makes its applies quick.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pytest

from patchq.cli import run
from patchq.commands.lock import lock
from patchq.commands.place import Place
from patchq.index.pipconfig import pip_config
from patchq.report import Report, Step

_ME = {
    "GIT_AUTHOR_NAME": "Ada Author", "GIT_AUTHOR_EMAIL": "ada@example.org", "GIT_AUTHOR_DATE": "1700000000 +0100",
    "GIT_COMMITTER_NAME": "Cy Committer", "GIT_COMMITTER_EMAIL": "cy@example.org",
    "GIT_COMMITTER_DATE": "1700000100 +0000", "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null",
    "LC_ALL": "C",
}  # fmt: skip

CORE = "".join(f"def f{n}():\n    a = {n}\n    b = a + 1\n    return b\n\n\n" for n in range(8)).encode()
ALPHA: Mapping[str, bytes] = {
    "alpha/__init__.py": b'NAME = "alpha"\n',
    "alpha/core.py": CORE,
    "alpha/dos.py": b"one = 1\r\ntwo = 2\r\nthree = 3\r\nfour = 4\r\nfive = 5\r\n",
    "alpha/old_name.py": b"# to be renamed\nvalue = 1\nother = 2\nmore = 3\n",
    "alpha/data.bin": bytes(range(256)),
    "docs/naïve name.txt": b"one\ntwo\nthree\n",
    "run.sh": b"#!/bin/sh\necho alpha\n",
    "README": b"alpha, no newline at the end",
}
BETA: Mapping[str, bytes] = {
    "setup.py": b"raise SystemExit('nobody runs this')\n",
    "PKG-INFO": b"Metadata-Version: 2.1\nName: beta\nVersion: 1.0\n",
    "beta/__init__.py": b"",
    "beta/opt.py": b"def step(x):\n    # one\n    # two\n    # three\n    return x\n",
}
TEST = """\
import pytest
import alpha


def test_name():
    assert alpha.NAME == "patched"


@pytest.mark.needs("absent_module")
def test_with_a_module():
    import absent_module
"""
HEADER = """\
Description: {subject}
 What fails without it is told here.
Origin: other
Author: Ada Author <ada@example.org>
Last-Update: 2026-01-02
{fields}
"""


def git_bytes(folder: Path, *words: str, stdin: bytes = b"") -> bytes:
    """What plain git prints in `folder`; fails the test where git does."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    argv, env = ["git", *words], {**clean, **_ME}
    done = subprocess.run(argv, cwd=folder, env=env, input=stdin, capture_output=True, check=False)
    assert done.returncode == 0, f"git {' '.join(words)}: {done.stderr.decode('utf-8', 'replace')}"
    return done.stdout


def git(folder: Path, *words: str, stdin: bytes = b"") -> str:
    """Like `git_bytes`, as text without the white space around it."""
    return os.fsdecode(git_bytes(folder, *words, stdin=stdin)).strip()


def write(folder: Path, files: Mapping[str, bytes | str | None]) -> None:
    """Write files below a folder; None removes one."""
    for path, data in files.items():
        place = folder / path
        if data is None:
            place.unlink()
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data.encode() if isinstance(data, str) else data)


def make_repository(folder: Path, files: Mapping[str, bytes]) -> str:
    """A repository with two commits; returns the second, which holds `files`."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main", ".")
    git(folder, "commit", "-q", "--allow-empty", "-m", "begin")
    write(folder, files)
    git(folder, "add", "-A", "-f")
    git(folder, "commit", "-q", "-m", "files")
    return git(folder, "rev-parse", "HEAD")


def make_alpha(folder: Path) -> tuple[str, str]:
    """The git upstream `alpha` with its submodule `plug`; returns both commits."""
    plug = make_repository(folder / "plug", {"plug/__init__.py": b"PLUG = 1\n"})
    alpha = folder / "alpha"
    make_repository(alpha, ALPHA)
    (alpha / "run.sh").chmod(0o755)
    (alpha / "core").symlink_to("alpha/core.py")
    write(alpha, {".gitmodules": '[submodule "plug"]\n\tpath = plug\n\turl = ../plug\n'})
    (alpha / "plug").mkdir()
    git(alpha, "add", "run.sh", "core", ".gitmodules")
    git(alpha, "update-index", "--add", "--cacheinfo", f"160000,{plug},plug")
    git(alpha, "commit", "-q", "-m", "mode, link and submodule")
    return git(alpha, "rev-parse", "HEAD"), plug


def make_sdist(links: Path) -> str:
    """The sdist `beta-1.0.tar.gz`, in a folder that serves as a package index; returns its SHA-256."""
    links.mkdir(parents=True)
    path = links / "beta-1.0.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name, data in BETA.items():
            member = tarfile.TarInfo(f"beta-1.0/{name}")
            member.size, member.mode, member.mtime = len(data), 0o644, 1_700_000_000
            archive.addfile(member, io.BytesIO(data))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_python(folder: Path) -> Path:
    """A virtual environment with nothing in it, and in it `beta`, installed; returns its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", str(folder)], check=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    files = {name: data for name, data in BETA.items() if name.startswith("beta/")}
    files |= {"beta-1.0.dist-info/METADATA": BETA["PKG-INFO"], "beta-1.0.dist-info/INSTALLER": b"pip\n"}
    write(site, files)
    rows = io.StringIO()
    table = csv.writer(rows, lineterminator="\n")
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        table.writerow((name, f"sha256={digest}", len(data)))
    table.writerow(("beta-1.0.dist-info/RECORD", "", ""))
    write(site, {"beta-1.0.dist-info/RECORD": rows.getvalue()})
    return folder / "bin/python"


def header(subject: str, **fields: str) -> bytes:
    """A complete DEP-3 header."""
    rows = "".join(f"{name.replace('_', '-')}: {value}\n" for name, value in fields.items())
    return HEADER.format(subject=subject, fields=rows).encode()


def diff_of(folder: Path, files: Mapping[str, bytes | None], *options: str, keep: bool = True) -> bytes:
    """The diff that changing `files` makes in a repository; with `keep` it is committed there, else undone."""
    write(folder, files)
    git(folder, "add", "-A", "-f", "--", *files)
    made = git_bytes(folder, "diff", "--cached", "--binary", "--full-index", "-M", *options)
    if keep:
        git(folder, "commit", "-q", "-m", "change")
    else:
        git(folder, "reset", "-q", "--hard")
    return made


@dataclass(frozen=True)
class World:
    """Where everything is: `root` is the queue's `series/`; copies of the queue share the sources."""

    folder: Path
    root: Path
    alpha: Path
    links: Path
    python: Path

    @property
    def place(self) -> Place:
        """The queue, read afresh."""
        return Place(self.root)

    @property
    def work(self) -> Path:
        """The work area of the queue's targets."""
        return self.root.parent / "work"

    @cached_property
    def base(self) -> str:
        """The baseline commit of `alpha`."""
        return git(self.alpha, "rev-parse", "main")

    def copy(self, folder: Path) -> World:
        """A copy of the queue, with its lock, below `folder`."""
        shutil.copytree(self.root, folder / "series")
        return replace(self, root=(folder / "series").resolve())

    def write(self, files: Mapping[str, bytes | str | None]) -> World:
        """Change files of the queue; the same world."""
        write(self.root, files)
        return self

    def locked(self) -> World:
        """Write the lock; the same world."""
        lock(self.place, sources={})
        return self


def patches(alpha: Path, beta: Path) -> dict[str, bytes]:
    """The queue's patches, each made on what the ones before it leave; both repositories stay as they were."""
    git(alpha, "checkout", "-q", "--detach", "main")
    core = CORE.replace(b"a = 2\n", b"a = 20\n")
    later = core.replace(b"a = 6\n", b"a = 60\n")
    deep = later.replace(b"a = 20\n    b = a + 1\n", b"a = 20\n    b = a + 2\n")
    made = {
        "alpha/device/rename-it.patch": header("Rename it", Tests="tests/test_name.py")
        + diff_of(alpha, {"alpha/__init__.py": b'NAME = "patched"\n'}),
        "alpha/device/small-only.patch": header("Only on small machines", Expect="alpha/core.py 1 /a = 20$/")
        + diff_of(alpha, {"alpha/core.py": core}),
    }
    git(alpha, "mv", "alpha/old_name.py", "alpha/new_name.py")
    made["alpha/device/all-kinds.patch"] = header("Every kind of change", Forbid="alpha/dos.py /two = 2\\b/") + diff_of(
        alpha,
        {
            "alpha/dos.py": ALPHA["alpha/dos.py"].replace(b"two = 2\r", b"two = 22\r"),
            "alpha/new_name.py": ALPHA["alpha/old_name.py"].replace(b"value = 1", b"value = 10"),
            "alpha/data.bin": bytes(range(255, -1, -1)),
            "docs/naïve name.txt": b"one\nzwei\nthree\n",
            "README": b"alpha, a newline at the end\n",
            "alpha/added.py": b"added = True\n",
            "alpha/empty.py": b"",
        },
    )
    (alpha / "run.sh").chmod(0o644)
    git(alpha, "add", "run.sh")
    made["alpha/device/not-a-program.patch"] = header("Take the x bit") + diff_of(alpha, {})
    made["alpha/research/later.patch"] = header("A study") + diff_of(alpha, {"alpha/core.py": later})
    made["alpha/research/deeper.patch"] = header("On top", Requires="alpha/device/small-only.patch") + diff_of(
        alpha, {"alpha/core.py": deep}
    )
    git(alpha, "checkout", "-q", "main")
    opt = BETA["beta/opt.py"].replace(b"return x\n", b"return 2 * x\n")
    made["beta/device/double.patch"] = header("Double it") + diff_of(beta, {"beta/opt.py": opt}, keep=False)
    return made


QUEUE: Mapping[str, str] = {
    "queue.yaml": "schema: 1\nname: trial\n",
    "variants/study.yaml": "description: a study\nresearch: [alpha/research/later]\n",
    "variants/deep.yaml": "description: two studies\nresearch: [alpha/research/*]\n",
    "alpha/series": """\
        # What the machines need.
        device/rename-it.patch
        device/small-only.patch      #+small
        device/all-kinds.patch       #-tiny
        device/not-a-program.patch   #-tiny  # for shared disks

        research/later.patch
        research/deeper.patch        #+small
        """,
    "alpha/tests/test_name.py": TEST,
    "beta/series": "device/double.patch\n",
}
ALPHA_USE = "alpha: {baseline: git, environments: [train]}"
TARGET = """\
description: {name}
traits: [{traits}]
work: ${{WORK:-work}}
upstreams: {{{upstreams}}}
environments:
  train:
    python: {python}
    without: [absent_module]
"""


def make_world(folder: Path) -> World:
    """All of it, once: sources, interpreter, and the locked queue."""
    alpha, plug = make_alpha(folder / "sources")
    digest = make_sdist(folder / "links")
    beta = folder / "sources/beta"
    make_repository(beta, BETA)
    python = make_python(folder / "python")
    world = World(folder, folder / "queue/series", folder / "sources/alpha", folder / "links", python)
    targets = {
        "small": ("small", f"{ALPHA_USE}, beta: {{baseline: sdist, environments: [train], imports: []}}"),
        "tiny": ("small, tiny", ALPHA_USE),
        "plain": ("", ALPHA_USE),
        "blind": ("small", ALPHA_USE),
        "site": ("", "beta: {baseline: installed, sink: installed, environments: [train]}"),
    }
    write(world.root, {path: textwrap.dedent(text) for path, text in QUEUE.items()})
    for name, (traits, upstreams) in targets.items():
        text = TARGET.format(
            name=name, traits=traits, upstreams=upstreams, python="/nowhere/python" if name == "blind" else python
        )
        write(world.root, {f"targets/{name}.yaml": text})
    write(world.root, patches(world.alpha, beta))
    sources = folder / "sources"
    write(world.root, {
        "alpha/baseline.yaml": f'upstream: alpha\nversion: "1"\npackages: [alpha]\ncompile: [alpha]\n'
        f'git:\n  commit: "{alpha}"\n  source: "{sources}/alpha"\n'
        f'  submodules: {{plug: {{commit: "{plug}", source: "{sources}/plug"}}}}\n',
        "beta/baseline.yaml": 'upstream: beta\nversion: "1.0"\npackages: [beta]\ncompile: [beta]\n'
        f'sdist:\n  project: beta\n  version: "1.0"\n  filename: beta-1.0.tar.gz\n  sha256: "{digest}"\n'
        'installed: {distribution: beta, version: "1.0", like: sdist}\n',
    })  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_FIND_LINKS", str(world.links))
        patch.setenv("PIP_CONFIG_FILE", os.devnull)
        pip_config.cache_clear()
        world.locked()
    pip_config.cache_clear()
    return world


def contents(folder: Path) -> dict[str, tuple[str, bytes]]:
    """Path → (kind, bytes) of everything below a folder, but what git notes about files' times."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = "link", os.fsencode(path.readlink())
        elif path.is_file() and path.name != "index":
            found[name] = "program" if path.stat().st_mode & 0o100 else "file", path.read_bytes()
    return found


def step_of(report: Report, name: str, group: str = "") -> Step:
    """The one step of a report with that name (and group)."""
    found = [step for step in report.steps if step.name == name and group in ("", step.group)]
    assert len(found) == 1, report.as_json()
    return found[0]


def states(report: Report) -> dict[str, str]:
    """Name → state of every step; later ones win."""
    return {step.name: step.state.value for step in report.steps}


def patchq(*argv: object) -> int:
    """Run the command line in this process; its exit code."""
    return run([str(word) for word in argv])
