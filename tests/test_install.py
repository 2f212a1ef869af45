"""Wheels go into a real environment, and what is protected there is afterwards what it was, byte for byte."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import toyenv
from toy import make_queue

import patchq.install
from patchq.commands.install import install, last_install
from patchq.commands.lock import lock
from patchq.commands.place import Place
from patchq.commands.revert import revert
from patchq.errors import Refused
from patchq.install import install_wheels
from patchq.launch import Launch
from patchq.process import Outcome
from patchq.record import list_records
from patchq.report import State
from patchq.undo import begin, keep, put_back, roll_back, unfinished

VENDOR = "2.9.0+ppu2.0.0.oe"
Tree = dict[str, tuple[bytes, int]]


def wheel(folder: Path, name: str, version: str, files: Mapping[str, str]) -> Path:
    """A wheel with these files, and a console script of its name."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    everything = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: toy\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    rows = []
    for path, text in everything.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text.encode())}\n")
    place = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(place, "w") as archive:
        for path, text in everything.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/RECORD", "".join([*rows, f"{info}/RECORD,,\n"]))
    return place


def tree(folder: Path) -> Tree:
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mode)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture
def env(tmp_path: Path) -> Iterator[Path]:
    """An environment as a vendor delivers it, with a shared file as uv leaves them."""
    folder = tmp_path / "env"
    toyenv.make_venv(folder)
    toyenv.install(folder, "torch", VENDOR, {"torch/__init__.py": f'__version__ = "{VENDOR}"\n', "torch/lib.so": "elf"})
    toyenv.install(folder, "extra", "0.9", {"extra/__init__.py": "OLD = 1\n", "extra/gone.py": "GONE = 1\n"})
    shared = tmp_path / "uv-cache.py"
    os.link(toyenv.site_packages(folder) / "torch/__init__.py", shared)
    before = shared.read_bytes()
    yield folder
    assert shared.read_bytes() == before


def launch(env: Path) -> Launch:
    return Launch("target ppu", env / "bin/python", "", (), env.parent / "pyc", env.parent / "r")


EXTRA = {"extra/__init__.py": "def main(): print('new')\n"}
EVIL = {"evil/__init__.py": "", "torch/__init__.py": '__version__ = "2.10.0"\n', "torch/new.py": ""}


def test_a_good_wheel_goes_in_and_back_out(env: Path, tmp_path: Path) -> None:
    before = tree(env)
    journal = tmp_path / "undo/1"
    result = install_wheels(launch(env), [wheel(tmp_path / "w", "extra", "1.0", EXTRA)], ["torch"], journal)
    assert result.ok, result.pip.error_text
    assert subprocess.check_output([env / "bin/extra"], text=True) == "new\n"
    assert not (toyenv.site_packages(env) / "extra/gone.py").exists()
    assert put_back(journal)
    assert tree(env) == before


def test_a_wheel_that_overwrites_a_protected_file(env: Path, tmp_path: Path) -> None:
    before = tree(env)
    wheels = [wheel(tmp_path / "w", "extra", "1.0", EXTRA), wheel(tmp_path / "w", "evil", "1.0", EVIL)]
    result = install_wheels(launch(env), wheels, ["Torch"], tmp_path / "undo/1")
    assert result.pip.ok and not result.ok
    assert result.changed == {"torch": (str(toyenv.site_packages(env) / "torch/__init__.py"),)}
    assert not result.lost
    assert tree(env) == before
    assert not (tmp_path / "undo/1").exists()


@pytest.mark.fault
def test_pip_fails(env: Path, tmp_path: Path) -> None:
    before = tree(env)
    bad = wheel(tmp_path / "w", "extra", "1.0", EXTRA)
    bad = bad.rename(bad.with_name("extra-1.0-cp27-none-any.whl"))
    result = install_wheels(launch(env), [bad], ["torch"], tmp_path / "undo/1")
    assert not result.ok and "not a supported wheel" in result.pip.error_text
    assert tree(env) == before


@pytest.mark.fault
def test_cut_short_it_is_put_back_by_the_next(env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while pip was at work: the journal leads back."""
    before = tree(env)
    script = (
        "import os, sys, patchq.install as room; from pathlib import Path; from patchq.launch import Launch\n"
        "pip = room._pip\n"
        "def killed(*words):\n    pip(*words)\n    os.kill(os.getpid(), 9)\n"
        "room._pip = killed\n"
        "env = Path(sys.argv[1]); there = env.parent\n"
        "launch = Launch('t', env / 'bin/python', '', (), there / 'pyc', there / 'r')\n"
        "room.install_wheels(launch, [Path(sys.argv[2])], ['torch'], there / 'undo/1')\n"
    )
    evil = wheel(tmp_path / "w", "evil", "1.0", EVIL)
    done = subprocess.run([sys.executable, "-c", script, env, evil], check=False)
    assert done.returncode == -9
    assert tree(env) != before
    assert unfinished(tmp_path / "undo") == [tmp_path / "undo/1"]
    (line,) = roll_back(tmp_path / "undo")
    assert line.startswith("install of evil: cut short, ")
    assert tree(env) == before


@pytest.mark.fault
def test_an_error_on_the_way_puts_back_too(env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, pip = tree(env), patchq.install._pip

    def interrupted(*words: object) -> Outcome:
        pip(*words)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(patchq.install, "_pip", interrupted)
    with pytest.raises(KeyboardInterrupt):
        install_wheels(launch(env), [wheel(tmp_path / "w", "evil", "1.0", EVIL)], ["torch"], tmp_path / "undo/1")
    assert tree(env) == before


@pytest.mark.fault
def test_a_change_that_somebody_changed_is_not_taken_back(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    begin(tmp_path / "undo/1", "it", [(tmp_path, "a"), (tmp_path, "deep/b")])
    (tmp_path / "a").write_text("new")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/b").write_text("b")
    keep(tmp_path / "undo/1")
    (tmp_path / "a").write_text("mine")
    with pytest.raises(Refused, match="no longer as it was left"):
        put_back(tmp_path / "undo/1")
    (tmp_path / "a").write_text("new")
    put_back(tmp_path / "undo/1")
    assert (tmp_path / "a").read_text() == "old" and not (tmp_path / "deep").exists()


def make(tmp_path: Path, env: Path, monkeypatch: pytest.MonkeyPatch, *wheels: str) -> Place:
    """A queue whose environment wants these wheels, locked against the folder `w`."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "w"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    place = make_queue(
        tmp_path / "q", f"protected: [torch]\nwheels: [{', '.join(wheels)}]\n", python=str(env / "bin/python")
    )
    lock(place)
    shutil.copytree(tmp_path / "w", tmp_path / "q/work/wheels")
    return Place(place.root)


@pytest.mark.fault
def test_the_verb_installs_records_and_reverts(env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(env)
    wheel(tmp_path / "w", "extra", "1.0", EXTRA)
    place = make(tmp_path, env, monkeypatch, "extra==1.0")
    report = install(place, "here")
    assert report.exit_code == 0, report.as_json()
    assert {step.name: step.state for step in report.steps}["protected torch"] is State.PASSED
    assert (toyenv.site_packages(env) / "extra-1.0.dist-info").is_dir()
    assert next(step.state for step in install(place, "here").steps) is State.UNCHANGED
    assert revert(place, "here").exit_code == 0
    assert tree(env) == before
    assert last_install(place.area("here"), "here") is None
    assert [record.verb for record in list_records(place.area("here").records)] == ["install", "install", "revert"]


@pytest.mark.fault
def test_the_verb_names_what_was_changed(env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(env)
    wheel(tmp_path / "w", "evil", "1.0", EVIL)
    report = install(make(tmp_path, env, monkeypatch, "evil==1.0"), "here")
    assert report.exit_code == 1
    failed = next(step for step in report.steps if step.name == "protected torch")
    assert failed.summary.startswith("was changed in 1 files, the first is ")
    assert failed.summary.endswith("/torch/__init__.py")
    assert tree(env) == before


@pytest.mark.fault
def test_a_protected_wheel_is_refused(env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(tmp_path / "w", "torch", "2.10.0", {})
    with pytest.raises(Refused, match="torch is protected, and among the wheels too"):
        install(make(tmp_path, env, monkeypatch, "torch==2.10.0"), "here")
