"""patchq packs itself: the same bytes from every installation, and a wheel that installs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import packaging
import pytest

import patchq
from patchq import ownwheel
from patchq.errors import Prevented
from patchq.sdist import open_wheel

CHECKOUT = Path(patchq.__file__).parent.parent
PACK = """
import sys
from pathlib import Path
from patchq.ownwheel import own_requirements, own_wheel
name, data = own_wheel()
Path(sys.argv[1], name).write_bytes(data)
print(*own_requirements(), sep="\\n")
"""
METADATA = f"""\
Metadata-Version: 2.4
Name: patchq
Version: {patchq.__version__}
Summary: A patch queue
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: <3.14,>=3.10
"""


def dist_info(site: Path, requires: str, version: str = patchq.__version__) -> Path:
    """Metadata as an installer leaves it in `site`."""
    info = site / f"patchq-{version}.dist-info"
    (info / "licenses").mkdir(parents=True)
    (info / "METADATA").write_text(METADATA.replace(patchq.__version__, version) + requires + "\nLong text.\n")
    (info / "entry_points.txt").write_text("[console_scripts]\npatchq = patchq.__main__:main\n")
    (info / "licenses/LICENSE").write_text("Apache License\n")
    (info / "RECORD").write_text("")
    return info


def pack(python: str | Path, folder: Path, *places: Path) -> tuple[bytes, list[str]]:
    """The wheel that the patchq of an interpreter makes of itself, and its requirements."""
    folder.mkdir()
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environ |= {"PYTHONPATH": os.pathsep.join(map(str, places))} if places else {}
    argv = [str(python), "-c", PACK, str(folder)]
    done = subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (made,) = folder.iterdir()
    assert made.name == f"patchq-{patchq.__version__}-py3-none-any.whl"
    return made.read_bytes(), done.stdout.splitlines()


@pytest.mark.fault
def test_every_installation_gives_the_same_bytes(tmp_path: Path) -> None:
    editable, normal = tmp_path / "editable", tmp_path / "normal"
    info = dist_info(editable, "Requires-Dist: PyYAML>=6\nRequires-Dist: rich>=13\nProvides-Extra: dev\n")
    for name in ("INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json", "WHEEL"):
        (info / name).write_text(f"only here: {name}\n")
    dist_info(normal, 'Requires-Dist: rich>=13\nRequires-Dist: pyyaml>=6\nRequires-Dist: ruff; extra == "dev"\n')
    shutil.copytree(CHECKOUT / "patchq", normal / "patchq", ignore=shutil.ignore_patterns("__pycache__"))
    (normal / "patchq/old.pyc").write_bytes(b"cache")
    for path in (normal / "patchq").rglob("*.py"):
        os.utime(path, (1e9, 1e9))
        path.chmod(0o600)
    data, requirements = pack(sys.executable, tmp_path / "a", editable, CHECKOUT)
    assert requirements == ["pyyaml>=6", "rich>=13"]
    assert pack(sys.executable, tmp_path / "b", normal) == (data, requirements)

    wheel = tmp_path / "a" / f"patchq-{patchq.__version__}-py3-none-any.whl"
    paths = {file.path: file.data for file in open_wheel(wheel)}
    assert paths["patchq/errors.py"] == (CHECKOUT / "patchq/errors.py").read_bytes()
    assert not [path for path in paths if "only here" in path or path.endswith(".pyc")]
    assert {path.partition(".dist-info/")[2] for path in paths if ".dist-info/" in path} == {
        *("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"),
    }

    target = tmp_path / "target"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-index",
        "--no-deps",
        "--target",
        target,
        wheel,
    ]
    subprocess.run(install, check=True)
    version = [sys.executable, "-m", "patchq", "--version"]
    environ = {**os.environ, "PYTHONPATH": str(target)}
    assert subprocess.check_output(version, cwd=tmp_path, env=environ) == f"patchq {patchq.__version__}\n".encode()
    assert pack(sys.executable, tmp_path / "c", target) == (data, requirements)


def test_a_bare_checkout_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(ownwheel, "distribution", missing)
    with pytest.raises(Prevented, match=r"bare checkout .*pip install -e"):
        ownwheel.own_wheel()
    with pytest.raises(Prevented):
        ownwheel.own_requirements()


def test_metadata_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dist_info(tmp_path, "", version="9.9")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(Prevented, match=r"the metadata beside it is of 9\.9"):
        ownwheel.own_wheel()


@pytest.mark.upstream
def test_real_installations(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(CHECKOUT / "patchq", source / "patchq", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, source)
    made = []
    for name, arguments in (("normal", [source]), ("editable", ["-e", source])):
        python, install = empty_environment(tmp_path / name)
        subprocess.run([*install, f"packaging=={packaging.__version__}"], check=True)
        subprocess.run([*install, "--no-deps", *arguments], check=True)
        made.append(pack(python, tmp_path / f"from-{name}"))
    assert made[0] == made[1]
    assert any(requirement.startswith("pydantic") for requirement in made[0][1])
    assert not any("extra" in requirement for requirement in made[0][1])

    python, install = empty_environment(tmp_path / "fresh")
    (wheel,) = (tmp_path / "from-normal").iterdir()
    subprocess.run([*install, "--no-index", "--no-deps", wheel], check=True)
    for program in ([python, "-m", "patchq"], [python.parent / "patchq"]):
        assert subprocess.check_output([*program, "--version"], cwd=tmp_path).startswith(b"patchq ")


def empty_environment(folder: Path) -> tuple[Path, list[str | Path]]:
    """A new virtual environment's interpreter, and the command that installs into it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin/python"
    return python, [sys.executable, "-m", "pip", "--python", python, "install", "-q"]
