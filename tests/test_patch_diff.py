"""Diffs: what git writes is read exactly, and whatever is accepted is what git itself reads."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchq.errors import Invalid
from patchq.patch import Change, Patch, conflict_view, parse_patch
from tests.patch_git import Tree, diff_trees, git, numstat

QUICK = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

NAME_PARTS = ["a", "b c", "中文", 'q"uote', "tab\there", "back\\slash", "\x01", "é", " lead", "trail ", "x.orig"]
NAMES = st.builds(
    lambda folder, parts: folder + b"/" + b"".join(parts),
    st.sampled_from([b"src", b"a dir", "目录".encode()]),
    st.lists(st.sampled_from([*map(str.encode, NAME_PARTS), b"\xff\xfe"]), min_size=1, max_size=3),
)
LINES = st.sampled_from([b"one", b"two\r", b"", b"\xd6\xd0", b"-- ", b"--- a/x", b"+++ b/x", b"@@ -1 +1 @@", b"\0"])
CONTENTS = st.one_of(
    st.builds(lambda lines, end: b"\n".join(lines) + end, st.lists(LINES, max_size=12), st.sampled_from([b"", b"\n"])),
    st.binary(max_size=40),
)
FILES = st.tuples(st.sampled_from(["100644", "100755"]), CONTENTS)


@st.composite
def tree_pairs(draw: st.DrawFn) -> tuple[Tree, Tree]:
    old = draw(st.dictionaries(NAMES, FILES, max_size=4))
    new = dict(draw(st.dictionaries(NAMES, FILES, max_size=2)))
    for path, (mode, content) in old.items():
        fate = draw(st.sampled_from(["keep", "edit", "delete", "chmod", "rename", "append"]))
        if fate == "edit":
            new[path] = (mode, draw(CONTENTS))
        elif fate == "append":
            new[path] = (mode, content + b"\nmore\n")
        elif fate == "chmod":
            new[path] = ("100755" if mode == "100644" else "100644", content)
        elif fate == "rename":
            new[draw(NAMES)] = (mode, content)
        elif fate == "keep":
            new[path] = (mode, content)
    return old, new


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bare")
    assert git(folder, "init", "-q", "--bare").returncode == 0
    return folder


def rows_of(patch: Patch) -> list[tuple[bytes, bytes, bytes]]:
    def row(change: Change) -> tuple[bytes, bytes, bytes]:
        counts = (sum(h.added for h in change.hunks), sum(h.deleted for h in change.hunks))
        added, deleted = (b"-", b"-") if change.binary else (str(n).encode() for n in counts)
        return added, deleted, os.fsencode(change.path)

    return [row(change) for change in patch.changes]


@QUICK
@given(
    tree_pairs(),
    st.sampled_from(["-M", "--no-renames"]),
    st.sampled_from(["-U3", "-U0", "--full-index"]),
    st.booleans(),
    st.sampled_from([("--src-prefix=a/", "--dst-prefix=b/", 1), ("--no-prefix", "--no-prefix", 0)]),
)
def test_every_diff_of_git_is_read_as_git_reads_it(
    bare: Path, trees: tuple[Tree, Tree], renames: str, context: str, text: bool, prefix: tuple[str, str, int]
) -> None:
    *prefixes, strip = prefix
    options = (renames, context, *(["--text"] if text else []), *prefixes)
    data = diff_trees(bare, *trees, *options)
    patch = parse_patch("u/device/x", data, "x.patch", strip)
    assert rows_of(patch) == numstat(bare, data, strip)
    raw = git(bare, "diff-tree", "-r", "-z", "--raw", "--full-index", renames, "old", "new").stdout
    assert {*patch.paths} == {
        os.fsdecode(name) for name in raw.split(b"\0") if name and name[:1] != b":" and b"/" in name
    }
    assert [change.kind[0].upper() for change in patch.changes if change.kind in ("add", "delete", "rename")] == [
        part.split(b" ")[-1][:1].decode()
        for part in raw.split(b"\0")
        if part[:1] == b":" and part.split(b" ")[-1][:1] in b"ADR"
    ]


SEED = b"""From 1111111111111111111111111111111111111111 Mon Sep 17 00:00:00 2001
From: A <a@b>
Subject: [PATCH] x

body
---
 a | 2 +-

diff --git a/a b/a
index 1111111..2222222 100644
--- a/a
+++ b/a
@@ -1,3 +1,3 @@ def f():
 one
-two
+three
 four
@@ -9 +9,2 @@
 nine
+ten
\\ No newline at end of file
--- plain/one\t2020-01-01 00:00:00.000000000 +0100
+++ plain.new/one\t2020-01-02 00:00:00.000000000 +0100
@@ -1 +1 @@
-x
+y
diff --git a/old name b/new name
similarity index 100%
rename from old name
rename to new name
diff --git "a/\\344\\270\\255" "b/\\344\\270\\255"
new file mode 100755
index 0000000..2222222
--- /dev/null
+++ "b/\\344\\270\\255"
@@ -0,0 +1 @@
+x
diff --git a/mode b/mode
old mode 100644
new mode 100755
"""
SEED += b"-- \n2.39.5\n"
SNIPPETS = st.sampled_from(
    [
        *SEED.splitlines(keepends=True),
        b"\0",
        b"\r\n",
        b'"',
        b"\t",
        b" ",
        b"/",
        b"../",
        b".git/",
        b"+",
        b"-",
        b"@@ -1 +1 @@\n",
    ]
)


@settings(QUICK, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, len(SEED)), st.integers(0, 40), SNIPPETS | st.just(b"")), min_size=1, max_size=3)
)
def test_whatever_is_accepted_is_what_git_reads(bare: Path, edits: list[tuple[int, int, bytes]]) -> None:
    data = SEED
    for at, length, snippet in edits:
        data = data[:at] + snippet + data[at + length :]
    try:
        patch = parse_patch("u/device/x", data, "x.patch")
    except Invalid as error:
        assert all(problem.where.startswith("x.patch:") for problem in error.problems)
        return
    assert rows_of(patch) == numstat(bare, data), data


def test_a_patch_tells_what_it_holds() -> None:
    patch = parse_patch("u/device/x", SEED, "x.patch")
    kinds = [(change.kind, change.old, change.new) for change in patch.changes]
    assert kinds == [
        ("modify", "a", "a"),
        ("modify", "one", "one"),
        ("rename", "old name", "new name"),
        ("add", None, "中"),
        ("mode", "mode", "mode"),
    ]
    first = patch.changes[0]
    assert (first.old_id, first.new_id, first.old_mode, first.line) == ("1111111", "2222222", "100644", 9)
    assert [(h.leading, h.trailing, h.section, h.line) for h in first.hunks] == [(1, 1, "def f():", 13), (1, 0, "", 18)]
    assert patch.data[patch.diff_start :].startswith(b"diff --git a/a b/a\n")
    assert patch.paths == {"a", "old name", "new name", "中", "mode", "one"}


def test_a_conflict_shows_the_expected_lines() -> None:
    patch = parse_patch("u/device/x", SEED, "x.patch")
    view = conflict_view(patch, "a", 1)
    assert view and (view.section, view.line) == ("def f():", 13)
    assert view.expected == ((1, "one"), (2, "two"), (3, "four"))
    assert conflict_view(patch, "a", 2) is None and conflict_view(patch, "b", 1) is None


@pytest.mark.parametrize("content", [b"x\r\n y\r", "中\n".encode("gbk"), "中\n".encode("utf-16"), b"a\fb\x85\n"])
def test_a_conflict_in_any_encoding_is_shown(bare: Path, content: bytes) -> None:
    data = diff_trees(bare, {b"f": ("100644", content)}, {b"f": ("100644", b"new\n")}, "--text")
    view = conflict_view(parse_patch("u/d/x", data, "x"), "f", 1)
    assert view and [number for number, _ in view.expected] == [
        *range(1, content.count(b"\n") + 1 + (not content.endswith(b"\n")))
    ]


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (b"a/x y\t2020-01-01 10:00:00 +0000", b"b/x y\t2020-01-02 10:00:00 +0000", "modify"),
        (b"a.orig/x", b"a/x", "modify"),
        (b"a/x.orig", b"b/x", "modify"),
        (b"/dev/null\t1970-01-01 00:00:00 +0000", b"b/x", "add"),
        (b"a/x\t1970-01-01 01:00:00.000000000 +0100", b"b/x\t2020-01-02 10:00:00 +0000", "add"),
        (b"a/x  2020-01-01 10:00:00", b"b/x  2020-01-01 10:00:00", "modify"),
        (b'"a/x\\ty"', b'"b/x\\ty"', "modify"),
    ],
)
def test_plain_diffs(bare: Path, first: bytes, second: bytes, kind: str) -> None:
    hunk = b"@@ -0,0 +1 @@\n+x\n" if kind == "add" else b"@@ -1 +1 @@\n-x\n+y\n"
    data = b"Description: x\n\nIndex: x\n" + b"=" * 67 + b"\n--- " + first + b"\n+++ " + second + b"\n" + hunk
    patch = parse_patch("u/d/x", data, "x")
    assert patch.changes[0].kind == kind
    assert rows_of(patch) == numstat(bare, data)
    assert patch.header.raw == b"Description: x\n\n"


def test_size_is_no_matter() -> None:
    head = b"--- a/x\n+++ b/x\n"
    hunks = b"".join(b"@@ -%d,3 +%d,3 @@\n a\n-b\n+c\n d\n" % (10 * n + 1, 10 * n + 1) for n in range(10_000))
    lines = 600_000
    large = b"@@ -0,0 +1,%d @@\n" % lines + b"+" + b"y" * 78 + b"\n"
    large += (b"+" + b"y" * 78 + b"\n") * (lines - 1)
    started = time.process_time()
    assert len(parse_patch("u/d/x", head + hunks, "x").changes[0].hunks) == 10_000
    assert parse_patch("u/d/x", head + large, "x").changes[0].hunks[0].added == lines
    assert time.process_time() - started < 8
