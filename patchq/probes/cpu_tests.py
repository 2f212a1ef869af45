"""Runs CPU tests with this interpreter's pytest, or with one at a private path. Prints one JSON document.

Question: {"files": [PATH...], "pytest": PATH or null, "rootdir": PATH}. A test marked `needs("torch")` whose module is
not to be found ends as "not run", with the modules that it lacks.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import sys
import tempfile
from typing import Any


def is_missing(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is None
    except (ImportError, ValueError):
        return True


def skip_reason(report: Any) -> str:
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)


class Watcher:
    def __init__(self) -> None:
        self.results: dict[str, dict[str, Any]] = {}

    def pytest_configure(self, config: Any) -> None:
        config.addinivalue_line("markers", "needs(*modules): modules that this test imports")

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.results[report.nodeid or "collection"] = {"state": "failed", "text": str(report.longrepr)}
        elif report.skipped:
            self.results[report.nodeid] = {"state": "not run", "missing": [], "text": skip_reason(report)}

    def pytest_runtest_setup(self, item: Any) -> None:
        import pytest

        needed = [name for mark in item.iter_markers("needs") for name in mark.args]
        missing = sorted({name for name in needed if is_missing(name)})
        if missing:
            self.results[item.nodeid] = {"state": "not run", "missing": missing}
            pytest.skip("needs " + ", ".join(missing))

    def pytest_runtest_logreport(self, report: Any) -> None:
        known = self.results.get(report.nodeid)
        if known and known["state"] != "passed":
            return
        if report.failed:
            self.results[report.nodeid] = {"state": "failed", "text": str(report.longrepr)}
        elif report.skipped:
            self.results[report.nodeid] = {"state": "not run", "missing": [], "text": skip_reason(report)}
        elif report.when == "call":
            self.results[report.nodeid] = {"state": "passed"}


def main() -> None:
    question = json.load(sys.stdin)
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    if sys.pycache_prefix:  # the work area's own cache: else each child of a test would compile all that it imports
        sys.dont_write_bytecode = False
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if question.get("pytest") and is_missing("pytest"):
        sys.path.append(question["pytest"])
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), question["pytest"]]))
    try:
        import pytest
    except ImportError as error:  # pytest itself, or what the private copy of another Python's pytest lacks here
        print("\n" + json.dumps({"error": f"pytest cannot be imported: {error}", "code": 4, "results": {}}))
        return

    watcher = Watcher()
    rootdir = question["rootdir"]
    os.chdir(rootdir)  # pytest would take a $NAME in the path of its root for a variable
    tempfile.tempdir = rootdir  # what a test that is killed leaves there goes with it
    options = ["-q", "-p", "no:cacheprovider", "--rootdir", ".", "--basetemp", os.path.join(rootdir, "tmp"), "-rs"]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = pytest.main(options + question["files"], plugins=[watcher])
    answer = {"code": int(code), "pytest": pytest.__version__, "results": watcher.results}
    answer["output"] = output.getvalue()
    print("\n" + json.dumps(answer))


main()
