"""Any series → commits, rewritten as people's git rewrites them → refresh: the same bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from patchq.authoring.edited import read_edits
from patchq.authoring.refresh import Refresh
from patchq.engine import Base, Engine
from patchq.patch import strip_space
from patchq.queue.load import Queue, parse_queue
from patchq.queue.selection import select
from patchq.report import State
from patchq.store import Entry, Store

QUEUE = {
    "queue.yaml": b"schema: 1\nname: q\n",
    "targets/t.yaml": b"description: t\nwork: w\ntraits: [here]\nupstreams:\n  up: {baseline: git, environments: []}\n"
    b"environments: {}\n",
    "variants/v.yaml": b"description: v\nresearch: [up/research/*]\n",
    "up/baseline.yaml": b"upstream: up\nversion: '1'\ngit:\n  commit: " + b"a" * 40 + b"\n  source: x\npackages: [p]\n",
}
WORDS = st.text(st.sampled_from("abc dé\t.:#'\"<>-[]"), min_size=1, max_size=20).map(str.strip).filter(bool)
ROWS = ("x", "y = 1", "", "\tz", "é", "w\r", "--- a", "+++ b", "-- ", "From x", "\udce9 latin", "\\ x")
LINES = st.lists(st.sampled_from(ROWS), max_size=14)
NAMES = ("new", "sub/ä b", 'qu"ote', "tab\there", "deep/er/still")

PREFIXES = {0: ["--no-prefix"], 1: [], 2: ["--src-prefix=a/b/", "--dst-prefix=c/d/"]}


@dataclass(frozen=True)
class Made:
    """A generated patch: its layer, its bytes and the rest of its series line."""

    layer: str
    data: bytes
    options: str


@st.composite
def headers(draw: st.DrawFn) -> bytes:
    """DEP-3, mail, free text or nothing, in tidy and untidy forms."""
    subject, author = draw(WORDS), draw(st.sampled_from(["A B <a@b.c>", "Ä Ö <ä@ö.ü>", "nobody", "a@b.c (A B)"]))
    rows = draw(st.lists(WORDS, max_size=4))
    kind = draw(st.sampled_from(["dep3", "mail", "free", "none"]))
    if kind == "dep3":
        text = f"{draw(st.sampled_from(['Description', 'Subject']))}: {subject}\n" + "".join(
            f" {row}\n .\n" for row in rows
        )
        fields = [f"Author: {author}", f"From:  {author}", "Last-Update: 2026-01-02", "Origin: other", "Forwarded: no",
                  "X-Own:  kept  ", "# a comment", "Requires: up/device/0", "Expect: a.py /line/", "Tests: tests/t.py",
                  "Symlink: allowed"]  # fmt: skip
        text += "".join(f"{field}\n" for field in draw(st.lists(st.sampled_from(fields), unique=True)))
        text += draw(st.sampled_from(["", "\n", "\nfree text\n\n\n", "---\n x | 2 +-\n\n"]))
    elif kind == "mail":
        text = f"From {'0' * 40} Mon Sep 17 00:00:00 2001\nFrom: {author}\nDate: Fri, 2 Jan 2026 03:04:05 +0530\n"
        text += f"Subject: [PATCH 2/7] {subject}\n\n" + "".join(f"{row}\n\n" for row in rows) + "---\n\n"
    else:
        text = f"{subject}\n" + "".join(f"{row}\n" for row in rows) + "\n" if kind == "free" else ""
    data = text.encode("latin-1" if draw(st.booleans()) else "utf-8")
    return data.replace(b"\n", b"\r\n") if kind == "dep3" and draw(st.integers(0, 9)) == 0 else data


@st.composite
def trees(draw: st.DrawFn, before: dict[str, tuple[str, bytes]]) -> dict[str, tuple[str, bytes]]:
    """Files by path as (mode, bytes), a few of them changed, added, removed, renamed."""
    after = dict(before)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from([*sorted(after), *NAMES]))
        what = draw(st.sampled_from(["lines", "lines", "lines", "bytes", "mode", "gone", "moved", "copied", "link"]))
        mode, old = after.get(path, ("100644", b""))
        if mode == "120000" and what not in ("gone", "moved"):
            continue
        if what == "lines":
            kept = old.split(b"\n")
            at = draw(st.integers(0, len(kept)))
            kept[at : at + draw(st.integers(0, 3))] = [row.encode("utf-8", "surrogateescape") for row in draw(LINES)]
            after[path] = (mode, b"\n".join(kept))
        elif what == "bytes":
            after[path] = (mode, draw(st.binary(max_size=40)) + b"\0")
        elif what == "link":
            after[f"{path}.link"] = ("120000", b"README")
        elif what == "copied" and path in after:
            after[f"{path}.copied"] = (mode, old + b"and more\n")
        elif what == "mode":
            after[path] = ("100755" if mode == "100644" else "100644", old)
        elif path in after and len(after) > 1:
            del after[path]
            if what == "moved":
                after[f"{path}.moved"] = (mode, old)
    return after


@st.composite
def diffs(draw: st.DrawFn, store: Store, before: str, after: str) -> tuple[bytes, int]:
    """A diff in one of the forms that git has, or as other tools write it, and its -p."""
    strip = draw(st.sampled_from([1, 1, 1, 0, 2]))
    options = (
        ["--unified=0", "--unified=1", "--unified=3", "--unified=9"],
        ["--find-renames=10%", "--no-renames", "--find-copies-harder"],
        ["--diff-algorithm=myers", "--diff-algorithm=patience", "--diff-algorithm=histogram"],
        ["--full-index", "--function-context", "--binary"],
    )
    flags = ["--binary", *(draw(st.sampled_from(option)) for option in options), *PREFIXES[strip]]
    text = store.git.run(("-c", f"core.quotePath={draw(st.sampled_from(['true', 'false']))}", "diff-tree", "-r", "-p",
                          *flags, before, after))  # fmt: skip
    if draw(st.booleans()):
        text = as_others_write_it(text)
    return text + draw(st.sampled_from([b"", b"-- \n2.25.1\n\n"])) * bool(text), strip


def as_others_write_it(text: bytes) -> bytes:
    """The diff with `Index:` and times instead of git's lines, where each file's text alone says what changes."""
    if re.search(
        rb"^(?:old mode|new mode|new file|deleted|rename|copy|GIT binary|Binary|similarity|[-+]{3} \")", text, re.M
    ):
        return text
    return re.sub(rb"^diff --git .*\nindex .*\n--- (.*)\n\+\+\+ (.*)\n", _named, text, flags=re.MULTILINE)


def _named(found: re.Match[bytes]) -> bytes:
    old, new = (name.rstrip(b"\t") for name in found.groups())
    return b"Index: %s\n%s\n--- %s\t2026-01-01 10:00:00 +0000\n+++ %s\t2026-01-02\n" % (new, b"=" * 67, old, new)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(tmp_path_factory.mktemp("store"))


def tree_of(store: Store, files: dict[str, tuple[str, bytes]]) -> str:
    return store.write_tree((path, Entry(mode, store.write("blob", data))) for path, (mode, data) in files.items())


@st.composite
def made_series(draw: st.DrawFn, store: Store) -> tuple[str, list[Made]]:
    files = {"a.py": ("100644", b"".join(b"line %d\n" % n for n in range(30))), "b": ("100755", b"no end")}
    base = tree = tree_of(store, files)
    made = []
    layers = [draw(st.sampled_from(["backport", "device", "research"])) for _ in range(draw(st.integers(1, 4)))]
    for layer in sorted(layers):
        files = draw(trees(files)) if draw(st.integers(0, 9)) else files
        after = tree_of(store, files)
        text, strip = draw(diffs(store, tree, after))
        options = ([f"-p{strip}"] if strip != 1 or draw(st.booleans()) else []) + draw(
            st.lists(st.sampled_from(["#+here", "#-there"]), unique=True)
        )
        head = draw(headers())
        made.append(
            Made(
                layer,
                (head or b"Description: x\n\n" * (not text)) + text,
                draw(st.sampled_from(["", "  "])) + " ".join(options),
            )
        )
        tree = after
    return base, made


def queue_of(made: list[Made], draw: st.DataObject) -> Queue:
    rows = []
    for number, one in enumerate(made):
        rows += draw.draw(st.lists(st.sampled_from(["", "# a comment", "#-half a guard"]), max_size=2))
        rows.append(f"{one.layer}/{number}.patch {one.options}".rstrip() + draw.draw(st.sampled_from(["", "  # why"])))
    files = {**QUEUE, "up/series": "".join(f"{row}\n" for row in rows).encode()}
    files |= {f"up/{one.layer}/{number}.patch": one.data for number, one in enumerate(made)}
    return parse_queue(Path("/nowhere"), files)


def as_people_do(store: Store, commits: list[str], base: str) -> Iterator[str]:
    """The same commits as a rebase leaves them: another committer, the message cleaned once more."""
    parent = base
    for identity in commits:
        head, _, message = store.read(identity, "commit").partition(b"\n\n")
        rows = head.split(b"\n")
        rows = [f"parent {parent}".encode() if row.startswith(b"parent ") else row for row in rows]
        rows = [b"committer Me <me@x> 1800000000 -0700" if row.startswith(b"committer ") else row for row in rows]
        parent = store.write("commit", b"\n".join(rows) + b"\n\n" + strip_space(message))
        yield parent


@given(st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_the_same_bytes(store: Store, data: st.DataObject) -> None:
    tree, made = data.draw(made_series(store))
    queue = queue_of(made, data)
    selection = select(queue, "t", "v", "up")
    commit = store.write_commit(tree, (), "B <b@c>", "1700000000 +0000", "1700000000 +0000", b"base\n")
    base = Base.of(store, commit)
    with Engine.on(store) as engine:
        placed = engine.apply(base, selection.chosen)
        assume(all(step.ok for step in placed))
        tip = list(as_people_do(store, [step.commit for step in placed], commit))[-1]
        edits = read_edits(store, commit, tip, lambda _: False)
        plan = Refresh(queue, selection, engine, base, base).plan(edits, [edit.name for edit in edits])
    assert not plan.changes
    assert {step.state for step in plan.steps} == {State.UNCHANGED}


@pytest.mark.fault
@given(st.data())
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_made_anew_gives_the_edit(store: Store, data: st.DataObject) -> None:
    """Forget every diff: the new text gives the very trees again, and refreshing once more changes nothing."""
    tree, made = data.draw(made_series(store))
    queue = queue_of(made, data)
    selection = select(queue, "t", "v", "up")
    base = Base.of(store, store.write_commit(tree, (), "B <b@c>", "1700000000 +0000", "1700000000 +0000", b"base\n"))
    with Engine.on(store) as engine:
        placed = engine.apply(base, selection.chosen)
        assume(all(step.ok for step in placed))
        edits = read_edits(store, base.commit, placed[-1].commit, lambda _: False)
        bare = dict(queue.files)
        bare |= {q.name: q.patch.data[: q.patch.diff_start] for q in selection.chosen if q.patch}
        emptied = parse_queue(queue.root, bare)
        first = select(emptied, "t", "v", "up")
        plan = Refresh(emptied, first, engine, base, base).plan(edits, [edit.name for edit in edits])
        renewed = parse_queue(queue.root, {**bare, **{p: d for p, d in plan.changes.items() if d is not None}})
        again = engine.apply(base, select(renewed, "t", "v", "up").chosen)
        assert [step.tree for step in again] == [step.tree for step in placed]
        edits = read_edits(store, base.commit, again[-1].commit, lambda _: False)
        second = Refresh(renewed, select(renewed, "t", "v", "up"), engine, base, base)
        assert not second.plan(edits, [edit.name for edit in edits]).changes
