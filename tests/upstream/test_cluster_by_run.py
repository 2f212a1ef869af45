"""A real Ray cluster started and joined by `patchq run`, and one that was started from another environment, refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from probekit import RAY_START, address_in, cluster, forget_cluster, short_folder
from toy import applied, make_queue

from patchq.commands.place import Place
from patchq.evidence.record import list_records
from patchq.machine.lease import leases
from patchq.process import Outcome, leashed

pytestmark = pytest.mark.upstream

JOIN = """\
import json, ray, toy

@ray.remote
def seen():
    import os, sys, toy
    return [toy.STATE, os.environ.get("TOY"), os.path.dirname(sys.executable)]

ray.init(address="auto", log_to_driver=False)
print(json.dumps([ray.get(seen.remote()), toy.STATE]))
"""


@dataclass(frozen=True)
class Made:
    """An applied queue, whose environment has Ray and keeps its clusters in `ray`."""

    folder: Path
    ray: Path
    python: Path

    def argv(self, *command: str) -> list[str]:
        options = ("--queue", str(self.folder), "--target", "here")
        return [sys.executable, "-m", "patchq", "run", *options, "--", *command]

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}

    def joined(self, cwd: Path, **variables: str) -> Outcome:
        """`patchq run` of a program that joins whatever cluster is there."""
        with leashed(self.argv("python", "-c", JOIN), env={**self.env, **variables}, cwd=cwd) as running:
            return running.outcome(240)


@pytest.fixture(scope="module")
def made(torch_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("cluster")
    with short_folder() as ray, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "data"))
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        applied(make_queue(folder, f'set: {{TOY: "1", RAY_TMPDIR: {ray}}}', python=str(torch_python)))
        yield Made(folder, ray, torch_python)


def test_started_and_joined_by_run(made: Made, tmp_path: Path) -> None:
    """The actors see the work copy and the variables of the target; the lease lasts as long as `ray start` does."""
    area = Place(made.folder / "series").area("here")
    forget_cluster(made.ray)
    with leashed(made.argv("ray", *RAY_START), env=made.env, cwd=tmp_path):
        address = address_in(made.ray)
        assert [lease.command.split()[:2] for lease in leases(area)] == [["ray", "start"]]
        done = made.joined(tmp_path)
    assert done.code == 0, done.error_text
    assert json.loads(done.text.splitlines()[-1]) == [["patched", "1", str(made.python.parent)], "patched"]
    steps = {step["name"].partition(" on ")[0]: step for step in list_records(area.records)[-1].steps}
    assert address in steps["ray cluster"]["summary"]
    assert steps["actor"]["summary"] == "the same interpreter, origins and variables"
    assert leases(area) == ()


def test_a_ray_start_that_returns_says_that_the_lease_ends(made: Made, tmp_path: Path) -> None:
    """Ray closes what its daemons inherit, so that only `--block` keeps the lease."""
    forget_cluster(made.ray)
    command = made.argv("ray", *(word for word in RAY_START if word != "--block"))
    with leashed(["bash", "-c", '"$@" 2>said; exec sleep 600', "start", *command], env=made.env, cwd=tmp_path):
        address_in(made.ray)
        assert made.joined(tmp_path).code == 0
        assert leases(Place(made.folder / "series").area("here")) == ()
    assert "--block" in (tmp_path / "said").read_text()


def refused(made: Made, cwd: Path, **variables: str) -> str:
    """What a run says that does not start."""
    done = made.joined(cwd, **variables)
    assert done.code == 1, (done.text, done.error_text)
    return done.text


def test_started_without_the_targets_variables_it_is_refused(made: Made, tmp_path: Path) -> None:
    copy = (made.folder / "work/toy/current").resolve()
    with cluster(made.python, made.ray, PYTHONPATH=str(copy)):
        said = refused(made, tmp_path)
    assert "TOY is not set, 1 is due" in said and "ray stop" in said, said


def test_started_without_the_work_copy_it_is_refused(made: Made, tmp_path: Path) -> None:
    with cluster(made.python, made.ray, TOY="1"):
        said = refused(made, tmp_path)
    assert "imports toy from None, training from" in said, said


def test_started_by_another_interpreter_it_is_refused(made: Made, tmp_path: Path) -> None:
    packages = subprocess.check_output([made.python, "-c", "import ray; print(ray.__path__[0])"], text=True)
    subprocess.run([made.python, "-m", "venv", "--without-pip", tmp_path / "other"], check=True)
    site = next((tmp_path / "other").glob("lib/python3*/site-packages"))
    (site / "base.pth").write_text(f"{Path(packages).parent}\n")
    other = tmp_path / "other/bin/python"
    (other.parent / "ray").write_text(f"#!{other}\nfrom ray.scripts.scripts import main\nmain()\n")
    (other.parent / "ray").chmod(0o755)
    with cluster(other, made.ray, TOY="1"):
        said = refused(made, tmp_path)
    assert f"runs {other} " in said and f"training runs {made.python}" in said, said


def test_a_cluster_in_another_folder_is_named_and_under_auto_refused(made: Made, tmp_path: Path) -> None:
    """`ray.init(address="auto")` joins any cluster of the host, whatever `RAY_TMPDIR` says."""
    forget_cluster(made.ray)
    with short_folder() as elsewhere, cluster(made.python, elsewhere, TOY="2") as address:
        said = refused(made, tmp_path, RAY_ADDRESS="auto")
        with leashed(made.argv("true"), env=made.env, cwd=tmp_path) as running:
            done = running.outcome(240)
    assert "imports toy from None, training from" in said, said
    assert done.code == 0 and f"{address} runs on this host too" in done.error_text, done.error_text
