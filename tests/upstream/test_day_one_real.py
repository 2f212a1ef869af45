"""Day one on the real sources: a mixed dirty tree and a hand-edited DeepSpeed become five headed patches.

By the command line, as docs/authoring.md tells it. What people have changed is here what the shipped patches change,
put on without patchq and mixed up, and more.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from verl_source import BASELINE, SERIES, verl_source
from world import contents, git, git_bytes, patchq, write

from patchq.commands.check import check
from patchq.commands.place import Place
from patchq.errors import Prevented
from patchq.index import Pin
from patchq.index.download import fetch
from patchq.patch import lint_header
from patchq.queue.load import load_queue

pytestmark = pytest.mark.upstream

SHIPPED = load_queue(SERIES)
TARGET = """\
description: the machine of day one
work: {work}
upstreams:
  {name}: {{baseline: {form}, environments: [train]}}
  deepspeed: {{baseline: installed, sink: installed, environments: [train]}}
environments:
  train:
    python: {python}
"""


@dataclass(frozen=True)
class Story:
    """A framework: how its sources come here, what names its baseline, and which edits go into which patch.

    `by_folder` are patches (layer/name) of whole files; `shared` is a file in which two patches meet; `rest` is what
    goes with the second of them.
    """

    name: str
    form: str
    unpack: Callable[[Path], Path]
    baseline: Callable[[Path], Sequence[object]]
    by_folder: dict[str, tuple[str, ...]]
    shared: str
    windows: str
    script: str


def verl_clone(folder: Path) -> Path:
    """A clone with the baseline checked out, as people have one."""
    git(folder, "clone", "-q", "--shared", "--no-checkout", str(verl_source()), "verl")
    git(folder / "verl", "checkout", "-q", BASELINE)
    return folder / "verl"


def sdist_folder(folder: Path) -> Path:
    """LLaMA-Factory's sdist, unpacked."""
    sdist = SHIPPED.upstream("llamafactory").baseline.sdist
    assert sdist
    pin = Pin(name=sdist.project, version=sdist.version, filename=sdist.filename, sha256=sdist.sha256)
    try:
        path = fetch(pin, folder / "downloads")
    except Prevented as error:
        pytest.skip(str(error))
    with tarfile.open(path) as archive:
        archive.extractall(folder)
    return folder / path.name.removesuffix(".tar.gz")


STORIES = {
    "verl": Story(
        "verl", "git", verl_clone, lambda clone: (clone, "--at", BASELINE),
        {"device/device-calls": ("verl/checkpoint_engine/*", "verl/models/*", "verl/utils/kernel/*", "verl/plugin/*",
                                 "verl/workers/engine/*", "verl/workers/rollout/*", "scripts/*"),
         "research/auxiliary-loss": ("verl/trainer/config/*", "verl/workers/config/actor.py", "verl/workers/utils/*")},
        "verl/trainer/ppo/metric_utils.py", "verl/models/transformers/npu_patch.py",
        "scripts/install_vllm_sglang_mcore.sh",
    ),
    "llamafactory": Story(
        "llamafactory", "sdist", sdist_folder, lambda _: (),
        {"device/launchers": ("src/llamafactory/launcher.py", "src/llamafactory/v1/*"),
         "research/more-metrics": ("src/llamafactory/train/sft/*",)},
        "src/llamafactory/train/callbacks.py", "src/llamafactory/train/sft/metric.py",
        "src/llamafactory/v1/launcher.py",
    ),
}  # fmt: skip


def edit_by_hand(story: Story, folder: Path) -> None:
    """Some 300 changed lines of several purposes, in files of their own and mixed in one."""
    for queued in SHIPPED.upstream(story.name).patches:
        assert queued.patch
        git_bytes(folder, "apply", f"-p{queued.entry.strip}", stdin=queued.patch.data[queued.patch.diff_start :])
    shared = folder / story.shared
    rows = shared.read_text().splitlines(keepends=True)
    rows[12:12] = [f"# what this machine needs, {number}\n" for number in range(40)]
    shared.write_text("".join([*rows, *(f"# what the experiment shows, {number}\n" for number in range(160))]))
    dos = folder / story.windows
    data = dos.read_bytes()
    end = b"\r\n" if b"\r\n" in data else b"\n"
    dos.write_bytes(data + b"".join(b"# CR LF or not, %d" % number + end for number in range(60)) + b"# no newline")
    (folder / story.script).chmod(0o755 if not os.access(folder / story.script, os.X_OK) else 0o644)
    write(folder, {f"{Path(story.shared).parent}/数据 é.txt": "零\n一\n".encode("gbk"), "data.bin": bytes(range(256))})


def hand_edited_deepspeed(folder: Path) -> tuple[Path, Path]:
    """An environment with the pinned DeepSpeed as pip installs it, then changed by hand: python, site-packages."""
    venv.create(folder, with_pip=True, symlinks=True)
    python = folder / "bin/python"
    for words in (("setuptools", "wheel", "packaging", "psutil", "py-cpuinfo", "ninja"),
                  ("--no-deps", "--no-build-isolation", "--no-binary", "deepspeed", "deepspeed==0.18.4")):  # fmt: skip
        argv = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words)
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            pytest.skip(f"pip install {' '.join(words)}: {done.stderr.strip().splitlines()[-1]}")
    (site,) = folder.glob("lib/python3*/site-packages")
    (queued,) = SHIPPED.upstream("deepspeed").patches
    assert queued.patch
    git_bytes(site, "apply", "-p1", stdin=queued.patch.data[queued.patch.diff_start :])
    path = site / "deepspeed/runtime/utils.py"
    path.write_bytes(path.read_bytes() + b"# one more\n")
    (site / "deepspeed/our_own.py").write_text("OURS = True\n")
    return python, site


def name_the_submodule_here(path: Path) -> None:
    """Where the submodule's address cannot be reached, people name their own clone of it."""
    text, own = path.read_text(), os.environ.get("VERL_RECIPE_SOURCE")
    if own:
        path.write_text(re.sub(r"source: \S+verl-recipe\S*", f"source: {own}", text))


def files_of(folder: Path) -> dict[str, tuple[str, bytes]]:
    return {path: found for path, found in contents(folder).items() if not path.startswith(".git/")}


def numbers(text: str, path: str) -> list[str]:
    """The numbers under which `patchq new` lists the changes of a file."""
    rows = text.splitlines()
    at = rows.index(path)
    listed = []
    for row in rows[at + 1 :]:
        if not row.startswith("  "):
            break
        if row.split()[1].isdecimal():
            listed.append(row.split()[1])
    return listed


@pytest.mark.parametrize("name", STORIES)
def test_from_a_dirty_tree_to_five_headed_patches(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    story = STORIES[name]
    dirty = story.unpack(tmp_path)
    before = files_of(dirty)
    edit_by_hand(story, dirty)
    python, site = hand_edited_deepspeed(tmp_path / "venv")
    room = tmp_path / "queue"
    room.mkdir()
    git(room, "init", "-q", ".")
    monkeypatch.chdir(room)

    assert patchq("init") == 0
    what, *at = story.baseline(dirty) or (f"{name}==0.9.5",)
    assert patchq("import", what, "--as-upstream", name, *at) == 0
    name_the_submodule_here(room / "series" / name / "baseline.yaml")
    assert patchq("import", "deepspeed==0.18.4", "--as-upstream", "deepspeed") == 0
    text = TARGET.format(work=tmp_path / "work", name=name, form=story.form, python=python)
    write(room / "series", {"targets/local.yaml": text})
    write(room / "series", {"variants/mine.yaml": f"description: mine\nresearch: [{name}/research/*]\n"})
    for patch, globs in story.by_folder.items():
        layer, inner = patch.split("/")
        only = [word for glob in globs for word in ("--only", glob)]
        assert patchq("import", dirty, "--upstream", name, "--layer", layer, "--name", inner, *only) == 0
    assert patchq("import", site, "--layer", "device", "--name", "cpu-adam") == 0

    assert patchq("edit", "--target", "local", "--variant", "mine", name) == 0
    copy = room / "edit/local+mine" / name
    now, there = files_of(dirty), files_of(copy)
    for path in (path for path in now if now[path] != there.get(path)):
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(dirty / path, copy / path)
    monkeypatch.chdir(copy)
    capsys.readouterr()
    assert patchq("new") == 0
    first, *others = numbers(capsys.readouterr().out, story.shared)
    assert others, "two hunks at least in the file that is shared"
    assert patchq("new", "device/what-the-machine-needs", "--take", first, "--subject", "What the machine needs") == 0
    listed = git(copy, "-c", "core.quotePath=false", "diff", "--name-only", "HEAD").splitlines()
    untracked = git(copy, "-c", "core.quotePath=false", "ls-files", "--others", "--exclude-standard").splitlines()
    take = [word for path in [*listed, *untracked] for word in ("--take", path)]
    assert patchq("new", "research/what-it-shows", *take, "--subject", "Show what there is") == 0
    assert patchq("refresh") == 0
    monkeypatch.chdir(room)
    assert patchq("lock") == 0

    queue = Place(room / "series").queue
    found = [queued for upstream in queue.upstreams.values() for queued in upstream.patches]
    assert len(found) == 5 and sorted(queued.entry.layer for queued in found) == ["device"] * 3 + ["research"] * 2
    for queued in found:
        assert queued.patch and queued.patch.header.subject
        missing = {problem.what for problem in lint_header(queued.patch, queued.entry.layer)}
        assert missing == {f"a {queued.entry.layer} patch without Tests"}
    assert changed_lines(room / "series" / name) >= 300
    assert [step for step in check(Place(room / "series")).steps if step.state.code] == []
    for upstream in (name, "deepspeed"):
        out = tmp_path / f"fresh-{upstream}"
        assert patchq("edit", "--target", "local", "--variant", "mine", upstream, "--out", out) == 0
    assert files_of(tmp_path / f"fresh-{name}") == files_of(dirty) != before
    speed = tmp_path / "fresh-deepspeed/deepspeed"
    for path in ("ops/adam/cpu_adam.py", "runtime/utils.py", "our_own.py"):
        assert (speed / path).read_bytes() == (site / "deepspeed" / path).read_bytes()


def changed_lines(folder: Path) -> int:
    texts = [path.read_bytes() for path in folder.glob("*/*.patch")]
    return sum(
        row[:1] in (b"+", b"-") and row[:3] not in (b"+++", b"---") for text in texts for row in text.split(b"\n")
    )
