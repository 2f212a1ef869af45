"""Virtual environments made for a test, with small distributions in them that carry a true RECORD."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHER = "3.10" if MINOR != "3.10" else "3.11"


def make_venv(folder: Path) -> Path:
    """An environment without pip; returns its interpreter."""
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python"


def site_packages(folder: Path) -> Path:
    return folder / "lib" / f"python{MINOR}" / "site-packages"


def customize(packages: Path, code: str) -> None:
    """Have every Python of an environment run `code` before anything else.

    Skips where the Python below it has a sitecustomize beside its standard library, as Debian's has: that comes first.
    """
    found = importlib.util.find_spec("sitecustomize")
    if found and found.origin and not found.origin.startswith(sys.prefix + os.sep):
        pytest.skip("this Python has a sitecustomize of its own")
    (packages / "sitecustomize.py").write_text(code)


def copy_venv(source: Path, to: Path) -> Path:
    """Put an environment back as it was in `source`; returns its interpreter."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(source, to, symlinks=True)
    return to / "bin" / "python"


def install(folder: Path, name: str, version: str, files: Mapping[str, str], requires: Sequence[str] = ()) -> Path:
    """Put a distribution with these files (path below site-packages → text) there; returns its dist-info folder."""
    root = site_packages(folder)
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(
        f"Requires-Dist: {r}\n" for r in requires
    )
    everything = {**files, f"{info}/METADATA": metadata, f"{info}/INSTALLER": "toy\n"}
    rows = []
    for path, text in everything.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text.encode())}")
    (root / info / "RECORD").write_text("\n".join([*rows, f"{info}/RECORD,,"]) + "\n")
    return root / info


def script(path: Path, interpreter: Path | str) -> Path:
    """A launcher as an installer writes it: a Python program whose first line names its interpreter."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{interpreter}\nimport sys\nprint(sys.executable)\n")
    path.chmod(0o755)
    return path


def interpreter_of(version: str) -> Path:
    """A bare interpreter of this machine by its version ("3.10"); skips the test where there is none."""
    asked = "import sys; print(sys.executable, '%d.%d' % sys.version_info[:2])"
    found = shutil.which(f"python{version}")
    if found:
        env = {**os.environ, "PYENV_VERSION": version}  # what stands on PATH may be a shim that has to be told which
        done = subprocess.run([found, "-I", "-c", asked], env=env, capture_output=True, text=True, check=False)
        python, _, said = done.stdout.strip().rpartition(" ")
        if said == version:
            return Path(python)
    pytest.skip(f"this machine has no python{version}")
