"""A pytest for interpreters that have none: patchq's own, copied to a private path of the work area.

pytest and what it needs are pure Python, so that the copy serves every interpreter; it stands last on the path.
"""

from __future__ import annotations

import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from patchq.workarea import WorkArea

_PROJECTS = (
    "pytest",
    "pluggy",
    "iniconfig",
    "packaging",
    "pygments",
    "exceptiongroup",
    "tomli",
    "typing-extensions",
)


def private_pytest(area: WorkArea) -> Path:
    """The folder with pytest; made once for each version of it."""
    place = area.root / "pytest" / distribution("pytest").version
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    room = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
    try:
        for project in _PROJECTS:
            _copy(project, room)
        room.chmod(0o755)
        room.rename(place)
    finally:
        shutil.rmtree(room, ignore_errors=True)
    return place


def _copy(project: str, room: Path) -> None:
    try:
        installed = distribution(project)
    except PackageNotFoundError:
        return
    for file in installed.files or ():
        source = Path(str(installed.locate_file(file)))
        if ".." in file.parts or "__pycache__" in file.parts or not source.is_file():
            continue
        (room / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, room / file)
