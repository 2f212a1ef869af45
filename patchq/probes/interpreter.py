"""Which interpreter this is, and where each entry of its import path comes from. Prints one JSON document.

Question: {}. Called with `trace` it is the same interpreter started once more without `site`, which it then runs step
by step, to see what each path file and each customisation adds.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

TRACE_SECONDS = 60
_COMPLAINTS = ("Error processing line", "Error in sitecustomize", "Error in usercustomize")  # of `site`, which goes on
HERE = str(Path(__file__).resolve().parent)


def libpython() -> list[str]:
    """Every libpython that is loaded into this process."""
    maps = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    paths = {line.split(maxsplit=5)[5] for line in maps if len(line.split(maxsplit=5)) == 6}
    return sorted(path for path in paths if re.search(r"/libpython\d[^/]*\.so", path))


def pyvenv() -> dict[str, str]:
    """The settings in `pyvenv.cfg`, empty outside a virtual environment."""
    try:
        lines = (Path(sys.prefix) / "pyvenv.cfg").read_text().splitlines()
    except OSError:
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def finders() -> list[str]:
    """Import finders beyond Python's own three, as editable installs leave them."""
    own = ("_frozen_importlib", "_frozen_importlib_external")
    names = ((f.__module__, getattr(f, "__qualname__", type(f).__qualname__)) for f in sys.meta_path)
    return [f"{module}.{name}" for module, name in names if module not in own]


def given() -> dict[bytes, bytes]:
    """The environment that this process was started with, before any Python code could change it."""
    pairs = (item.partition(b"=") for item in Path("/proc/self/environ").read_bytes().split(b"\0") if item)
    return {name: value for name, _, value in pairs}


def traced() -> dict[str, Any]:
    """What `trace` printed in an interpreter of its own."""
    argv = [sys.executable, "-S", "-B", __file__, "trace"]
    # No pipes, which may be held open by what is left. Here, in a folder that goes, whatever kills this process.
    with tempfile.TemporaryFile(dir=".") as out, tempfile.TemporaryFile(dir=".") as err:
        try:
            subprocess.run(argv, env=given(), stdout=out, stderr=err, check=False, timeout=TRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return {"error": f"it did not start a second time within {TRACE_SECONDS} s"}
        out.seek(0)
        err.seek(0)
        said = err.read().decode("utf-8", "replace").strip().splitlines()
        for line in reversed(out.read().splitlines()):
            if line.startswith(b'{"sources": '):
                return {**json.loads(line), "complaints": [row for row in said if row.startswith(_COMPLAINTS)]}
        return {"error": said[-1] if said else "no answer"}


class Tracer:
    """Runs `site` and keeps, for each entry of the path, what put it there; and who changed which variables."""

    def __init__(self) -> None:
        given = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
        self.sources = {entry: "PYTHONPATH" if entry in given else "standard library" for entry in sys.path}
        self.environ: dict[str, list[str]] = {}

    def watch(self, source: str, work: Callable[..., Any], *words: Any) -> Any:
        before = dict(os.environ)
        try:
            return work(*words)
        finally:
            for entry in sys.path:
                self.sources.setdefault(entry, source)
            changed = [name for name in {*before, *os.environ} if before.get(name) != os.environ.get(name)]
            if changed:
                self.environ[source] = sorted(changed)

    def run(self) -> None:
        import site

        package, system, user = site.addpackage, site.execsitecustomize, site.execusercustomize
        folder = site.addsitedir

        def addpackage(place: str, name: str, known: Any) -> Any:
            return self.watch(os.path.join(place, name), package, place, name, known)

        def addsitedir(place: str, known: Any = None) -> Any:
            is_user = place == site.getusersitepackages()
            self.sources.setdefault(os.path.abspath(place), "user site" if is_user else "site-packages")
            return folder(place, known)

        def customize(work: Callable[[], None], name: str) -> Callable[[], None]:
            return lambda: self.watch(name, work)

        replaced: dict[str, Callable[..., Any]] = {
            "addpackage": addpackage,
            "addsitedir": addsitedir,
            "execsitecustomize": customize(system, "sitecustomize"),
            "execusercustomize": customize(user, "usercustomize"),
        }
        vars(site).update(replaced)
        site.main()

    def files(self) -> dict[str, str]:
        names = ("sitecustomize", "usercustomize")
        return {name: str(sys.modules[name].__file__) for name in names if name in sys.modules}


def trace() -> None:
    sys.path[:] = [entry for entry in sys.path if entry != HERE]
    tracer = Tracer()
    tracer.run()
    print("\n" + json.dumps({"sources": tracer.sources, "environ": tracer.environ, "files": tracer.files()}))


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    json.load(sys.stdin)
    found = traced()
    files = found.get("files", {})
    sources = {entry: files.get(source, source) for entry, source in found.get("sources", {}).items()}
    answer = {
        "executable": sys.executable,
        "real": os.path.realpath(sys.executable),
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "version": platform.python_version(),
        "platform": platform.platform(),
        "libpython": libpython(),
        "venv": pyvenv(),
        "finders": finders(),
        "path": sys.path,
        "sources": {entry: sources.get(entry, "unknown") for entry in sys.path},
        "customized": files,
        "complaints": found.get("complaints", []),
        "environ": {files.get(source, source): names for source, names in found.get("environ", {}).items()},
    }
    if "error" in found:
        answer["untraced"] = found["error"]
    print("\n" + json.dumps(answer))


if __name__ == "__main__":
    trace() if sys.argv[1:] == ["trace"] else main()
