"""What crosses the gap, in bytes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from board import Board, Row
from generated import Series, clean_environment, git
from realverl import BASELINE, OLDER, verl_source
from test_bench_verbs import Verbs

from patchq.store import BundleFile, Source, Store, fetch_commit, write_bundle_files

pytestmark = pytest.mark.bench


def piped(line: str, folder: Path) -> int:
    """How many bytes a pipe of commands writes."""
    done = subprocess.run(("sh", "-c", f"{line} | wc -c"), cwd=folder, env=clean_environment(),
                          stdout=subprocess.PIPE, check=True)  # fmt: skip
    return int(done.stdout)


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_verl(board: Board, fresh: Path) -> None:
    source = verl_source()
    if source is None:
        board.add(Row("bytes", "verl's bundle", "its history", note="not run: VERL_SOURCE is not set"))
        return
    store = Store.open(fresh / "store")
    older = git(source, "rev-parse", f"{OLDER}^{{commit}}").decode().strip()
    for commit in (older, BASELINE):
        fetch_commit(store, Source("verl", str(source)), commit)
    write_bundle_files(store, [BundleFile(fresh / "verl.bundle", BASELINE)])
    write_bundle_files(store, [BundleFile(fresh / "moved.bundle", BASELINE, since=older)])
    whole, moved = ((fresh / name).stat().st_size for name in ("verl.bundle", "moved.bundle"))
    history = piped(f"echo {BASELINE} | git pack-objects --revs --stdout -q", source)
    archive = piped(f"git archive {BASELINE} | xz -9", source)
    rows = (
        ("verl's bundle", "the history of its baseline", whole / history, 0.10),
        ("verl's bundle", "tar.xz of its tree", whole / archive, 1.8),
        (f"the baseline moved from {OLDER}", "verl's bundle", moved / whole, 0.25),
    )
    for what, against, figure, goal in rows:
        board.add(Row("bytes", what, against, goal, figure=figure, unit="× bytes"))


def test_a_second_transfer(board: Board, thousand: Series, fresh: Path) -> None:
    verbs = Verbs(fresh, thousand.first(50))
    verbs.run("lock")
    verbs.run("bundle", "--target", "t0", "--out", str(fresh / "first"))
    patch = verbs.root / "bench/device" / thousand.git_form[49].name
    patch.write_bytes(patch.read_bytes().replace(b"consistent", b"in step", 1))
    verbs.run("lock")
    verbs.run("bundle", "--target", "t0", "--out", str(fresh / "second"), "--since", str(fresh / "first"))
    figure = size(fresh / "second") / size(fresh / "first")
    board.add(Row("bytes", "a patch changed, of 50", "the first transfer", 0.02, figure=figure, unit="× bytes"))
