"""DeepSpeed as installed, patched in place: a real CPUAdam step without `bias_correction`, before, after, and back."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import os
import shutil
import subprocess
import venv
from pathlib import Path

import pytest

from patchq.commands.apply import apply
from patchq.commands.lock import lock
from patchq.commands.place import Place
from patchq.commands.revert import revert
from patchq.report import worst

pytestmark = pytest.mark.upstream

SERIES = Path(__file__).parents[2] / "series"
TARGET = """\
description: DeepSpeed on CPUs
work: {work}
upstreams:
  deepspeed: {{baseline: installed, sink: installed, environments: [sft]}}
environments:
  sft: {{python: {python}, profile: {profile}, set: {{DS_ACCELERATOR: cpu}}}}
"""
STEP = """\
import json, torch
from deepspeed.ops.adam import DeepSpeedCPUAdam

torch.manual_seed(0)
mine = torch.nn.Parameter(torch.randn(1000))
theirs = mine.detach().clone().requires_grad_(True)
ours, torchs = DeepSpeedCPUAdam([mine], lr=1e-2), torch.optim.AdamW([theirs], lr=1e-2, weight_decay=0)
del ours.param_groups[0]["bias_correction"]
answer = {}
try:
    for _ in range(3):
        grad = torch.randn(1000)
        mine.grad, theirs.grad = grad.clone(), grad.clone()
        ours.step()
        torchs.step()
    answer["differs"] = float((mine - theirs).detach().abs().max())
except KeyError as error:
    answer["missing"] = error.args[0]
print(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def python(training: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own: the packages of the training environment, and DeepSpeed as a copy to be patched."""
    found = subprocess.check_output(
        [training, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    )
    packages = Path(found.strip())
    if not list(packages.glob("deepspeed-0.18.4.dist-info")):
        pytest.skip("the training environment has no DeepSpeed 0.18.4")
    folder = tmp_path_factory.mktemp("deepspeed") / "env"
    venv.create(folder, symlinks=True)
    own = next(folder.glob("lib/python3*/site-packages"))
    for part in ("deepspeed", "deepspeed-0.18.4.dist-info"):
        shutil.copytree(packages / part, own / part, ignore=shutil.ignore_patterns("__pycache__"))
    for path in packages.iterdir():
        if not path.name.startswith(("deepspeed", "__pycache__")) and not (own / path.name).exists():
            (own / path.name).symlink_to(path)
    return folder / "bin/python"


@pytest.fixture(scope="module")
def profile(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a vendor's profile would do: put ninja on PATH, and the extensions that are built into one place."""
    where = subprocess.check_output(
        [python, "-c", "import torch, os; print(os.path.dirname(torch.__file__))"], text=True
    )
    tools = Path(where.strip()).parents[3] / "bin"
    built = os.environ.get("TORCH_EXTENSIONS_DIR") or tmp_path_factory.getbasetemp() / "extensions"
    path = python.parents[2] / "profile.sh"
    path.write_text(f'export PATH={tools}:"$PATH" TORCH_EXTENSIONS_DIR={built} MAX_JOBS=2 DS_ACCELERATOR=cpu\n')
    return path


def step(python: Path, profile: Path) -> dict[str, object]:
    script = f'. {profile}; exec {python} -c "$1"'
    done = subprocess.run(
        ["bash", "-c", script, "step", STEP], capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer


def record_faults(python: Path) -> list[str]:
    """Files of DeepSpeed that are not what its RECORD says."""
    site = next(python.parents[1].glob("lib/python3*/site-packages"))
    faults = []
    with (site / "deepspeed-0.18.4.dist-info/RECORD").open() as stream:
        for name, digest, _ in csv.reader(stream):
            if digest and (site / name).exists():
                now = base64.urlsafe_b64encode(hashlib.sha256((site / name).read_bytes()).digest()).rstrip(b"=")
                if f"sha256={now.decode()}" != digest:
                    faults.append(name)
    return faults


def test_a_step_without_bias_correction(python: Path, profile: Path, tmp_path: Path) -> None:
    assert step(python, profile) == {"missing": "bias_correction"}
    assert record_faults(python) == []
    series = tmp_path / "series"
    shutil.copytree(SERIES / "deepspeed", series / "deepspeed", ignore=shutil.ignore_patterns("__pycache__"))
    (series / "queue.yaml").write_text("schema: 1\nname: adam\n")
    (series / "targets").mkdir()
    (series / "targets/cpus.yaml").write_text(TARGET.format(work=tmp_path / "work", python=python, profile=profile))
    lock(Place(series))
    place = Place(series)
    steps = apply(place, "cpus").steps
    assert worst(one.code for one in steps) in (0, 4), [one.as_json() for one in steps if one.code]
    assert record_faults(python) == []
    differs = step(python, profile)["differs"]
    assert isinstance(differs, float) and differs < 1e-5
    assert revert(place, "cpus").exit_code == 0
    assert record_faults(python) == []
    assert step(python, profile) == {"missing": "bias_correction"}
