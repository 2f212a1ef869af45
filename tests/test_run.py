"""`run` fails closed, and where it does not, what it launches is what was proved."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from toy import applied, make_queue

from patchq.commands.place import Place
from patchq.commands.prune import prune
from patchq.commands.revert import revert
from patchq.commands.run import run
from patchq.commands.status import status
from patchq.errors import Invalid, Prevented, Refused
from patchq.evidence.record import list_records
from patchq.machine.lease import leases
from patchq.report import Report, State

ENVIRONMENT = """
require: [TOY_SDK]
forbid: [LOST]
set: {TOY_TOKEN: hf_verysecretverysecretvery}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.setenv("TOY_SDK", "/sdk")
        patch.setenv("LOST", "must go")
        applied(make_queue(folder))
        yield folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    return Place(made / "series")


def states(report: Report) -> dict[str, State]:
    return {step.name: step.state for step in report.steps}


def launch(made: Path, *words: str, cwd: Path, options: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "patchq", "run", "--queue", str(made), "--target", "here", *options, "--", *words]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    return subprocess.Popen(argv, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_it_becomes_the_command(made: Path, tmp_path: Path) -> None:
    """Same pid, the work copy imported, the exit status and stdout the command's own, pipes as a shell has them."""
    script = "echo $$; grep SigIgn /proc/$$/status; python -c 'import toy; print(toy.STATE)'; exit 7"
    child = launch(made, "bash", "-c", script, cwd=tmp_path)
    out, err = child.communicate(timeout=60)
    pid, ignored, state = out.splitlines()
    assert (pid, state) == (str(child.pid), "patched"), err
    assert not int(ignored.split()[1], 16) & 1 << (signal.SIGPIPE - 1)
    assert child.returncode == 7
    assert "exit 0" in err
    record = list_records(made / "work/records")[-1]
    assert (record.verb, record.exit, record.facts["pid"]) == ("run", 0, child.pid)
    assert record.facts["argv"][0] == "bash"
    assert record.facts["resolved"]["python"] == str(made / "env/bin/python")
    assert record.facts["cwd"] == str(tmp_path)


@pytest.mark.fault
def test_a_lease_is_held_while_it_runs(made: Path, tmp_path: Path, place: Place) -> None:
    child = launch(made, "bash", "-c", "echo begun; exec sleep 60", cwd=tmp_path)
    assert child.stdout and child.stdout.readline() == "begun\n"
    (lease,) = leases(place.area("here"))
    assert lease.pid == child.pid and lease.command == "bash -c 'echo begun; exec sleep 60'"
    assert any(f"in use by process {child.pid}" in step.summary for step in status(place).steps)
    with pytest.raises(Prevented, match=f"process {child.pid}"):
        revert(place, "here")
    link = made / "work/toy/current"
    link.rename(made / "away")
    assert not [step for step in prune(place, "here", keep=1, dry_run=True).steps if "work copy" in step.summary]
    (made / "away").rename(link)
    child.send_signal(signal.SIGTERM)
    assert child.wait(10) == -signal.SIGTERM
    assert leases(place.area("here")) == ()


@pytest.mark.fault
def test_json_goes_beside_the_commands_output(made: Path, tmp_path: Path) -> None:
    child = launch(made, "echo", "hello", cwd=tmp_path, options=("--json",))
    out, err = child.communicate(timeout=60)
    assert out == "hello\n"
    assert json.loads(err)["exit"] == 0
    refused = launch(made, "no-such-program", cwd=tmp_path, options=("--json",))
    out, err = refused.communicate(timeout=60)
    assert (json.loads(out)["exit"], refused.returncode, err) == (1, 1, "")


@pytest.mark.fault
@pytest.mark.parametrize("form", ["toy/__init__.py", "toy.py", "toy/__pycache__/x.pyc"])
def test_another_copy_in_the_working_directory(place: Place, tmp_path: Path, form: str) -> None:
    (tmp_path / form).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / form).touch()
    report = run(place, "here", None, ["true"])
    assert report.exit_code == 1 and not report.become
    (step,) = (step for step in report.steps if step.name == "shadows toy")
    assert step.summary.startswith("the working directory holds another toy: ")


@pytest.mark.fault
def test_another_copy_beside_the_script(place: Place, tmp_path: Path) -> None:
    (tmp_path / "there/toy").mkdir(parents=True)
    (tmp_path / "there/train.py").touch()
    report = run(place, "here", None, ["python", "there/train.py"])
    assert "script's directory" in next(step.summary for step in report.steps if step.name == "shadows toy")


@pytest.mark.fault
def test_inside_the_work_copy_it_warns(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.area("here").root / "toy/current")
    report = run(place, "here", None, ["true"])
    assert states(report)["working directory"] is State.WARNING
    assert report.exit_code == 0


@pytest.mark.fault
def test_a_cluster_that_is_gone_is_a_note(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    report = run(place, "here", None, ["true"])
    assert next(step for step in report.steps if step.name == "ray cluster").state is State.NOTE
    assert report.become


@pytest.mark.fault
@pytest.mark.fault
@pytest.mark.parametrize(("more", "said"), [((), True), (("--block",), False)])
def test_a_ray_start_that_returns_gives_the_lease_up(place: Place, more: tuple[str, ...], said: bool) -> None:
    found = states(run(place, "here", None, ["ray", "start", "--head", *more]))
    assert (found.get("lease") is State.WARNING) == said


@pytest.mark.fault
def test_a_changed_work_copy_is_not_launched(place: Place) -> None:
    file = place.area("here").root / "toy/current/toy/__init__.py"
    before = file.read_bytes()
    file.write_bytes(before.replace(b"patched", b"hatched"))
    try:
        report = run(place, "here", None, ["true"])
        assert report.exit_code == 1 and not report.become
    finally:
        file.write_bytes(before)


@pytest.mark.fault
def test_steps_that_were_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    place = make_queue(tmp_path, python=str(python))
    from patchq.commands.apply import apply
    from patchq.commands.lock import lock

    lock(place)
    place = Place(place.root)
    assert apply(place, "here").exit_code == 4
    python.symlink_to(sys.executable)
    (tmp_path / "outside").mkdir()
    monkeypatch.chdir(tmp_path / "outside")
    with pytest.raises(Invalid, match="did you mean 'interpreter train'"):
        run(place, "here", None, ["true"], accepted=["interpreter trin"])
    report = run(place, "here", None, ["true"])
    missing = [step for step in report.steps if step.state is State.NOT_RUN]
    assert report.exit_code == 4 and not report.become
    assert "--accept-not-run 'interpreter train'" in missing[0].hint
    names = [step.name for step in missing]
    taken = run(place, "here", None, ["true"], accepted=names)
    assert taken.exit_code == 0 and taken.become
    assert list_records(place.area("here").records)[-1].facts["accepted_not_run"] == names


def test_without_an_apply_it_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with pytest.raises(Refused, match="nothing was applied"):
        run(make_queue(tmp_path), "here", None, ["true"])


@pytest.mark.fault
def test_a_profile_that_fails_launches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    profile = tmp_path / "profile.sh"
    profile.write_text("export TOY_SDK=/from/profile\n")
    place = make_queue(tmp_path, f"profile: {profile}\nrequire: [TOY_SDK]\n")
    monkeypatch.delenv("TOY_SDK", raising=False)
    applied(place)
    (tmp_path / "outside").mkdir()
    monkeypatch.chdir(tmp_path / "outside")
    assert run(Place(place.root), "here", None, ["true"]).become
    profile.write_text("true\n")
    with pytest.raises(Invalid, match="TOY_SDK is not set"):
        run(Place(place.root), "here", None, ["true"])
