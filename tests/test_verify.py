"""`verify` on a queue that was really applied: clean, and with one fault of a polluted environment at a time."""

from __future__ import annotations

import dataclasses
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from toy import applied, make_queue
from toyenv import MINOR, OTHER, copy_venv, customize, install, make_venv, script, site_packages

from patchq.audit import survey
from patchq.cli.boundary import run
from patchq.commands.place import Place
from patchq.commands.smoke import smoke
from patchq.commands.verify import verify
from patchq.evidence.record import read_record
from patchq.report import Report, State

DEMANDS = f"""
version: "{MINOR}"
profile: {{folder}}/profile.sh
pins: {{ray: 2.46.0}}
protected: [torch, vllm]
require: [PPU_SDK]
set: {{TOY: "1", RAY_TMPDIR: "${{RAY_ROOM}}"}}
accepted_conflicts: ["vllm 0.15.0 has requirement transformers<5"]
"""
PROFILE = "export PPU_SDK=/opt/sdk\n"
# What a vendor's image looks like, as far as files and metadata go: versions with a local label, built elsewhere.
VENDOR: dict[str, tuple[str, dict[str, str], tuple[str, ...]]] = {
    "torch": ("2.9.0+ppu2.0.0.oe", {"torch/__init__.py": "x = 1\n", "torch/version.py": "cuda = '12.9'\n"}, ()),
    "vllm": ("0.15.0+ppu2.0.0.post1.oe", {"vllm/__init__.py": "y = 1\n"}, ("torch==2.9.0", "transformers>=4.56,<5")),
    "transformers": ("5.2.0", {"transformers/__init__.py": "z = 1\n"}, ()),
    "ray": ("2.46.0", {"ray/__init__.py": "def remote(): ...\n", "ray/core.py": "w = 1\n"}, ()),
}


class World:
    """One applied target whose environment each test may spoil."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pristine, self.env = folder / "pristine", folder / "env"
        make_venv(self.pristine)
        for name, (version, files, requires) in VENDOR.items():
            install(self.pristine, name, version, files, requires)
        script(self.pristine / "bin/torchrun", self.env / "bin/python")
        self.reset()
        self.place = make_queue(folder, DEMANDS.replace("{folder}", str(folder)), python=str(self.env / "bin/python"))
        applied(self.place)

    def reset(self) -> None:
        copy_venv(self.pristine, self.env)
        (self.folder / "profile.sh").write_text(PROFILE)

    @property
    def packages(self) -> Path:
        return site_packages(self.env)

    def verify(self) -> Report:
        return verify(Place(self.place.root), "here", smoke=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("v")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        patch.delenv("PYTHONPATH", raising=False)
        patch.setenv("HOME", str(folder))
        patch.setenv("RAY_ROOM", "/tmp/r")
        yield World(folder)


@pytest.fixture
def world(made: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    made.reset()
    return made


@pytest.mark.fault
def test_a_clean_vendor_image_raises_no_alarm(world: World) -> None:
    """The simulated vendor image: local versions, protected packages, an accepted conflict, a profile."""
    report = world.verify()
    assert report.exit_code == 0, report.as_json()
    assert {step.state for step in report.steps} <= {State.PASSED, State.NOTE}
    found = {step.name: step.summary for step in report.steps}
    assert found["protected torch"].startswith("torch 2.9.0+ppu2.0.0.oe: 5 files as RECORD lists them")
    assert found["pip check"] == "1 of the conflicts are accepted"
    record = read_record(Path(report.data["record"]))
    assert record.facts["audit"]["train"]["packages"]["vllm"] == "0.15.0+ppu2.0.0.post1.oe"
    assert "torch==2.9.0+ppu2.0.0.oe\n" in (Path(report.data["record"]) / "pip-freeze-train.txt").read_text()


def other_path_file(world: World) -> str:
    old = world.folder / f"old/lib/python{OTHER}/site-packages"
    old.mkdir(parents=True, exist_ok=True)
    (world.packages / "base.pth").write_text(f"{old}\n")
    source = f"put there by {world.packages}/base.pth"
    return f"import path: {old} of Python {OTHER} is on the import path of Python {MINOR}; {source}"


def other_pythonpath(world: World) -> str:
    old = f"/opt/old/lib/python{OTHER}/site-packages"
    (world.folder / "profile.sh").write_text(f"{PROFILE}export PYTHONPATH={old}\n")
    return f"import path: {old} of Python {OTHER} is on the import path of Python {MINOR}; PYTHONPATH has it"


def shells_pythonpath(world: World) -> str:
    old = f"/opt/old/lib/python{OTHER}/site-packages"
    os.environ["PYTHONPATH"] = old
    return f"PYTHONPATH: PYTHONPATH of this shell holds {old}, of Python {OTHER}"


def shadowing_folder(world: World) -> str:
    here = Path.cwd() / "verl"
    here.mkdir()
    (here / "__init__.py").touch()
    return f"working directory verl: {here}/__init__.py in the working directory {Path.cwd()} would be imported as verl"


def leftover_namespace(world: World) -> str:
    leftover = world.packages / "flash_attn/__pycache__"
    leftover.mkdir(parents=True)
    (leftover / f"__init__.cpython-{MINOR.replace('.', '')}.pyc").touch()
    return f"origin flash_attn: flash_attn is a namespace without code: {leftover.parent}"


def base_torchrun(world: World) -> str:
    (world.env / "bin/torchrun").unlink()
    found = script(world.folder / "base/bin/torchrun", world.folder / "base/bin/python")
    os.environ["PATH"] = f"{found.parent}:{os.environ['PATH']}"
    return (
        f"torchrun: torchrun on PATH is {found}, which runs {world.folder}/base/bin/python, not {world.env}/bin/python"
    )


def replaced_file(world: World) -> str:
    path = world.packages / "torch/__init__.py"
    path.write_text("x = 2\n")
    return (
        "protected torch: torch 2.9.0+ppu2.0.0.oe, which is protected, was changed: "
        "torch/__init__.py is not the file that RECORD lists"
    )


def lost_variable(world: World) -> str:
    (world.folder / "profile.sh").write_text("PPU_SDK=/opt/sdk\n")
    return "PPU_SDK: PPU_SDK, which the target requires, is not set in the process that the shell starts"


def lost_in_a_grandchild(world: World) -> str:
    code = (
        "import os, sys\n"
        "if os.environ.get('DEPTH') == '2':\n    os.environ.pop('PPU_SDK', None)\n"
        "os.environ['DEPTH'] = str(int(os.environ.get('DEPTH', 0)) + 1)\n"
    )
    customize(world.packages, code)
    return "PPU_SDK: PPU_SDK, which the target requires, is not set in its grandchild"


def long_ray_folder(world: World) -> str:
    path = os.environ["RAY_ROOM"] = "/tmp/" + "r" * 35
    return f"RAY_TMPDIR: RAY_TMPDIR has 40 bytes, and Ray's socket names leave room for 39: {path}"


def incomplete_ray(world: World) -> str:
    (world.packages / "ray/core.py").unlink()
    return "files ray: ray 2.46.0: ray/core.py is not there"


def other_pin(world: World) -> str:
    (world.packages / "ray-2.46.0.dist-info").rename(world.packages / "ray-2.56.1.dist-info")
    metadata = world.packages / "ray-2.56.1.dist-info/METADATA"
    metadata.write_text(metadata.read_text().replace("2.46.0", "2.56.1"))
    return "pin ray: ray 2.56.1 is installed, and the target pins 2.46.0"


def compiled_only(world: World) -> str:
    subprocess.run([sys.executable, "-m", "compileall", "-q", "-b", str(world.packages / "ray")], check=True)
    (world.packages / "ray/core.py").unlink()
    return f"origin ray: {world.packages}/ray/core.pyc is compiled code without a source, and would be imported"


FAULTS = (other_path_file, other_pythonpath, shells_pythonpath, shadowing_folder, leftover_namespace, base_torchrun,
          replaced_file, lost_variable, lost_in_a_grandchild, long_ray_folder, incomplete_ray, other_pin,
          compiled_only)  # fmt: skip


@pytest.mark.fault
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.__name__))
def test_a_fault_is_named_in_the_first_line_with_its_fix(
    world: World, fault: Callable[[World], str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("PATH", "PYTHONPATH", "RAY_ROOM"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    cause = fault(world)
    code = run(["verify", "--target", "here", "--no-smoke", "--queue", str(world.place.root)])
    first = capsys.readouterr().out.splitlines()[0]
    assert code == 1
    assert first.startswith(f"verify: {cause}"), first
    assert " → " in first


@pytest.mark.fault
def test_what_changed_since_the_last_good_record_is_one_table(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = world.verify()
    assert first.exit_code == 0
    install(world.env, "peft", "0.18.1", {"peft/__init__.py": ""})
    (world.folder / "profile.sh").write_text(PROFILE + "export CUDA_HOME=/opt/other\n")
    report = world.verify()
    rows = {row[1]: row for row in report.data["table"]["rows"]}
    assert report.data["table"]["title"] == f"changed since {Path(first.data['record']).name}"
    assert rows["package peft"][2:4] == ["–", "0.18.1"]
    assert rows["package peft"][4] == f"{world.env}/bin/python -m pip show peft"
    assert rows["variable CUDA_HOME"][2:4] == ["–", "/opt/other"]
    assert report.exit_code == 0
    assert next(step for step in report.steps if step.name == "changes").state is State.WARNING


@pytest.mark.fault
def test_a_protected_package_that_is_whole_but_another_fails_and_expires_the_smoke(world: World) -> None:
    assert world.verify().exit_code == 0
    assert smoke(Place(world.place.root), "here", last="static").exit_code == 0
    install(world.env, "torch", "2.9.0+ppu2.0.0.oe", {"torch/__init__.py": "x = 3\n", "torch/version.py": ""})
    report = world.verify()
    found = {step.name: step for step in report.steps}
    assert found["protected torch"].state is State.FAILED
    assert "but not what the last good record has" in found["protected torch"].summary
    assert found["smoke"].summary.startswith("expired: another protected torch than in ")
    assert report.exit_code == 1


@pytest.mark.fault
def test_accepted_edits_are_not_drift(world: World) -> None:
    """A vendor that ships edited files says so in the target, not in the environment."""
    (world.packages / "torch/__init__.py").write_text("vendor = 1\n")
    declared = (
        world.place.queue.target("here").environments["train"].model_copy(update={"accepted_edits": ("torch/torch/*",)})
    )
    answer = {"record": True, "files": 1, "wrong": [["torch/__init__.py", "differs"]], "count": 1, "digest": "d"}
    from patchq.audit import packages
    from patchq.audit.subject import Subject

    subject = Subject("train", declared, None, world.folder)  # type: ignore[arg-type]
    assert [step.state for step in packages._protected_files(subject, "protected torch", "t 1", answer, None)] == [
        State.PASSED
    ]


@pytest.mark.fault
def test_a_missing_interpreter_is_not_run(world: World) -> None:
    (world.env / "bin/python").unlink()
    report = world.verify()
    [step] = [step for step in report.steps if step.group == "environment train"]
    assert (step.name, step.state, step.summary) == ("interpreter train", State.NOT_RUN, "is not there")
    assert report.exit_code == 4


ILL = {
    "prints garbage": ("print('hello', flush=True); import os; os._exit(0)", "gave no answer: hello"),
    "is killed": ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
    "hangs": ("import time; time.sleep(600)", "gave no answer within 2 s"),
}


@pytest.mark.fault
@pytest.mark.parametrize("kind", ILL)
def test_an_ill_interpreter_is_one_clear_step(world: World, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    code, said = ILL[kind]
    hasty = {name: dataclasses.replace(audit, seconds=2) for name, audit in survey.AUDITS.items()}
    monkeypatch.setattr(survey, "AUDITS", hasty)
    customize(world.packages, code)
    found = [step for step in world.verify().steps if step.group == "environment train"]
    assert [(step.name, step.state) for step in found] == [
        ("interpreter", State.FAILED),
        ("other probes", State.NOT_RUN),
    ]
    assert found[0].summary == f"the probe interpreter {said}"


def processes_of(path: Path) -> list[int]:
    """Every process that has `path` in its arguments."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if str(path).encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
            except OSError:
                continue
    return found


@pytest.mark.fault
def test_killed_at_any_moment_verify_leaves_no_process(world: World) -> None:
    """Each Python that verify starts leaves a detached child, and hangs; then verify itself is killed."""
    detached = f"import subprocess; subprocess.Popen(['sleep', '601', {str(world.env)!r}], start_new_session=True)"
    hanging = f"{detached}\nimport time; time.sleep(600)\n"
    customize(world.packages, hanging.replace("['sleep', '601', ", "['bash', '-c', 'sleep 601', "))
    random.seed(5)
    words = ["verify", "--target", "here", "--no-smoke", "--queue", str(world.place.root)]
    for _ in range(3):
        verifying = subprocess.Popen([sys.executable, "-m", "patchq", *words], stdout=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while not processes_of(world.env) and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.6))
        verifying.kill()
        verifying.wait()
        until = time.monotonic() + 10
        while processes_of(world.env) and time.monotonic() < until:
            time.sleep(0.05)
        assert processes_of(world.env) == []
