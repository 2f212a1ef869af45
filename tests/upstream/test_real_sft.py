"""A real two-step SFT on two gloo ranks, climbed as a rung: with our patch the ranks get the allocator settings that
driver 470 needs, without it they do not, and the same rung fails."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from training import AUDIO, MODEL, RANKS_SPEAK

from patchq.commands.apply import apply
from patchq.commands.lock import lock
from patchq.commands.place import Place
from patchq.commands.smoke import smoke
from patchq.evidence.record import read_record
from patchq.report import State, worst

pytestmark = pytest.mark.upstream

SERIES = Path(__file__).parents[2] / "series"
SAFE = "backend:native,expandable_segments:False,max_split_size_mb:512"
CONFIG = """\
model_name_or_path: {room}/model
stage: sft
do_train: true
finetuning_type: full
dataset_dir: {room}/data
dataset: tiny
template: qwen3_nothink
cutoff_len: 128
preprocessing_num_workers: 1
output_dir: {room}/out
overwrite_output_dir: true
per_device_train_batch_size: 2
gradient_accumulation_steps: 1
max_steps: 2
learning_rate: 1.0e-3
logging_steps: 1
save_strategy: "no"
report_to: none
use_cpu: true
ddp_backend: gloo
"""
TARGET = """\
description: Two gloo ranks on CPUs
traits: [driver-470]
work: {work}
{exclude}
upstreams:
  llamafactory: {{baseline: sdist, environments: [sft], imports: []}}
environments:
  sft:
    python: {python}
    profile: {room}/profile.sh
    ladder:
      required: [step]
      step:
        commands:
          - name: two-steps
            run: [python, -m, llamafactory.cli, train, {room}/sft.yaml]
            set: {{FORCE_TORCHRUN: "1", NPROC_PER_NODE: "2", HF_HUB_OFFLINE: "1", OMP_NUM_THREADS: "1"}}
            must:
              - "^rank=0/2 PYTORCH_CUDA_ALLOC_CONF={safe} PYTORCH_ALLOC_CONF={safe}$"
              - "^rank=1/2 PYTORCH_CUDA_ALLOC_CONF={safe} PYTORCH_ALLOC_CONF={safe}$"
              - "train_loss"
            must_not: ["expandable_segments:True", "Traceback"]
            seconds: 1200
"""


@pytest.fixture(scope="module")
def room(training: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model, its data, a configuration, and a vendor profile that adds to the import path."""
    room = tmp_path_factory.mktemp("sft")
    for path, text in {"torchaudio.py": AUDIO, "sitecustomize.py": RANKS_SPEAK}.items():
        (room / "stubs").mkdir(exist_ok=True)
        (room / "stubs" / path).write_text(text)
    (room / "profile.sh").write_text(f"export PYTHONPATH={room}/stubs\n")
    (room / "sft.yaml").write_text(CONFIG.format(room=room))
    (room / "data").mkdir()
    rows = [
        {"instruction": f"What is {n} plus 1?", "input": "", "output": f"The answer is {n + 1}."} for n in range(16)
    ]
    (room / "data/tiny.json").write_text(json.dumps(rows))
    (room / "data/dataset_info.json").write_text(json.dumps({"tiny": {"file_name": "tiny.json"}}))
    subprocess.run([training, "-c", MODEL, room / "model"], check=True, capture_output=True)
    (room / "python").write_text(str(training))
    return room


def queue(room: Path, name: str, exclude: str) -> Place:
    """The shipped llamafactory patches on one target of our own, locked and applied."""
    series = room / name / "series"
    shutil.copytree(SERIES / "llamafactory", series / "llamafactory", ignore=shutil.ignore_patterns("__pycache__"))
    (series / "queue.yaml").write_text("schema: 1\nname: sft\n")
    (series / "targets").mkdir()
    (series / "targets/two-ranks.yaml").write_text(
        TARGET.format(
            work=room / name / "work",
            exclude=exclude,
            python=(room / "python").read_text(),
            room=room,
            safe=SAFE.replace(".", r"\."),
        )
    )
    place = Place(series)
    lock(place)
    place = Place(series)
    assert worst(step.code for step in apply(place, "two-ranks").steps) in (0, 4)
    return place


def test_patched_ranks_get_what_the_target_demands(room: Path) -> None:
    report = smoke(queue(room, "patched", ""), "two-ranks", first="step", last="step")
    trained = next(step for step in report.steps if step.name == "two-steps")
    assert trained.state is State.PASSED, trained.as_json()
    record = Path(report.data["record"])
    assert read_record(record).exit == 0
    assert "train_loss" in (record / "logs/step-two-steps.txt").read_text()


def test_unpatched_the_same_rung_fails(room: Path) -> None:
    place = queue(room, "plain", "exclude: [llamafactory/device/allocator-for-driver-470.patch]")
    report = smoke(place, "two-ranks", first="step", last="step")
    trained = next(step for step in report.steps if step.name == "two-steps")
    assert trained.state is State.FAILED and report.exit_code == 1
    assert trained.data["exit"] == 0, trained.detail
    assert "rank=0/2" in trained.summary
    assert any("its output has /expandable_segments:True/" in row for row in trained.data["broken"])
