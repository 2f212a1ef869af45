"""The root cause is found in logs as Ray, torchrun, vLLM and shells really leave them."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchq.evidence.first_error import FirstError, first_error


def find(log: str) -> FirstError:
    found = first_error(textwrap.dedent(log).strip("\n").split("\n"))
    assert found
    return found


def test_ray_wraps_the_error_of_a_worker() -> None:
    found = find("""
        (TaskRunner pid=4711) step:1 - actor/loss:0.1
        (WorkerDict pid=4712) Traceback (most recent call last):
        (WorkerDict pid=4712)   File "/w/deepspeed/ops/adam/cpu_adam.py", line 201, in step
        (WorkerDict pid=4712)     self.ds_opt_adam.adam_update(group['bias_correction'])
        (WorkerDict pid=4712) KeyError: 'bias_correction'
        Error executing job with overrides: []
        Traceback (most recent call last):
          File "/w/verl/trainer/main_ppo.py", line 31, in main
            ray.get(runner.run.remote(config))
        ray.exceptions.RayTaskError(KeyError): ray::TaskRunner.run() (pid=4711, ip=10.0.0.2)
          File "/w/verl/trainer/main_ppo.py", line 200, in run
            trainer.fit()
        KeyError: 'bias_correction'

        Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.
    """)
    assert (found.kind, found.message) == ("KeyError", "'bias_correction'")
    assert (found.line, found.process) == (5, "WorkerDict pid=4712")
    assert any("cpu_adam.py" in row for row in found.excerpt)


def test_a_ray_error_alone_carries_its_cause() -> None:
    found = find("""
        Traceback (most recent call last):
          File "a.py", line 1, in <module>
            ray.get(x)
        ray.exceptions.RayTaskError(ModuleNotFoundError): ray::f() (pid=1, ip=10.0.0.2)
          File "b.py", line 1, in f
            import flash_attn
        ModuleNotFoundError: No module named 'flash_attn'
    """)
    assert (found.kind, found.line) == ("ModuleNotFoundError", 7)


def test_torchrun_says_which_rank_was_first() -> None:
    found = find("""
        [rank0]: Traceback (most recent call last):
        [rank0]:   File "t.py", line 9, in <module>
        [rank0]: ValueError: something that came of it
        [rank1]: Traceback (most recent call last):
        [rank1]:   File "t.py", line 7, in <module>
        [rank1]:     loss.backward()
        [rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
        E0822 10:00:00.123000 99 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1)
        Traceback (most recent call last):
          File "/e/bin/torchrun", line 8, in <module>
            sys.exit(main())
        torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
        ============================================================
        t.py FAILED
        ------------------------------------------------------------
        Root Cause (first observed failure):
        [0]:
          time      : 2026-08-22_10:00:00
          host      : node
          rank      : 1 (local_rank: 1)
          exitcode  : 1 (pid: 100)
        ============================================================
        Traceback (most recent call last):
          File "/e/bin/llamafactory-cli", line 8, in <module>
            sys.exit(main())
        subprocess.CalledProcessError: Command '['torchrun', 't.py']' returned non-zero exit status 1.
    """)
    assert (found.kind, found.process) == ("torch.OutOfMemoryError", "rank1")


def test_peers_of_a_dead_rank_are_consequences() -> None:
    found = find("""
        [rank1]: Traceback (most recent call last):
        [rank1]:   File "t.py", line 9, in <module>
        [rank1]: RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1
        [rank0]: Traceback (most recent call last):
        [rank0]:   File "t.py", line 7, in <module>
        [rank0]: AssertionError
    """)
    assert (found.kind, found.process, found.line) == ("AssertionError", "rank0", 6)


def test_vllm_says_see_root_cause_above() -> None:
    found = find("""
        INFO 08-22 10:00:00 [config.py:10] Resolved architecture
        (EngineCore_0 pid=50) ERROR 08-22 10:00:01 [core.py:708] EngineCore failed to start.
        (EngineCore_0 pid=50) ERROR 08-22 10:00:01 [core.py:708] Traceback (most recent call last):
        (EngineCore_0 pid=50) ERROR 08-22 10:00:01 [core.py:708]   File "/e/vllm/v1/engine/core.py", line 699, in run
        (EngineCore_0 pid=50) ERROR 08-22 10:00:01 [core.py:708]     engine_core = EngineCoreProc(*args, **kwargs)
        (EngineCore_0 pid=50) ERROR 08-22 10:00:01 [core.py:708] ImportError: libarrow.so.2500: cannot open
        (EngineCore_0 pid=50) Process EngineCore_0:
        Traceback (most recent call last):
          File "p.py", line 3, in <module>
            LLM(model="m")
        RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
    """)
    assert (found.kind, found.line) == ("ImportError", 6)


def test_the_first_of_a_chain_counts() -> None:
    found = find("""
        Traceback (most recent call last):
          File "a.py", line 1, in f
            import flash_attn
        ImportError: flash_attn is not there

        During handling of the above exception, another exception occurred:

        Traceback (most recent call last):
          File "a.py", line 3, in g
            raise
        RuntimeError: please install trl
    """)
    assert (found.kind, found.led_to) == ("ImportError", "RuntimeError: please install trl")


def test_what_a_process_survived_does_not_count() -> None:
    found = find("""
        WARNING:root:optional kernel is missing
        Traceback (most recent call last):
          File "k.py", line 1, in <module>
        ModuleNotFoundError: No module named 'kernel'
        loading the model
        model has 3 layers
        optimizer is AdamW
        batch 2
        lr 0.1
        step 1 loss 0.5
        step 2 loss 0.4
        Traceback (most recent call last):
          File "t.py", line 70, in <module>
        ValueError: nan
    """)
    assert (found.kind, found.message) == ("ValueError", "nan")


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        ("bash: line 1: torchrun: command not found", "command not found"),
        ("/usr/bin/python3: No module named 'llamafactory'", "No module named"),
        ("step 1\n*** SIGSEGV received at time=1 on cpu 1 ***\nray died", "SIGSEGV received"),
        ("a\nFatal Python error: Segmentation fault\n\nCurrent thread 0x1:\n  File x", "Fatal Python error"),
        ("train.py: error: unrecognized arguments: --foo", "error: unrecognized arguments"),
        ("slow\nERROR 08-22 10:00:00 [a.py:1] model path is wrong\nbye", "error"),
    ],
)
def test_deaths_without_a_traceback(log: str, kind: str) -> None:
    assert find(log).kind == kind


def test_a_clean_log_has_none() -> None:
    assert first_error(["step 1", "loss 0.1", "done"]) is None
    assert first_error([]) is None


KINDS = st.sampled_from(
    ["KeyError", "ValueError", "torch.OutOfMemoryError", "AssertionError", "hydra.errors.ConfigError"]
)
WORDS = st.text("abcdefgh 0123", min_size=1, max_size=20).map(lambda text: text.strip() or "x")
PREFIXES = st.sampled_from(
    ["", "[rank0]: ", "[rank3]: ", "(WorkerDict pid=7) ", "(EngineCore_0 pid=9) ERROR 08-22 10:00:00 [core.py:1] "]
)
NOISE = st.lists(st.sampled_from(["step:1 - loss:0.2", "INFO 08-22 10:00:00 [a.py:1] ok", "", "50%|#####"]), max_size=6)


def trace(kind: str, text: str, frames: int) -> list[str]:
    rows = ["Traceback (most recent call last):"]
    for number in range(frames):
        rows += [f'  File "/w/f{number}.py", line {number}, in f', "    call()"]
    return [*rows, f"{kind}: {text}"]


def wrappers(kind: str, text: str) -> list[list[str]]:
    return [
        trace("subprocess.CalledProcessError", "Command 'x' returned non-zero exit status 1.", 1),
        trace("RuntimeError", "Engine core initialization failed. See root cause above.", 2),
        trace("torch.distributed.elastic.multiprocessing.errors.ChildFailedError", "", 1),
        [*trace(f"ray.exceptions.RayTaskError({kind.rpartition('.')[2]})", "ray::f() (pid=7)", 1),
         '  File "/w/x.py", line 1, in f', f"{kind}: {text}"],
        [f"[rank5]: {row}" for row in trace("RuntimeError", "Connection closed by peer", 2)],
    ]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.data(), KINDS, WORDS, PREFIXES, NOISE, NOISE)
def test_the_root_is_found_whatever_surrounds_it(
    data: st.DataObject, kind: str, text: str, prefix: str, before: list[str], after: list[str]
) -> None:
    handled = [f"WARNING 08-22 10:00:00 [a.py:1] {row}" for row in trace("ImportError", "optional", 1)]
    log = before + data.draw(st.sampled_from([[], handled]))
    log += [prefix + row for row in trace(kind, text, data.draw(st.integers(1, 30)))]
    line = len(log)
    for wrapper in data.draw(st.lists(st.sampled_from(wrappers(kind, text)), max_size=3)):
        log += [*data.draw(st.sampled_from([[], ["shutting down", ""]])), *wrapper]
    found = first_error([*log, *(after if not prefix else [])])
    assert found is not None
    assert (found.line, found.kind, found.message) == (line, kind, text)
    assert found.excerpt[-1] == f"{kind}: {text}"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=30))
def test_no_log_breaks_it(log: list[str]) -> None:
    first_error(log)
