"""Hostile and broken patches: each class refused with words of its own, never with a traceback."""

from __future__ import annotations

import base64
import time
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchq.errors import Invalid
from patchq.patch import parse_patch

HUNK = b"@@ -1 +1 @@\n-a\n+b\n"
GOOD = b"diff --git a/x b/x\nindex 1111111..2222222 100644\n--- a/x\n+++ b/x\n" + HUNK


def named(old: bytes, new: bytes) -> bytes:
    return b"diff --git %s %s\n--- %s\n+++ %s\n" % (old, new, old, new) + HUNK


def created(name: bytes, mode: bytes, line: bytes = b"x") -> bytes:
    return (
        b"diff --git a/%s b/%s\nnew file mode %s\n--- /dev/null\n+++ b/%s\n@@ -0,0 +1 @@\n+%s\n"
        b"\\ No newline at end of file\n" % (name, name, mode, name, line)
    )


def binary(method: bytes, size: int, data: bytes) -> bytes:
    packed = zlib.compress(data)
    lines = b""
    for at in range(0, len(packed), 52):
        piece = packed[at : at + 52]
        letter = len(piece) + (64 if len(piece) <= 26 else 70)
        lines += b"%c%s\n" % (letter, base64.b85encode(piece, pad=True))
    head = b"diff --git a/x b/x\nindex %s..%s 100644\n" % (b"1" * 40, b"2" * 40)
    return head + b"GIT binary patch\n%s %d\n" % (method, size) + lines + b"\n"


def varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


REFUSED: dict[str, tuple[bytes, str]] = {
    "dot-dot": (named(b"a/../x", b"b/../x"), "leads out"),
    "dot": (named(b"a/./x", b"b/./x"), "leads out"),
    "absolute": (b"--- /etc/passwd\n+++ /etc/passwd\n" + HUNK, "absolute"),
    "absolute after strip": (named(b"a//etc/x", b"b//etc/x"), "absolute"),
    "drive": (named(b"a/C:\\x", b"b/C:\\x"), "absolute"),
    "empty part": (named(b"a/x//y", b"b/x//y"), "empty part"),
    "git": (named(b"a/.git/config", b"b/.git/config"), ".git"),
    "git in case": (named(b"a/x/.GiT", b"b/x/.GiT"), ".git"),
    "short name": (named(b"a/GIT~1/x", b"b/GIT~1/x"), ".git"),
    "stream": (named(b"a/.git::$INDEX_ALLOCATION/x", b"b/.git::$INDEX_ALLOCATION/x"), ".git"),
    "dots and blanks": (named(b"a/.git . ./x", b"b/.git . ./x"), ".git"),
    "hfs": (named("a/.g\u200cit/x".encode(), "b/.g\u200cit/x".encode()), ".git"),
    "octal": (named(b'"a/\\056git/x"', b'"b/\\056git/x"'), ".git"),
    "backslash": (named(b'"a/x\\\\.git\\\\y"', b'"b/x\\\\.git\\\\y"'), ".git"),
    "rename": (
        b"diff --git a/x b/.git/x\nsimilarity index 100%\nrename from x\nrename to .git/x\n",
        ".git",
    ),
    "gitlink": (
        b"diff --git a/m b/m\nnew file mode 160000\nindex 0000000..1111111\n--- /dev/null\n+++ b/m\n"
        b"@@ -0,0 +1 @@\n+Subproject commit " + b"1" * 40 + b"\n",
        "submodule",
    ),
    "gitlink on index": (GOOD.replace(b"100644", b"160000"), "submodule"),
    "setuid": (created(b"x", b"104755"), "mode 104755"),
    "group": (created(b"x", b"100664"), "mode 100664"),
    "link without the word": (created(b"x", b"120000"), "Symlink: allowed"),
    "link out": (b"Symlink: allowed\n\n" + created(b"d/x", b"120000", b"../../etc"), "out of the tree"),
    "link away": (b"Symlink: allowed\n\n" + created(b"d/x", b"120000", b"/etc"), "absolute"),
    "link into git": (b"Symlink: allowed\n\n" + created(b"d/x", b"120000", b"../.git/hooks"), ".git"),
    "link of git": (b"Symlink: allowed\n\n" + created(b".gitmodules", b"120000"), "cannot be"),
    "through a link": (
        b"Symlink: allowed\n\n" + created(b"d", b"120000") + created(b"d/y", b"100644"),
        "through the link",
    ),
    "rename to itself": (b"diff --git a/x b/x\nrename from x\nrename to x\n", "changes nothing"),
    "half a copy": (b"diff --git a/x b/y\ncopy from x\n", "needs both"),
    "copy from outside": (b"diff --git a/../x b/y\ncopy from ../x\ncopy to y\n", "leads out"),
    "copy of .git": (b"diff --git a/.git/config b/y\ncopy from .git/config\ncopy to y\n", ".git"),
    "copied and renamed": (
        b"diff --git a/x b/y\ncopy from x\ncopy to y\nrename from x\nrename to y\n",
        "contradict",
    ),
    "a line beyond all files": (GOOD.replace(b"-1 +1", b"-4294967297 +4294967297"), "no file has"),
    "binary files of diff -r": (b"Description: x\n\nBinary files a/y and b/y differ\n" + GOOD, "without its data"),
    "binary files between": (GOOD + b"Binary files a/y and b/y differ\n" + named(b"a/y", b"b/y"), "without its data"),
    "binary files at the end": (GOOD + b"Binary files a/y and b/y differ\n", "without its data"),
    "svn property": (GOOD + b"\nProperty changes on: x\n" + b"_" * 67 + b"\nAdded: svn:executable\n", "Subversion"),
    "hg, twice": (GOOD + b"# HG changeset patch\n# User a\n" + named(b"a/y", b"b/y"), "second patch"),
    "normal diff": (b"Description: x\n\n5c5\n< a\n---\n> b\n", "git sees none"),
    "ed script": (b"5c\nb\n.\n", "git sees none"),
    "indented": (b"Description: x\n\n" + GOOD.replace(b"\n", b"\n    ").replace(b"diff", b"    diff"), "git sees none"),
    "packed": (zlib.compress(GOOD), "is not text"),
    "mail of parts": (
        b'From: a\nSubject: x\nContent-Type: multipart/mixed; boundary="xx"\n\n--xx\n' + GOOD + b"\n--xx--\n",
        "several parts",
    ),
    "conditions without end": (b"Description: x\n" + b"Expect: x /y/\n" * 501, "more than 500"),
    "half a rename": (b"diff --git a/x b/y\nrename from x\n", "needs both"),
    "binary without data": (
        b"diff --git a/x b/x\nindex 1111111..2222222 100644\nBinary files a/x and b/x differ\n",
        "without its data",
    ),
    "binary with short ids": (
        binary(b"literal", 1, b"x").replace(b"1" * 40 + b".." + b"2" * 40, b"1111111..2222222"),
        "full ids",
    ),
    "huge literal": (binary(b"literal", 1 << 40, b"x"), "bytes; at most"),
    "huge delta": (binary(b"delta", 99, varint(9) + varint(1 << 40) + b"x" * 90), "bytes; at most"),
    "cut binary": (binary(b"literal", 1, b"x")[:-1], "corrupt or cut off"),
    "bent binary": (binary(b"literal", 1, b"x").replace(b"\n\n", b"~~~\n\n"), "corrupt or cut off"),
    "too many promised": (GOOD.replace(b"-1 +1", b"-1 +1,2"), "inside the hunk"),
    "too many, more follows": (GOOD.replace(b"-1 +1", b"-1 +1,2") + named(b"a/y", b"b/y"), "none of them"),
    "too few promised": (GOOD + b"+c\n", "looks like more"),
    "does not add up": (GOOD.replace(HUNK, b"@@ -1 +1 @@\n-a\n-c\n+b\n"), "add up"),
    "unbalanced": (GOOD.replace(HUNK, b"@@ -0,0 +1,2 @@\n c\n+b\n"), "add up"),
    "nothing changed": (GOOD.replace(HUNK, b"@@ -1 +1 @@\n a\n"), "changes nothing"),
    "cut off": (GOOD[:-1], "inside the hunk"),
    "cut off in the head": (GOOD[: GOOD.index(b"@@")], "no hunk"),
    "cut off before the names": (GOOD[: GOOD.index(b"--- ")], "missing"),
    "cut off in a word": (b"diff --git a/x b/x\nnew file mode 100644\nind", "middle of a line"),
    "content cut off": (
        b"diff --git a/x b/x\nnew file mode 100644\nindex 0000000..1111111\n",
        "content of the file to add is missing",
    ),
    "a lost hunk": (b"Description: x\n\n" + HUNK, "without the names"),
    "no change": (b"diff --git a/x b/x\n", "without a change"),
    "names apart": (GOOD.replace(b"+++ b/x", b"+++ b/y"), "differ"),
    "names unlike the first line": (GOOD.replace(b"diff --git a/x b/x", b"diff --git a/y b/y"), "does not name"),
    "plain names apart": (b"--- a/x\n+++ b/y\n" + HUNK, "not of one file"),
    "too few components": (b"--- x\n+++ x\n" + HUNK, "nothing is left"),
    "null unexplained": (GOOD.replace(b"--- a/x", b"--- /dev/null"), "/dev/null without"),
    "new with old lines": (
        created(b"x", b"100644").replace(b"-0,0 +1 @@\n", b"-1 +1 @@\n-y\n"),
        "cannot have old lines",
    ),
    "twice": (GOOD + GOOD, "second time"),
    "hidden": (b"Subject: x\n\n" + GOOD + b"\nthe rest of a message\n---\n" + named(b"a/y", b"b/y"), "hidden"),
    "two mails": (
        GOOD + b"-- \n2.39\n\nFrom " + b"1" * 40 + b" Mon\nFrom: a\n\n" + named(b"a/y", b"b/y"),
        "second patch",
    ),
    "two headers": (GOOD + b"\nDescription: y\n\n" + named(b"a/y", b"b/y"), "second patch"),
    "combined": (b"diff --cc x\nindex 1,2..3\n--- a/x\n+++ b/x\n@@@ -1,1 -1,1 +1,1 @@@\n- a\n -b\n++c\n", "combined"),
    "context diff": (b"*** a/x\n--- b/x\n***************\n*** 1 ****\n! a\n--- 1 ----\n! b\n", "context diff"),
    "svn without hunks": (b"Index: x\n" + b"=" * 67 + b"\n", "git sees none"),
    "utf-16": (GOOD.decode().encode("utf-16"), "NUL"),
    "mail encoding": (
        b"From: a\nSubject: x\nContent-Transfer-Encoding: base64\n\nZGlmZg==\n",
        "still encoded",
    ),
    "bad expression": (b"Description: x\nExpect: a /(/\n", "cannot be read"),
    "bad condition": (b"Description: x\nForbid: just words\n", "is not `PATH"),
    "condition outside": (b"Description: x\nForbid: ../x /y/\n", "leads out"),
    "coloured": (b"\x1b[1mdiff --git a/x b/x\x1b[m\n\x1b[1mold mode 100644\x1b[m\n", "colours of a terminal"),
    "a quoted mode": (b"> diff --git a/x b/x\n> old mode 100644\n> new mode 100755\n", "git sees none"),
    "a graph in front": (b"| " + HUNK.replace(b"\n", b"\n| "), "git sees none"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    data, words = REFUSED[name]
    with pytest.raises(Invalid) as caught:
        parse_patch("u/device/x", data, "series/x.patch")
    assert words in str(caught.value)
    assert all(problem.where.startswith("series/x.patch:") for problem in caught.value.problems)


@pytest.mark.fault
def test_more_parts_than_anybody_means_are_refused() -> None:
    with pytest.raises(Invalid, match="more than 150000 files and hunks"):
        parse_patch("u/device/x", b"--- a/x\n+++ b/x\n" + b"@@ -1 +1 @@\n-a\n+b\n" * 150_000, "p")


@pytest.mark.fault
@pytest.mark.parametrize(
    "data",
    [
        named(b"a/../x", b"b/../x") * 20_000,
        b"".join(created(b"f%d" % n, b"100644") for n in range(20_000)),
        b"diff --git a/x b/x\n" * 20_000,
        b"Subject: " + b"=?utf-8?q?a?= " * 60_000 + b"\nFrom: a\n\n" + GOOD,
        b"Description: x\n\n" + b"--- a/x\n+++ b/x\n" * 60_000,
        b"diff --git " + b"a/" * 4000 + b" " + b"a/" * 4000 + b"\nold mode 100644\nnew mode 100755\n",
    ],
    ids=range(6),
)  # fmt: skip
def test_what_is_large_is_read_in_time_that_grows_with_it(data: bytes) -> None:
    begun = time.process_time()
    try:
        header = parse_patch("u/device/x", data, "p").header
        assert header.message("u/device/x")
    except Invalid:
        pass
    assert time.process_time() - begun < 4


def test_every_problem_at_once_with_its_line() -> None:
    data = named(b"a/.git", b"b/.git") + created(b"x", b"120000") + named(b"a/y", b"b/y")[:-3]
    with pytest.raises(Invalid) as caught:
        parse_patch("u/device/x", data, "p")
    assert sorted(problem.where for problem in caught.value.problems) == ["p:1", "p:17", "p:7"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"Description: nothing yet\n",
        created(b"x", b"120000", b"a/../b").replace(b"diff", b"Symlink: allowed\n\ndiff", 1),
        b"diff --git a/x b/x\ndeleted file mode 120000\n--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-t\n",
        b"diff --git a/x b/x\nnew file mode 100644\nindex 0000000..e69de29\n",
        binary(b"literal", 1, b"x"),
        GOOD + b"-- \n2.39.5\n\n",
        GOOD + b"--\nfrom a list\n",
        GOOD + b"\n\n",
        named(b'"a/x\\ny"', b'"b/x\\ny"'),
        GOOD + b"\n# about the next\n\n" + named(b"a/y", b"b/y"),
        b"=== modified file 'x'\n--- x/x\n+++ x/x\n" + HUNK + b"\n=== modified file 'y'\n--- x/y\n+++ x/y\n" + HUNK,
        b"diff --git a/x b/y\nsimilarity index 100%\ncopy from x\ncopy to y\n" + GOOD,
        GOOD.replace(b"\n", b"\r\n"),
        created(b"d", b"100644").replace(b"new", b"deleted").replace(b"/dev/null\n+++ b/d", b"a/d\n+++ /dev/null")
        .replace(b"-0,0 +1", b"-1 +0,0").replace(b"+x", b"-x"),
        b"Only in a: y\ndiff -ruN a/x b/x\n--- a/x\n+++ b/x\n" + HUNK + b"diff -ruN a/y b/y\n--- a/y\n+++ b/y\n" + HUNK,
    ],
)  # fmt: skip
def test_accepted(data: bytes) -> None:
    assert parse_patch("u/device/x", data, "p").data == data


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from([*GOOD.splitlines(keepends=True), b"\n", b"x\n", b"-- \n", b"Date: x\n", b"\xff"]), max_size=12
    )
    | st.binary(max_size=200)
)
def test_nothing_else_is_ever_raised(parts: list[bytes] | bytes) -> None:
    data = parts if isinstance(parts, bytes) else b"".join(parts)
    try:
        patch = parse_patch("u/device/x", data, "p")
    except Invalid:
        return
    assert patch.header.raw == data[: patch.diff_start]
    assert patch.header.message("u/device/x").endswith(b"Patchq-Patch: u/device/x\n")
