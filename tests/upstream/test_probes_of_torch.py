"""The probes of torch and of what training reads and leaves, on the real packages: good, and each with its fault."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from probekit import only, subject

from patchq.report import State

pytestmark = pytest.mark.upstream

# A build whose one kernel is wrong in bfloat16 only, the reference is not.
WRONG_KERNEL = """\
import torch
right = torch.nn.functional.gelu
torch.nn.functional.gelu = lambda x: right(x) * (torch.ones_like(x) {spoil}) if x.dtype == torch.bfloat16 else right(x)
"""


def test_bf16_is_right_against_float64(torch_python: Path, tmp_path: Path) -> None:
    step = only(subject(torch_python, tmp_path), "bf16", device="cpu", size=128)
    assert step.state is State.PASSED, step
    assert step.summary.startswith("torch.bfloat16 on cpu: loss off by") and step.summary.endswith("against float64")


@pytest.mark.parametrize(
    ("spoil", "said"), [("* 1.1", "0.02 is allowed"), ("/ 0", "not every number is finite")], ids=["off", "infinite"]
)
def test_a_kernel_that_is_wrong_in_bf16(torch_python: Path, tmp_path: Path, spoil: str, said: str) -> None:
    spoilt = subject(torch_python, tmp_path, {"sitecustomize.py": WRONG_KERNEL.format(spoil=spoil)})
    step = only(spoilt, "bf16", device="cpu", size=128)
    assert step.state is State.FAILED and said in step.summary, step


@pytest.mark.parametrize(("probe", "why"), [("bf16", "no device"), ("memory", "no device"), ("allocator", "no device")])
def test_without_a_device_it_is_not_run(torch_python: Path, tmp_path: Path, probe: str, why: str) -> None:
    step = only(subject(torch_python, tmp_path, CUDA_VISIBLE_DEVICES=""), probe)
    assert step.state is State.NOT_RUN and why in step.summary, step


SECOND_RANK = "import os, sys\nif os.environ.get('RANK') == '1':\n    {does}\n"
RANK_FAULTS = {
    "another torch": ("sys.modules['torch'] = None", "gloo", "rank 1: "),
    "adds another number": (
        "import torch.distributed as d; real = d.all_reduce; d.all_reduce = lambda x, **more: real(x.mul_(5), **more)",
        "gloo",
        "",
    ),
    "no such backend": ("pass", "nccl", "Distributed package doesn't have NCCL built in"),
}


@pytest.mark.parametrize("fault", RANK_FAULTS)
def test_a_sum_that_is_wrong_or_missing_fails(torch_python: Path, tmp_path: Path, fault: str) -> None:
    """Ranks that are killed or hang are in test_ranks.py."""
    does, backend, said = RANK_FAULTS[fault]
    spoilt = subject(torch_python, tmp_path, {"sitecustomize.py": SECOND_RANK.format(does=does)},
                     CUDA_VISIBLE_DEVICES="")  # fmt: skip
    step = only(spoilt, "all_reduce", ranks=2, backend=backend)
    assert step.state is State.FAILED, step
    assert said in " ".join((step.summary, *step.detail)), step


DATA = """\
import json, sys
import pyarrow
import pyarrow.parquet

pyarrow.parquet.write_table(pyarrow.Table.from_pylist(json.load(sys.stdin)), sys.argv[1])
"""


def row(number: int) -> dict[str, object]:
    """A row as verl's data preparation writes it."""
    prompt = [{"role": "user", "content": f"{number} + 1 = ?"}]
    return {"data_source": "sums", "prompt": prompt, "reward_model": {"style": "rule", "ground_truth": str(number)}}


DATA_FAULTS = {
    "no column": ([{"data_source": "sums", "prompt": "p"}], {}, "has no column reward_model"),
    "empty prompt": (
        [row(0), {**row(1), "prompt": [{"role": "user", "content": " "}]}],
        {},
        "1 rows have no prompt (rows 1)",
    ),
    "empty reward": (
        [row(0), row(1), {**row(2), "reward_model": {"style": "rule", "ground_truth": ""}}],
        {},
        "1 rows have no reward_model.ground_truth (rows 2)",
    ),
    "too few rows": ([row(0)], {"rows": 2}, "has 1 rows, 2 are due"),
    "cut off": ([row(0)], {}, "cannot be read"),
    "not there": ([], {}, "is not there"),
}


def parquet(python: Path, path: Path, rows: list[dict[str, object]]) -> Path:
    subprocess.run([python, "-c", DATA, path], input=json.dumps(rows), text=True, check=True)
    return path


def test_whole_data(torch_python: Path, tmp_path: Path) -> None:
    path = parquet(torch_python, tmp_path / "x.parquet", [row(number) for number in range(5000)])
    step = only(subject(torch_python, tmp_path), "data", files=[str(path)], rows=5000)
    assert (step.state, step.summary) == (State.PASSED, f"{path}: 5000 rows, 3 columns"), step


@pytest.mark.parametrize("fault", DATA_FAULTS)
def test_each_fault_of_data_is_named(torch_python: Path, tmp_path: Path, fault: str) -> None:
    rows, settings, said = DATA_FAULTS[fault]
    path = tmp_path / "x.parquet"
    if rows:
        parquet(torch_python, path, rows)
    if fault == "cut off":
        path.write_bytes(path.read_bytes()[:-20])
    step = only(subject(torch_python, tmp_path), "data", files=[str(path)], **settings)
    assert step.state is State.FAILED and step.summary.startswith(f"{path} {said}"), step


CHECKPOINT = """\
import sys
from pathlib import Path
import torch

folder = Path(sys.argv[1]) / "global_step_3/actor"
folder.mkdir(parents=True)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(64)).sum().backward()
optimizer.step()
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
state = {"model": model.state_dict(), "optim": optimizer.state_dict(),
         "extra_state": {"lr_scheduler": scheduler.state_dict(), "rng": torch.get_rng_state()}}
for rank in range(2):
    for kind, value in state.items():
        torch.save(value, folder / f"{kind}_world_size_2_rank_{rank}.pt")
(folder.parents[1] / "latest_checkpointed_iteration.txt").write_text("3")
"""


@pytest.fixture(scope="module")
def saved(torch_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What torch itself writes, in the layout of verl's FSDP engine."""
    folder = tmp_path_factory.mktemp("checkpoint")
    subprocess.run([torch_python, "-c", CHECKPOINT, folder], check=True)
    return folder


def _cut(place: Path) -> None:
    shard = place / "actor/optim_world_size_2_rank_1.pt"
    shard.write_bytes(shard.read_bytes()[:-100])


def _lose(place: Path) -> None:
    (place / "actor/model_world_size_2_rank_0.pt").unlink()


def _lag(place: Path) -> None:
    (place.parent / "latest_checkpointed_iteration.txt").write_text("2")


def _shrink(place: Path) -> None:
    small = place / "actor/extra_state_world_size_2_rank_0.pt"
    shutil.copyfile(small, place / "actor/model_world_size_2_rank_1.pt")
    (place / "actor/model_world_size_2_rank_1.pt").write_bytes(b"PK")


def _forget(place: Path) -> None:
    for shard in place.glob("actor/optim_*"):
        shard.unlink()


CHECKPOINT_FAULTS = {
    "cut off": (_cut, "optim_world_size_2_rank_1.pt is cut off"),
    "a rank's shard is gone": (_lose, "no model shard of rank 0 of 2"),
    "resuming takes another": (_lag, "names step 2: resuming takes that one"),
    "nearly empty": (_shrink, "model_world_size_2_rank_1.pt has 2 bytes"),
    "no optimizer state": (_forget, "no optim shard of rank 0, 1 of 2"),
}


def test_a_whole_checkpoint(torch_python: Path, saved: Path, tmp_path: Path) -> None:
    folder = str(saved / "global_step_3")
    step = only(subject(torch_python, tmp_path), "checkpoint", folder=folder, ranks=2, step=3)
    assert step.state is State.PASSED and step.summary.startswith(f"{folder}: step 3, 6 files"), step


@pytest.mark.parametrize("fault", CHECKPOINT_FAULTS)
def test_each_fault_of_a_checkpoint_is_named(torch_python: Path, saved: Path, tmp_path: Path, fault: str) -> None:
    spoil, said = CHECKPOINT_FAULTS[fault]
    place = shutil.copytree(saved, tmp_path / "saved") / "global_step_3"
    spoil(place)
    step = only(subject(torch_python, tmp_path), "checkpoint", folder=str(place), ranks=2, step=3)
    assert step.state is State.FAILED and any(said in row for row in (step.summary, *step.detail)), step
