"""Several children at once: they really work at the same time, and none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from patchq.errors import Prevented
from patchq.process import run_together

MEET = 'touch "$0"; for i in $(seq 600); do test -e "$1" && exec cat; sleep 0.05; done; exit 9'
WAIT = 'trap "echo ended > $0; exit" TERM; touch "$0"; cat; while :; do sleep 0.05; done'


def waiting(place: Path) -> tuple[list[str], bytes]:
    return ["sh", "-c", WAIT, str(place)], b"x" * 200_000


def appear(places: list[Path]) -> None:
    until = time.monotonic() + 30
    while not all(place.exists() for place in places):
        assert time.monotonic() < until
        time.sleep(0.02)


def test_they_work_at_the_same_time(tmp_path: Path) -> None:
    """Each waits for the other; each hands back more than a pipe holds."""
    a, b = str(tmp_path / "a"), str(tmp_path / "b")
    large = os.urandom(300_000)
    first, second = run_together([(["sh", "-c", MEET, a, b], large), (["sh", "-c", MEET, b, a], b"small")])
    assert (first.code, second.code) == (0, 0)
    assert (first.stdout, second.stdout) == (large, b"small")


def test_one_that_cannot_be_started_ends_the_others(tmp_path: Path) -> None:
    with pytest.raises(Prevented, match="cannot start no-such-program"):
        run_together([waiting(tmp_path / "a"), (["no-such-program"], b"")])
    alive = subprocess.run(["pgrep", "-f", str(tmp_path / "a")], capture_output=True, text=True, check=False)
    assert alive.stdout == ""


def test_an_interrupt_ends_all_of_them(tmp_path: Path) -> None:
    places = [tmp_path / "a", tmp_path / "b"]

    def interrupt() -> None:
        appear(places)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_together([waiting(place) for place in places])
    thread.join()
    assert [place.read_text() for place in places] == ["ended\n", "ended\n"]
    assert time.monotonic() - started < 60
