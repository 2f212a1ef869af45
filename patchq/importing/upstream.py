"""A new upstream: `baseline.yaml` from a clone at a commit, or from a release of the package index."""

from __future__ import annotations

import re
from collections.abc import Iterable

from patchq.authoring.versions import version_in
from patchq.document import parse_yaml
from patchq.errors import Invalid
from patchq.importing.clone import Clone
from patchq.index.download import fetch, find_sdist
from patchq.location import local_path
from patchq.queue.baseline import Baseline
from patchq.sdist import read_sdist
from patchq.sources import sdist_folder
from patchq.store import Store

_RELEASE = r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9.+!_-]*)"
_NOT_PACKAGES = {"tests", "test", "docs", "doc", "examples", "scripts", "tools", "benchmarks", "benchmark"}


def baseline_text(store: Store, name: str, what: str, at: str) -> bytes:
    """The `baseline.yaml` of the upstream `name`: `what` is `PROJECT==VERSION`, or a clone with the commit `at`.

    Raises `Invalid` for anything else, `Prevented` where the package index or the clone says no.
    """
    release = re.fullmatch(_RELEASE, what)
    text = _of_release(store, name, *release.groups()) if release else _of_clone(store, name, what, at)
    parse_yaml(text, Baseline, f"{name}/baseline.yaml")
    return text


def _of_release(store: Store, name: str, project: str, version: str) -> bytes:
    pin = find_sdist(project, version)
    files = read_sdist(fetch(pin, sdist_folder(store)))
    rows = [
        f"upstream: {name}", f'version: "{version}"', "sdist:", f"  project: {pin.name}", f'  version: "{version}"',
        f"  filename: {pin.filename}", f'  sha256: "{pin.sha256}"', "installed:", f"  distribution: {pin.name}",
        f'  version: "{version}"', "  like: sdist",
        *_packages(name, (file.path for file in files)),
    ]  # fmt: skip
    return _lines(rows)


def _of_clone(store: Store, name: str, what: str, at: str) -> bytes:
    folder = local_path(what)
    if not folder.is_dir():
        raise Invalid(
            "is neither a clone nor PROJECT==VERSION", where=what, hint="clone it first, then name the folder"
        )
    clone = Clone(folder.absolute(), store)
    commit = clone.resolve(at)
    tree = clone.git.line(("rev-parse", f"{commit}^{{tree}}"))
    clone.bring([tree])
    paths = [path for path, _ in store.walk(tree)]
    rows = [f"upstream: {name}", f'version: "{version_in(store, tree, at)}"', "git:", f'  commit: "{commit}"']
    rows.append(f"  source: {folder.absolute()}")
    submodules = store.submodules(tree)
    if submodules:
        rows.append("  submodules:")
        for path, identity in submodules.items():
            rows += [f"    {path}:", f'      commit: "{identity}"', f"      source: {_url(clone, commit, path)}"]
    return _lines([*rows, *_packages(name, paths)])


def _url(clone: Clone, commit: str, path: str) -> str:
    """Where `.gitmodules` says that a submodule comes from."""
    listed = clone.git.try_run(("config", "--blob", f"{commit}:.gitmodules", "--get-regexp", r"^submodule\..*"))
    values = dict(row.split(" ", 1) for row in listed.text.splitlines() if " " in row)
    key = next((key for key, value in values.items() if key.endswith(".path") and value == path), "")
    url = values.get(key.removesuffix(".path") + ".url", "")
    if not url or url.startswith("."):
        raise Invalid(f".gitmodules says {url!r} for {path}", hint="write baseline.yaml by hand, with its source")
    return url


def _packages(name: str, paths: Iterable[str]) -> list[str]:
    """The `root` and `packages` rows: the package called like the upstream, else every top-level package."""
    tops = {path.removesuffix("/__init__.py") for path in paths if path.endswith("/__init__.py")}
    for root in ("", "src/"):
        found = sorted(
            top.removeprefix(root) for top in tops if top.startswith(root) and top.count("/") == root.count("/")
        )
        found = [package for package in found if package not in _NOT_PACKAGES]
        own = [package for package in found if package.lower() == re.sub("[-.]", "_", name.lower())]
        if found:
            chosen = own or found
            compiled = ", ".join(f"{root}{package}" for package in chosen)
            row = [f"root: {root.rstrip('/')}"] if root else []
            return [*row, f"packages: [{', '.join(chosen)}]", f"compile: [{compiled}]"]
    return [f"packages: [{re.sub('[-.]', '_', name)}]"]


def _lines(rows: Iterable[str]) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()
