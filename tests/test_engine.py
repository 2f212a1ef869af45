"""The engine: each patch in one state, the very tree that git makes, commits by a fixed rule."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from patch_git import diff_trees
from patch_git import git as plain_git
from world import CORE, World, git, git_bytes

from patchq.engine import Base, Engine, Placed
from patchq.errors import Invalid
from patchq.patch import Patch
from patchq.queue.load import QueuedPatch
from patchq.queue.selection import select
from patchq.report import State
from patchq.series import SeriesEntry
from patchq.store import Entry, Store
from patchq.store.apply import Applier

TIME = "1700000000 +0000"
HEAD = b"Description: A change\nAuthor: Ada <ada@example.org>\nLast-Update: 2026-01-02\n\n"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store.open(tmp_path_factory.mktemp("engine") / "store")


@pytest.fixture(scope="module")
def engine(store: Store) -> Iterator[Engine]:
    with Engine.on(store) as made:
        yield made


Files = Mapping[str, "bytes | tuple[str, bytes]"]


def base_of(store: Store, files: Files) -> Base:
    """A baseline commit that holds `files` (bytes, or mode and bytes)."""
    modes = {path: item if isinstance(item, tuple) else ("100644", item) for path, item in files.items()}
    tree = store.write_tree((path, Entry(mode, store.write("blob", data))) for path, (mode, data) in modes.items())
    return Base.of(store, store.write_commit(tree, [], "a <a@b>", TIME, TIME, b"base\n"))


def queued(diff: bytes, name: str = "device/a.patch", head: bytes = HEAD, strip: int = 1) -> QueuedPatch:
    return QueuedPatch("up", SeriesEntry(name, strip), head + diff)


def diff(folder: Path, old: Files, new: Files, *options: str) -> bytes:
    """The diff that real git makes between two trees."""

    def tree(files: Files) -> dict[bytes, tuple[str, bytes]]:
        return {os.fsencode(p): item if isinstance(item, tuple) else ("100644", item) for p, item in files.items()}

    folder = folder / "diffs"
    if not folder.exists():
        folder.mkdir(parents=True)
        plain_git(folder, "init", "-q", "--bare", ".")
    return diff_trees(folder, tree(old), tree(new), "--full-index", "-M", *options)


def one(engine: Engine, base: Base, patch: QueuedPatch) -> Placed:
    (placed,) = engine.apply(base, [patch])
    return placed


TEXT = b"".join(b"line %d\n" % n for n in range(1, 21))
BLOCK = b"a\nb\nc\nd\ne\nf\ng\n"
CHANGED = TEXT.replace(b"line 10\n", b"line ten\n")


def test_each_kind_of_change_makes_the_tree_that_git_makes(engine: Engine, tmp_path: Path) -> None:
    old: Files = {
        "changed": TEXT, "gone/deep": b"x\n", "moved": TEXT + b"more\n", "mode": b"#!/bin/sh\n",
        "bin": bytes(range(200)), "naïve name": TEXT, 'q"uote\\': TEXT, "tab\tname": TEXT,
        "crlf": b"a\r\nb\r\nc\r\n", "no newline": b"x\ny",
        "link": ("120000", b"changed"), "stays": b"stays\n",
    }  # fmt: skip
    new: Files = {
        "changed": CHANGED, "elsewhere/moved": CHANGED + b"more\n", "mode": ("100755", b"#!/bin/sh\n"),
        "bin": b"\0\1", "naïve name": CHANGED, 'q"uote\\': CHANGED, "tab\tname": CHANGED, "crlf": b"a\r\nB\r\nc\r\n",
        "no newline": b"x\nz", "link": ("120000", b"stays"), "stays": b"stays\n", "empty": b"", "new/one": b"new\n",
    }  # fmt: skip
    base = base_of(engine.store, old)
    head = HEAD.replace(b"\n\n", b"\nSymlink: allowed\n\n")
    step = one(engine, base, queued(diff(tmp_path, old, new, "--binary"), head=head))
    assert step.state is State.APPLIED, step.applied
    assert step.tree == base_of(engine.store, new).tree
    assert step.findings == ()


def test_a_series_is_applied_in_order_and_a_failed_patch_is_passed_over(engine: Engine, tmp_path: Path) -> None:
    first, second, third = {"f": TEXT}, {"f": CHANGED}, {"f": CHANGED.replace(b"line 20", b"line twenty")}
    patches = [
        queued(diff(tmp_path, first, second), "device/a.patch"),
        queued(diff(tmp_path, {"g": TEXT}, {"g": CHANGED}), "device/b.patch"),
        queued(diff(tmp_path, second, third), "device/c.patch"),
    ]
    placed = engine.apply(base_of(engine.store, first), patches)
    assert [step.state for step in placed] == [State.APPLIED, State.CONFLICT, State.APPLIED]
    assert (placed[1].tree, placed[1].commit) == (placed[0].tree, placed[0].commit)
    assert placed[2].tree == base_of(engine.store, third).tree


def test_commits_follow_the_fixed_rule(engine: Engine, tmp_path: Path) -> None:
    old, new = {"f": TEXT}, {"f": CHANGED}
    base = base_of(engine.store, old)
    head = b"From: Zo\xc3\xab <zoe@example.org>\nDate: Mon, 5 Jan 2026 10:00:00 +0530\nSubject: [PATCH 1/2] Do it\n"
    head += b"\nWhy.\n---\n"
    step = one(engine, base, queued(diff(tmp_path, old, new), head=head))
    assert engine.store.read(step.commit, "commit").decode() == (
        f"tree {step.tree}\nparent {base.commit}\nauthor Zoë <zoe@example.org> 1767587400 +0530\n"
        f"committer patchq <patchq@invalid> {TIME}\n\nDo it\n\nWhy.\n\nPatchq-Patch: up/device/a.patch\n"
    )
    bare = one(engine, base, queued(diff(tmp_path, old, new), head=b"Description: Do it\n\n"))
    assert f"author patchq <patchq@invalid> {TIME}".encode() in engine.store.read(bare.commit, "commit")
    assert bare.commit == one(engine, base, queued(diff(tmp_path, old, new), head=b"Description: Do it\n\n")).commit


# Where a patch is there already.


def test_a_patch_that_is_there_already_is_upstreamed(engine: Engine, tmp_path: Path) -> None:
    old: Files = {"f": TEXT, "gone": b"x\n", "mode": b"x\n", "old name": TEXT + b"y\n"}
    new: Files = {"f": CHANGED, "mode": ("100755", b"x\n"), "new name": TEXT + b"y\n", "added": b"a\n"}
    patch = queued(diff(tmp_path, old, new))
    assert one(engine, base_of(engine.store, new), patch).state is State.UPSTREAMED
    assert one(engine, base_of(engine.store, old), patch).state is State.APPLIED


@pytest.mark.parametrize(
    "there",
    [
        {"f": b"another line\n" + CHANGED},  # at an offset
        {"f": CHANGED + CHANGED},  # twice
        {"f": CHANGED.replace(b"line 9\n", b"line nine\n")},  # in another context
        {"f": TEXT.replace(b"line 10\n", b"line 10.5\n")},  # another change
        {},
    ],
)
def test_what_is_there_only_nearly_is_a_conflict(engine: Engine, tmp_path: Path, there: Files) -> None:
    patch = queued(diff(tmp_path, {"f": TEXT}, {"f": CHANGED}))
    assert one(engine, base_of(engine.store, there), patch).state is State.CONFLICT


def test_a_repeated_block_that_takes_the_patch_both_ways_is_applied(engine: Engine, tmp_path: Path) -> None:
    """Forward comes first: where a block stands there twice, changed once, the other one is changed."""
    changed = BLOCK.replace(b"d\n", b"D\n")
    patch = queued(diff(tmp_path, {"f": TEXT + BLOCK}, {"f": TEXT + changed}))
    step = one(engine, base_of(engine.store, {"f": TEXT + changed + BLOCK}), patch)
    assert step.state is State.APPLIED
    assert step.tree == base_of(engine.store, {"f": TEXT + changed + changed}).tree


# Where a patch landed.


@pytest.mark.parametrize("name", ["plain.py", "naïve.py", 'q"uo\\te.py', "tab\there.py", "a => b.py", "{x}.py"])
def test_an_offset_in_a_file_of_any_name_is_a_note(engine: Engine, tmp_path: Path, name: str) -> None:
    text = CORE.replace(b"return b", b"return b + 0")
    patch = queued(diff(tmp_path, {name: text}, {name: text.replace(b"a = 3\n", b"a = 33\n")}))
    base = base_of(engine.store, {name: b"# one\n# two\n" + text})
    (finding,) = one(engine, base, patch).findings
    assert finding.state is State.NOTE
    assert finding.text == f"{name}: hunk 1 applies at line 19, 2 lines below"


@pytest.mark.parametrize("name", ["plain.py", "naïve.py"])
def test_an_offset_into_another_function_is_a_warning(engine: Engine, tmp_path: Path, name: str) -> None:
    body = b"".join(b"    step %d\n" % n for n in range(9))
    text = b"def first():\n" + body
    patch = queued(diff(tmp_path, {name: text}, {name: text.replace(b"step 5", b"step five")}))
    base = base_of(engine.store, {name: text.replace(b"step 5", b"other") + b"def second():\n" + body})
    (finding,) = one(engine, base, patch).findings
    assert finding.state is State.WARNING
    assert "it was made for 'def first():', which is not around it" in finding.text


def test_an_offset_where_the_lines_stand_twice_is_a_warning(engine: Engine, tmp_path: Path) -> None:
    patch = queued(diff(tmp_path, {"f": TEXT + BLOCK}, {"f": TEXT + BLOCK.replace(b"d\n", b"D\n")}))
    (finding,) = one(engine, base_of(engine.store, {"f": b"x\n" + TEXT + BLOCK + BLOCK}), patch).findings
    assert finding.state is State.WARNING
    assert "its lines stand there 2 times" in finding.text


def test_offsets_of_several_files_are_told_apart(engine: Engine, tmp_path: Path) -> None:
    old, new = {"a": TEXT, "ü": TEXT}, {"a": CHANGED, "ü": CHANGED}
    base = base_of(engine.store, {"a": TEXT, "ü": b"0\n" + TEXT})
    (finding,) = one(engine, base, queued(diff(tmp_path, old, new))).findings
    assert finding.text.startswith("ü: hunk 1")


# What is refused.


def test_a_result_that_is_not_the_recorded_one_is_refused(engine: Engine, tmp_path: Path) -> None:
    made = diff(tmp_path, {"f": TEXT}, {"f": CHANGED}).replace(b"+line ten", b"+line TEN")
    step = one(engine, base_of(engine.store, {"f": TEXT}), queued(made))
    assert step.state is State.CONFLICT
    assert step.applied and "its text gives another result than it records" in step.applied.errors[0]
    other = one(engine, base_of(engine.store, {"f": TEXT + b"more\n"}), queued(made))
    assert other.state is State.APPLIED, "another pre-image is information, not an error"


NOT_HERE = {
    "a folder is in the way": ({"x/y": b""}, {}, {"x": b"new\n"}),
    "a file is in the way": ({"x": b""}, {}, {"x/y": b"new\n"}),
    "behind a link": ({"x": ("120000", b"z"), "z/f": TEXT}, {"x/f": TEXT}, {"x/f": CHANGED}),
    "there already": ({"f": b"other\n"}, {}, {"f": b"new\n"}),
    "not there": ({}, {"f": TEXT}, {"f": CHANGED}),
    "a link, not a file": ({"f": ("120000", TEXT)}, {"f": TEXT}, {"f": CHANGED}),
    "less context": ({"f": TEXT[:-8]}, {"f": TEXT}, {"f": TEXT.replace(b"line 19", b"line nineteen")}),
    "white space": ({"f": TEXT.replace(b"line 9\n", b"line 9 \n")}, {"f": TEXT}, {"f": CHANGED}),
    "line ends": ({"f": TEXT.replace(b"\n", b"\r\n")}, {"f": TEXT}, {"f": CHANGED}),
    "other binary": ({"f": b"\0\1"}, {"f": b"\0\2"}, {"f": b"\0\3"}),
    "no newline at the end": ({"f": b"a\nb"}, {"f": b"a\nb\n"}, {"f": b"a\nc\n"}),
}


@pytest.mark.parametrize("what", NOT_HERE)
def test_what_git_would_not_apply_is_a_conflict_with_its_reason(engine: Engine, tmp_path: Path, what: str) -> None:
    here, old, new = NOT_HERE[what]
    base = base_of(engine.store, here)
    step = one(engine, base, queued(diff(tmp_path, old, new, "--binary")))
    assert step.state is State.CONFLICT, what
    assert step.applied and step.applied.errors and not step.applied.changes
    assert (step.tree, step.commit) == (base.tree, base.commit)


def test_strip_levels_are_honoured_as_git_does(engine: Engine, tmp_path: Path) -> None:
    made = diff(tmp_path, {"f": TEXT}, {"f": CHANGED})
    base = base_of(engine.store, {"f": TEXT, "deep/f": TEXT})
    zero = queued(made.replace(b"a/f", b"deep/f").replace(b"b/f", b"deep/f"), strip=0)
    three = queued(made.replace(b"a/f", b"a/x/y/f").replace(b"b/f", b"b/x/y/f"), strip=3)
    assert one(engine, base, zero).tree == base_of(engine.store, {"f": TEXT, "deep/f": CHANGED}).tree
    assert one(engine, base, three).tree == base_of(engine.store, {"f": CHANGED, "deep/f": TEXT}).tree


def test_a_malformed_patch_is_a_state_and_not_an_error(engine: Engine) -> None:
    base = base_of(engine.store, {"f": TEXT})
    broken = QueuedPatch("up", SeriesEntry("device/a.patch"), None)
    assert one(engine, base, broken).state is State.MALFORMED


def test_what_was_asked_before_is_not_confused_with_other_files(engine: Engine, tmp_path: Path) -> None:
    patch = queued(diff(tmp_path, {"f": TEXT}, {"f": CHANGED}))
    here, there = base_of(engine.store, {"f": TEXT}), base_of(engine.store, {"f": TEXT, "g": b"x"})
    other = base_of(engine.store, {"f": b"0\n" + TEXT})
    assert len({one(engine, base, patch).tree for base in (here, there, other)}) == 3
    assert one(engine, here, patch) == one(engine, here, patch)


# Against real git, with whatever comes.

_LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"a\r\n", b"\n", b"d \n"]), max_size=12).map(b"".join)
_PATHS = st.sampled_from(["f", "g", "d/f", "d/e/f", "ü"])
_TREES = st.dictionaries(_PATHS, _LINES | st.tuples(st.sampled_from(["100644", "100755"]), _LINES), max_size=4)


@settings(max_examples=40, deadline=None)
@given(old=_TREES, new=_TREES, here=_TREES, is_made_for_it=st.booleans(), context=st.integers(1, 3))
def test_any_diff_ends_as_git_apply_on_the_whole_index_does(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory, old: Files, new: Files, here: Files,
    is_made_for_it: bool, context: int,
) -> None:  # fmt: skip
    folder = tmp_path_factory.getbasetemp() / "engine-property"
    here = old if is_made_for_it else here
    made = diff(folder, old, new, "--binary", f"-U{context}")
    if not made:
        return
    patch: Patch | None
    try:
        patch = queued(made).patch
    except Invalid:
        raise AssertionError(made.decode("utf-8", "replace")) from None
    assert patch
    base = base_of(engine.store, here)
    step = engine.step(patch, base.tree)
    index = folder / "index"
    index.unlink(missing_ok=True)
    words = ("--git-dir", str(engine.store.folder))
    env_index = {"GIT_INDEX_FILE": str(index)}
    with pytest.MonkeyPatch.context() as context_patch:
        for name, value in env_index.items():
            context_patch.setenv(name, value)
        plain_git(folder, *words, "read-tree", base.tree)
        theirs = plain_git(folder, *words, "apply", "--cached", "--whitespace=nowarn", stdin=made)
        tree = plain_git(folder, *words, "write-tree").stdout.decode().strip()
    is_changed = theirs.returncode == 0 and tree != base.tree  # what changes nothing is refused, where git says yes
    assert step.ok == is_changed, (theirs.stderr, step)
    if step.ok:
        assert engine.store.update_tree(base.tree, step.changes) == tree


SIGNATURE = b"-- \n2.39.5\n\n"
_STEPS = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c/d", "c", "e/f/g"]), st.integers(0, 5), st.booleans()),
    min_size=2,
    max_size=9,
)


@settings(max_examples=12, deadline=None)
@given(steps=_STEPS)
def test_patches_asked_about_together_end_as_those_asked_about_alone(
    store: Store, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("together")
    start: dict[str, bytes] = {"a": TEXT, "b": TEXT, "c/d": TEXT, "e/f/g": TEXT}
    files, patches = dict(start), []
    for number, (path, line, is_lost) in enumerate(steps):
        after = dict(files)
        if line == 5 and path in files:
            del after[path]
        elif not any(other.startswith(f"{path}/") or path.startswith(f"{other}/") for other in files):
            after[path] = files.get(path, TEXT).replace(b"line %d\n" % (line * 4 + 1), b"patch %d\n" % number)
        if after == files:
            continue
        patches.append(queued(diff(folder, files, after) + SIGNATURE, f"device/{number}.patch"))
        files = files if is_lost else after  # the next patch does not know of this one: it may conflict
    ends = []
    for together in (1, 32):
        with pytest.MonkeyPatch.context() as patch, Engine.on(store) as engine:
            patch.setattr("patchq.engine.engine._TOGETHER", together)
            placed = engine.apply(base_of(store, start), patches)
            ends.append([(step.state, step.tree, step.commit, step.findings, step.applied) for step in placed])
    assert ends[0] == ends[1]


def test_git_is_asked_once_about_patches_with_no_path_in_common(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start: dict[str, bytes] = {f"d{n}/f": TEXT for n in range(6)}
    apart = [
        queued(diff(tmp_path, start, {**start, f"d{n}/f": CHANGED + b"%d\n" % n}), f"device/{n}.patch")
        for n in range(6)
    ]
    emptied = {path: data for path, data in start.items() if path != "d0/f"}
    clash = [
        queued(diff(tmp_path, start, emptied), "device/gone.patch"),
        queued(diff(tmp_path, emptied, {**emptied, "d0": b"a file\n"}), "device/instead.patch"),
    ]
    asked: list[bytes] = []
    apply = Applier.apply
    monkeypatch.setattr(Applier, "apply", lambda self, diff, *rest, **more: (
        asked.append(diff), apply(self, diff, *rest, **more))[1])  # fmt: skip
    with Engine.on(store) as engine:
        assert all(step.ok for step in engine.apply(base_of(store, start), apart))
        assert len(asked) == 1
        assert [step.state for step in engine.apply(base_of(store, start), clash)] == [State.APPLIED] * 2
        assert len(asked) == 3


def test_the_commits_of_a_selection_are_those_of_git_commit_tree(world: World) -> None:
    """Every commit object of the shared queue, made again by plain git from its parts."""
    selection = select(world.place.queue, "blind", "deep", "alpha")
    place = world.place
    with Engine.on(place.store) as engine:
        base = place.sources().base(selection.upstream, "git")
        placed = engine.apply(base, selection.chosen)
    store = ("--git-dir", str(place.store.folder))
    parent = base.commit
    for step in placed:
        raw = git_bytes(world.folder, *store, "cat-file", "commit", step.commit)
        fields, _, message = raw.partition(b"\n\n")
        assert fields.startswith(f"tree {step.tree}\nparent {parent}\nauthor Ada Author <ada@example.org> ".encode())
        again = git(world.folder, *store, "hash-object", "-t", "commit", "--stdin", stdin=raw)
        assert again == step.commit
        assert message.endswith(f"Patchq-Patch: {step.queued.name}\n".encode())
        parent = step.commit
