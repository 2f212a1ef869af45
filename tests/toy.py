"""A small queue on a small upstream, locked and applied for real, for tests of what comes after `apply`."""

from __future__ import annotations

import os
import subprocess
import textwrap
from pathlib import Path

from toyenv import make_venv

from patchq.commands.apply import apply
from patchq.commands.lock import lock
from patchq.commands.place import Place
from patchq.report import Report

PATCH = """\
Description: Say patched
Author: Toy <toy@example.org>
Last-Update: 2026-01-01

--- a/toy/__init__.py
+++ b/toy/__init__.py
@@ -1,3 +1,3 @@
 # a module
-STATE = "plain"
+STATE = "patched"
 # its end
"""


def git(folder: Path, *words: str) -> str:
    """Run git in a folder, untouched by the user's own configuration."""
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    argv = ["git", "-c", "user.name=Toy", "-c", "user.email=toy@example.org", *words]
    return subprocess.run(argv, cwd=folder, env=env, check=True, capture_output=True, text=True).stdout.strip()


def make_queue(folder: Path, environment: str = "", *, python: str = "") -> Place:
    """A queue with the upstream `toy` and the target `here`, whose environment `train` gets the YAML lines given.

    Without a `python` that is an environment of its own, with nothing in it that would have to be hashed.
    """
    source = folder / "source"
    (source / "toy").mkdir(parents=True)
    (source / "toy/__init__.py").write_text('# a module\nSTATE = "plain"\n# its end\n')
    git(source, "init", "-q", "-b", "main")
    git(source, "add", ".")
    git(source, "commit", "-q", "-m", "base")
    series = folder / "series"
    _write(series / "queue.yaml", "schema: 1\nname: toy\n")
    _write(series / "toy/series", "device/say-patched.patch\n")
    _write(series / "toy/device/say-patched.patch", PATCH)
    commit = git(source, "rev-parse", "HEAD")
    _write(
        series / "toy/baseline.yaml",
        f'upstream: toy\nversion: "1"\ngit: {{commit: "{commit}", source: "{source}"}}\n'
        "packages: [toy]\ncompile: [toy]\n",
    )
    target = f"""\
        description: this machine
        work: {folder}/work
        upstreams:
          toy: {{baseline: git, environments: [train]}}
        environments:
          train:
            python: {python or make_venv(folder / "env")}
        """
    _write(
        series / "targets/here.yaml",
        textwrap.dedent(target) + textwrap.indent(textwrap.dedent(environment).strip("\n") + "\n", "    "),
    )
    return Place(series.resolve())


def applied(place: Place) -> Report:
    """Lock the queue and apply its one target."""
    lock(place, check=False, sources={})
    report = apply(Place(place.root), "here")
    assert report.exit_code == 0, report.as_json()
    return report


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
