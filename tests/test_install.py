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

import pydantic
import pytest
import toyenv
from faultkit import sampled
from test_bad_machines import SOURCE, mounts_are_allowed
from toy import make_queue

import patchq.installed.install
from patchq.commands.install import install, last_install
from patchq.commands.lock import lock
from patchq.commands.place import Place
from patchq.commands.revert import revert
from patchq.errors import Refused
from patchq.evidence.record import list_records
from patchq.installed.install import install_wheels
from patchq.installed.undo import begin, keep, put_back, roll_back, unfinished
from patchq.machine.launch import Launch
from patchq.process import Outcome
from patchq.report import State

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


@pytest.mark.fault
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
@pytest.mark.parametrize("name", ["PIP_CONFIG_FILE", "PIP_TARGET", "PIP_PREFIX", "_PIP_RUNNING_IN_SUBPROCESS"])
def test_no_setting_of_the_callers_leads_pip_elsewhere(
    env: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stray = tmp_path / "stray"
    (tmp_path / "pip.conf").write_text(f"[install]\ntarget = {stray}\n")
    monkeypatch.setenv(name, {"PIP_CONFIG_FILE": f"{tmp_path}/pip.conf"}.get(name, str(stray)))
    result = install_wheels(launch(env), [wheel(tmp_path / "w", "extra", "1.0", EXTRA)], ["torch"], tmp_path / "undo/1")
    assert result.ok, result.pip.error_text
    assert (toyenv.site_packages(env) / "extra-1.0.dist-info").is_dir() and not stray.exists()


@pytest.mark.fault
def test_what_pip_put_elsewhere_is_not_installed(env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(env)
    monkeypatch.setattr(patchq.installed.install, "_pip", lambda *_: Outcome(("pip",), 0, b"", b"", 0))
    result = install_wheels(launch(env), [wheel(tmp_path / "w", "extra", "1.0", EXTRA)], ["torch"], tmp_path / "undo/1")
    assert not result.ok and result.absent == ("extra",)
    assert tree(env) == before


@pytest.mark.fault
def test_cut_short_it_is_put_back_by_the_next(env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while pip was at work: the journal leads back."""
    before = tree(env)
    script = (
        "import os, sys, patchq.installed.install as room\n"
        "from pathlib import Path\nfrom patchq.machine.launch import Launch\n"
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
    before, pip = tree(env), patchq.installed.install._pip

    def interrupted(*words: object) -> Outcome:
        pip(*words)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(patchq.installed.install, "_pip", interrupted)
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
    shutil.copytree(tmp_path / "w", area(tmp_path) / "wheels")
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


# In bad places: each is a child process on a copy of one environment.

MOUNT = "mount --bind {site} {site} && mount -o remount,ro,bind {site}"
FULL = "cp -a {env} {env}2 && mount -t tmpfs -o size={size} none {env} && cp -a {env}2/. {env}; rm -rf {env}2"
# Root without its capabilities is anybody.
ANYBODY = 'chmod 555 {site} && set -- setpriv --bounding-set=-all --inh-caps=-all "$@"'
PLACES: dict[str, tuple[str, int, str]] = {
    "site-packages on a read-only disk": (MOUNT, 5, "Read-only file system: "),
    "site-packages that nobody may write": (ANYBODY, 5, "Permission denied: "),
    "an environment on a full disk": (FULL.replace("{size}", "1m"), 5, "No space left on device"),
    "a work area on a full disk": ("mkdir -p {work}; mount -t tmpfs -o size=16k none {work}", 5, "No space left"),
    "a closed umask": ("umask 077", 0, ""),
    "an open umask": ("umask 000", 0, ""),
    "no home": ("unset HOME", 0, ""),
    "no temporary files": ("export TMPDIR=/nowhere/at/all", 0, ""),
    "no cache": ("export XDG_CACHE_HOME=/proc/nowhere HOME=/proc/nowhere", 0, ""),
}
PIPS: dict[str, tuple[str | None, int, str]] = {
    "none": (None, 5, "No module named pip"),
    "that says no": ("raise SystemExit('\\x1b[31mboom')", 1, "exit status 1"),
    "that is broken": ("def", 1, "exit status 1"),
    "that does nothing": ("", 1, "pip ended well, and the environment does not have it"),
    "that is killed": ("import os; os.kill(os.getpid(), 9)", 5, "was killed by signal 9"),
}  # fmt: skip
# No pip writes where its wheel has no file, and to keep what is protected whole would be gigabytes: that is named.
STRAYS: dict[str, tuple[str, str]] = {
    "changes": ("open(SITE + '/torch/lib.so', 'a').write('x')", "lib.so"),
    "removes": ("import shutil; shutil.rmtree(SITE + '/torch')", "__init__.py"),
    "links": ("import os; n = SITE + '/torch/lib.so'; os.remove(n); os.symlink('/etc/passwd', n)", "lib.so"),
}  # fmt: skip


def area(tmp_path: Path) -> Path:
    return tmp_path / "q" / "work"


def installing(tmp_path: Path, env: Path, before: str, python: Path | str) -> subprocess.CompletedProcess[str]:
    site = toyenv.site_packages(env)
    prepared = before.format(site=site, env=env, work=area(tmp_path)) or ":"
    words = ["-m", "patchq", "install", "--target", "here", "--queue", str(tmp_path / "q/series")]
    apart = ["unshare", "-rm"] if "mount " in prepared else []
    argv = [*apart, "sh", "-c", f'{prepared} || exit 77\nexec "$@"', "sh", str(python), *words]
    environ = {**os.environ, "PYTHONPATH": SOURCE}
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False, timeout=120)


def told(done: subprocess.CompletedProcess[str], code: int, said: str) -> None:
    text = done.stdout + done.stderr
    assert done.returncode == code, text
    assert "Traceback" not in text and "\x1b" not in text and said in text, text
    if code == 5:
        assert sum(word in text for word in ("error: ", "prevented")) >= 1, text


@pytest.fixture
def ready(env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A locked queue whose wheel holds 3 MB."""
    wheel(tmp_path / "w", "extra", "1.0", {**EXTRA, "extra/big.bin": "x" * 3_000_000})
    make(tmp_path, env, monkeypatch, "extra==1.0")
    return env


@pytest.mark.fault
@pytest.mark.parametrize("kind", sampled(PLACES, 9))
def test_in_a_bad_place_it_is_whole_or_one_line(ready: Path, tmp_path: Path, kind: str) -> None:
    before, code, said = PLACES[kind]
    if "mount " in before and not mounts_are_allowed():
        pytest.skip("needs mounts of its own")
    was, site = tree(ready), toyenv.site_packages(ready)
    told(installing(tmp_path, ready, before, sys.executable), code, said)
    site.chmod(0o755)
    assert (tree(ready) == was) == bool(code)
    assert not unfinished(area(tmp_path) / "installs/here-train")
    if code:  # once the place is well, the same words go through
        told(installing(tmp_path, ready, "", sys.executable), 0, "extra  1.0 from ")


@pytest.mark.fault
@pytest.mark.parametrize("kind", sampled(PIPS, 8))
def test_whatever_pip_does_it_is_put_back(ready: Path, tmp_path: Path, kind: str) -> None:
    program, code, said = PIPS[kind]
    was = tree(ready)
    python = own_python(tmp_path / "own", program and f"SITE = {str(toyenv.site_packages(ready))!r}\n{program}")
    told(installing(tmp_path, ready, "", python), code, said)
    assert tree(ready) == was and not list((area(tmp_path) / "installs/here-train").glob("*"))


@pytest.mark.fault
@pytest.mark.parametrize("kind", sampled(STRAYS, 3))
def test_what_cannot_be_put_back_is_named(ready: Path, tmp_path: Path, kind: str) -> None:
    program, name = STRAYS[kind]
    site = toyenv.site_packages(ready)
    python = own_python(tmp_path / "own", f"SITE = {str(site)!r}\n{program}")
    told(installing(tmp_path, ready, "", python), 1, f"{site}/torch/{name}  failed  could not be put back")


def own_python(folder: Path, pip: str | None) -> Path:
    """An interpreter for patchq that has all but pip, or this program in its place."""
    toyenv.make_venv(folder)
    site = toyenv.site_packages(folder)
    for path in Path(pydantic.__file__).parents[1].iterdir():
        if not path.name.startswith(("pip", "__")) and path.suffix != ".pth":
            (site / path.name).symlink_to(path)
    if pip is not None:
        (site / "pip").mkdir()
        (site / "pip/__init__.py").touch()
        (site / "pip/__main__.py").write_text(pip)
    return folder / "bin/python"


@pytest.mark.fault
def test_what_is_not_there_is_not_said_to_be_untouched(
    env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel(tmp_path / "w", "extra", "1.0", EXTRA)
    place = make(tmp_path, env, monkeypatch, "extra==1.0")
    for path in toyenv.site_packages(env).glob("torch*"):
        shutil.rmtree(path)
    report = install(place, "here")
    assert report.exit_code == 0
    assert [(step.name, step.state) for step in report.steps if "torch" in step.name] == [("torch", State.NOTE)]


@pytest.mark.fault
def test_a_protected_wheel_is_refused(env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(tmp_path / "w", "torch", "2.10.0", {})
    with pytest.raises(Refused, match="torch is protected, and among the wheels too"):
        install(make(tmp_path, env, monkeypatch, "torch==2.10.0"), "here")
