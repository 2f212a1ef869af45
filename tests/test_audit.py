"""The rules: an answer of a probe in, steps out. What a machine would have to be for some of them is made up here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from patchq.audit import AUDITS, Subject, changes, expired, surveying
from patchq.audit.devices import demanded
from patchq.audit.packages import accepts
from patchq.errors import Invalid
from patchq.machine.launch import Launch
from patchq.queue.target import Environment
from patchq.report import State, Step

GIB = 1 << 30
HOME = Path("/opt/env")


def subject(settings: Mapping[str, str] = {}, **declared: Any) -> Subject:
    """An environment with these variables set and these keys declared."""
    launch = Launch("t", HOME / "bin/python", "", (), Path("/w/pycache"), Path("/w/r"), tuple(sorted(settings.items())))
    return Subject("rl", Environment(python="/opt/env/bin/python", **declared), launch, Path("/w"))


def judge(name: str, answer: Mapping[str, Any], of: Subject | None = None, **settings: Any) -> list[Step]:
    """The steps that a probe's answer gives."""
    audit = AUDITS[name]
    return list(audit.steps(of or subject(), audit.settings(**settings), answer))


def states(steps: list[Step]) -> dict[str, State]:
    return {step.name: step.state for step in steps}


def machine(**accelerators: Any) -> dict[str, Any]:
    torch = accelerators.pop("torch", {})
    memory = {"total": 8 * GIB, "available": GIB, "shared": GIB}
    return {"kernel": "4.9.0", "system": "Linux", "cpus": 96, "memory": memory, "container": False,
            "accelerators": {"devices": [], **accelerators}, "torch": torch}  # fmt: skip


def cards(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"index": index, "name": "A100", "processes": [], **more} for index in range(count)]


def test_an_old_driver_demands_a_smoke_and_stops_nothing() -> None:
    """A100s do run torch for CUDA 12.8 on driver 470, which offers 11.4."""
    found = judge(
        "machine", machine(by="NVML", driver="470.82", limit="11.4", devices=cards(8), torch={"cuda": "12.8"})
    )
    step = next(step for step in found if step.name == "driver and toolkit")
    assert step.state is State.WARNING
    assert "patchq smoke" in step.hint
    newer = judge("machine", machine(by="NVML", driver="580.1", limit="13.0", devices=cards(8), torch={"cuda": "12.8"}))
    assert states(newer)["driver and toolkit"] is State.PASSED


def test_devices_that_are_missing() -> None:
    of = subject(devices=8)
    assert (
        states(judge("machine", machine(by="NVML", driver="470.82", devices=cards(7)), of))["devices"] is State.FAILED
    )
    assert states(judge("machine", machine(missing="no library"), of))["devices"] is State.NOT_RUN
    assert states(judge("machine", machine(missing="no library")))["devices"] is State.NOTE
    assert states(judge("machine", machine(by="ppu-smi", error="no device")))["devices"] is State.FAILED


def test_processes_on_the_cards_are_named() -> None:
    busy = cards(1, processes=[{"pid": 7, "used": 1, "name": "python train.py"}])
    step = judge("machine", machine(by="NVML", driver="1", devices=busy))[-1]
    assert (step.state, step.detail) == (State.WARNING, ("device 0: process 7 python train.py",))


def place(**more: Any) -> dict[str, Any]:
    whole = {"path": "/p", "real": "/p", "exists": True, "mount": "/", "filesystem": "ext4", "kind": "local",
             "source": "/dev/a", "size": 10 * GIB, "free": 5 * GIB, "inodes": 1000, "free_inodes": 500,
             "writable": True}  # fmt: skip
    return {**whole, **more}


@pytest.mark.parametrize(
    ("found", "state", "said"),
    [
        ({}, None, ""),
        ({"kind": "fuse", "filesystem": "fuse.x"}, State.FAILED, "is on a FUSE mount"),
        ({"kind": "network", "filesystem": "nfs4"}, State.FAILED, "is on a network file system"),
        (
            {"writable": False, "error": "Read-only file system"},
            State.FAILED,
            "cannot be written: Read-only file system",
        ),
        ({"free": GIB}, State.FAILED, "has 1.0 GiB free, and the target demands 2"),
        ({"free_inodes": 3}, State.FAILED, "has 3 of 1000 inodes left"),
    ],
)
def test_folders_that_the_target_declares(found: dict[str, Any], state: State | None, said: str) -> None:
    of = subject(folders={"out": {"path": "/p", "local": True, "free": 2.0}})
    whole = {name: place() for name in ("work area", "RAY_TMPDIR", "TMPDIR")}
    steps = judge(
        "folders",
        {"folders": {**whole, "out": place(**found)}, "caches": {"huggingface": {**place(), "variable": ""}}},
        of,
    )
    wrong = [step for step in steps if step.name == "folder out"]
    assert [step.state for step in wrong] == ([state] if state else [])
    assert all(said in step.summary for step in wrong)


def test_a_cache_that_was_named_and_cannot_be_written_fails() -> None:
    closed = place(writable=False, error="Permission denied")
    assert (
        states(judge("cache", {"caches": {"huggingface": {**closed, "variable": "HF_HOME"}}}))["cache huggingface"]
        is State.FAILED
    )
    assert (
        states(judge("cache", {"caches": {"huggingface": {**closed, "variable": ""}}}))["cache huggingface"]
        is State.WARNING
    )


@pytest.mark.parametrize(
    ("text", "requirement", "is_accepted"),
    [
        ("vllm 0.18.0 has requirement transformers<5", "transformers!=4.52.*,<5,>=4.56.0", True),
        ("vLLM has requirement transformers<5", "transformers<5", True),
        ("vllm 0.18.0 has requirement transformers<4", "transformers<5", False),
        ("vllm 0.18.0 requires x, which is not installed.", "x>=1", True),
        ("verl 1 has requirement transformers<5", "transformers<5", False),
    ],
)
def test_accepted_conflicts_mean_the_bound_and_not_the_words(text: str, requirement: str, is_accepted: bool) -> None:
    assert accepts(text, "vllm", Requirement(requirement)) is is_accepted


def test_an_accepted_conflict_that_nobody_can_read_is_refused() -> None:
    with pytest.raises(ValueError, match="as pip check does"):
        Environment(python="p", accepted_conflicts=("numpy is too old",))


def test_allocator_says_what_is_in_force_and_what_was_asked() -> None:
    asked = "backend:native,expandable_segments:False,max_split_size_mb:512"
    assert demanded({"PYTORCH_ALLOC_CONF": asked}) == {"expandable_segments": False, "max_split_size": 512 << 20}
    of = subject({"PYTORCH_ALLOC_CONF": asked})
    forced = {"torch": "2.10.0", "seen": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
              "settings": {"expandable_segments": True, "max_split_size": -1}}  # fmt: skip
    [step] = judge("allocator", {"ranks": [forced], "combinations": []}, of)
    assert step.state is State.FAILED
    assert "expandable_segments is True and False is demanded" in step.summary
    assert "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" in step.summary
    good = {**forced, "settings": {"expandable_segments": False, "max_split_size": 512 << 20}}
    assert judge("allocator", {"ranks": [good], "combinations": []}, of)[0].state is State.PASSED
    ranks = [{**good, "rank": 0, "world": 2}, {**forced, "rank": 1, "world": 2}]
    [step] = judge("allocator", {"ranks": ranks, "combinations": []}, of)
    assert step.summary.startswith("rank 1: expandable_segments is True and False is demanded")
    [step] = judge("allocator", {"ranks": ranks, "combinations": []})  # nothing is demanded, but they differ
    assert step.summary.startswith("rank 1: uses expandable_segments True") and "rank 0: exp" in step.summary
    [step] = judge("allocator", {"ranks": ranks[:1], "combinations": []}, of)
    assert step.summary == "no answer from rank 1 of 2"


def test_memory_in_pieces() -> None:
    device = {"index": 0, "name": "P40", "total": 24 * GIB, "free": 20 * GIB, "largest": 20 * GIB}
    assert judge("memory", {"devices": [device]})[0].state is State.PASSED
    assert judge("memory", {"devices": [{**device, "largest": 2 * GIB}]})[0].state is State.WARNING
    assert judge("memory", {"devices": [{**device, "largest": 2 * GIB}]}, block=4.0)[0].state is State.FAILED


def test_arithmetic_against_float64() -> None:
    answer = {
        "device": "A100",
        "torch": "2",
        "dtype": "bf16",
        "finite": True,
        "errors": {"loss": 1e-4, "gradients": 4e-3},
    }
    assert judge("bf16", answer)[0].state is State.PASSED
    assert judge("bf16", {**answer, "finite": False})[0].state is State.FAILED
    assert judge("bf16", answer, tolerance=1e-3)[0].state is State.FAILED


def ranks(world: int, **answer: Any) -> list[dict[str, Any]]:
    return [{"rank": rank, "stage": "end", "stages": 5, "error": "", "answer": answer} for rank in range(world)]


def test_all_reduce_names_the_rank_that_is_missing() -> None:
    random = {"mib": 64, "error": 0.004, "bound": 0.03}
    timed = {"mib": 1024, "seconds": 0.004, "bus": 470.0}
    answer = {"world": 8, "backend": "nccl", "link": 450.0, "ranks": ranks(8, sum=36.0, random=random, timed=timed)}
    [step] = judge("all_reduce", answer)
    said = "8 of 8 ranks got 1+…+8 = 36 over nccl; 64 MiB of random bf16 off by 4.0e-03"
    assert (step.state, step.summary) == (State.PASSED, said)
    assert step.detail == ("1024 MiB in 4.0 ms: 470.0 GB/s on the bus, 104% of the link's 450 GB/s",)

    def summary(rank: int, **more: Any) -> str:
        given = [{**one, **more} if one["rank"] == rank else one for one in answer["ranks"]]
        [step] = judge("all_reduce", {**answer, "ranks": given})
        assert step.state is State.FAILED
        return step.summary

    killed = {"answer": None, "error": "killed by SIGKILL", "stage": "torch imported", "stages": 2}
    assert summary(7, **killed).endswith("rank 7: killed by SIGKILL; it got as far as: torch imported")
    wrong = {"sum": 28.0, "random": random}
    assert summary(3, answer=wrong) == "7 of 8 ranks got 1+…+8 = 36 over nccl; rank 3: got 28"
    assert "random bf16 is off by nan" in summary(3, answer={"sum": 36.0, "random": {**random, "error": float("nan")}})


def test_of_ranks_that_hang_the_one_they_wait_for_comes_first() -> None:
    late = {"answer": None, "error": "did not end in time"}
    given = [{"rank": rank, "stage": "met", "stages": 3, **late} for rank in range(4)]
    given[2] |= {"stage": "torch imported", "stages": 2}
    [step] = judge("all_reduce", {"world": 4, "backend": "gloo", "ranks": given})
    assert "; rank 2: did not end in time; it got as far as: torch imported" in step.summary


def test_groups_have_sums_of_their_own() -> None:
    given = ranks(4, sum=10.0, random={"mib": 1, "error": 0.0, "bound": 0.1})
    for one, due in zip(given, (3.0, 3.0, 7.0, 7.0), strict=True):
        one["answer"] = {**one["answer"], "group_sum": due}
    answer = {"world": 4, "backend": "gloo", "ranks": given}
    [step] = judge("all_reduce", answer, ranks=4, groups=2)
    assert step.state is State.PASSED and "groups of 2 theirs" in step.summary
    given[3]["answer"]["group_sum"] = 10.0
    [step] = judge("all_reduce", answer, ranks=4, groups=2)
    assert "rank 3: got 10 in its group, 7 is due" in step.summary
    with pytest.raises(ValueError, match="groups has to divide ranks"):
        judge("all_reduce", answer, ranks=4, groups=3)


def test_a_sharded_step_and_its_resumption() -> None:
    errors = {"loss": 1e-4, "gradients": 0.004, "step": 2e-7}
    answer = {"world": 2, "backend": "gloo", "ranks": ranks(2, errors=errors, after=[5.7, 5.6]),
              "resumed": ranks(2, after=[5.7, 5.6])}  # fmt: skip
    assert states(judge("fsdp", answer)) == {"fsdp": State.PASSED, "resume": State.PASSED}
    wrong = {**answer, "resumed": [*ranks(1, after=[5.7, 5.6]), {**ranks(2, after=[5.7, 5.9])[1]}]}
    [_, step] = judge("fsdp", wrong)
    assert step.summary.endswith("rank 1: loss 5.9000 at step 3, 5.6000 without a stop")
    [step] = judge("fsdp", {**answer, "ranks": ranks(2, errors={**errors, "gradients": 0.9}, after=[])})
    assert step.state is State.FAILED and "gradients off by 9.0e-01, 0.05 is allowed" in step.summary


def seen(**more: Any) -> dict[str, Any]:
    return {"host": "h", "executable": "/opt/env/bin/python", "version": "3.11.7", "path": [],
            "origins": {"vllm": "/opt/env/vllm.py"}, "variables": {"A": "1"}, **more}  # fmt: skip


@pytest.mark.parametrize(
    ("actor", "said"),
    [
        ({}, ""),
        ({"executable": "/usr/bin/python3"}, "runs /usr/bin/python3 3.11.7, training runs /opt/env/bin/python 3.11.7"),
        ({"origins": {"vllm": "/old/vllm.py"}}, "imports vllm from /old/vllm.py, training from /opt/env/vllm.py"),
        ({"variables": {}}, "A is not set, 1 is due"),
    ],
)
def test_an_actor_of_a_cluster_that_was_started_elsewhere(actor: dict[str, Any], said: str) -> None:
    answer = {
        "lacking": [],
        "version": "2",
        "address": "h:6379",
        "mine": seen(),
        "resources": {"GPU": 8.0},
        "actors": [seen(**actor)],
    }
    steps = judge("ray", answer, subject({"A": "1"}), resources={"GPU": 8.0})
    assert steps[0].state is State.PASSED
    assert (steps[1].summary if steps[1].state is State.FAILED else "") == said


def test_ray_that_lost_its_files_or_cannot_be_reached() -> None:
    [step] = judge("ray", {"lacking": ["remote"], "origin": "/e/ray/__init__.py"})
    assert step.summary == "`import ray` gives /e/ray/__init__.py, which has no remote"
    answer = {
        "lacking": [],
        "version": "2",
        "address": "localhost:6379",
        "mine": seen(),
        "unreachable": "Connection refused",
    }
    [step] = judge("ray", answer)
    assert (step.state, "localhost is the container" in step.hint) == (State.FAILED, True)
    there = {"lacking": [], "version": "2", "address": "h:1", "mine": seen()}
    short = {**there, "resources": {"GPU": 7.0}, "actors": [seen()]}
    assert judge("ray", short, resources={"GPU": 8.0})[0].summary == "lacks resources: GPU 7 of 8"
    [step] = judge("ray", {**there, "resources": {}, "actors": []})
    assert (step.state, step.summary) == (State.FAILED, "h:1: no node of it is alive")
    [step] = judge("ray", {**there, "error": "ConnectionError: no", "asks_token": True})
    assert (step.state, "RAY_AUTH_MODE=token" in step.hint) == (State.FAILED, True)


def test_a_generation_below_ray_is_compared_with_one_alone() -> None:
    alone = {"text": " 5", "tokens": [20], "executable": "/e/python", "torch": ["2", "/e/t"], "vllm": ["0.15", "/e/v"]}
    of = subject()
    of.answers["generate"] = alone
    assert judge("generate_in_actor", alone, of, model="/m")[0].summary == "' 5', as in a plain process"
    other = {**alone, "vllm": ["0.18", "/base/v"]}
    assert "the actor has vllm 0.18 from /base/v" in judge("generate_in_actor", other, of, model="/m")[0].summary
    assert judge("generate_in_actor", {**alone, "tokens": [7]}, of, model="/m")[0].state is State.WARNING
    assert judge("generate", {**alone, "tokens": []}, model="/m")[0].state is State.FAILED


def test_flash_attn_that_does_not_load() -> None:
    answer = {"flash_attn": "2.8", "torch": "2.10.0", "error": "ImportError: undefined symbol"}
    assert judge("pairs", answer)[0].state is State.FAILED
    assert judge("pairs", {"flash_attn": None})[0].state is State.NOTE


def test_changes_and_what_expires_a_smoke() -> None:
    before = {"machine": {"driver": "470", "kernel": "4.9"}, "packages": {"peft": "1"}, "protected": {"torch": "a"},
              "variables": {"API_TOKEN": "***"}}  # fmt: skip
    now = {**before, "machine": {"driver": "550", "kernel": "4.9"}, "packages": {"peft": "2"}}
    rows = [change.row() for change in changes("rl", before, now, HOME / "bin/python")]
    assert rows == [
        ["rl", "driver", "470", "550", "nvidia-smi"],
        ["rl", "package peft", "1", "2", "/opt/env/bin/python -m pip show peft"],
    ]
    assert expired(before, now) == ["driver"]
    assert expired(before, {**before, "protected": {"torch": "b"}}) == ["protected torch"]
    assert expired({}, now) == []


def test_unknown_probes_and_settings_are_named_with_the_nearest() -> None:
    for probes, settings, said in (
        (["orgins"], {}, "did you mean 'origins'?"),
        (["memory"], {"memory": {"fre": 1}}, "did you mean 'free'?"),
    ):
        with pytest.raises(Invalid, match=re.escape(said)), surveying(subject(), probes, settings):
            pass
