"""Headers: DEP-3 and mail, what they tell, and the commit that is made of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchq.patch import Condition, Header, lint_header, parse_patch, strip_space
from tests.patch_git import git

DIFF = b"diff --git a/x b/x\nindex 1111111..2222222 100644\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"

DEP3 = """Description: Say it in one line
 And at length here,
   indented.
 .
 A second paragraph.
Author: Zoë Müller <zoe@example.org>
Origin: upstream, https://example.org/1
Bug-Debian: https://bugs.example.org/2
Forwarded: not-needed
Last-Update: 2026-02-28
Requires: device/a.patch, device/b.patch
 device/c.patch
Tests: tests/test_a.py
Expect: verl/a b.py 2 /^import os$/
Expect: "verl/odd 3" /x y/
 verl/other.py /z/
Forbid: verl/utils/model.py /attn="flash"/
Symlink: allowed

Free text that follows.
---
A note that is nobody's message.

Applied-Upstream: 1.2
""".encode()

MAIL = b"""From 1111111111111111111111111111111111111111 Mon Sep 17 00:00:00 2001
From: =?UTF-8?q?Zo=C3=AB?= <zoe@example.org>
Date: Tue, 30 Jun 2026 10:00:00 +0200
Subject: [PATCH v2 3/7] =?UTF-8?q?M=C3=BCll?=
 =?UTF-8?q?er?= and the [trainer] tag
MIME-Version: 1.0
Content-Type: text/plain; charset=UTF-8
Content-Transfer-Encoding: 8bit

First paragraph.

Note: this stays, it is prose.

Origin: vendor
Signed-off-by: A <a@b>
Tests: tests/test_b.py
---
 x | 2 +-
 1 file changed, 1 insertion(+), 1 deletion(-)

"""


def header(text: bytes) -> Header:
    return parse_patch("verl/device/x.patch", text + DIFF, "p").header


def test_dep3() -> None:
    read = header(DEP3)
    assert read.raw == DEP3
    assert read.subject == "Say it in one line"
    assert read.body == "And at length here,\n  indented.\n\nA second paragraph.\n\nFree text that follows."
    assert read.author == "Zoë Müller <zoe@example.org>"
    assert read.author_date == (1772236800, "+0000")
    assert read.requires == ("device/a.patch", "device/b.patch", "device/c.patch")
    assert read.tests == ("tests/test_a.py",)
    assert [(c.path, c.count, c.regex, c.line) for c in read.expect] == [
        ("verl/a b.py", 2, "^import os$", 14),
        ("verl/odd 3", None, "x y", 15),
        ("verl/other.py", None, "z", 16),
    ]
    assert [(c.path, c.regex) for c in read.forbid] == [("verl/utils/model.py", 'attn="flash"')]
    assert read.allow_symlink and not read.is_mail
    assert (read.origin, read.forwarded) == ("upstream, https://example.org/1", "not-needed")
    assert (read.get("bug-debian"), read.get("applied-upstream")) == ("https://bugs.example.org/2", "1.2")
    assert lint_header(parse_patch("u/device/x", DEP3 + DIFF, "p"), "device") == ()


def test_mail() -> None:
    read = header(MAIL)
    assert read.is_mail
    assert read.subject == "Müller and the [trainer] tag"
    assert read.author == "Zoë <zoe@example.org>"
    assert read.author_date == (1782806400, "+0200")
    assert (read.origin, read.tests) == ("vendor", ("tests/test_b.py",))
    assert read.message("verl/device/x.patch").decode() == (
        "Müller and the [trainer] tag\n\nFirst paragraph.\n\nNote: this stays, it is prose.\n\n"
        "Signed-off-by: A <a@b>\nPatchq-Patch: verl/device/x.patch\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "Patchq-Patch: n\n"),
        (b"Just a line\n", "Just a line\n\nPatchq-Patch: n\n"),
        (b"# comment\nA line\n\nand more  \n\n\n\nend\n", "A line\n\nand more\n\nend\n\nPatchq-Patch: n\n"),
        (b"Note: a plain line\n", "Note: a plain line\n\nPatchq-Patch: n\n"),
        (b"Subject: x\n long\nOrigin: y\nstray text\n", "x\n\nlong\n\nstray text\n\nPatchq-Patch: n\n"),
        (b"Description:\n Below the name\n and on\n", "Below the name\n\nand on\n\nPatchq-Patch: n\n"),
        (b"Subject: x\n\nPatchq-Patch: old\n", "x\n\nPatchq-Patch: n\n"),
        (b"Subject: x\n\nprose\nPatchq-Patch: old\n", "x\n\nprose\n\nPatchq-Patch: n\n"),
        (b"Subject: x\r\n\r\ny\r\n", "x\n\ny\n\nPatchq-Patch: n\n"),
        (b"Subject: caf\xe9 \xe4\xb8\xad\n", "café 中\n\nPatchq-Patch: n\n"),
        (b"From: a\nSubject: =?bogus?q?x?=\n", "=?bogus?q?x?=\n\nPatchq-Patch: n\n"),
    ],
)
def test_messages(text: bytes, message: str) -> None:
    assert header(text).message("n").decode() == message


@pytest.mark.parametrize(
    ("value", "author"),
    [
        ("A B <a@b>", "A B <a@b>"),
        ("a@b", "a@b <a@b>"),
        ("a@b (A B)", "A B <a@b>"),
        ('"B, A" <a@b>, C <c@d>', "B, A <a@b>"),
        ("A>B <a@b>", "A B <a@b>"),
        ("<a@b>", "a@b <a@b>"),
        ("Only A Name", "Only A Name <patchq@invalid>"),
        ("A <>", "A <patchq@invalid>"),
        ("A\x07 <a b@c\td>", "A <ab@cd>"),
    ],
)
def test_authors(value: str, author: str) -> None:
    assert header(f"Description: x\nAuthor: {value}\n".encode()).author == author
    assert header(b"Description: x\n").author == "patchq <patchq@invalid>"


@settings(max_examples=12, deadline=None)
@given(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=40), st.text(max_size=60))
def test_git_takes_every_author_and_message(tmp_path_factory: pytest.TempPathFactory, author: str, text: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "objects"
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q", "--bare")
    tree = git(folder, "mktree").stdout.strip()
    source = f"Description: {text}\nFrom: {author}\nDate: Tue, 30 Jun 2026 10:00:00 +0200\n".replace("\0", "")
    read = parse_patch("verl/device/x.patch", source.encode(), "p").header if "---" not in source else header(b"")
    seconds, offset = read.author_date or (0, "+0000")
    commit = b"tree %s\nauthor %s %d %s\ncommitter patchq <patchq@invalid> 0 +0000\n\n" % (
        tree, read.author.encode(), seconds, offset.encode(),
    )  # fmt: skip
    message = read.message("verl/device/x.patch")
    made = git(folder, "hash-object", "-t", "commit", "-w", "--stdin", stdin=commit + message)
    assert made.returncode == 0, made.stderr
    checked = git(folder, "fsck", "--strict", "--no-dangling", made.stdout.decode().strip())
    assert checked.returncode == 0 and b"bad" not in checked.stderr, checked.stderr
    trailers = git(folder, "interpret-trailers", "--parse", "--no-divider", stdin=message).stdout
    if read.subject:
        assert b"Patchq-Patch: verl/device/x.patch\n" in trailers


@settings(max_examples=60, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=60),
        st.lists(
            st.sampled_from([b"\n", b" ", b"\t", b"\r", b"\f", b"\v", b"a", b"#", b"\xc2\xa0", b"\0"]), max_size=30
        ).map(b"".join),
    )
)
def test_cleaning_is_git_stripspace(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    assert strip_space(text) == git(tmp_path_factory.getbasetemp(), "stripspace", stdin=text).stdout


@pytest.mark.parametrize(
    ("value", "date"),
    [
        ("Tue, 30 Jun 2026 10:00:00 +0200", (1782806400, "+0200")),
        ("30 Jun 2026 10:00 -0030", (1782815400, "-0030")),
        ("Tue Jun 30 10:00:00 2026 +0200", (1782806400, "+0200")),
        ("2026-06-30 10:00:00 +0200", (1782806400, "+0200")),
        ("2026-06-30T10:00:00.5+02:00", (1782806400, "+0200")),
        ("Tue, 30 Jun 2026 10:00:00 GMT", None),
        ("2026-06-30", None),
        ("30 Feb 2026 10:00:00 +0200", None),
        ("Tue, 30 Jun 2026 10:00:00 +9900", None),
        ("Thu, 1 Jan 1970 00:00:00 +0200", None),
    ],
)
def test_dates(value: str, date: tuple[int, str] | None) -> None:
    assert header(f"Description: x\nDate: {value}\n".encode()).author_date == date
    both = header(f"Description: x\nDate: {value}\nLast-Update: 2026-02-28\n".encode())
    assert both.author_date == (date or (1772236800, "+0000"))


def test_dates_are_gits(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    name = "Tue, 30 Jun 2026 10:00:00 -0330"
    made = git(
        tmp_path, "-c", "user.name=a", "-c", "user.email=a", "commit", "--allow-empty", "-qm", "x", f"--date={name}"
    )
    assert made.returncode == 0
    shown = git(tmp_path, "log", "-1", "--format=%at %ai").stdout.decode().split()
    assert header(f"Description: x\nDate: {name}\n".encode()).author_date == (int(shown[0]), shown[-1])


def test_conditions_count() -> None:
    condition = Condition("x", None, "^a$")
    assert condition.matches(b"a\nb\na\n\xff\n") == 2


@pytest.mark.parametrize(
    ("text", "layer", "words"),
    [
        (b"", "backport", "no Description or Subject"),
        (b"Description: x\n", "backport", "neither Origin nor Author"),
        (b"Description: x\nOrigin: y\n", "device", "without Tests"),
        (b"Description: x\nOrigin: y\nLast-Update: yesterday\n", "backport", "not YYYY-MM-DD"),
        (b"Description: x\nOrigin: y\nForwarde: no\n", "backport", "did you mean 'Forwarded'"),
        (b"Description: x\nOrigin: y\nSymlink: yes\n", "backport", "means nothing"),
    ],
)
def test_lint(text: bytes, layer: str, words: str) -> None:
    problems = lint_header(parse_patch("u/l/x", text + DIFF, "p"), layer)
    assert any(words in str(problem) and problem.where.startswith("p:") for problem in problems)


def test_lint_of_context_says_only_what_is_known() -> None:
    text = b"Description: x\nOrigin: y\n\n--- a/x\n+++ b/x\n"
    text += b"@@ -1,2 +1,2 @@\n-a\n+b\n c\n" + b"@@ -9,4 +9,4 @@\n d\n e\n f\n-g\n+h\n" + b"@@ -90 +90 @@\n-i\n+j\n"
    problems = lint_header(parse_patch("u/l/x", text, "p"), "backport")
    assert [(problem.where, problem.what.split(": ")[1]) for problem in problems] == [
        ("p:6", "1 lines of context below the change"),
        ("p:10", "0 lines of context below the change"),
        ("p:16", "0 lines of context above the change"),
    ]


def test_a_word_in_an_encoding_that_is_none_stays_as_it_is() -> None:
    """Found by fuzzing: a mail's charset may have any name."""
    for charset in (b"UT\x91-8", b"no-such", b"utf-8\xc3\xbf"):
        data = b"From " + b"0" * 40 + b" Mon Sep 17 00:00:00 2001\nSubject: =?" + charset + b"?q?a?=\n\n---\n"
        assert parse_patch("up/device/x", data, "x.patch").header.subject.endswith("?q?a?="), charset
