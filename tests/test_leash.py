"""Nothing of a leashed command outlives whoever started it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patchq.process import leashed

# A command that leaves a detached grandchild, which leaves another; each carries the mark in its argv.
DETACHING = """
import os, subprocess, sys, time
mark, depth = sys.argv[1], int(sys.argv[2])
if depth:
    subprocess.Popen([sys.executable, "-c", open(sys.argv[3]).read(), mark, str(depth - 1), sys.argv[3]],
                     start_new_session=True, stdin=subprocess.DEVNULL)
if sys.argv[4:] != ["end"]:
    time.sleep(600)
"""


def marked(mark: str) -> list[int]:
    """The processes that carry `mark` in their arguments."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark.encode() in words:
                found.append(int(folder.name))
    return found


def gone(mark: str, seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while marked(mark) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not marked(mark)


def wait_for(mark: str, count: int) -> None:
    deadline = time.monotonic() + 20
    while len(marked(mark)) < count:
        assert time.monotonic() < deadline, f"only {len(marked(mark))} of {count} processes came up"
        time.sleep(0.02)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "detaching.py"
    path.write_text(DETACHING)
    return path


def command(script: Path, mark: str, depth: int, *words: str) -> list[str]:
    return [sys.executable, "-c", script.read_text(), mark, str(depth), str(script), *words]


def test_the_outcome_is_the_commands_own(tmp_path: Path) -> None:
    text = (
        "import os,sys; print(sys.stdin.read(), os.getcwd(), os.environ['A']); print('e', file=sys.stderr); sys.exit(3)"
    )
    with leashed([sys.executable, "-c", text], env={"A": "1"}, cwd=tmp_path, stdin=b"in") as running:
        outcome = running.outcome()
    assert (outcome.code, outcome.text, outcome.error_text) == (3, f"in {tmp_path} 1\n", "e")


def test_a_signal_is_passed_on() -> None:
    for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
        text = f"import os; os.kill(os.getpid(), {int(number)})"
        with leashed([sys.executable, "-c", text]) as running:
            assert running.outcome().code == -number


def test_a_command_that_is_not_there() -> None:
    with leashed(["/nowhere/python"]) as running:
        outcome = running.outcome()
    assert (outcome.code, outcome.error_text) == (127, "/nowhere/python: No such file or directory")


def test_much_output_never_blocks() -> None:
    with leashed([sys.executable, "-c", "import sys; sys.stdout.write('x' * 5_000_000)"]) as running:
        assert len(running.outcome(30).stdout) == 5_000_000


def test_what_a_command_leaves_behind_is_gone_with_it(script: Path) -> None:
    with leashed(command(script, "pq-leaves", 2, "end")) as running:
        assert running.outcome(30).code == 0
        assert gone("pq-leaves", 0.5)


def test_time_runs_out(script: Path) -> None:
    with leashed(command(script, "pq-slow", 2)) as running:
        wait_for("pq-slow", 3)
        outcome = running.outcome(0)
        assert outcome.timed_out
        assert gone("pq-slow", 0.5)


def test_the_block_ends_early(script: Path) -> None:
    with pytest.raises(KeyboardInterrupt), leashed(command(script, "pq-early", 1)):
        wait_for("pq-early", 2)
        raise KeyboardInterrupt
    assert gone("pq-early", 0.5)


STARTER = """
import sys
from patchq.process import leashed
with leashed(sys.argv[1:]) as running:
    running.outcome()
"""


def test_killed_at_any_moment_the_starter_leaves_nothing(script: Path) -> None:
    """SIGKILL from before the leash exists until after two detached generations are up."""
    random.seed(3)
    for round_ in range(6):
        mark = f"pq-kill-{os.getpid()}-{round_}"
        starter = subprocess.Popen([sys.executable, "-c", STARTER, *command(script, mark, 2)])
        time.sleep(random.uniform(0, 0.9))
        starter.kill()
        starter.wait()
        time.sleep(0.2)
        assert gone(mark)


def test_a_killed_leash_takes_the_command_with_it() -> None:
    mark = "pq-leash-killed"
    with leashed([sys.executable, "-c", "import time; time.sleep(600)", mark]) as running:
        wait_for(mark, 2)
        os.kill(running._child.pid, signal.SIGKILL)
        assert gone(mark)
