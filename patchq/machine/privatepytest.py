"""A pytest for interpreters that have none: patchq's own, copied to a private path of the work area.

The copy stands last on the path and serves every interpreter, whichever runs patchq: all that pytest needs on any
Python is copied, and compiled modules (tomli has some beside their sources) stay behind.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from patchq.document import sha256
from patchq.errors import Prevented
from patchq.exclusive import room_in
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
_COMPILED = frozenset({".so", ".pyd", ".pyc"})


def private_pytest(area: WorkArea) -> Path:
    """The folder with pytest; made once for each set of versions.

    Raises `Prevented` where patchq's own environment lacks something that pytest needs on some Python.
    """
    found = [_installed(project) for project in _PROJECTS]
    versions = " ".join(f"{one.metadata['Name']}=={one.version}" for one in found)
    place = area.root / "pytest" / f"{found[0].version}-{sha256(versions.encode())[:8]}"
    if place.is_dir():
        return place
    with room_in(place.parent) as room:
        for one in found:
            _copy(one, room)
        room.chmod(0o755)
        room.rename(place)
    return place


def _installed(project: str) -> Distribution:
    try:
        return distribution(project)
    except PackageNotFoundError:
        hint = f"install it beside patchq: python -m pip install {project}"
        raise Prevented(f"{project} is not installed, and pytest needs it on some Python", hint=hint) from None


def _copy(installed: Distribution, room: Path) -> None:
    for source, path in _sources(installed):
        (room / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, room / path)


def _sources(installed: Distribution) -> Iterator[tuple[Path, Path]]:
    """Each file of a distribution that any interpreter can read, and its path below site-packages."""
    for file in installed.files or ():
        source = Path(str(installed.locate_file(file)))
        if ".." not in file.parts and source.suffix not in _COMPILED and source.is_file():
            yield source, Path(file)
