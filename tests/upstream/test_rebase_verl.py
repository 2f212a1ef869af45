"""The shipped verl series against real releases: the plan, and one real conflict solved.

Needs a clone: `VERL_SOURCE` (and `VERL_RECIPE_SOURCE` for the submodule).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from patchq.commands import rebase as verbs
from patchq.commands.check import check
from patchq.commands.place import Place
from patchq.commands.rebase_plan import plan

pytestmark = [
    pytest.mark.upstream,
    pytest.mark.skipif(not Path(os.environ.get("VERL_SOURCE", "?")).is_dir(), reason="VERL_SOURCE names no clone"),
]
SHIPPED = Path(__file__).resolve().parents[2] / "series"
CLEAN = ("unchanged", "shifted", "merged")
CALLS = "device-calls-through-abstraction"
# Per file: what is known about how it moves; a tuple where several fates mean that it goes on. Plain `git apply` says
# the same of each but for two that it refuses and a 3-way merge takes: `utils/model.py` and `nccl_checkpoint_engine.py`
# on v0.8.0, where a line near the change is another.
KNOWN = {
    ("attn-implementation-from-env", "verl/trainer/constants_ppo.py"): ("conflict", "conflict", "conflict"),
    ("attn-implementation-from-env", "verl/utils/model.py"): ("merged", CLEAN, CLEAN),
    ("attn-implementation-from-env", "verl/workers/config/model.py"): (CLEAN, "conflict", "conflict"),
    ("vllm-disable-custom-all-reduce", "verl/workers/rollout/vllm_rollout/vllm_async_server.py"): ("shifted",) * 3,
    ("p40-float32-eager", "verl/workers/engine/fsdp/transformer_impl.py"): (CLEAN, "conflict", "conflict"),
    ("p40-float32-eager", "verl/model_merger/fsdp_model_merger.py"): (CLEAN,) * 3,
    ("p40-float32-eager", "verl/workers/rollout/hf_rollout.py"): (CLEAN,) * 3,
    (CALLS, "verl/checkpoint_engine/nccl_checkpoint_engine.py"): ("merged", CLEAN, "conflict"),
    (CALLS, "verl/utils/kernel/linear_cross_entropy.py"): (CLEAN,) * 3,
    (CALLS, "verl/workers/rollout/replica.py"): (CLEAN, "upstreamed", "upstreamed"),
}


def queue_of(folder: Path, verl_series: str | None = None) -> Place:
    """The shipped queue with just verl, and of its series only some patches."""
    root = folder / "series"
    shutil.copytree(SHIPPED, root)
    (root / "patchq.lock").unlink()
    for name in ("llamafactory", "deepspeed"):
        shutil.rmtree(root / name)
    for path in (root / "targets").glob("*.yaml"):
        rows = path.read_text().splitlines(keepends=True)
        path.write_text("".join(row for row in rows if not row.startswith(("  llamafactory: {", "  deepspeed: {"))))
    (root / "targets/cpu.yaml").unlink()
    if verl_series is not None:
        kept = set(verl_series.split())
        (root / "verl/series").write_text("".join(f"{name}\n" for name in verl_series.split()))
        for path in (root / "verl").glob("*/*.patch"):
            if f"{path.parent.name}/{path.name}" not in kept:
                path.unlink()
        shutil.rmtree(root / "variants")
    return Place(root)


def test_the_plan_over_three_releases(tmp_path: Path) -> None:
    names = ["v0.8.0", "v0.9.0", "main"]
    report = plan(queue_of(tmp_path), "verl", names)
    for (patch, path), fates in KNOWN.items():
        cells = report.data["matrix"][f"verl/device/{patch}.patch"]
        for name, wanted in zip(names, fates, strict=True):
            fate = cells[name]["files"][path]
            assert fate in wanted if isinstance(wanted, tuple) else fate == wanted, (patch, path, name)
    cell = report.data["matrix"]["verl/device/device-calls-through-abstraction.patch"]["v0.8.0"]
    assert any("imports verl.plugin.platform, which is not there" in finding for finding in cell["findings"])


def test_a_real_conflict_is_solved_and_continued_to_a_green_check(tmp_path: Path) -> None:
    place = queue_of(tmp_path, "device/attn-implementation-from-env.patch device/keep-expandable-segments-off.patch")
    report = verbs.rebase(place, "verl", "v0.9.0")
    assert report.exit_code == 3
    copy = Path(report.data["copy"])
    keep_both(copy / "verl/trainer/constants_ppo.py")
    take_ours(copy / "verl/workers/config/model.py", '"flash_attention_2")', "get_default_attn_implementation())")
    done = verbs.go_on(Place(place.root), "verl")
    assert done.exit_code == 0, done
    assert check(Place(place.root)).exit_code == 0


def keep_both(path: Path) -> None:
    """Resolve conflicts by keeping both sides."""
    rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join(row for row in rows if not row.startswith(("<<<<<<<", "=======", ">>>>>>>"))))


def take_ours(path: Path, old: str, new: str) -> None:
    """Resolve conflicts by upstream's side, with the patch's change made there."""
    text = path.read_text()
    before, _, rest = text.partition("<<<<<<< v0.9.0\n")
    ours, _, rest = rest.partition("=======\n")
    after = rest.partition(">>>>>>> ")[2].partition("\n")[2]
    assert old in ours and "<<<<<<<" not in after
    path.write_text(before + ours.replace(old, new) + after)
