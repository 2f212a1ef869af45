"""Where a distribution lies and whether it is what gets imported.

Standard library only; prints one JSON document.
Usage: `python installation.py DISTRIBUTION`. Nothing of the distribution is imported.
"""

import json
import os
import re
import sys
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def folder_of(copy: Distribution) -> Path:
    return Path(str(copy._path)).resolve()  # type: ignore[attr-defined]


def copies(name: str) -> list[Distribution]:
    """Every copy of the distribution on the path; one that is reached in two ways counts once."""
    found: dict[Path, Distribution] = {}
    for copy in distributions(name=name):
        found.setdefault(folder_of(copy), copy)
    return list(found.values())


def is_editable(name: str, copy: Distribution) -> bool:
    path = folder_of(copy) / "direct_url.json"
    try:
        url = json.loads(path.read_bytes()) if path.is_file() else {}
    except (OSError, ValueError, RecursionError):
        url = {}
    info = url.get("dir_info") if isinstance(url, dict) else None
    return (isinstance(info, dict) and bool(info.get("editable"))) or has_egg_link(name)


def has_egg_link(name: str) -> bool:
    """Whether `setup.py develop` left its mark in site-packages."""
    folders = [Path(entry) for entry in sys.path if entry and Path(entry).is_dir()]
    links = [link for folder in folders for link in folder.glob("*.egg-link")]
    return any(canonical(link.stem) == canonical(name) for link in links)


def modules(copy: Distribution) -> set[str]:
    """The importable names at the top of what was installed; namespace packages are left out."""
    record = folder_of(copy) / "RECORD"
    rows = record.read_bytes().splitlines() if record.is_file() else []
    tops = [re.match(rb"\"?([^/.,\"]+)(/__init__)?\.py\"?,", row) for row in rows]
    return {os.fsdecode(top[1]) for top in tops if top}


def version_of(copy: Distribution) -> str | None:
    """None where no metadata says it; a FIFO in its place would be waited for."""
    paths = (folder_of(copy), *(folder_of(copy) / name for name in ("METADATA", "PKG-INFO")))
    if any(path.exists() and not (path.is_file() or path.is_dir()) for path in paths):
        return None
    try:
        return copy.metadata["Version"]
    except ValueError:
        return None


def elsewhere(name: str, root: Path) -> str | None:
    """The file that `import NAME` would load, where it is not below `root`."""
    try:
        spec = find_spec(name)
    except (ImportError, AttributeError, ValueError):
        return None
    origin = spec.origin if spec else None
    if not origin or not Path(origin).is_absolute():
        return None
    folder = Path(origin).parent.resolve()
    return None if root in (folder, *folder.parents) else origin


def describe(name: str, copy: Distribution) -> dict[str, object]:
    metadata = folder_of(copy)
    record = metadata / "RECORD"
    origins = {module: elsewhere(module, metadata.parent) for module in sorted(modules(copy))}
    return {
        "version": version_of(copy),
        "root": str(metadata.parent),
        "metadata": str(metadata),
        "record": str(record) if record.is_file() else None,
        "editable": is_editable(name, copy),
        "shadowed": {module: origin for module, origin in origins.items() if origin},
    }


def main() -> None:
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != here]
    name = sys.argv[1]
    print("\n" + json.dumps({"copies": [describe(name, copy) for copy in copies(name)]}))


if __name__ == "__main__":
    main()
