"""`verify --no-smoke` against `sha256sum` over the same files, both with a cold page cache, in one run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy import applied

from patchq.commands.place import Place
from patchq.evidence.record import read_record

VERL = "1bf9d2d76c244238e8219531c582819a6b407d47"
RECIPE = "e7f889574b8301cc0f0fc1d57c6d67f31ffeb689"
MOST = 3.0


def make_place(folder: Path, source: str, recipe: str, python: str) -> Place:
    """A queue without patches on the real verl, whose one environment is `python`, with every distribution protected.

    So each byte that `sha256sum` reads is hashed by `verify` too.
    """
    listing = (
        "from importlib.metadata import distributions; print(sorted({d.metadata['Name'] for d in distributions()}))"
    )
    asked = subprocess.run([python, "-I", "-c", listing], capture_output=True, check=True, text=True)
    files = {
        "series/queue.yaml": "schema: 1\nname: bench\n",
        "series/verl/series": "",
        "series/verl/baseline.yaml": f"""\
            upstream: verl
            version: 0.9.0.dev0
            git:
              commit: "{VERL}"
              source: "{source}"
              submodules: {{recipe: {{commit: "{RECIPE}", source: "{recipe}"}}}}
            packages: [verl]
            compile: [verl/version]
            """,
        "series/targets/here.yaml": f"""\
            description: this machine
            work: {folder}/work
            upstreams:
              verl: {{baseline: git, environments: [rl], imports: []}}
            environments:
              rl: {{python: {python}, protected: {asked.stdout.strip()}}}
            """,
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(textwrap.dedent(text))
    return Place((folder / "series").resolve())


def files_below(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        yield from (
            path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc" and ".git" not in path.parts
        )


def forget(paths: list[Path]) -> None:
    """Drop clean pages of these files from the page cache."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


@pytest.mark.bench
def test_verify_takes_at_most_three_times_a_cold_sha256sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, recipe = os.environ.get("VERL_SOURCE"), os.environ.get("VERL_RECIPE_SOURCE")
    python = os.environ.get("BENCH_PYTHON", sys.executable)
    if not source or not recipe:
        pytest.skip("VERL_SOURCE and VERL_RECIPE_SOURCE name no clones")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    place = make_place(tmp_path, source, recipe, python)
    applied(place)
    copy = (tmp_path / "work/verl/current").resolve()
    asked = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, check=True
    )
    paths = list(files_below(copy, Path(os.fsdecode(asked.stdout.strip()))))

    forget(paths)
    began = time.monotonic()
    argv = [sys.executable, "-m", "patchq", "verify", "--target", "here", "--no-smoke", "--queue", str(place.root)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    verifying = time.monotonic() - began
    assert done.returncode in (0, 1), done.stderr

    forget(paths)
    began = time.monotonic()
    names = b"\0".join(os.fsencode(path) for path in paths)
    subprocess.run(["xargs", "-0", "sha256sum"], input=names, stdout=subprocess.DEVNULL, check=True)
    summing = time.monotonic() - began

    record = read_record(sorted((tmp_path / "work/records").glob("*-verify-*"))[-1])
    count = len(record.facts["audit"]["rl"]["packages"])
    sys.stderr.write(
        f"\n{len(paths)} files, {count} distributions: verify {verifying:.1f} s, sha256sum {summing:.1f} s, "
        f"ratio {verifying / summing:.2f}\n{done.stdout}"
    )
    assert verifying <= MOST * summing
