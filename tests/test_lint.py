"""What has to hold across a queue: nothing names what is not there, or does nothing in silence."""

from __future__ import annotations

import pytest
from world import World, header

from patchq.commands.check import check
from patchq.queue.lint import lint, unsatisfied
from patchq.queue.selection import select
from patchq.report import State

TARGET = """\
description: x
traits: [{traits}]
work: w
{more}upstreams: {{alpha: {{baseline: git, environments: [train]}}}}
environments: {{train: {{python: p}}}}
"""


def target(traits: str = "small, tiny", more: str = "") -> dict[str, str]:
    return {"targets/tiny.yaml": TARGET.format(traits=traits, more=more)}


def findings(world: World, state: State = State.MALFORMED) -> list[str]:
    """Every finding of a state: `PLACE: WHAT (HINT)`, the place below the queue."""
    root = f"{world.root}/"
    return [
        f"{step.name.removeprefix(root)}: {step.summary}" + (f" ({step.hint})" if step.hint else "")
        for step in lint(world.place.queue)
        if step.state is state
    ]


def test_the_shared_queue_has_no_errors(world: World) -> None:
    assert findings(world) == []
    assert {line.partition(": ")[2] for line in findings(world, State.WARNING)} == {
        "a device patch without Tests (name the CPU tests that prove its effect)",
        "a research patch without Tests (name the CPU tests that prove its effect)",
    }


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (target(more="exclude: [alpha/device/rename]\n"),
         "targets/tiny.yaml:4: 'alpha/device/rename' matches no patch (did you mean 'alpha/device/rename-it.patch'?)"),
        (target(more="include: [beta/device/double]\n"), "targets/tiny.yaml:4: 'beta/device/double' matches no patch"),
        (target(more="include: [alpha/device/all-kinds]\n"),
         "targets/tiny.yaml:4: include 'alpha/device/all-kinds' goes against alpha/device/all-kinds.patch's guard -t"),
        ({"variants/study.yaml": "description: x\nresearch: [alpha/device/rename-it]\n"},
         "variants/study.yaml:2: 'alpha/device/rename-it' matches no research patch"),
        ({"alpha/device/rename-it.patch": header("x", Requires="alpha/device/nothing.patch")},
         "alpha/device/rename-it.patch:6: requires 'alpha/device/nothing.patch', which is not in the queue"),
        ({"alpha/device/rename-it.patch": header("x", Tests="tests/test_nam.py")},
         "alpha/device/rename-it.patch:6: names the test 'tests/test_nam.py', which is not there"),
        ({"alpha/series": "device/rename-it.patch\ndevice/small-only.patch #+smal\ndevice/all-kinds.patch\n"
          "device/not-a-program.patch\nresearch/later.patch\nresearch/deeper.patch\n"},
         "alpha/series:2: no target has the trait of the guard #+smal (did you mean 'small'?)"),
        ({"alpha/device/rename-it.patch": "x\n+++ b\n@@ -1 +1 @@\n"}, "alpha/device/rename-it.patch:"),
        ({"alpha/device/rename-it.patch": None}, "alpha/series:2: device/rename-it.patch is listed but not there"),
    ],
)  # fmt: skip
def test_each_error_is_named_with_the_nearest_right_thing(own: World, files: dict[str, str], expected: str) -> None:
    own.write(files)
    assert any(line.startswith(expected) for line in findings(own)), findings(own)
    assert check(own.place).exit_code == 2


def test_a_trait_that_no_guard_names_is_a_warning(own: World) -> None:
    own.write(target(traits="small, tiny, shiny"))
    assert "targets/tiny.yaml:2: no guard names the trait 'shiny'" in findings(own, State.WARNING)


def test_a_device_patch_after_research_is_a_warning(own: World) -> None:
    text = (own.root / "alpha/series").read_text()
    own.write({"alpha/series": text.replace("device/rename-it.patch\n", "") + "device/rename-it.patch\n"})
    assert any(
        "stands after research/deeper.patch (put research patches last)" in line
        for line in findings(own, State.WARNING)
    )


def test_headers_are_linted_and_a_patch_without_a_diff_is_said(own: World) -> None:
    own.write({"alpha/device/rename-it.patch": "Desription: x\nLast-Update: soon\n\n"})
    found = findings(own, State.WARNING)
    for expected in (
        "alpha/device/rename-it.patch:1: has no diff: it changes nothing (was it cut off?)",
        "alpha/device/rename-it.patch:1: the header has neither Origin nor Author",
    ):
        assert any(line.startswith(expected) for line in found), (expected, found)


def test_what_a_chosen_patch_requires_has_to_come_before_it(own: World) -> None:
    name = "alpha/device/rename-it.patch"
    text = (own.root / name).read_bytes()
    own.write({name: text.replace(b"Origin:", b"Requires: alpha/device/small-only.patch\nOrigin:")})
    late = list(unsatisfied(select(own.place.queue, "small", None, "alpha")))
    assert [problem.what for problem in late] == [f"{name} requires alpha/device/small-only.patch, which comes later"]
    missing = list(unsatisfied(select(own.place.queue, "plain", None, "alpha")))
    assert [problem.what for problem in missing] == [
        f"{name} requires alpha/device/small-only.patch, which is not selected"
    ]
    report = check(own.place, ["plain"])
    assert report.exit_code == 1
    assert any("which is not selected" in step.name + step.summary for step in report.steps)


def test_conditions_are_checked_on_the_final_tree(own: World) -> None:
    name = "alpha/device/rename-it.patch"
    text = (own.root / name).read_bytes()
    rows = (
        b"Expect: alpha/core.py 3 /a = 2$/\nForbid: alpha/core.py /return b/\nForbid: alpha/none.py /x/\n"
        b"Expect: alpha/none.py /x/\nExpect: alpha/core.py 0 /no such thing/\nForbid: alpha/core.py 7 /return b/\n"
    )
    own.write({name: text.replace(b"Origin:", rows + b"Origin:")})
    failed = {step.name for step in check(own.place, ["plain"]).steps if step.state is State.FAILED}
    assert failed == {
        f"{name} expects /a = 2$/ 3 times, found 1",
        f"{name} forbids /return b/, found 8 times",
        f"{name} expects /x/ at least once, found 0",
    }
