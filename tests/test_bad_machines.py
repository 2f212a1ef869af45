"""Machines that say no, and people who change their mind: one clean line, the right exit code, nothing left behind."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from faultkit import EVERY
from world import World, contents, git, patchq

from patchq.cli.boundary import run
from patchq.commands.place import Place
from patchq.errors import Invalid
from patchq.evidence.inforce import last_apply
from patchq.evidence.record import Evidence, list_records, next_stamp, write_record
from patchq.report import Report, State, Step

SOURCE = str(Path(__file__).parents[1])


def child(*words: object, cwd: Path | None = None, before: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """patchq as a process of its own, after the shell commands `before`; in a name space of its own if these mount."""
    argv = [sys.executable, "-m", "patchq", *map(str, words)]
    if before:
        apart = ["unshare", "-rm"] if "mount " in before else []
        argv = [*apart, "sh", "-c", f'{before} || exit 77\nexec "$@"', "sh", *argv]
    environ = {**os.environ, "PYTHONPATH": SOURCE, **env}
    done = subprocess.run(argv, cwd=cwd, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert "Traceback" not in done.stdout + done.stderr and done.returncode != 70, done.stderr
    return done


def mounts_are_allowed() -> bool:
    argv = ["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"]
    return bool(shutil.which("unshare")) and subprocess.run(argv, capture_output=True, check=False).returncode == 0


needs_mounts = pytest.mark.skipif(not mounts_are_allowed(), reason="needs mounts of its own")


@pytest.fixture
def applied(own: World) -> World:
    assert patchq("apply", "--target", "blind", "--queue", own.root) == 4
    return own


# Read-only, full, and not there.


@pytest.mark.fault
@needs_mounts
@pytest.mark.parametrize("size", ["64k", "300k", "700k", "1400k"])
def test_on_a_full_disk_it_is_one_line_that_says_where(own: World, size: str, tmp_path: Path) -> None:
    """Work area, store, and temporary files on a disk that fills up on the way; the larger, the later."""
    small = tmp_path / "small"
    small.mkdir()
    env = {"WORK": str(small / "work"), "XDG_DATA_HOME": str(small / "data"), "TMPDIR": str(small)}
    full = False
    for words in (["apply", "--target", "blind"], ["bundle", "--target", "blind", "--out", str(small / "b")]):
        done = child(*words, "--queue", own.root, before=f"mount -t tmpfs -o size={size} none {small}", **env)
        if done.returncode != 5:
            assert done.returncode == (4 if words[0] == "apply" else 0), done.stderr
            continue
        full = True
        *_, last = [row for row in (done.stderr + done.stdout).strip().splitlines() if "pace" in row or "write" in row]
        assert "No space left on device" in last or "git" in last, last
        assert str(small) in last or "git" in last, last
    assert full or size == "1400k"


def test_an_error_that_names_no_file_gets_the_one_that_was_written(
    applied: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a full disk says of a write has no name in it."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", fail)
    assert patchq("verify", "--target", "blind", "--queue", applied.root) == 5
    assert capsys.readouterr().err.startswith(f"error: {applied.work}/records/.new-")


@pytest.mark.parametrize("version", ["2.24.4", pytest.param("1.8.3", marks=pytest.mark.fault)])
def test_a_git_that_is_too_old_is_one_line(
    applied: World, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stand-in that says so: nothing else of it is asked."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").write_text(f"#!/bin/sh\n[ $1 = --version ] || exit 99\necho git version {version}\n")
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    capsys.readouterr()
    for words in (["apply"], ["verify"], ["bundle"], ["check"]):
        assert patchq(*words, "--target", "blind", "--queue", applied.root) == 5, words
        err = capsys.readouterr().err
        assert len(err.splitlines()) == 1
        assert err.startswith(f"error: git {version[:4].rstrip('.')} is too old for ") and "is the oldest" in err


NO_ANSWER = {
    "error: unable to create temporary file: Read-only file system": "Read-only file system",
    "error: unable to write file objects/pack/x: No space left on device": "No space left on device",
    "error: insufficient permission for adding an object to repository database /x/objects": "insufficient permission",
    "": "exit status -9",
}


@pytest.mark.parametrize("line", NO_ANSWER)
def test_a_patch_that_the_machine_kept_git_from_applying_is_no_conflict(
    own: World, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stand-in before the real git, which says for `apply` what git says where it cannot write its objects."""
    real = shutil.which("git")
    (tmp_path / "bin").mkdir()
    says = f"echo '{line}' >&2; exit 1" if line else "kill -9 $$"
    text = f'#!/bin/sh\nfor word; do [ "$word" = apply ] && {{ {says}; }}; done\nexec {real} "$@"\n'
    (tmp_path / "bin/git").write_text(text)
    (tmp_path / "bin/git").chmod(0o755)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    assert patchq("check", "--target", "plain", "--queue", own.root) == 5
    said = capsys.readouterr()
    assert "conflict" not in said.out + said.err and "git apply failed" in said.err and NO_ANSWER[line] in said.err


@pytest.mark.parametrize("home", ["/proc/nowhere", pytest.param("/dev/null", marks=pytest.mark.fault)])
def test_a_home_that_is_not_there_is_no_hindrance_or_one_line(
    applied: World, home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", home)
    where = ["--target", "blind", "--queue", applied.root]
    capsys.readouterr()
    for words in (["status", *where[2:]], ["env", *where], ["record", "list", *where], ["verify", *where]):
        assert patchq(*words) in (0, 4), words
    assert patchq("check", *where) == 5
    err = capsys.readouterr().err.splitlines()[-1]
    assert err.startswith("error: ") and "set XDG_DATA_HOME to a folder that can be written" in err
    (area,) = applied.work.glob("queue/*")
    assert patchq("apply", "--target", "blind", "--queue", area) == 4, "a queue in a work area needs no home"


STRANGE = ("with space", "ünï-码-🎯", "a'quote\"s", "tab\there", "new\nline", "-dash", "[b]x[/b]")


@pytest.mark.parametrize(
    "name", ["- all'of\"it\t码\n[b]x[/b]", *(pytest.param(name, marks=pytest.mark.fault) for name in STRANGE)]
)
def test_a_strange_path_is_a_path(world: World, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = world.copy(tmp_path / name / "q")
    assert patchq("apply", "--target", "blind", "--queue", own.root) == 4
    assert patchq("bundle", "--target", "blind", "--queue", own.root, "--out", tmp_path / name / "b", "--tar") == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORK", str(tmp_path / name / "w"))
        assert patchq("apply", "--target", "blind", "--bundle", tmp_path / name / "b.tar") == 4
    out = capsys.readouterr().out
    assert "\t" not in out and name.replace("\n", "\\x0a").replace("\t", " ") in out
    commit = git(own.work / "alpha/current", "rev-parse", "HEAD")
    assert git(tmp_path / name / "w/alpha/current", "rev-parse", "HEAD") == commit


# A clock that jumped.


@pytest.mark.fault
def test_the_order_of_records_is_that_of_events_also_where_the_clock_jumped_back(
    applied: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Back by a year, and to 1970, as on a host whose battery is flat: the last apply is the last."""
    place, area = Place(applied.root), Place(applied.root).area("blind")
    for years, variant in ((1, "study"), (50, "deep")):
        back = datetime.now(timezone.utc) - timedelta(days=365 * years)

        class Clock(datetime):
            @classmethod
            def now(cls, zone: timezone | None = None) -> datetime:  # type: ignore[override]
                return back  # noqa: B023

        monkeypatch.setattr("patchq.evidence.record.datetime", Clock)
        assert patchq("apply", "--target", "blind", "--variant", variant, "--queue", applied.root) == 4
        monkeypatch.undo()
        last = last_apply(area.records, "blind")
        assert last and last.variant == variant and last.began.startswith(str(back.year)), "what the clock said is kept"
    assert patchq("revert", "--target", "blind", "--queue", applied.root) == 0
    last = last_apply(area.records, "blind")
    assert last and last.variant == "study"
    assert place.queue


def test_names_follow_each_other_whatever_lies_beside_them(tmp_path: Path) -> None:
    now = datetime(2026, 12, 1, 12, 0, 0, 5000, timezone.utc)
    assert next_stamp(now, []) == "20261201T120000.005Z"
    assert next_stamp(now, ["20251201T120000.005Z-apply", "x", "99999999T999999.999Z-y"]) == "20261201T120000.005Z"
    assert next_stamp(now, ["20261201T120000.005Z-apply"]) == "20261201T120000.006Z"
    assert next_stamp(now, ["20991231T235959.999Z-apply"]) == "21000101T000000.000Z"
    report = Report("verify", (Step("a", State.PASSED),))
    for _ in range(3):
        write_record(tmp_path, report, Evidence(began=now), target="t", variant=None, lock="0" * 64)
    assert [record.id[:20] for record in list_records(tmp_path)] == [f"20261201T120000.{n:03d}Z" for n in (5, 6, 7)]


# ^C.


def test_an_interrupt_while_modules_are_loaded_is_one_line_and_130() -> None:
    code = """
import builtins, sys
real = builtins.__import__
def late(name, *rest):
    if name == "patchq.cli":
        raise KeyboardInterrupt
    return real(name, *rest)
builtins.__import__ = late
sys.argv = ["patchq", "status"]
from patchq.__main__ import main
main()
"""
    environ = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")


def test_a_second_interrupt_does_not_stop_the_first_ones_cleaning_up(
    own: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cleaned = []

    def slow(*_: object) -> Report:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            raise AssertionError
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(os.getpid(), number)
            cleaned.append(True)

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    monkeypatch.setattr("patchq.commands.status.status", slow)
    assert run(["status", "--queue", str(own.root)]) == 130
    assert cleaned and capsys.readouterr().err == "error: interrupted\n"
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


class Dropping:
    """C code that calls back and drops what is raised there, as that of pydantic does while it tries a pattern."""

    def __del__(self) -> None:
        os.kill(os.getpid(), self.number)

    def __init__(self, number: int) -> None:
        self.number = number


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("ending", ["goes on", "says something", "raises"])
def test_an_interrupt_that_a_library_drops_is_not_lost(
    own: World, number: int, code: int, ending: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends what goes on, and what was found out meanwhile is not said: it may be wrong."""

    def work(*_: object) -> Report:
        Dropping(number)
        if ending == "raises":
            raise Invalid("a valid file")
        deadline = time.monotonic() + 20
        while ending == "goes on":
            assert time.monotonic() < deadline
        return Report("status", (Step("x", State.PASSED),))

    monkeypatch.setattr("patchq.commands.status.status", work)
    assert run(["status", "--queue", str(own.root)]) == code
    said = {130: "interrupted", 143: "terminated"}[code]
    assert capsys.readouterr() == ("", f"error: {said}\n")


def hears(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal (proc(5), SigCgt); not when it has ended."""
    try:
        rows = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next((row.split()[1] for row in rows if row.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


@pytest.mark.fault
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_at_any_time_an_interrupt_leaves_nothing_behind(applied: World, number: signal.Signals, tmp_path: Path) -> None:
    """Also pressed twice. What the interpreter says of one in its own first moments is not patchq's to change: it comes
    when patchq is there, which hears SIGTERM where the interpreter alone does not."""
    bundle, room = tmp_path / "bundle", tmp_path / "tmp"
    assert patchq("bundle", "--target", "blind", "--queue", applied.root, "--out", bundle, "--tar") == 0
    room.mkdir()
    queue = ["--target", "blind", "--queue", str(applied.root)]
    verbs = [
        ["apply", "--target", "blind", "--bundle", str(bundle)],
        ["apply", "--target", "blind", "--bundle", f"{bundle}.tar"],
        ["apply", *queue, "--variant", "deep"], ["bundle", *queue, "--out", str(tmp_path / "again")],
        ["verify", *queue], ["check", *queue], ["drop", "deeper", "-y", "--queue", str(tmp_path / "other/series")],
    ]  # fmt: skip
    code = 130 if number == signal.SIGINT else 143
    chance = random.Random(number)
    environ = {**os.environ, "PYTHONPATH": SOURCE, "TMPDIR": str(room)}
    struck = 0
    for at in range(28 if EVERY else 2 * len(verbs)):
        shutil.copytree(applied.root, tmp_path / "other/series")
        argv = [sys.executable, "-m", "patchq", *verbs[at % len(verbs)]]
        started = subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   cwd=tmp_path, start_new_session=True)  # fmt: skip
        while started.poll() is None and not hears(started.pid, signal.SIGTERM):
            time.sleep(0.002)
        time.sleep(1.5 * chance.random())
        for _ in range(1 + at % 2):
            if started.poll() is None:
                os.killpg(started.pid, number)
        out, err = started.communicate(timeout=60)
        assert "Traceback" not in err, err
        over = (-number,) if number == signal.SIGTERM else ()  # it had its answer, and was about to end
        assert started.returncode in (code, 0, 1, 4, *over), err
        struck += started.returncode == code
        left = [*room.iterdir(), *tmp_path.glob(".new-*"), *tmp_path.rglob("*/.new-*")]
        assert not left, (argv, left, out, err)
        for made in ("again", "other"):
            shutil.rmtree(tmp_path / made, ignore_errors=True)
    assert struck
    assert patchq("apply", *queue) in (0, 4)
    assert json.loads((applied.root / "patchq.lock").read_bytes())["schema"] == 1
    assert contents(applied.root)


@pytest.mark.fault
@pytest.mark.parametrize("encoding", ["ascii", "ascii:strict", "latin-1"])
def test_a_terminal_without_the_letters_gets_escapes(own: World, encoding: str) -> None:
    done = child("series", "--target", "blind", "--why", "--queue", own.root, PYTHONIOENCODING=encoding)
    assert done.returncode == 0 and "\\u2713 alpha/device/rename-it.patch" in done.stdout, done.stderr
    child("series", "--target", "bl中nd", "--queue", own.root, PYTHONIOENCODING=encoding)
