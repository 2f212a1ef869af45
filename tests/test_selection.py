"""Who is in, and by which rule: guards as Mercurial's, variants, include and exclude."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import World, header

from patchq.commands.series import series
from patchq.queue.load import Queue, QueuedPatch, parse_queue
from patchq.queue.selection import against_guards, matches, select, selections
from patchq.series import SeriesEntry

BASELINE = f'upstream: up\nversion: "1"\npackages: [p]\ngit: {{commit: "{"1" * 40}", source: x}}\n'


def queue_of(world: World, lines: Iterable[str], target: str = "", variants: Iterable[tuple[str, str]] = ()) -> Queue:
    """A queue of one upstream `up` and one target `t` with the traits `ppu` and `x`."""
    names = [line.split()[0] for line in lines]
    files = {
        "queue.yaml": "schema: 1\nname: q\n",
        "up/baseline.yaml": BASELINE,
        "up/series": "".join(f"{line}\n" for line in lines),
        "targets/t.yaml": "description: t\ntraits: [ppu, x]\nwork: w\n"
        "upstreams: {up: {baseline: git, environments: [e]}}\n"
        f"environments: {{e: {{python: p}}}}\n{target}",
        **{f"variants/{name}.yaml": f"description: v\nresearch: {globs}\n" for name, globs in variants},
        **{f"up/{name}": header(name).decode() for name in names},
    }  # fmt: skip
    return parse_queue(world.folder, {path: text.encode() for path, text in sorted(files.items())})


def chosen(queue: Queue, variant: str | None = None) -> dict[str, tuple[bool, str]]:
    """Name → (in, reason) for the target `t`."""
    choices = select(queue, "t", variant, "up").choices
    return {choice.queued.entry.name.partition("/")[2]: (choice.chosen, choice.reason) for choice in choices}


@pytest.mark.parametrize(
    ("guards", "is_in", "reason"),
    [
        ("", True, "no guard keeps it out"),
        ("#+ppu", True, "guard +ppu"),
        ("#+a100", False, "guard +a100: the target is not"),
        ("#-ppu", False, "guard -ppu: the target is ppu"),
        ("#-a100", True, "no guard keeps it out"),
        ("#+a100 #+ppu", True, "guard +ppu"),
        ("#+a100 #+p40", False, "guard +a100 +p40: the target is not"),
        ("#+ppu #-x", False, "guard -x: the target is x"),
        ("#+ppu #-a100", True, "guard +ppu"),
    ],
)
def test_guards(world: World, guards: str, is_in: bool, reason: str) -> None:
    assert chosen(queue_of(world, [f"device/a {guards}"])) == {"a": (is_in, reason)}
    assert chosen(queue_of(world, [f"backport/a {guards}"])) == {"a": (is_in, reason)}


def test_research_is_in_when_the_variant_names_it_and_its_guards_agree(world: World) -> None:
    lines = ["research/a.patch", "research/b.patch #+a100", "research/c.patch #+ppu", "device/d.patch"]
    queue = queue_of(world, lines, variants=[("one", "[up/research/a]"), ("all", "[up/research/*]")])
    assert chosen(queue) == {
        "a.patch": (False, "research, and no variant was asked for"),
        "b.patch": (False, "guard +a100: the target is not"),
        "c.patch": (False, "research, and no variant was asked for"),
        "d.patch": (True, "no guard keeps it out"),
    }
    assert chosen(queue, "one")["a.patch"] == (True, "variant one names it")
    assert chosen(queue, "one")["c.patch"] == (False, "variant one does not name it")
    assert [name for name, (is_in, _) in chosen(queue, "all").items() if is_in] == ["a.patch", "c.patch", "d.patch"]


def test_exclude_wins_over_all_and_include_adds_back(world: World) -> None:
    lines = ["device/a", "device/b #+a100", "research/c", "research/d #+a100"]
    both = queue_of(world, lines, "include: [up/device/*, up/research/c]\nexclude: [up/device/a, up/*/c]\n")
    assert chosen(both)["a"] == (False, "excluded by 'up/device/a'")
    assert chosen(both)["c"] == (False, "excluded by 'up/*/c'")
    plain = queue_of(world, lines, "include: [up/device/b, up/research/*]\n")
    assert chosen(plain)["b"] == (False, "guard +a100: the target is not"), "never against a guard"
    assert chosen(plain)["c"] == (True, "included by 'up/research/*'")
    assert chosen(plain)["d"][0] is False
    forced = queue_of(world, lines, "include: [{match: up/*/b, force: true, reason: measured}]\n")
    assert chosen(forced)["b"] == (True, "included by 'up/*/b' against its guard: measured")


def test_globs_may_leave_the_ending_out_and_know_case() -> None:
    assert matches("up/device/a", "up/device/a.patch") and matches("up/*/a.patch", "up/device/a.patch")
    assert not matches("UP/device/a", "up/device/a.patch") and not matches("device/a", "up/device/a.patch")


def test_selections_are_every_target_variant_and_upstream(world: World) -> None:
    keys = [selection.key for selection in selections(world.place.queue)]
    assert "small/alpha" in keys and "small+deep/beta" in keys and "tiny/beta" not in keys
    assert len(keys) == len(set(keys)) == 3 * 6
    only = selections(world.place.queue, ["tiny"], ["study"])
    assert [(selection.key, selection.scope) for selection in only] == [("tiny+study/alpha", "tiny+study")]


def test_series_lists_the_chosen_and_with_why_all(world: World) -> None:
    plain = series(world.place, "plain")
    assert [step.name for step in plain.steps] == [
        f"alpha/device/{name}.patch" for name in ("rename-it", "all-kinds", "not-a-program")
    ]
    why = series(world.place, "plain", "study", why=True)
    reasons = {step.name: step.summary for step in why.steps}
    assert reasons["alpha/device/small-only.patch"] == "guard +small: the target is not"
    assert reasons["alpha/research/later.patch"] == "variant study names it"
    assert why.data["selection"] == {"alpha": [*plain.data["selection"]["alpha"], "alpha/research/later.patch"]}


_TRAITS = st.sampled_from(["a", "b", "c"])


@given(st.lists(st.tuples(st.sampled_from("+-"), _TRAITS), max_size=4), st.sets(_TRAITS))
def test_guards_mean_what_mercurials_mean(guards: list[tuple[str, str]], traits: set[str]) -> None:
    """No negative guard of the target, and if there are positive ones, at least one of them."""
    entry = SeriesEntry("device/a", guards=tuple("".join(guard) for guard in guards))
    negative = {trait for sign, trait in guards if sign == "-"}
    positive = {trait for sign, trait in guards if sign == "+"}
    expected = not negative & traits and (not positive or bool(positive & traits))
    assert (against_guards(QueuedPatch("up", entry, None), traits) is None) == expected
