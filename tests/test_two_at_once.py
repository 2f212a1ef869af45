"""Two at once, as real processes: the second waits, or hears who is first, since when, where; the dead hold nothing."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from world import World, git, patchq

from patchq import exclusive as locks
from patchq.errors import Prevented
from patchq.evidence.record import list_records
from patchq.exclusive import exclusive
from patchq.queuejournal import journal_folder, write_queue

SOURCE = str(Path(__file__).parents[1])
WAITS = '#!/bin/sh\nwhile [ ! -e "{go}" ]; do sleep 0.02; done\nexec "{python}" "$@"\n'
HOLD = """
import sys
from pathlib import Path
from patchq.exclusive import exclusive
with exclusive(Path(sys.argv[1]), sys.argv[2], free="it"):
    print("held", flush=True)
    sys.stdin.read()
"""
LEASE = """
import sys
from pathlib import Path
from patchq.machine.lease import take
from patchq.workarea import WorkArea
take(WorkArea(Path(sys.argv[1])), target="blind", env="train", copies=[], command="bash train.sh")
print("held", flush=True)
sys.stdin.read()
"""


def start(*words: object, code: str = "") -> subprocess.Popen[str]:
    """patchq, or Python `code`, as a process of its own."""
    argv = [sys.executable, *(("-c", code) if code else ("-m", "patchq")), *map(str, words)]
    return subprocess.Popen(
        argv, env={**os.environ, "PYTHONPATH": SOURCE}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@contextmanager
def holding(*words: object, code: str) -> Iterator[subprocess.Popen[str]]:
    child = start(*words, code=code)
    try:
        assert child.stdout and child.stdout.readline() == "held\n"
        yield child
    finally:
        child.kill()
        child.communicate()


def until(is_true: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def who(child: subprocess.Popen[str], what: str) -> re.Pattern[str]:
    host = re.escape(os.uname().nodename)
    return re.compile(
        rf"is in use( by|: {what},) process {child.pid} on {host}, since 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    )


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line that a verb says, with exit 5."""
    capsys.readouterr()
    assert patchq(*words) == 5
    err = capsys.readouterr().err
    assert err.startswith("error: ") and len(err.strip().splitlines()) == 1
    return err


@pytest.fixture
def slow(own: World) -> tuple[World, Path]:
    """A queue that was applied, and whose next apply waits for its interpreter until the file is there."""
    assert patchq("apply", "--target", "blind", "--queue", own.root) == 4
    go, python = own.root.parent / "go", own.root.parent / "slow-python"
    python.write_text(WAITS.format(go=go, python=own.python))
    python.chmod(0o755)
    text = (own.root / "targets/blind.yaml").read_text()
    return own.write({"targets/blind.yaml": text.replace("/nowhere/python", str(python))}).locked(), go


@pytest.mark.fault
def test_every_verb_that_needs_the_work_area_hears_who_applies_there(
    slow: tuple[World, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    own, _ = slow
    child = start("apply", "--target", "blind", "--queue", own.root)
    where = ("--target", "blind", "--queue", own.root)
    until(lambda: b"patchq apply" in (own.work / ".lock").read_bytes() and child.pid in holders(own))
    before = len(list_records(own.work / "records"))
    for verb in (["apply"], ["verify"], ["revert"], ["prune"], ["apply", "--wait", "0.1"]):
        assert who(child, "patchq apply").search(refusal(capsys, *verb, *where)), verb
    assert len(list_records(own.work / "records")) == before
    for verb in (["check"], ["series"], ["record", "list"]):
        assert patchq(*verb, *where) == 0, "what only reads does not wait"
    child.send_signal(signal.SIGKILL)
    child.communicate()
    assert patchq("prune", *where) == 0, "the dead hold nothing"


def holders(own: World) -> list[int]:
    try:
        return [json.loads((own.work / ".lock").read_bytes())["pid"]]
    except (OSError, ValueError):
        return []


@pytest.mark.fault
@pytest.mark.parametrize("verb", ["apply", "verify", "revert", "prune"])
def test_the_second_waits_and_goes_on_after_the_first(slow: tuple[World, Path], verb: str) -> None:
    own, go = slow
    where = ("--target", "blind", "--queue", own.root)
    first = start("apply", *where)
    until(lambda: first.pid in holders(own))
    second = start(verb, *where, "--wait", "60")
    time.sleep(1)
    assert second.poll() is None
    go.touch()
    assert first.wait(60) == 0
    out, err = second.communicate(timeout=60)
    assert second.returncode == 0, out + err
    records = list_records(own.work / "records")
    first_record = next(record for record in records if record.exit == 0 and record.verb == "apply")
    if verb in ("verify", "revert"):
        assert records[-1].verb == verb
    if verb == "revert":
        assert records[-1].facts["reverted"] == first_record.id, "the apply that it waited for, and not the one before"


@pytest.mark.fault
def test_of_two_reverts_the_second_takes_back_the_apply_before(own: World) -> None:
    where = ("--target", "blind", "--queue", own.root)
    for variant in ([], ["--variant", "study"], ["--variant", "deep"]):
        assert patchq("apply", *where, *variant) == 4
    with holding(own.work / ".lock", "patchq test", code=HOLD):
        both = [start("revert", *where, "--wait", "60") for _ in range(2)]
        time.sleep(1.5)
    assert [child.wait(60) for child in both] == [0, 0]
    records = list_records(own.work / "records")
    assert {record.facts["reverted"] for record in records[-2:]} == {record.id for record in records[1:3]}
    commit = records[0].facts["patches"]["alpha"]["commit"]
    assert git(own.work / "alpha/current", "rev-parse", "HEAD") == commit


@pytest.mark.fault
def test_revert_hears_who_trains_and_waits_for_the_end_where_it_is_told_to(
    own: World, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--target", "blind", "--queue", own.root)
    assert patchq("apply", *where) == 4
    with holding(own.work, code=LEASE) as child:
        said = refusal(capsys, "revert", *where)
        assert who(child, "").search(said) and "bash train.sh" in said
        began = time.monotonic()
        assert who(child, "").search(refusal(capsys, "revert", *where, "--wait", "0.3"))
        assert time.monotonic() - began >= 0.3
        assert child.stdin
        subprocess.Popen(["sh", "-c", f"sleep 0.5; kill {child.pid}"])
        assert patchq("revert", *where, "--wait", "60") == 0


def test_refresh_and_check_are_two_at_once_by_the_journal(own: World, capsys: pytest.CaptureFixture[str]) -> None:
    """A reader takes no lock; a second writer waits for the first, and names it where that takes too long."""
    place = journal_folder(own.root) / "alone"
    place.parent.mkdir(parents=True, exist_ok=True)
    with holding(place, "patchq, writing the queue", code=HOLD) as child, pytest.MonkeyPatch.context() as patch:
        assert patchq("check", "--target", "plain", "--queue", own.root) == 0
        patch.setattr("patchq.queuejournal._WAIT", 0.2)
        own.write({"targets/plain.yaml": (own.root / "targets/plain.yaml").read_bytes() + b"# more\n"})
        said = refusal(capsys, "lock", "--queue", own.root)
        assert f"the queue {own.root}" in said and who(child, "patchq, writing the queue").search(said)
    assert patchq("lock", "--queue", own.root) == 0
    assert write_queue(own.root, {"README": b"x"}) == ("README",)


# The lock itself.


def test_what_a_dead_holder_wrote_names_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the lock and the line that says who holds it there is a moment."""
    monkeypatch.setattr(locks, "_PAUSE", 0.002)
    path = tmp_path / "lock"
    with holding(path, "patchq one", code=HOLD) as child:
        pass
    dead = path.read_bytes()
    assert json.loads(dead)["pid"] == child.pid
    with holding(path, "patchq two", code=HOLD) as child:
        for left in (dead, b"", b"{", b"[]", b"{}", b'{"host": 1}', b"\xff" * 9000):
            path.write_bytes(left)
            with pytest.raises(Prevented, match="by another process, which does not say who it is"), took(path):
                raise AssertionError
        path.write_text(json.dumps({"what": "patchq x", "pid": 1, "host": "other\x1b[31m", "since": "then"}))
        with pytest.raises(Prevented, match="patchq x, process 1 on other"), took(path):
            raise AssertionError


def took(path: Path, wait: float = 0):  # type: ignore[no-untyped-def]
    return exclusive(path, "patchq test", free="it", wait=wait)


def test_a_lock_whose_file_was_removed_is_no_lock_for_two(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with holding(path, "patchq one", code=HOLD):
        path.unlink()
        with took(path), pytest.raises(Prevented, match=f"process {os.getpid()} on"), took(path):
            raise AssertionError


@pytest.mark.parametrize("place", ["link", "folder", "fifo"])
def test_a_lock_is_a_plain_file(place: str, tmp_path: Path) -> None:
    path = tmp_path / "lock"
    {"link": lambda: path.symlink_to("x"), "folder": path.mkdir, "fifo": lambda: os.mkfifo(path)}[place]()
    if place == "fifo":
        with took(path):
            return
    with pytest.raises(OSError), took(path):
        raise AssertionError
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_said_in_words(
    number: int, own: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such file system can be had here: the call says what it would say there."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    said = refusal(capsys, "apply", "--target", "blind", "--queue", own.root)
    assert said == f"error: {own.work}: the file system gives no locks (use a local disk)\n"


MOUNT = "36 35 0:40 / {point} rw,relatime shared:1 - {kind} server:/share rw,vers=4.2,{more}\n"


@pytest.mark.parametrize(
    ("kind", "more", "is_refused"),
    [
        ("nfs4", "local_lock=none", False), ("nfs4", "local_lock=all", True), ("nfs", "local_lock=flock", True),
        ("nfs", "nolock", True), ("nfs", "local_lock=posix", False), ("lustre", "localflock", True),
        ("lustre", "flock", False), ("ext4", "rw", False),
    ],
)  # fmt: skip
def test_a_network_file_system_whose_locks_end_at_this_host_is_refused_in_words(
    kind: str, more: str, is_refused: bool, own: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """No such mount can be had here: the list of mounts is one that a host with it would give."""
    rows = MOUNT.format(point="/", kind="ext4", more="local_lock=all")
    rows += MOUNT.format(point=str(own.work.parent).replace(" ", "\\040"), kind=kind, more=more)
    (tmp_path / "mountinfo").write_text(rows)
    monkeypatch.setattr(locks, "MOUNTS", tmp_path / "mountinfo")
    if not is_refused:
        assert patchq("prune", "--target", "blind", "--queue", own.root) == 0
        return
    said = refusal(capsys, "prune", "--target", "blind", "--queue", own.root)
    assert f"{own.work}: lies on {kind}, mounted with {more}: a lock there does not keep another host away" in said


def test_a_wait_is_measured_by_a_clock_that_does_not_jump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)
    path = tmp_path / "lock"
    with holding(path, "patchq one", code=HOLD):
        began = time.monotonic()
        with pytest.raises(Prevented), took(path, 0.2):
            raise AssertionError
        assert 0.2 <= time.monotonic() - began < 5
