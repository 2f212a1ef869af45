"""Nothing of a leashed command outlives whoever started it, and one that is waited for may clean up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patchq import process
from patchq.process import leashed, run

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


def test_signals_that_the_caller_blocked_are_heard_by_the_leash_and_the_command() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        with leashed([sys.executable, "-c", "import signal; print(signal.pthread_sigmask(0, ()))"]) as running:
            outcome = running.outcome(20)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert (outcome.text, outcome.timed_out) == ("set()\n", False)


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
from patchq import process
from patchq.process import leashed, run
with leashed(sys.argv[1:]) as running:
    running.outcome()
"""


@pytest.mark.parametrize("seconds", [
    0.3, *(pytest.param(after, marks=pytest.mark.fault) for after in (0.0, 0.1, 0.2, 0.45, 0.6, 0.9))
])  # fmt: skip
def test_killed_at_any_moment_the_starter_leaves_nothing(script: Path, seconds: float) -> None:
    """SIGKILL from before the leash exists until after two detached generations are up."""
    mark = f"pq-kill-{os.getpid()}-{seconds}"
    starter = subprocess.Popen([sys.executable, "-c", STARTER, *command(script, mark, 2)])
    time.sleep(seconds)
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


@pytest.mark.parametrize("hears", [True, False])
def test_an_interrupt_lets_a_program_clean_up_but_not_stay(
    tmp_path: Path, hears: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As git does with its locks, in whose way every later git would stand; what does not end by itself is killed."""
    monkeypatch.setattr(process, "END_SECONDS", 5 if hears else 0.2)
    lock, mark = tmp_path / "index.lock", f"mark-{tmp_path.name}-{hears}"
    trap = f"trap 'rm {lock}; exit 1' TERM" if hears else "trap '' TERM"
    script = f"{trap}; touch {lock}; while :; do sleep 0.05; done"

    def interrupt(*_: object) -> None:
        if lock.exists():
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(["sh", "-c", script, mark])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not marked(mark) and lock.exists() is not hears
