"""Where packages would be imported from, and what importing them gives. Prints one JSON document.

Question: {"locate": [PACKAGE...], "import": [MODULE...], "survey": {PACKAGE: DISTRIBUTION...}, "start": [FOLDER...]}.
A survey looks at every place on the import path that has something of that name, and at the folders that training would
be started from, which come before all others. Only what stands under "import" is imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import marshal
import os
import stat
import sys
import time
import traceback
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import Distribution, distributions
from pathlib import Path
from types import CodeType
from typing import Any

COMPILE_SECONDS = 5.0
MATCHES_SOURCE = 0  # the flags of a `.pyc` that records its source's time and size (PEP 552)
UNCHECKED_HASH = 1


def locate(name: str) -> Any:
    try:
        spec = importlib.util.find_spec(name)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    if spec is None:
        return {"error": "not found"}
    return {"origin": spec.origin, "folders": list(spec.submodule_search_locations or [])}


def load(name: str) -> Any:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        return {"missing": error.name or str(error), "error": str(error), "trace": traceback.format_exc()}
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
    return {"file": getattr(module, "__file__", None), "version": str(getattr(module, "__version__", ""))}


def candidate(folder: str, name: str) -> dict[str, str] | None:
    """What `import NAME` could take from one folder of the path: a package, a module, or a namespace."""
    place = os.path.join(folder, name)
    for inside, kind in (("__init__.py", "package"), ("__init__.pyc", "package without source")):
        if os.path.isfile(os.path.join(place, inside)):
            return {"path": os.path.join(place, inside), "kind": kind}
    for suffix, kind in (
        (".py", "module"),
        (".pyc", "module without source"),
        *((s, "module") for s in EXTENSION_SUFFIXES),
    ):
        if os.path.isfile(place + suffix):
            return {"path": place + suffix, "kind": kind}
    return {"path": place, "kind": "namespace"} if os.path.isdir(place) else None


def survey(name: str, distribution: str) -> dict[str, Any]:
    found = locate(name)
    folders = list(dict.fromkeys(os.path.realpath(entry or ".") for entry in sys.path))
    answer = {
        **found,
        "candidates": [place for folder in folders if (place := candidate(folder, name))],
        "distributions": list(copies(distribution)),
    }
    if found.get("origin"):
        answer["sourceless"] = sourceless(found["folders"])[:20]
    return answer


def copies(distribution: str) -> Iterator[dict[str, Any]]:
    """Every copy of a distribution on the path, each once, with the folder that it is installed in."""
    seen = set()
    for copy in distributions(name=distribution):
        metadata = Path(str(copy._path)).resolve()  # type: ignore[attr-defined]
        if metadata not in seen:
            seen.add(metadata)
            yield {
                "version": version_of(copy, metadata),
                "metadata": str(metadata),
                "source": editable_source(metadata / "direct_url.json"),
            }


def version_of(copy: Distribution, metadata: Path) -> str:
    """What its metadata says; "?" where that cannot be read, or reading would wait for ever."""
    paths = (metadata, metadata / "METADATA", metadata / "PKG-INFO")
    if any(path.exists() and not (path.is_file() or path.is_dir()) for path in paths):
        return "?"
    try:
        return str(copy.version or "?")
    except ValueError:
        return "?"


def editable_source(path: Path) -> str | None:
    """The folder that an editable install imports from."""
    try:
        url = json.loads(path.read_bytes()) if path.is_file() else {}
    except (OSError, ValueError, RecursionError):
        return None
    info = url.get("dir_info") if isinstance(url, dict) else None
    is_editable = isinstance(info, dict) and info.get("editable")
    return str(url.get("url", "")).removeprefix("file://") if is_editable else None


def sourceless(folders: list[str]) -> list[str]:
    """Compiled modules that lie beside where their source should be, and so are imported in its stead."""
    found = []
    for folder, inner, files in (step for top in folders for step in os.walk(top)):
        inner[:] = [name for name in inner if name != "__pycache__"]
        names = set(files)
        found += [os.path.join(folder, name) for name in files if name.endswith(".pyc") and name[:-1] not in names]
    return sorted(found)


def stale(folders: list[str]) -> dict[str, Any]:
    """Sources whose compiled form Python would load though it was made from other text.

    Any edit moves a file's ctime, which nobody can set back; so only a `.pyc` older than that is compared.
    """
    until = time.monotonic() + COMPILE_SECONDS
    answer: dict[str, Any] = {"stale": [], "unchecked": 0}
    for folder, inner, files in (step for top in folders for step in os.walk(top)):
        inner[:] = [name for name in inner if name != "__pycache__"]
        for name in files:
            path = os.path.join(folder, name)
            if name.endswith(".py") and (code := older(path)):
                if time.monotonic() > until:
                    answer["unchecked"] += 1
                elif differs(path, code):
                    answer["stale"].append(path)
    return answer


def older(path: str) -> CodeType | None:
    """The code that Python would load for a source without looking at its text, where that was compiled earlier."""
    cached = importlib.util.cache_from_source(path)
    try:
        source, compiled = os.stat(path), os.stat(cached)
        is_file = stat.S_ISREG(source.st_mode) and stat.S_ISREG(compiled.st_mode)
        if not is_file or compiled.st_mtime_ns >= source.st_ctime_ns:
            return None
        data = Path(cached).read_bytes()
        flags = int.from_bytes(data[4:8], "little")
        recorded = int.from_bytes(data[8:12], "little"), int.from_bytes(data[12:16], "little")
        is_trusted = flags == UNCHECKED_HASH or (
            flags == MATCHES_SOURCE and recorded == (int(source.st_mtime) & 0xFFFFFFFF, source.st_size & 0xFFFFFFFF)
        )
        if not is_trusted or data[:4] != importlib.util.MAGIC_NUMBER:
            return None
        code = marshal.loads(data[16:])
    except (OSError, ValueError, EOFError, TypeError):
        return None
    return code if isinstance(code, CodeType) else None


def differs(path: str, code: CodeType) -> bool:
    try:
        return compile(Path(path).read_bytes(), code.co_filename, "exec", dont_inherit=True) != code
    except (OSError, SyntaxError, ValueError):
        return True


def main() -> None:
    question = json.load(sys.stdin)
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    if question.get("import") and sys.pycache_prefix:  # the work area's own cache: the CPU tests import the same
        sys.dont_write_bytecode = False
    surveyed = {name: survey(name, of) for name, of in question.get("survey", {}).items()}
    fresh = [folder for name in question.get("fresh", []) for folder in surveyed.get(name, {}).get("folders", [])]
    answer = {
        "located": {name: locate(name) for name in question.get("locate", [])},
        "imported": {name: load(name) for name in question.get("import", [])},
        "surveyed": surveyed,
        "bytecode": stale(fresh),
        "start": {
            folder: {name: place for name in surveyed if (place := candidate(folder, name))}
            for folder in question.get("start", [])
        },
    }
    sys.stdout.flush()
    print("\n" + json.dumps(answer))


main()
