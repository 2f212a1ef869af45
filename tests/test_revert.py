"""`revert` and `prune`: back to the apply before, and rid of what nothing refers to."""

from __future__ import annotations

from pathlib import Path

import pytest
from world import World, patchq, states, step_of

from patchq.commands.apply import apply
from patchq.commands.prune import prune
from patchq.commands.revert import revert
from patchq.errors import Refused
from patchq.evidence.record import list_records
from patchq.lock import load_lock
from patchq.report import State


def current(world: World, upstream: str = "alpha") -> str | None:
    link = world.work / upstream / "current"
    return str(link.readlink()) if link.is_symlink() else None


def applied(world: World, variant: str | None = None, target: str = "blind") -> str:
    """Apply a target; the commit of its copy of alpha."""
    assert apply(world.place, target, variant).exit_code == 4
    commit = current(world)
    assert commit == load_lock(world.place.queue).of(target, variant)["alpha"].commit
    return commit


def test_reverts_go_back_apply_by_apply_and_end_in_words(own: World) -> None:
    first, second, third = applied(own), applied(own, "study"), applied(own, "deep")
    assert len({first, second, third}) == 3
    report = revert(own.place, "blind")
    assert report.exit_code == 0 and step_of(report, "current").summary == f"is {second[:12]} again"
    assert current(own) == second
    revert(own.place, "blind")
    assert current(own) == first
    assert "names nothing any more" in step_of(revert(own.place, "blind"), "current").summary
    assert current(own) is None
    with pytest.raises(Refused, match="nothing was applied for blind on this host"):
        revert(own.place, "blind")
    assert all((own.work / "alpha" / commit).is_dir() for commit in (first, second, third))
    assert [record.verb for record in list_records(own.work / "records")] == ["apply"] * 3 + ["revert"] * 3
    assert applied(own) == first


def test_after_a_revert_the_one_before_is_in_force(own: World, capsys: pytest.CaptureFixture[str]) -> None:
    applied(own)
    applied(own, "deep")
    revert(own.place, "blind")
    assert patchq("env", "--target", "blind", "--queue", own.root) == 0
    assert current(own) in capsys.readouterr().out
    assert patchq("env", "--target", "blind", "--variant", "deep", "--queue", own.root) == 1


@pytest.mark.fault
def test_a_copy_that_both_applies_share_stays(own: World) -> None:
    """Two upstreams, of which the second apply changes only one."""
    text = (own.root / "targets/blind.yaml").read_text()
    beta_use = "beta: {baseline: sdist, environments: [train], imports: []}"
    own.write({"targets/blind.yaml": text.replace("upstreams: {", f"upstreams: {{{beta_use}, ")}).locked()
    first = applied(own)
    beta = current(own, "beta")
    applied(own, "deep")
    report = revert(own.place, "blind")
    assert (current(own), current(own, "beta")) == (first, beta)
    assert step_of(report, "current", "beta").state is State.UNCHANGED


@pytest.mark.fault
def test_a_copy_that_was_pruned_is_not_gone_back_to(own: World) -> None:
    for variant in (None, "study", "deep"):
        applied(own, variant)
    newest = current(own)
    prune(own.place, "blind", keep=1)
    with pytest.raises(Refused, match="is not there any more"):
        revert(own.place, "blind")
    assert current(own) == newest


@pytest.mark.fault
def test_prune_keeps_the_current_and_the_newest(own: World) -> None:
    first, second, third = applied(own), applied(own, "study"), applied(own, "deep")
    (own.work / "alpha/failed/old").mkdir(parents=True)
    dry = prune(own.place, "blind", dry_run=True)
    assert {Path(step.name).name: step.summary for step in dry.steps} == {
        first: "work copy of alpha: would go", "old": "failed copy of alpha: would go",
    }  # fmt: skip
    assert (own.work / "alpha" / first).is_dir()
    prune(own.place, "blind")
    assert not (own.work / "alpha" / first).exists() and not list((own.work / "alpha/failed").iterdir())
    assert all((own.work / "alpha" / commit).is_dir() for commit in (second, third))
    assert prune(own.place, "blind").steps == ()
    revert(own.place, "blind")
    prune(own.place, "blind", keep=1)
    assert current(own) == second and (own.work / "alpha" / second).is_dir(), "the current one stays, however old"


@pytest.mark.fault
def test_prune_removes_queues_of_no_copy_and_keeps_records(own: World) -> None:
    applied(own)
    old = load_lock(own.place.queue).digest
    own.write({"alpha/series": (own.root / "alpha/series").read_text().replace("device/rename-it.patch\n", "")})
    (own.root / "alpha/device/rename-it.patch").unlink()
    own.locked()
    applied(own)
    assert (own.work / "queue" / old).is_dir()
    report = prune(own.place, "blind", keep=1)
    assert states(report)[str(own.work / "queue" / old)] == "note" and not (own.work / "queue" / old).exists()
    assert len(list_records(own.work / "records")) == 2


@pytest.mark.fault
def test_what_a_killed_prune_left_is_never_taken_for_a_copy(own: World) -> None:
    first = applied(own)
    applied(own, "deep")
    (own.work / "alpha" / first).rename(own.work / f"alpha/.new-pruned-{first}")
    assert applied(own) == first
    assert (own.work / "alpha" / first / "alpha/core.py").is_file()
    assert not list((own.work / "alpha").glob(".new-*"))
