"""Which version a source tree says that it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from patchq.authoring.versions import version_in
from patchq.store import Entry, Store

OTHERS = '[[tool.uv.dependency-metadata]]\nname = "vllm"\nversion = "0.18.0"\n'
TREES = {
    "the project's own": ({"pyproject.toml": '[project]\nname = "x"\nversion = "1.2"\n' + OTHERS}, "main", "1.2"),
    "a file that it names": (
        {
            "pyproject.toml": '[project]\ndynamic = ["version"]\n'
            '[tool.setuptools.dynamic]\nversion = {file = "x/version/now"}\n' + OTHERS,
            "x/version/now": "0.10.0.dev\n",
        },
        "main",
        "0.10.0.dev0",
    ),
    "a file that it does not": (
        {"pyproject.toml": OTHERS, "x/__init__.py": '__version__ = "3.1"\n', "x/y/z/version.py": 'VERSION = "9"\n'},
        "main",
        "3.1",
    ),
    "a tag": ({"pyproject.toml": '[project]\nversion = "1.2"\n'}, "v1.3.0", "1.3.0"),
    "nothing": ({"pyproject.toml": OTHERS}, "main", "0"),
}


@pytest.mark.parametrize("case", TREES)
def test_what_a_tree_says(case: str, tmp_path: Path) -> None:
    files, name, version = TREES[case]
    store = Store.open(tmp_path)
    tree = store.write_tree((path, Entry("100644", store.write("blob", text.encode()))) for path, text in files.items())
    assert version_in(store, tree, name) == version
