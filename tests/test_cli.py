"""The command line as a stranger meets it: one clear line, the right exit code, and never a traceback."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from world import World, patchq

from patchq.cli import boundary
from patchq.errors import Problem, Refused, Terminated
from patchq.report import Report, State, Step

VERBS = (
    *("init", "status", "series", "check", "lock", "bundle", "apply", "verify", "revert", "env", "record", "prune"),
    *("export", "edit", "refresh", "new", "drop", "import", "show", "files", "annotate", "graph", "smoke", "run"),
)


@pytest.fixture
def cli(own: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Runs words in the queue's folder; returns exit code, stdout, stderr; no output may hold a traceback."""
    monkeypatch.chdir(own.root.parent)

    def call(*words: object) -> tuple[int, str, str]:
        code = patchq(*words)
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err and code != 70, err
        return code, out, err

    return call


def child(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """The command line as a process of its own."""
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **env}
    argv = [sys.executable, "-m", "patchq", *words]
    return subprocess.run(argv, cwd=cwd, env=environ, capture_output=True, text=True, check=False)


# Usage.

USAGE = [
    (["nonsense"], "No such command 'nonsense'"),
    (["series"], "Missing option '--target'"),
    (["series", "--target"], "Option '--target' requires an argument"),
    (["series", "--target", "smal"], "there is no target 'smal' (did you mean 'small'?)"),
    (["series", "--target", "small", "--variant", "depp"], "there is no variant 'depp' (did you mean 'deep'?)"),
    (["series", "--target", "small", "--wy"], "No such option"),
    (["check", "--target", "smal"], "there is no target 'smal'"),
    (["check", "--source", "alpha"], "cannot read --source 'alpha' (write NAME=PATH or NAME=URL)"),
    (["check", "--source", "alfa=/x"], "--source names 'alfa', which has no git baseline here (did you mean 'alpha'?)"),
    (["bundle", "--target", "small", "--since", "/none"], "/none: there is no lock here"),
    (["apply", "--target", "small", "--source", "alfa=/x"], "--source names 'alfa'"),
    (["apply", "--target", "small", "--bundle", "/none"], "/none: is not a bundle: there is no such folder"),
    (["apply", "--target", "small", "--wait", "long"], "Invalid value for '--wait'"),
    (["verify", "--target", "none"], "there is no target 'none'"),
    (["prune", "--target", "small", "--keep", "0"], "Invalid value for '--keep'"),
    (["export", "--target", "small", "--format", "tar", "--out", "x"], "there is no format 'tar'"),
    (["record"], ""),
    (["record", "show", "x", "--target", "small"], "no record with the id 'x'"),
    (["show", "smal-only"], "there is no patch 'smal-only' (did you mean 'small-only'?)"),
    (["check", "--queue", "/none"], "/none: there is no queue here (a queue has series/queue.yaml)"),
    (["init", "/none"], "/none: there is no such folder"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "said"), USAGE, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_wrong_usage_is_one_line_and_exit_2(cli, words: list[str], said: str) -> None:  # type: ignore[no-untyped-def]
    code, out, err = cli(*words)
    assert code == 2 and said in err
    if said:
        assert len(err.strip().splitlines()) == 1 and err.startswith("error: ") and not out
        code, out, err = cli(*words, "--json")
        answer = json.loads(out)
        assert (answer["schema"], answer["exit"], code, err) == (1, 2, 2, "")
        assert all(set(problem) == {"what", "where", "hint"} for problem in answer["errors"])


def test_no_words_and_help_are_help(cli) -> None:  # type: ignore[no-untyped-def]
    for words in ([], ["--help"], ["-h"]):
        code, out, _ = cli(*words)
        assert code == 0 and "Usage: patchq" in out
        assert all(re.search(rf"^  {verb}\b", out, re.MULTILINE) for verb in VERBS)
    for verb in VERBS:
        code, out, _ = cli(verb, "--help")
        assert code == 0 and ("--json" in out or verb == "record"), verb
    assert cli("--version")[1].startswith("patchq ")


# Bad queues.


def test_several_errors_in_several_files_are_all_said(cli, own: World) -> None:  # type: ignore[no-untyped-def]
    own.write(
        {"queue.yaml": "schema: 1\nname: x\nnaem: y\n", "variants/deep.yaml": "research: 5\n", "alpha/series": "x\n"}
    )
    for verb in (["status"], ["check"], ["lock"], ["apply", "--target", "small"], ["bundle", "--target", "small"]):
        code, out, err = cli(*verb)
        assert (code, out) == (2, "") and len(err.strip().splitlines()) == 4, err
        assert all(text in err for text in ("queue.yaml:3", "variants/deep.yaml:1", "alpha/series:1"))


def test_missing_and_stale_locks_say_what_to_run(cli, own: World) -> None:  # type: ignore[no-untyped-def]
    (own.root / "patchq.lock").unlink()
    for verb in (["apply", "--target", "small"], ["bundle", "--target", "small"], ["lock", "--check"]):
        code, _, err = cli(*verb)
        assert code == 1 and err == f"error: {own.root}/patchq.lock: the queue has no lock (run: patchq lock)\n"
    assert cli("lock")[0] == 0
    own.write({"alpha/series": (own.root / "alpha/series").read_bytes() + b"# more\n"})
    for verb in (["apply", "--target", "small"], ["bundle", "--target", "small"], ["lock", "--check"]):
        code, out, err = cli(*verb)
        assert code == 1 and "alpha/series" in out + err and "run: patchq lock" in out + err
    assert cli("check", "--target", "plain")[0] == 0
    assert cli("lock")[0] == 0


def test_unset_variables_are_named_with_their_file(cli, own: World) -> None:  # type: ignore[no-untyped-def]
    text = (own.root / "targets/small.yaml").read_text()
    own.write({"targets/small.yaml": text.replace("${WORK:-work}", "${NO_SUCH}/x")})
    assert cli("lock")[0] == 0 and cli("status")[0] == 0
    for verb in (["apply"], ["verify"], ["env"], ["prune"], ["revert"], ["record", "list"]):
        code, out, err = cli(*verb, "--target", "small")
        assert code == 2 and f"{own.root}/targets/small.yaml: the variable NO_SUCH is not set" in err, verb
        assert out == ("return 1 2>/dev/null || exit 1\n" if verb == ["env"] else "")


def test_states_have_their_exit_codes(cli, own: World) -> None:  # type: ignore[no-untyped-def]
    name = "alpha/device/small-only.patch"
    text = (own.root / name).read_bytes()
    assert cli("check", "--target", "small")[0] == 0
    own.write({name: text.replace(b" def f2():", b" def g2():")})
    assert cli("check", "--target", "small")[0] == 3 and cli("lock")[0] == 3
    own.write({name: text + b"+more\n"})
    code, out, _ = cli("check", "--target", "small")
    assert code == 2 and f"{own.root}/{name}:" in out
    (own.root / name).unlink()
    assert cli("check", "--target", "small")[0] == 2


# The machine.


@pytest.mark.parametrize("verb", [["check"], ["lock"], ["apply"], ["bundle"], ["verify"]])
def test_without_git_it_is_one_line_and_exit_5(
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: list[str]
) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("PATH", str(tmp_path))
    code, out, err = cli(*verb, *(() if verb == ["lock"] else ("--target", "plain")))
    assert (code, out, err) == (5, "", "error: cannot start git: No such file or directory\n")
    assert cli("status")[0] == 0 and cli("series", "--target", "plain")[0] == 0


def test_places_that_cannot_be_written_are_exit_5(cli, own: World, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    own.work.write_text("a file")
    for verb in ("apply", "prune"):
        code, _, err = cli(verb, "--target", "blind")
        assert code == 5 and f"{own.work}: the work area cannot be used: " in err
    monkeypatch.setenv("XDG_DATA_HOME", "/proc/none")
    code, _, err = cli("check")
    assert code == 5 and "set XDG_DATA_HOME to a folder that can be written" in err
    assert cli("status")[0] == 0


@pytest.mark.fault
@pytest.mark.skipif(not shutil.which("unshare") or os.getuid() != 0, reason="needs mounts of its own")
def test_read_only_places_are_one_line_and_exit_5(own: World) -> None:
    script = """
    mount --bind "$Q" "$Q" && mount -o remount,ro,bind "$Q" || exit 77
    cd "$Q" && "$PY" -m patchq "$@"
    """
    env = {**os.environ, "Q": str(own.root.parent), "PY": sys.executable, "PYTHONPATH": str(Path(__file__).parents[1])}

    def read_only(*words: str) -> subprocess.CompletedProcess[str]:
        argv = ("unshare", "--mount", "sh", "-c", script, "sh", *words)
        return subprocess.run(argv, env=env, capture_output=True, text=True, check=False)

    own.write({"queue.yaml": "schema: 1\nname: other\n"})
    for words in (("lock",), ("apply", "--target", "blind")):
        done = read_only(*words)
        if done.returncode == 77 or "unshare failed" in done.stderr:
            pytest.skip("mounts are not allowed here")
        last = done.stderr.strip().splitlines()[-1]
        assert done.returncode == 5 and last.startswith("error: ") and "Read-only file system" in last, done.stderr
        assert "Traceback" not in done.stderr
    assert read_only("check", "--target", "plain").returncode == 0


def test_a_closed_pipe_is_141_and_silent(own: World) -> None:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    argv = f"{sys.executable} -m patchq check --queue {own.root}; echo $? >&2"
    done = subprocess.run(
        ["bash", "-c", f"(sleep 0.1; {argv}) | true"], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stderr.strip().splitlines()[-1] == "141" and "Traceback" not in done.stderr


SERIES = "-m patchq series --target blind"
CALLERS = {
    "nothing open": (f"PY {SERIES} <&- >&- 2>&-", 0, ""),
    "no output, and an error": ("PY -m patchq series --nope >&-", 2, "No such option: --nope"),
    "no place for an error": ("PY -m patchq series --nope 2>/dev/full", 2, ""),
    "no place for the document": (
        "PY -m patchq series --nope --json >/dev/full",
        2,
        "cannot be written: No space left",
    ),
    "no place for an answer": (f"PY {SERIES} >/dev/full", 5, "the machine said: No space left"),
    "no place for an answer in JSON": (f"PY {SERIES} --json >/dev/full", 5, "the machine said: No space left"),
    "no place for a version": ("PY -m patchq --version >/dev/full", 5, "the machine said: No space left"),
    "no place for help": ("PY -m patchq series --help >/dev/full", 5, "the machine said: No space left"),
    "nobody waits for a version": ("(sleep 0.1; PY -m patchq --version; echo $? >&2) | true", 0, "141"),
    "nobody waits for help": ("(sleep 0.1; PY -m patchq --help; echo $? >&2) | true", 0, "141"),
    "Python would stay": (f"PYTHONINSPECT=1 PY {SERIES}", 0, ""),
    "a completion without words": (f"_PATCHQ_COMPLETE=complete_bash PY {SERIES}", 0, ""),
    "a folder that is gone": (
        "mkdir gone && cd gone && rmdir ../gone && PY -m patchq check",
        5,
        "is not there any more",
    ),
}


@pytest.mark.fault
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("name", CALLERS)
def test_odd_callers_get_the_answer_and_the_code(own: World, name: str, unbuffered: str) -> None:
    script, code, said = CALLERS[name]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONUNBUFFERED": unbuffered}
    argv = ("bash", "-c", script.replace("PY ", f"{sys.executable} "))
    done = subprocess.run(argv, cwd=own.root.parent, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code and said in done.stderr and "Traceback" not in done.stderr, done.stderr
    lines = (1, 2) if "--json" in script else (int(bool(said)),)
    assert done.stderr.count("\n") in lines


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGTERM, 143, marks=pytest.mark.fault),
        pytest.param(signal.SIGHUP, 143, marks=pytest.mark.fault),
    ],
)
def test_a_signal_cleans_up_and_has_its_code(own: World, number: signal.Signals, code: int) -> None:
    """While an apply waits for its interpreter, which never answers."""
    slow = own.root.parent / "slow-python"
    slow.write_text("#!/bin/sh\nsleep 60\n")
    slow.chmod(0o755)
    text = (own.root / "targets/blind.yaml").read_text()
    own.write({"targets/blind.yaml": text.replace("/nowhere/python", str(slow))}).locked()
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    argv = [sys.executable, "-m", "patchq", "apply", "--target", "blind"]
    child = subprocess.Popen(
        argv, cwd=own.root.parent, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    for _ in range(600):
        if list(own.work.glob("alpha/" + "[0-9a-f]" * 40)):
            break
        time.sleep(0.05)
    time.sleep(0.3)
    child.send_signal(number)
    _, err = child.communicate(timeout=60)
    assert child.returncode == code and "Traceback" not in err
    assert not (own.work / "alpha/current").exists() and not list(own.work.glob("alpha/.new-*"))
    with_lock = patchq("prune", "--target", "blind", "--queue", own.root)
    assert with_lock == 0, "the lock is free again"


# The boundary itself.


def answering(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let `status` end with `error`."""

    def fail(*_: object) -> Report:
        raise error

    monkeypatch.setattr("patchq.commands.status.status", fail)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (Refused([Problem("a", "w:1", "h"), Problem("b")]), 1, "error: w:1: a (h)\nerror: b\n"),
        (OSError(28, "No space left on device", "/x"), 5, "error: /x: the machine said: No space left on device\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (Terminated(), 143, "error: terminated\n"),
        (MemoryError(), 5, "error: the machine has no more memory for this\n"),
        (ArithmeticError(), 70, "error: a bug in patchq: ArithmeticError: "),
    ],
)
def test_every_error_ends_as_lines_and_a_code(
    own: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    said: str,
) -> None:
    answering(monkeypatch, error)
    assert patchq("status", "--queue", own.root) == code
    out, err = capsys.readouterr()
    assert err.startswith(said) and not out
    answering(monkeypatch, error)
    assert patchq("status", "--json", "--queue", own.root) == code
    answer = json.loads(capsys.readouterr().out)
    assert answer["exit"] == code and answer["verb"] == "status"


def test_a_bug_is_named_and_its_traceback_kept_in_a_file(
    own: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    answering(monkeypatch, ZeroDivisionError("https://me:pw@host\x1b[31m"))
    assert patchq("status", "--queue", own.root) == 70
    (kept,) = tmp_path.glob("patchq-bug-*.txt")
    err = capsys.readouterr().err
    assert str(kept) in err and "pw" not in err and "\x1b" not in err
    assert "ZeroDivisionError" in kept.read_text()
    assert boundary.BUG == 70


def test_json_is_one_document_and_nothing_else(cli) -> None:  # type: ignore[no-untyped-def]
    for words in (["check"], ["status"], ["series", "--target", "small"], ["lock"], ["bundle", "--target", "blind"]):
        code, out, err = cli(*words, "--json")
        answer = json.loads(out)
        assert (code, answer["exit"], answer["verb"], answer["schema"], err) == (0, 0, words[0], 1, "")
        assert sum(answer["counts"].values()) == len(answer["steps"])


def test_reports_take_the_worst_code() -> None:
    def code(*states: State) -> int:
        return Report("x", tuple(Step("s", state) for state in states)).exit_code

    assert code() == code(State.PASSED, State.WARNING, State.EXCLUDED, State.NOTE) == 0
    assert code(State.NOT_RUN) == 4 and code(State.NOT_RUN, State.FAILED) == 1
    assert code(State.FAILED, State.CONFLICT) == 3 and code(State.CONFLICT, State.PREVENTED) == 5
    assert code(State.PREVENTED, State.MALFORMED) == 2
    assert Report("x", (Step("s", State.NOT_RUN, required=False),)).exit_code == 0
