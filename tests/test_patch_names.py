"""Names: git's quoting there and back, and what may stand in a tree."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchq.patch import check_link, check_path, quote, unquote
from tests.patch_git import git

RAW_NAMES = st.binary(min_size=1, max_size=30).filter(
    lambda name: not {b"", b".", b".."} & set(name.split(b"/")) and b"\0" not in name and b".git" not in name.lower()
)


@given(RAW_NAMES)
def test_quoting_goes_there_and_back(raw: bytes) -> None:
    quoted = quote(os.fsdecode(raw)).encode()
    found = unquote(quoted)
    assert found == (raw, len(quoted)) if quoted.startswith(b'"') else quoted == raw


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.lists(RAW_NAMES.filter(lambda raw: b"/" not in raw), min_size=1, max_size=20, unique=True),
    full=st.booleans(),
)
def test_quoting_is_gits(tmp_path_factory: pytest.TempPathFactory, names: list[bytes], full: bool) -> None:
    folder = tmp_path_factory.mktemp("quoting")
    git(folder, "init", "-q")
    blob = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
    entries = b"".join(b"100644 %s\t%s\0" % (blob.encode(), name) for name in names)
    assert git(folder, "update-index", "-z", "--index-info", stdin=entries).returncode == 0
    shown = git(folder, "-c", f"core.quotePath={str(full).lower()}", "ls-files").stdout.split(b"\n")[:-1]
    read = [found[0] if (found := unquote(line)) else line for line in shown]
    assert sorted(read) == sorted(names)
    if not full:
        readable = [line for line in shown if os.fsdecode(line).isprintable()]
        assert set(readable) <= {quote(os.fsdecode(name)).encode() for name in names}


@pytest.mark.parametrize("quoted", [b'"', b'"a', b'"\\q"', b'"\\40"', b'"\\400"', b"plain", b'"a\n"'])
def test_broken_quoting_is_no_name(quoted: bytes) -> None:
    assert unquote(quoted) is None


@pytest.mark.parametrize(
    "path",
    [
        "a",
        "中文/x y.py",
        "tab\there",
        'q"uote',
        "back\\slash",
        ".gitignore",
        ".github/x",
        "git~/x",
        "x.git",
        "a..b",
        "a\nb",
        "..a",
        "…",
    ],
)
def test_good_paths(path: str) -> None:
    assert check_path(path) is None


@pytest.mark.parametrize(
    "path",
    [
        "", "/x", "\\x", "a//b", "a/", ".", "a/..", "../a", "a/.. /b", "a\\..\\b", "C:/x", "c:\\x", "a\0",
        ".git", ".GIT/x", "x/.git", ".git.", ".git ", ".git . .", "git~1", "GIT~2/x", ".git:x", ".git::$DATA",
        "a\\.git", ".\u200dgit", "\ufeff.git", ".git\u200e", "x" * 256, "x/" * 2048 + "x", "x/" * 100 + "x",
    ],
)  # fmt: skip
def test_bad_paths(path: str) -> None:
    assert check_path(path)


def test_git_agrees_on_what_is_a_bad_path(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    blob = git(tmp_path, "hash-object", "-w", "--stdin").stdout.decode().strip()
    for path in (".GIT/x", "x/.git/y", "git~1", ".git . .", ".git::$DATA", "a\\.git", ".\u200dgit", "a/../b"):
        protect = ("-c", "core.protectNTFS=true", "-c", "core.protectHFS=true")
        added = git(tmp_path, *protect, "update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")
        assert added.returncode and check_path(path), path


@pytest.mark.parametrize(("path", "target", "fine"), [
    ("a/b", "c", True), ("a/b", "../c", True), ("a/b", "../../c", False), ("b", "..", False), ("b", "/c", False),
    ("b", "", False), ("a/b", "../.git", False), ("a/b", "x/../../../y", False), ("a/b", "中/./x", True),
    ("a/b", "..\\..\\x", False),
])  # fmt: skip
def test_links(path: str, target: str, fine: bool) -> None:
    assert (check_link(path, target) is None) is fine
