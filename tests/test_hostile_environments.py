"""Environments that lie: interpreters, start-up files, metadata, profiles. One clear word each, no hang, no write."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faultkit import sampled
from toy import applied, make_queue
from toyenv import copy_venv, customize, install, make_venv, site_packages

import patchq.process
from patchq.audit import survey
from patchq.commands.place import Place
from patchq.commands.verify import verify
from patchq.errors import Invalid, Prevented
from patchq.installed import locate
from patchq.installed.install import Layout
from patchq.ladder.command import variables_of
from patchq.machine.answers import SHAPES, can_be
from patchq.machine.launch import Launch
from patchq.machine.probe import PROBES, ProbeFailed, answer_of, ask, reading
from patchq.process import Outcome, leashed
from patchq.report import State

HERE = Path("/usr/bin/python")
GOOD = {"copies": []}
LINE = json.dumps(GOOD).encode()


# What an interpreter prints.


@pytest.mark.parametrize(
    ("printed", "code", "said"),
    [
        (LINE, 0, ""),
        (b"Welcome\n" + LINE + b"\nbye\n", 0, ""),
        (b'{"level": "info"}\n' + LINE + b'\n{"level": "info"}\n{}', 0, ""),
        (b"\xff\xfe\0\n" + LINE, 0, ""),
        (b"", 0, "gave no answer: exit status 0"),
        (b"{}", 0, "gave no answer: {}"),
        (b"[1]", 0, "gave no answer: [1]"),
        (b'{"copies', 0, "gave no answer"),
        (b'{"copies": ' + b"[" * 200_000, 0, "gave no answer"),
        (b'{"copies": ' + b"1" * 5000 + b"}x", 0, "gave no answer"),
        (b"", -9, "was killed by SIGKILL"),
        (b"", -40, "was killed by signal 40"),
    ],
)
def test_only_a_line_that_can_be_the_answer_is_one(printed: bytes, code: int, said: str) -> None:
    outcome = Outcome(("python",), code, printed, b"", 0)
    if not said:
        assert answer_of(outcome, "installation", HERE, 1) == GOOD
        return
    with pytest.raises(ProbeFailed) as raised:
        answer_of(outcome, "installation", HERE, 1)
    assert said in raised.value.problems[0].what


@pytest.mark.parametrize("answer", [{}, {"a": 1}, {"a": []}, {"a": {"b": "x"}}])
def test_an_answer_of_another_shape_is_no_bug(answer: dict[str, Any]) -> None:
    with pytest.raises(ProbeFailed, match="of another shape"), reading("installation", HERE):
        int(answer["a"]["b"])


def test_a_flood_of_output_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patchq.process, "MAX_OUTPUT", 1 << 20)
    with leashed(["sh", "-c", "exec yes"]) as running:
        outcome = running.outcome(60)
    assert outcome.flooded and not outcome.ok and not outcome.timed_out
    assert len(outcome.stdout) == 1 << 20 and outcome.seconds < 30
    with pytest.raises(ProbeFailed, match="more than"):
        answer_of(outcome, "installation", HERE, 1)


# What lies in site-packages.


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile") / "pristine"
    make_venv(folder)
    install(folder, "vend", "1.0", {"vend/__init__.py": "a = 1\n", "vend/b.py": "b = 2\n"})
    return folder


@pytest.fixture
def env(pristine: Path, tmp_path: Path) -> Path:
    copy_venv(pristine, tmp_path / "env")
    return tmp_path / "env"


def launch_in(env: Path, profile: str = "") -> Launch:
    return Launch("target t", env / "bin/python", profile, (), env.parent / "pyc", Path("/tmp/r"))


def probe(env: Path, name: str, **question: Any) -> dict[str, Any]:
    """Ask a probe as patchq does; ten seconds are a hang."""
    return ask(launch_in(env), name, question, cwd=env.parent, timeout=10)


def fifo(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def listening(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.unlink()
    monkeypatch.chdir(path.parent)  # a socket's name is short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)


def row(text: str | bytes) -> Callable[[Path], None]:
    """One more row in RECORD."""

    def add(info: Path) -> None:
        with (info / "RECORD").open("ab") as stream:
            stream.write((text if isinstance(text, bytes) else text.encode()) + b"\n")

    return add


FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "a device": (row("/dev/zero,sha256=abc,3"), "/dev/zero is not a regular file"),
    "dots to a device": (row(f"{'../' * 20}dev/zero,sha256=abc,"), "dev/zero is not a regular file"),
    "an absolute path": (row("/etc/passwd,sha256=abc,3"), "/etc/passwd is not the file that RECORD lists"),
    "a FIFO": (lambda info: fifo(info.parent / "vend/b.py"), "vend/b.py is not a regular file"),
    "a folder": (lambda info: row("vend,sha256=abc,3")(info), "vend cannot be read"),
    "another hash beside": (row("vend/b.py,sha256=abc,6"), "vend/b.py is not the file that RECORD lists"),
    "a hash without length": (row("vend/b.py,shake_128=abc,6"), "vend/b.py cannot be read"),
    "an unknown hash": (row("vend/b.py,rot13=abc,6"), "vend/b.py cannot be read"),
    "odd sizes": (row(f"vend/b.py,,²\nvend/b.py,,{'9' * 5000}\nvend/no.py,,"), "vend/no.py is not there"),
    "no rows": (row("hello world\n,"), "RECORD has no PATH,HASH,SIZE in row 6"),
    "a long field": (row(f'"{"x" * 200_000}",,'), "File name too long"),
    "no text": (row(b"\xff\xfe,,"), "RECORD cannot be read: 'utf-8'"),
    "a nul": (row(b"vend/\0.py,sha256=x,1"), ""),
}


@pytest.mark.fault
@pytest.mark.parametrize("kind", sampled(FILES, 4))
def test_a_row_of_record_is_judged_and_never_waited_for(env: Path, kind: str) -> None:
    spoil, said = FILES[kind]
    spoil(site_packages(env) / "vend-1.0.dist-info")
    record = probe(env, "packages", protected=["vend"])["records"]["vend"]
    wrong = [" ".join(found) for found in record["wrong"]]
    assert wrong and any(said in one for one in wrong), wrong


@pytest.mark.fault
def test_a_socket_is_no_file(env: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listening(site_packages(env) / "vend/b.py", monkeypatch)
    record = probe(env, "packages", protected=["vend"])["records"]["vend"]
    assert record["wrong"] == [["vend/b.py", "is not a regular file"]]


def empty(path: Path) -> None:
    path.write_bytes(b"")


METADATA: dict[str, tuple[Callable[[Path], None], str]] = {
    "is gone": (lambda info: (info / "METADATA").unlink(), "has no name or version"),
    "is empty": (lambda info: empty(info / "METADATA"), "has no name or version"),
    "has no version": (lambda info: void((info / "METADATA").write_text("Name: vend\n")), "has no name or version"),
    "is no text": (lambda info: void((info / "METADATA").write_bytes(b"\xff\xfe\xff")), "'utf-8'"),
    "is a FIFO": (lambda info: fifo(info / "METADATA"), "is not a regular file"),
    "requires a FIFO": (lambda info: fifo(info / "requires.txt"), "is not a regular file"),
}


def void(_: object) -> None:
    """For what is done for its effect."""


@pytest.mark.fault
@pytest.mark.parametrize("kind", sampled(METADATA, 4))
def test_a_distribution_that_cannot_be_read_is_named_and_hides_no_other(env: Path, kind: str) -> None:
    spoil, said = METADATA[kind]
    install(env, "other", "2.0", {"other.py": ""})
    info = site_packages(env) / "vend-1.0.dist-info"
    spoil(info)
    assert probe(env, "origins", survey={"vend": "vend"})["surveyed"]["vend"]["distributions"]
    answer = probe(env, "packages", protected=["vend"])
    assert list(answer["distributions"]) == ["other"]
    assert said in answer["unread"][str(info)]


@pytest.mark.fault
@pytest.mark.parametrize("text", ["[]", "[" * 200_000, '{"url": 5, "dir_info": "x", "vcs_info": [1]}', "\0",
                                  '{"url": "u", "vcs_info": {"x": 1}}', None])  # fmt: skip
def test_a_direct_url_may_hold_anything(env: Path, text: str | None) -> None:
    path = site_packages(env) / "vend-1.0.dist-info/direct_url.json"
    os.mkfifo(path) if text is None else path.write_text(text)
    assert probe(env, "packages")["distributions"]["vend"]["editable"] is False
    assert probe(env, "origins", survey={"vend": "vend"})["surveyed"]["vend"]["distributions"][0]["source"] is None
    assert locate(env / "bin/python", os.environ, "vend").editable is False


@pytest.mark.fault
def test_two_of_one_name_in_one_folder_are_named(env: Path) -> None:
    site = site_packages(env)
    assert probe(env, "packages")["doubles"] == {}
    install(env, "Vend", "0.9", {})
    assert probe(env, "packages")["doubles"]["vend"] == sorted(
        map(str, site.glob("?end-*.dist-info")), reverse=True
    ) or (len(probe(env, "packages")["doubles"]["vend"]) == 2)


@pytest.mark.fault
def test_a_site_packages_that_is_a_link_is_as_good(env: Path) -> None:
    site = site_packages(env)
    site.rename(env / "elsewhere")
    site.symlink_to(env / "elsewhere")
    answer = probe(env, "packages", protected=["vend"])
    assert answer["records"]["vend"]["wrong"] == [] and answer["doubles"] == {} and answer["unread"] == {}
    assert locate(env / "bin/python", os.environ, "vend").version == "1.0"


@pytest.mark.fault
@pytest.mark.parametrize("name", ["verl", "ray.py", "torch.pyc", "x.egg-link", "junk-1.dist-info", "y.egg-info"])
def test_fifos_beside_packages_are_not_waited_for(env: Path, name: str) -> None:
    os.mkfifo(site_packages(env) / name)
    answer = probe(env, "packages")
    assert [*answer["distributions"], *map(os.path.basename, answer["unread"])] == [
        "vend", *([name] if "-info" in name else [])
    ]  # fmt: skip
    names = ("verl", "ray", "torch")
    assert probe(env, "origins", survey=dict.fromkeys(names, "x"), fresh=names)["surveyed"]
    assert locate(env / "bin/python", os.environ, "vend").version == "1.0"


@pytest.mark.fault
def test_a_launcher_that_is_no_file_is_not_read(env: Path) -> None:
    os.mkfifo(env / "bin/ray", 0o755)
    found = probe(env, "variables", names=[], launchers=["ray"])["launchers"]["ray"]
    assert found == {"path": f"{env}/bin/ray", "interpreter": "nothing: it is no regular file", "ours": False}


@pytest.mark.fault
def test_no_file_outside_the_environment_is_kept_or_put_back(env: Path) -> None:
    """Whatever RECORD lists: what pip itself would not touch is nobody's to restore."""
    row(f"{'../' * 20}etc/passwd,,\n/etc/hosts,,\n/dev/zero,,")(site_packages(env) / "vend-1.0.dist-info")
    answer = probe(env, "layout", distributions=["vend"])
    layout = Layout(answer["paths"], answer["distributions"])
    assert {"/etc/passwd", "/etc/hosts", "/dev/zero"} <= set(layout.files("vend"))
    assert {root for root, _ in layout.places(["vend"])} == {site_packages(env)}
    assert layout.snapshot(["vend"])["vend"]["/dev/zero"] == "(not a plain file)"


# What runs when an interpreter starts.

STARTS = {
    "prints": "print('hello'); print('{}')",
    "prints at its end": "import atexit; atexit.register(lambda: print('{}\\n{\"a\": 1}\\nbye'))",
    "leaves a daemon": "import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0: time.sleep(600)\n"
    " os._exit(0)\n",
}


@pytest.mark.fault
@pytest.mark.parametrize("kind", sampled(STARTS, 4))
def test_noise_at_start_up_hides_no_answer_and_delays_none(env: Path, kind: str) -> None:
    customize(site_packages(env), STARTS[kind])
    began = time.monotonic()
    answer = probe(env, "interpreter")
    assert answer["complaints"] == [] and "untraced" not in answer
    assert len(probe(env, "variables", names=["PATH"], launchers=[])["generations"]) == 3
    assert locate(env / "bin/python", os.environ, "vend").version == "1.0"
    assert time.monotonic() - began < 25


@pytest.mark.fault
@pytest.mark.parametrize(("name", "text", "said"), [
    ("sitecustomize.py", "raise RuntimeError('boo')", "Error in sitecustomize"),
    ("z.pth", "import nothing_of_this_name\n", "Error processing line 1 of "),
])  # fmt: skip
def test_a_start_up_file_that_fails_is_named(env: Path, name: str, text: str, said: str) -> None:
    """Python prints it where nobody looks, and goes on without it."""
    (site_packages(env) / name).write_text(text)
    customize(site_packages(env), text if name == "sitecustomize.py" else "")
    assert probe(env, "interpreter")["complaints"][0].startswith(said)


def test_an_interpreter_that_ends_at_once_is_not_there_for_installed_files(env: Path) -> None:
    customize(site_packages(env), "import os; os._exit(0)")
    with pytest.raises(Prevented, match="one JSON document was due"):
        locate(env / "bin/python", os.environ, "vend")


# What a profile does.

PROFILES = {
    "prints": "echo Welcome; printf 'no newline'",
    "prints JSON": """echo '{"version": "9"}'""",
    "reads": "cat >/dev/null; read -r x || :",
    "closes": "exec >/dev/null 2>&1 0<&-",
    "goes away": "cd /etc",
    "sets traps": "trap 'echo dbg' DEBUG; trap 'echo bye; exit 7' EXIT; trap 'exit 9' ERR",
    "is strict": "set -eu; IFS=/; CDPATH=/:/etc",
    "leaves a daemon": "sleep 600 &",
}


@pytest.mark.parametrize("kind", PROFILES)
def test_a_profile_only_sets_variables(env: Path, kind: str, tmp_path: Path) -> None:
    profile = tmp_path / "profile.sh"
    profile.write_text(f"export VENDOR=1\n{PROFILES[kind]}\n")
    launch = launch_in(env, str(profile))
    seen = variables_of(launch, cwd=tmp_path, timeout=20)
    assert seen["VENDOR"] == "1" and "PATCHQ_HERE" not in seen
    assert seen["PATH"].startswith(f"{env}/bin:") and seen["PWD"] == str(tmp_path)


@pytest.mark.parametrize(("text", "said"), [("exit 0", "exit status 0"), ("return 1", "exit status 1"),
                                            ("sleep 600", "no end within 1 s")])  # fmt: skip
def test_a_profile_that_stops_is_named(env: Path, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "profile.sh").write_text(f"{text}\n")
    with pytest.raises(Invalid, match=said):
        variables_of(launch_in(env, str(tmp_path / "profile.sh")), cwd=tmp_path, timeout=1)


# Programs in the place of an interpreter. {real} is one; the time limit is two seconds, and nothing is left running.

WRAPPERS = {
    "a banner": ("echo Welcome; {real} \"$@\"; echo bye; echo '{{}}'", ""),
    "a pipe that a grandchild holds": ("( trap '' TERM HUP; sleep 777 ) & exec {real} \"$@\"", ""),
    "a failing end": ('{real} "$@"; exit 3', "answered, and then ended with exit status 3"),
    "another answer": ("{real} \"$@\"; echo '{{\"paths\": 1, \"distributions\": [1]}}'", "gave 2 answers that differ"),
    "a closed stdout": ('exec {real} "$@" >&-', "gave no answer"),
    "a closed stdin": ('exec {real} "$@" <&-', "gave no answer"),
    "no standard streams": ('exec {real} "$@" <&- >&- 2>&-', "gave no answer"),
    "a full stdout": ('exec {real} "$@" >/dev/full', "gave no answer: OSError"),
    "an answer and a hang": ("{real} \"$@\"; trap '' TERM INT HUP; while :; do sleep 777; done", "within 2 s"),
    "a program that leaves its session": ("setsid sh -c 'trap \"\" TERM; sleep 777' & sleep 777", "within 2 s"),
    "a killed child": ("{real} \"$@\"; kill -11 $$", "was killed by SIGSEGV"),
    "100 MB": ("head -c 100000000 /dev/zero | tr '\\0' '{{'", "gave no answer"),
    "100 MB that begin well": (
        "printf '{{\"paths\": 1, \"distributions\": [\"'; head -c 100000000 /dev/zero | tr '\\0' x; echo '\"]}}'",
        "gave no answer",
    ),
}  # fmt: skip


@pytest.mark.fault
@pytest.mark.parametrize("kind", sampled(WRAPPERS, 13))
def test_a_wrapper_is_heard_to_its_end_and_ended(env: Path, kind: str) -> None:
    program, said = WRAPPERS[kind]
    python = env / "bin/wrapped"
    python.write_text(f"#!/bin/sh\n{program.format(real=env / 'bin/python')}\n")
    python.chmod(0o755)
    launch = replace(launch_in(env), python=python)
    began = time.monotonic()
    if said:
        with pytest.raises(ProbeFailed) as raised:
            ask(launch, "layout", {"distributions": ["vend"]}, cwd=env.parent, timeout=2)
        assert said in raised.value.problems[0].what and len(raised.value.problems[0].what) < 400
    else:
        answer = ask(launch, "layout", {"distributions": ["vend"]}, cwd=env.parent, timeout=20)
        assert answer["distributions"]["vend"][0]["version"] == "1.0"
    assert time.monotonic() - began < 10
    left = [path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if b"sleep\x00777" in _read(path)]
    assert not left


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


# Through the verb.

LIARS = {
    "garbage": ("echo garbage", "gave no answer: garbage"),
    "an empty object": ("echo '{}'", "gave no answer: {}"),
    "other types": (
        """echo '{"version": 3, "executable": [], "path": 7, "sources": null}'""",
        "gave an answer of another shape: TypeError",
    ),
    "depth": ("head -c 300000 /dev/zero | tr '\\0' '['", "gave no answer: [["),
    "a signal without a name": ("kill -40 $$", "was killed by signal 40"),
}


@pytest.mark.fault
@pytest.mark.parametrize("kind", sampled(LIARS, 4))
def test_an_interpreter_that_lies_is_one_failed_step(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    program, said = LIARS[kind]
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    place = make_queue(tmp_path / "q", python=str(python))
    applied(place)
    python.unlink()
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    report = verify(Place(place.root), "here", smoke=False)
    failed = [step for step in report.steps if step.state is State.FAILED]
    assert [step.name for step in failed] == ["interpreter"] and said in failed[0].summary
    assert report.exit_code == 1


def test_every_probe_that_is_judged_says_what_is_due() -> None:
    """A static probe whose answer could be anybody's JSON would be believed."""
    asked = {audit.script for audit in survey.AUDITS.values()} | {"layout", "installation", "cpu_tests"}
    assert set(SHAPES) == asked and all((PROBES / f"{name}.py").is_file() for name in SHAPES)
    assert not any(can_be(name, {}) or can_be(name, {"level": "info"}) for name in SHAPES)
