"""Virtual environments made for a test, with small distributions in them that carry a true RECORD."""

from __future__ import annotations

import base64
import hashlib
import shutil
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
OTHER = "3.10" if MINOR != "3.10" else "3.11"


def make_venv(folder: Path) -> Path:
    """An environment without pip; returns its interpreter."""
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python"


def site_packages(folder: Path) -> Path:
    return folder / "lib" / f"python{MINOR}" / "site-packages"


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
