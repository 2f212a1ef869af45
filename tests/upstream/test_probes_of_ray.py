"""The probes of Ray and of a generation below it, on a real Ray: good, and each with its fault.

There is no vLLM for CPUs here: a stand-in generates, torch and Ray around it are the real ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from probekit import asked, cluster, only, short_folder, subject

from patchq.audit import Subject
from patchq.report import State, Step

pytestmark = pytest.mark.upstream

VLLM = """\
import sys
__version__ = "0.18.0+standin"


class SamplingParams:
    def __init__(self, max_tokens, temperature):
        self.tokens = max_tokens


class LLM:
    def __init__(self, model, **options):
        {start}

    def generate(self, prompts, sampling, use_tqdm):
        tokens = [ord(letter) for letter in prompts[0]][: sampling.tokens]
        {spoil}
        said = type("Output", (), {{"text": "".join(map(chr, tokens)), "token_ids": tokens}})()
        return [type("Request", (), {{"outputs": [said]}})()]
"""


@pytest.fixture
def room() -> Iterator[Path]:
    with short_folder() as folder:
        yield folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def generating(python: Path, room: Path, *, start: str = "pass", spoil: str = "pass") -> Subject:
    (room / "model").mkdir()
    files = {"vllm/__init__.py": VLLM.format(start=start, spoil=spoil)}
    return subject(python, room, files, RAY_TMPDIR=str(room), CUDA_VISIBLE_DEVICES="")


def both(of: Subject, room: Path) -> list[Step]:
    """A generation alone, and again in an actor of a cluster of its own."""
    settings = {"model": str(room / "model"), "gpus": 0}
    return [only(of, "generate", **settings), only(of, "generate_in_actor", **settings)]


def test_the_same_words_alone_and_in_an_actor(torch_python: Path, room: Path, home: Path) -> None:
    alone, in_actor = both(generating(torch_python, room), room)
    assert (alone.state, alone.summary) == (State.PASSED, "'2 + 3 = ', vllm 0.18.0+standin"), alone
    assert (in_actor.state, in_actor.summary) == (State.PASSED, "'2 + 3 = ', as in a plain process"), in_actor
    assert not (home / ".ray").exists()


def test_other_words_in_an_actor(torch_python: Path, room: Path) -> None:
    spoil = "tokens = tokens[::-1] if 'ray' in sys.modules else tokens"
    alone, in_actor = both(generating(torch_python, room, spoil=spoil), room)
    assert alone.state is State.PASSED, alone
    assert in_actor.state is State.WARNING, in_actor
    assert in_actor.summary == "' = 3 + 2' in a Ray actor, '2 + 3 = ' in a plain process"


@pytest.mark.parametrize(
    ("start", "spoil", "said"),
    [
        ("raise RuntimeError('Engine core initialization failed')", "pass", "Engine core initialization failed"),
        ("import os; os.kill(os.getpid(), 9)", "pass", "was killed by SIGKILL"),
        ("pass", "tokens = []", "the model said nothing"),
    ],
    ids=["raises", "killed", "silent"],
)
def test_a_generation_that_fails(torch_python: Path, room: Path, start: str, spoil: str, said: str) -> None:
    step = only(generating(torch_python, room, start=start, spoil=spoil), "generate", model=str(room / "model"))
    assert step.state is State.FAILED and said in step.summary, step


def test_what_a_generation_needs_is_named(torch_python: Path, room: Path) -> None:
    bare = only(subject(torch_python, room), "generate", model=str(room))
    assert (bare.state, bare.summary) == (State.NOT_RUN, "vllm not installed")
    of = generating(torch_python, room)
    lost = only(of, "generate", model="/nowhere/model")
    assert (lost.state, lost.summary) == (State.NOT_RUN, "the model /nowhere/model is not there")
    eager = only(of, "generate_in_actor", model=str(room / "model"))
    assert eager.state is State.NOT_RUN and "has 0 GPUs, and the actor asks for 1" in eager.summary, eager


def by_name(steps: list[Step]) -> dict[str, Step]:
    return {"actor" if step.name.startswith("actor on ") else step.name: step for step in steps}


def test_a_cluster_of_its_own_is_whole_and_leaves_no_token(torch_python: Path, room: Path, home: Path) -> None:
    """A token in the home would have every later `ray start` ask for it."""
    of = subject(torch_python, room, {"verl/__init__.py": ""}, RAY_TMPDIR=str(room), TOY="1")
    found = by_name(asked(of, "ray", resources={"CPU": 1}))
    assert {step.state for step in found.values()} == {State.PASSED}, found
    assert found["actor"].summary == "the same interpreter, origins and variables"
    assert "started for this question, 1 nodes" in found["ray cluster"].summary
    assert not (home / ".ray").exists()


def test_a_cluster_that_asks_for_a_token(
    torch_python: Path, room: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray hands in the token of the home where it finds a cluster by itself, and none where `RAY_ADDRESS` names it."""
    (home / ".ray").mkdir()
    (home / ".ray/auth_token").write_text("5ec2e7" * 10)
    with cluster(torch_python, room, PYTHONPYCACHEPREFIX="") as address:
        of = subject(torch_python, room, RAY_TMPDIR=str(room))
        found = by_name(asked(of, "ray", address=address))
        monkeypatch.setenv("RAY_ADDRESS", address)
        named = by_name(asked(of, "ray", address=address))
    assert set(found) >= {"actor"} and found["actor"].state is State.PASSED, found
    step = named["ray cluster"]
    assert step.state is State.FAILED and step.summary.startswith(f"{address}: it asks for a token"), step
    assert "RAY_AUTH_MODE=token" in step.hint


def test_resources_that_are_short(torch_python: Path, room: Path) -> None:
    found = by_name(asked(subject(torch_python, room, RAY_TMPDIR=str(room)), "ray", resources={"CPU": 1, "GPU": 8}))
    assert found["ray cluster"].state is State.FAILED, found
    assert found["ray cluster"].summary == "lacks resources: GPU 0 of 8"


def test_an_address_that_does_not_answer(torch_python: Path, room: Path) -> None:
    found = by_name(asked(subject(torch_python, room, RAY_TMPDIR=str(room)), "ray", address="127.0.0.1:9"))
    step = found["ray cluster"]
    assert (step.state, step.summary) == (State.FAILED, "127.0.0.1:9: Connection refused"), step
    assert step.hint.startswith("in a container localhost is the container")


def test_a_leftover_instead_of_ray(torch_python: Path, room: Path) -> None:
    """What an uninstall left behind, or another project's folder of that name, comes first on the path."""
    step = only(subject(torch_python, room, {"ray/__init__.py": ""}), "ray")
    assert step.state is State.FAILED, step
    assert step.summary == f"`import ray` gives {room}/spoilt/ray/__init__.py, which has no init, remote, get, shutdown"


def test_actors_of_a_cluster_that_was_started_elsewhere(torch_python: Path, room: Path) -> None:
    """The raylet keeps the environment of its `ray start`: a variable and an import path that training has."""
    with cluster(torch_python, room, PYTHONPYCACHEPREFIX="") as address:
        lost = by_name(asked(subject(torch_python, room, RAY_TMPDIR=str(room), TOY="1"), "ray", address=address))
        of = subject(torch_python, room, {"verl.py": ""}, RAY_TMPDIR=str(room))
        other = by_name(asked(of, "ray", address=address))
    assert set(lost) & set(other) >= {"actor"}, (lost, other)
    assert lost["actor"].state is State.FAILED, lost
    assert lost["actor"].summary == "TOY is not set, 1 is due"
    assert other["actor"].state is State.FAILED, other
    assert other["actor"].summary == f"imports verl from None, training from {room}/spoilt/verl.py"
