"""Patches that git would take and patchq does not, and those that both take: the tree is git's, or the answer is no."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from patch_git import diff_trees
from patch_git import git as plain_git

from patchq.engine import Base, Engine, Placed
from patchq.engine.conditions import broken
from patchq.errors import Invalid
from patchq.patch import parse_patch
from patchq.patch.condition import SECONDS
from patchq.queue.load import QueuedPatch
from patchq.report import State
from patchq.series import SeriesEntry
from patchq.store import Entry, Store

TIME = "1700000000 +0000"
TEXT = b"".join(b"line %d\n" % n for n in range(1, 41))
FILES: dict[str, tuple[str, bytes]] = {
    "m.py": ("100644", TEXT), "pkg/dup.py": ("100644", b"a\nb\nc\n" * 10), "run.sh": ("100755", b"#!/bin/sh\n"),
    "top": ("100644", b"top\n"), "empty": ("100644", b""), "bin": ("100644", bytes(range(256))),
    "link": ("120000", b"m.py"), "pkg/up": ("120000", b"../top"), "deep/er/down": ("120000", b"../../pkg"),
    "out": ("120000", b"/etc"), "a b.py": ("100644", TEXT), "new\nline": ("100644", b"x\n"),
}  # fmt: skip
WORD = b"Symlink: allowed\n"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with Engine.on(Store.open(tmp_path_factory.mktemp("hostile") / "store")) as made:
        yield made


@pytest.fixture(scope="module")
def base(engine: Engine) -> Base:
    files = ((path, Entry(mode, engine.store.write("blob", data))) for path, (mode, data) in FILES.items())
    tree = engine.store.write_tree(files)
    return Base.of(engine.store, engine.store.write_commit(tree, [], "a <a@b>", TIME, TIME, b"base\n"))


def place(engine: Engine, base: Base, *diffs: bytes) -> tuple[Placed, ...]:
    """How patches end, one on the other. Raises `Invalid` where one cannot be read."""
    patches = []
    for number, diff in enumerate(diffs):
        name = f"device/p{number}.patch"
        patches.append(
            QueuedPatch("up", SeriesEntry(name), parse_patch(f"up/{name}", b"Description: x\n" + diff, name).data)
        )
    return engine.apply(base, patches)


def oracle(engine: Engine, base: Base, diff: bytes) -> str | None:
    """The tree that plain `git apply --cached` makes, None where it refuses."""
    index = engine.store.folder / "oracle"
    index.unlink(missing_ok=True)
    env = {
        **os.environ,
        "GIT_DIR": str(engine.store.folder),
        "GIT_INDEX_FILE": str(index),
        "GIT_CONFIG_GLOBAL": os.devnull,
    }

    def git(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["git", *words], cwd=index.parent, env=env, input=stdin, capture_output=True, check=False)

    assert git("read-tree", base.tree).returncode == 0
    return (
        git("write-tree").stdout.decode().strip() if git("apply", "--cached", "-", stdin=diff).returncode == 0 else None
    )


def link(path: str, old: str, new: str) -> bytes:
    """A diff that turns a link, and names no mode."""
    end = "\n\\ No newline at end of file\n"
    text = f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{old}{end}+{new}{end}"
    return b"\n" + text.encode()


def added(path: str, target: str) -> bytes:
    text = (
        f"diff --git a/{path} b/{path}\nnew file mode 120000\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{target}\n"
    )
    return b"\n" + text.encode() + b"\\ No newline at end of file\n"


def hunk(text: bytes, path: str = "m.py") -> bytes:
    return b"\n--- a/%s\n+++ b/%s\n" % (path.encode(), path.encode()) + text


REFUSED: dict[str, tuple[bytes, str]] = {
    "a link turned by a diff without a mode": (link("link", "m.py", "top"), "Symlink: allowed"),
    "a link turned out of the tree": (WORD + link("link", "m.py", "/etc/passwd"), "absolute"),
    "a link turned out by a plain diff": (WORD + link("link", "m.py", "../x").split(b"\n", 2)[2], "out of the tree"),
    "a link turned into .git": (WORD + link("link", "m.py", ".git/config"), ".git"),
    "a link out, moved": (b"\ndiff --git a/out b/pkg/out\nrename from out\nrename to pkg/out\n", "absolute"),
    "a link moved so that it leads out": (b"\ndiff --git a/pkg/up b/up\nrename from pkg/up\nrename to up\n", "out of"),
    "a link copied without the word": (b"\ndiff --git a/link b/l2\ncopy from link\ncopy to l2\n", "Symlink: allowed"),
    "a link through upstream's link out": (WORD + added("l", "out/passwd"), "through other links"),
    "a link through a link, then up": (WORD + added("l", "deep/er/down/../../x"), "through other links"),
    "links in a circle": (WORD + added("l", "l2") + added("l2", "l")[1:], "never ends"),
    "a link with a newline at its end": (WORD + added("l", "top").rpartition(b"\\")[0], "no readable target"),
    "a mode that is there": (b"\ndiff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n", "changes nothing"),
    "an insertion that shows no place": (hunk(b"@@ -5,0 +6 @@\n+new\n"), "no line of context"),
    "little context, many places": (hunk(b"@@ -7,3 +7,3 @@\n a\n-b\n+B\n c\n", "pkg/dup.py"), "more than once"),
    "little context, an insertion": (hunk(b"@@ -7,2 +7,3 @@\n a\n+new\n b\n", "pkg/dup.py"), "more than once"),
    "a copy of nothing": (b"\ndiff --git a/no b/y\ncopy from no\ncopy to y\n", "does not exist"),
    "a copy through a link": (b"\ndiff --git a/deep/er/down/up b/y\ncopy from deep/er/down/up\ncopy to y\n", "exist"),
    "a write through a link": (b"\n" + added("deep/er/down/x", "y")[1:].replace(b"120000", b"100644"), "symbolic link"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(engine: Engine, base: Base, name: str) -> None:
    diff, words = REFUSED[name]
    (step,) = place(engine, base, diff)
    assert step.state in (State.CONFLICT, State.MALFORMED, State.UPSTREAMED) and step.tree == base.tree
    said = (*step.problems, *(step.applied.errors if step.applied else ()))
    assert words in " ".join(map(str, said))


def test_a_later_patch_cannot_bend_an_earlier_link(engine: Engine, base: Base) -> None:
    inside = WORD + added("l", "deep/er/down/../x")
    gone = b"\ndiff --git a/deep/er/down b/deep/er/down\ndeleted file mode 120000\n--- a/deep/er/down\n+++ /dev/null\n"
    gone += b"@@ -1 +0,0 @@\n-../../pkg\n\\ No newline at end of file\n"
    first, second = place(engine, base, inside, WORD + gone + added("deep/er/down", "../..")[1:])
    assert first.ok and second.state is State.MALFORMED
    assert "'l' leads out of the tree through other links" in str(second.problems[0])


GIT = b"\ndiff --git "
ACCEPTED: dict[str, bytes] = {
    "a link inside": WORD + added("pkg/l", "../m.py"),
    "a link turned inside": WORD + link("link", "m.py", "pkg/../top"),
    "a link moved": GIT + b"a/link b/l2\nrename from link\nrename to l2\n",
    "a copy": GIT + b"a/m.py b/n.py\nsimilarity index 100%\ncopy from m.py\ncopy to n.py\n",
    "a copy, its source changed too": GIT + b"a/top b/t2\ncopy from top\ncopy to t2\n"
    + GIT[1:] + b"a/top b/top" + hunk(b"@@ -1 +1 @@\n-top\n+TOP\n", "top"),
    "no context, unique": hunk(b"@@ -40 +40 @@\n-line 40\n+end\n"),
    "no context, at the end": hunk(b"@@ -40,0 +41 @@\n+end\n"),
    "no context in a file of one line": hunk(b"@@ -1 +1 @@\n-top\n+TOP\n", "top"),
    "little context, one place": hunk(b"@@ -5,3 +5,3 @@\n line 5\n-line 6\n+six\n line 7\n"),
    "many places, three lines": hunk(b"@@ -10,7 +10,7 @@\n a\n b\n c\n-a\n+A\n b\n c\n a\n", "pkg/dup.py"),
    "a name with a newline": GIT + b'"a/new\\nline" "b/new\\nline"\n--- "a/new\\nline"\n+++ "b/new\\nline"\n'
    b"@@ -1 +1 @@\n-x\n+y\n",
    "an empty file filled": hunk(b"@@ -0,0 +1 @@\n+x\n", "empty"),
    "modes alone": GIT + b"a/run.sh b/run.sh\nold mode 100755\nnew mode 100644\n",
    "a link becomes a file": GIT + b"a/link b/link\ndeleted file mode 120000\n--- a/link\n+++ /dev/null\n"
    b"@@ -1 +0,0 @@\n-m.py\n\\ No newline at end of file\n"
    b"diff --git a/link b/link\nnew file mode 100644\n--- /dev/null\n+++ b/link\n@@ -0,0 +1 @@\n+x\n",
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_as_git_does(engine: Engine, base: Base, name: str) -> None:
    diff = ACCEPTED[name]
    (step,) = place(engine, base, diff)
    assert step.state is State.APPLIED, (step.problems, step.applied)
    assert step.tree == oracle(engine, base, diff)


def test_one_file_of_several_that_is_there_already_is_said(engine: Engine, base: Base) -> None:
    diff = b"\ndiff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n" + ACCEPTED["a copy"][1:]
    (step,) = place(engine, base, diff)
    assert step.ok and [finding.text for finding in step.findings] == ["run.sh: is already as the patch leaves it"]


def test_many_hunks_at_other_places_are_summed_up(engine: Engine) -> None:
    def text(first: bytes) -> bytes:
        return first + b"".join(b"%d\n" % n for n in range(6000))

    entry = Entry("100644", engine.store.write("blob", text(b"one\nmore\n")))
    tree = engine.store.write_tree([("f", entry)])
    moved = Base.of(engine.store, engine.store.write_commit(tree, [], "a <a@b>", TIME, TIME, b"base\n"))
    hunks = b"".join(
        b"@@ -%d,7 +%d,7 @@\n" % (n + 1, n + 1) + b"".join(b" %d\n" % (n + m) for m in range(3))
        + b"-%d\n+x\n" % (n + 3) + b"".join(b" %d\n" % (n + m) for m in range(4, 7))
        for n in range(10, 5900, 10)
    )  # fmt: skip
    (step,) = place(engine, moved, hunk(hunks, "f"))
    assert step.ok and len(step.findings) == 51
    assert step.findings[-1].text == "539 more hunks apply at other lines than the patch says"


@pytest.mark.fault
def test_an_expression_without_end_is_no_hang(engine: Engine, base: Base) -> None:
    diff = b"Forbid: m.py /(a|a)*$/\n" + GIT + b"a/m.py b/m.py\n--- a/m.py\n+++ b/m.py\n"
    diff += b"@@ -1,4 +1,4 @@\n-line 1\n+" + b"a" * 60 + b"!\n line 2\n line 3\n line 4\n"
    (step,) = place(engine, base, diff)
    assert step.ok and SECONDS <= 2
    (problem,) = broken(engine.store, step.tree, (step.queued,))
    assert "takes too long" in problem.what


_LINES = st.sampled_from([b"a\n", b"b\n", b"\n", b"c\r\n", b"last"])
_TREE = st.dictionaries(
    st.sampled_from([b"f", b"d/g", b"d/h i", b"\xe4\xb8\xad", b"run"]),
    st.tuples(st.sampled_from(["100644", "100755"]), st.lists(_LINES, max_size=12).map(b"".join)),
    max_size=4,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    old=_TREE,
    new=_TREE,
    options=st.sampled_from([(), ("-M",), ("-C", "--find-copies-harder"), ("-U1",), ("-B",)]),
    cut=st.data(),
)
def test_whatever_git_makes_or_somebody_bends_gives_git_s_tree_or_a_no(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory, old: dict[bytes, tuple[str, bytes]],
    new: dict[bytes, tuple[str, bytes]], options: tuple[str, ...], cut: st.DataObject,
) -> None:  # fmt: skip
    folder = tmp_path_factory.getbasetemp() / "diffs"
    if not folder.exists():
        folder.mkdir()
        plain_git(folder, "init", "-q", "--bare", ".")
    diff = b"\n" + diff_trees(folder, old, new, "--full-index", *options)
    bent = bytearray(diff)
    for at in cut.draw(st.lists(st.integers(0, len(diff) - 1), max_size=3)):
        bent[at] = cut.draw(st.sampled_from(list(b" +-@\n\\0a/")))
    files = ((os.fsdecode(path), Entry(mode, engine.store.write("blob", data))) for path, (mode, data) in old.items())
    tree = engine.store.write_tree(files)
    base = Base.of(engine.store, engine.store.write_commit(tree, [], "a <a@b>", TIME, TIME, b"base\n"))
    try:
        (step,) = place(engine, base, bytes(bent))
    except Invalid:
        assert bent != diff, "a diff that git made is refused"
        return
    if not step.ok:
        assert bent != diff or "-U1" in options, (step.state, step.applied)
    elif step.queued.patch and step.queued.patch.changes:
        assert step.tree == oracle(engine, base, bytes(bent))
