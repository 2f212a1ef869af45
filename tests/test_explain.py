"""A conflict says which lines were expected and found, and the one thing that is responsible."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from world import ALPHA, CORE, World, diff_of, git, header

from patchq.commands.check import check_selection
from patchq.engine import Engine
from patchq.queue.selection import select
from patchq.report import State, Step

F3_END = b"b = a + 1\n    return b\n\n\ndef f4"


def conflicts(world: World, target: str = "blind") -> dict[str, Step]:
    """The steps of the patches of `alpha` that do not apply for a target, by the end of their names."""
    place = world.place
    selection = select(place.queue, target, None, "alpha")
    with Engine.on(place.store) as engine:
        base = place.sources().base(selection.upstream, "git")
        steps = check_selection(engine, base, selection)
    return {step.name.rpartition("/")[2].removesuffix(".patch"): step for step in steps if step.state is State.CONFLICT}


@pytest.fixture
def clone(world: World, tmp_path: Path) -> Path:
    git(tmp_path, "clone", "-q", str(world.alpha), str(tmp_path / "clone"))
    return tmp_path / "clone"


def queue(world: World, patches: Mapping[str, bytes], lines: str | None = None) -> World:
    """The world with only these patches (name → diff) in alpha's series, all in the device layer."""
    for path in world.root.glob("alpha/*/*.patch"):
        path.unlink()
    for path in world.root.glob("variants/*"):
        path.unlink()
    world.write({f"alpha/device/{name}.patch": header(name) + made for name, made in patches.items()})
    return world.write({"alpha/series": lines or "".join(f"device/{name}.patch\n" for name in patches)})


def change(clone: Path, old: bytes, new: bytes, *, on: bytes = CORE, keep: bool = False) -> bytes:
    """The diff of replacing text in `alpha/core.py`, which is `on` before."""
    assert old in on
    (clone / "alpha/core.py").write_bytes(on)
    git(clone, "commit", "-q", "-a", "--allow-empty", "-m", "on")
    made = diff_of(clone, {"alpha/core.py": on.replace(old, new)}, keep=keep)
    return made if keep else (git(clone, "reset", "-q", "--hard", "HEAD~1"), made)[1]


def test_the_line_that_differs_is_shown_where_the_others_are(own: World, clone: Path) -> None:
    """The patch was made for a file with more lines on top and another line within the hunk."""
    before = b"# one\n# two\n# three\n" + CORE.replace(F3_END, F3_END.replace(b"a + 1", b"9"))
    step = conflicts(queue(own, {"x": change(clone, b"a = 3\n", b"a = 33\n", on=before)}))["x"]
    assert step.detail == (
        "patch failed: alpha/core.py:20",
        "alpha/core.py: patch does not apply",
        "alpha/core.py: hunk at line 20 (def f2():)",
        "  line 21: expected '    b = 9'",
        "  line 21: found    '    b = a + 1'",
    )
    assert step.summary.startswith("made for another alpha/core.py (")


@pytest.mark.parametrize(
    ("here", "there"),
    [(b"a = 3\r\n", "'    a = 3\\r'"), (b"a = 3 \n", "'    a = 3 '"), (b"\ta = 3\n", "'    \\ta = 3'")],
)
def test_white_space_and_line_ends_can_be_seen(own: World, clone: Path, here: bytes, there: str) -> None:
    made = change(clone, F3_END, F3_END.replace(b"a + 1", b"4"), on=CORE.replace(b"a = 3\n", here))
    step = conflicts(queue(own, {"x": made}))["x"]
    assert f"  line 20: expected {there}" in step.detail
    assert "  line 20: found    '    a = 3'" in step.detail


def test_a_file_that_ends_before_the_hunk_is_said_so(own: World, clone: Path) -> None:
    longer = CORE + b"# one\n# two\n# three\n# four\n"
    step = conflicts(queue(own, {"x": change(clone, b"# four\n", b"# 4\n", on=longer)}))["x"]
    assert any(row.endswith("found    (end of file)") for row in step.detail)


def test_an_excluded_patch_that_is_needed_is_named(own: World, clone: Path) -> None:
    first = change(clone, b"a = 3\n", b"a = 33\n")
    second = change(clone, b"a = 33\n", b"a = 333\n", on=CORE.replace(b"a = 3\n", b"a = 33\n"))
    own = queue(own, {"a": first, "b": second}, "device/a.patch #-small\ndevice/b.patch\n")
    assert conflicts(own)["b"].summary == "needs alpha/device/a.patch, which this selection leaves out"
    assert conflicts(own, "plain") == {}


def test_alternatives_are_joined_by_or_and_what_is_needed_together_by_with(own: World, clone: Path) -> None:
    on = CORE.replace(b"a = 3\n", b"a = 33\n")
    both = on.replace(F3_END, F3_END.replace(b"a + 1", b"4"))
    one, same = change(clone, b"a = 3\n", b"a = 33\n"), change(clone, b"a = 3\n", b"a = 33\n")
    other = change(clone, F3_END, F3_END.replace(b"a + 1", b"4"), on=on)
    last = change(clone, b"a = 33\n    b = 4\n", b"a = 333\n    b = 4\n", on=both)
    patches = {
        "a": one,
        "a2": same,
        "b": other,
        "last": last,
        "after-a": change(clone, b"a = 33\n", b"a = 3.3\n", on=on),
    }
    out = "".join(f"device/{name}.patch #-small\n" for name in ("a", "a2", "b"))
    found = conflicts(queue(own, patches, out + "device/after-a.patch\ndevice/last.patch\n"))
    assert found["after-a"].summary == (
        "needs alpha/device/a.patch or alpha/device/a2.patch, which this selection leaves out"
    )
    assert found["last"].summary == (
        "needs alpha/device/a.patch with alpha/device/b.patch or alpha/device/a2.patch with alpha/device/b.patch, "
        "which this selection leaves out"
    )


def test_the_earlier_patch_that_changed_the_lines_is_named(own: World, clone: Path) -> None:
    first = change(clone, b"a = 2\n", b"a = 22\n")
    breaks = change(clone, b"a = 3\n", b"a = 33\n")
    builds = change(clone, b"a = 22\n    b = a + 1\n    return b\n\n\ndef f3():\n    a = 3\n",
                    b"a = 22\n    b = a + 1\n    return b\n\n\ndef f3():\n    a = 30\n",
                    on=CORE.replace(b"a = 2\n", b"a = 22\n"))  # fmt: skip
    found = conflicts(
        queue(own, {"first": first, "breaks": breaks, "x": change(clone, b"a = 3\n", b"a = 30\n"), "y": builds})
    )
    assert found["x"].summary == "alpha/device/breaks.patch changed these lines before it"
    assert found["y"].summary == "alpha/device/breaks.patch changed these lines before it"


def test_a_patch_on_top_of_one_that_failed_points_to_it(own: World, clone: Path) -> None:
    before = CORE.replace(b"a = 3\n", b"a = 99\n")
    first = change(clone, b"a = 99\n", b"a = 33\n", on=before)
    second = change(clone, b"a = 33\n", b"a = 333\n", on=before.replace(b"a = 99\n", b"a = 33\n"))
    found = conflicts(queue(own, {"first": first, "second": second}))
    assert found["first"].summary.startswith("made for another alpha/core.py")
    assert (
        found["second"].summary
        == "alpha/device/first.patch, which changes the same file before it, does not apply either"
    )


def test_what_the_baseline_lacks_or_has_otherwise_is_named(own: World, clone: Path) -> None:
    missing = diff_of(clone, {"alpha/none.py": b"1\n"}) and diff_of(clone, {"alpha/none.py": b"2\n"})
    edited = change(clone, b"a = 3\n", b"a = 33\n").replace(b" def f3():", b" def g3():")
    binary = diff_of(clone, {"alpha/data.bin": b"\0\1"}) and diff_of(clone, {"alpha/data.bin": b"\0\2"})
    found = conflicts(queue(own, {"missing": missing, "edited": edited, "binary": binary}))
    assert found["missing"].summary == "the baseline has no alpha/none.py"
    assert (
        found["edited"].summary
        == "alpha/core.py is the very file that the patch was made for: the patch's text was edited"
    )
    assert found["binary"].summary.startswith("made for another alpha/data.bin (")
    assert all(step.detail for step in found.values())


def test_names_and_contents_of_any_kind_are_explained(own: World, clone: Path) -> None:
    path = "docs/naïve name.txt"
    git(clone, "config", "core.quotePath", "false")
    made = diff_of(clone, {path: b"one\n\xff\xfe\nthree\n"}) and diff_of(clone, {path: b"one\n2\nthree\n"})
    step = conflicts(queue(own, {"x": made}))["x"]
    assert f"patch failed: {path}:1" in step.detail
    assert "  line 2: found    'two'" in step.detail
    assert ALPHA[path] == b"one\ntwo\nthree\n"
