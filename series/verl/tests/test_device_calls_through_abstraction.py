"""Effect of device/device-calls-through-abstraction.patch: which device module verl's code really calls.

One child process runs the patched functions under a verl platform whose device module notes each call.
Real: the functions themselves, the checkpoint engines' chunking and buffers, autograd. Stand-ins for what a CPU
machine without a network lacks: cupy, nixl, torchtitan, nemo_automodel, megatron, the Triton kernels, the transport of
the two checkpoint engines (a queue instead of NCCL and NIXL), and a process group of one rank, whose all-gather copies
(gloo wants a network even for one).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs("torch", "transformers", "ray", "tensordict", "zmq", "pydantic", "uvicorn", "fastapi")

PROBE = """
import asyncio, contextlib, importlib.abc, importlib.machinery, importlib.util, json, sys, types
from collections import deque
from pathlib import Path
from unittest.mock import MagicMock
import torch
import torch.distributed as dist

MISSING = ("cupy", "nixl", "torchtitan", "nemo_automodel", "megatron")


class StandIn(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"Config": type("Config", (), {})})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in MISSING and importing:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return StandIn(spec.name)

    def exec_module(self, module):
        pass


importing = False
sys.meta_path.insert(0, Finder())
from verl.plugin.platform import set_platform
from verl.plugin.platform.platform_cuda import PlatformCUDA

calls = []


class Device(types.ModuleType):
    def synchronize(self, *args):
        calls.append("synchronize")

    def empty_cache(self):
        calls.append("empty_cache")

    def current_stream(self):
        calls.append("current_stream")

    def mem_get_info(self):
        return 1, 1

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(torch.cpu, name, lambda *args, **kwargs: 0)


class TestPlatform(PlatformCUDA):
    device_name, device_module = "cpu", Device("device")

    def is_available(self):
        calls.append("is_available")
        return True

    @contextlib.contextmanager
    def nvtx_range(self, msg):
        calls.append(msg)
        yield


cuda = PlatformCUDA()
on_cuda = [cuda.device_module is torch.cuda, cuda.device_name]
set_platform(TestPlatform())
import ray.util.collective
import verl

for name in [name for name in sys.modules if name.split(".")[0] in MISSING]:
    del sys.modules[name]  # where it is not missing after all
root = Path(verl.__file__).parent
# Its own __init__ would import each engine that is installed here, with peft, datasets and much else.
engines = sys.modules["verl.workers.engine"] = types.ModuleType("verl.workers.engine")
engines.__path__ = [str(root / "workers" / "engine")]
torch.manual_seed(0)


def load(name):
    # One file by itself: its package would import all of an engine that is not installed here.
    spec = importlib.util.spec_from_file_location("probed_" + Path(name).stem, root / name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def transport():
    queue = deque()

    class Operation:
        def __init__(self, *args, **kwargs):
            bound = dict(zip(("agent", "remote", "descs", "metadata"), args)) | kwargs
            self.metadata = bound.get("metadata")
            self.bucket = bound.get("bucket", bound.get("descs"))
            if isinstance(self.metadata, dict):
                queue.append((self.bucket.clone(), dict(self.metadata)))

        async def read_metadata(self):
            bucket, metadata = queue.popleft()
            self.bucket.copy_(bucket)
            return metadata

        def begin_read(self):
            pass

        async def wait_for_complete(self):
            if self.metadata is None and self.bucket is not None:
                return await self.read_metadata()

    class ReadOperation(Operation):
        async def wait_for_complete(self):
            pass

    return Operation, ReadOperation


def weights_there_and_back(sender, receiver):
    sent = {f"w{i}": torch.randn(12) for i in range(3)}  # 48 bytes each, a bucket holds one

    async def receive():
        return {name: value.clone() async for name, value in receiver.receive_weights()}

    calls.clear()
    asyncio.run(sender.send_weights(iter(sent.items())))
    during_send = list(calls)
    calls.clear()
    received = asyncio.run(receive())
    during_receive = list(calls)
    same = sorted(sent) == sorted(received) and all(torch.equal(sent[n], received[n]) for n in sent)
    return {"same": same, "send": during_send, "receive": during_receive}


def nccl():
    import cupy
    cupy.asarray = lambda chunk: chunk
    from verl.checkpoint_engine import nccl_checkpoint_engine as module
    module.BroadcastOperation, _ = transport()
    ends = []
    for rank in (0, 1):
        engine = module.NCCLCheckpointEngine(bucket_size=64)
        engine.prepare()
        engine.rank, engine.socket = rank, None
        ends.append(engine)
    out = {"buffers": [str(engine.send_buf.device) for engine in ends]} | weights_there_and_back(*ends)
    calls.clear()
    ends[0].finalize()
    return out | {"finalize": list(calls)}


def nixl():
    from verl.checkpoint_engine import nixl_checkpoint_engine as module
    module.ReadableOperation, module.ReadOperation = transport()
    ends = []
    for rank, prev, following in ((0, None, "next"), (1, "prev", None)):
        engine = module.NIXLCheckpointEngine.__new__(module.NIXLCheckpointEngine)
        engine.rank, engine.bucket_size, engine.agent = rank, 64, None
        engine.prev_agent, engine.next_agent = prev, following
        engine.send_buf, engine.recv_buf = (torch.zeros(64, dtype=torch.uint8) for _ in range(2))
        engine.send_descs, engine.recv_descs = engine.send_buf, engine.recv_buf
        ends.append(engine)
    return weights_there_and_back(*ends)


def torchtitan():
    module = load("workers/engine/torchtitan/utils.py")
    params = {f"model.layers.0.mlp.experts.{i}.w1": torch.full((2,), float(i)) for i in range(2)}
    calls.clear()
    out = {n: v.tolist() for n, v in module.iter_per_tensor_params_ep(params, "cpu", dist.group.WORLD, 1)}
    return {"calls": list(calls), "experts": list(out.values())}


def automodel():
    from verl.workers.engine.automodel import transformer_impl as module
    module.build_automodel_model = module.maybe_fully_shard_optimizer = MagicMock()
    calls.clear()
    module.AutomodelEngine.initialize(MagicMock())
    return {"calls": list(calls)}


def mcore():
    import megatron.core.tensor_parallel.random as rd
    rd._fork_rng = contextlib.nullcontext
    rd._set_all_rng_states = lambda *states: None
    rd.detach_variable = lambda inputs: tuple(value.detach() for value in inputs)
    rd.gather_split_1d_tensor = rd.safely_set_viewless_tensor_data = None
    rd.CheckpointFunction = type("CheckpointFunction", (), {})
    load("models/mcore/patch.py").apply_patch_megatron_recomputation_backward()
    weight = torch.ones(2, requires_grad=True)
    ctx = types.SimpleNamespace(saved_tensors=(torch.full((2,), 3.0),), distribute_saved_activations=False,
                                rng_states=(), run_function=lambda value: value * weight)
    calls.clear()
    rd.CheckpointFunction.backward(ctx, torch.ones(2))
    return {"calls": list(calls), "grad": weight.grad.tolist()}


def linear_cross_entropy():
    from verl.utils.kernel import kernels
    from verl.utils.kernel.linear_cross_entropy import linear_cross_entropy as function
    zero = torch.zeros(1)
    kernels.efficient_entropy_forward = lambda hidden, weight, labels, *rest: (
        hidden.sum(-1), hidden.sum(-1), zero, zero, zero)
    kernels.efficient_entropy_backward = lambda dlogprobs, dentropy, hidden, weight, *rest: (
        torch.ones_like(hidden), torch.ones_like(weight))
    hidden = torch.randn(3, 4, requires_grad=True)
    calls.clear()
    logprobs, entropy = function(hidden, torch.randn(5, 4), torch.zeros(3, dtype=torch.long))
    (logprobs.sum() + entropy.sum()).backward()
    return {"calls": list(calls), "grad": hidden.grad.sum().item()}


def replica():
    from verl.workers.rollout import replica as module
    asked = []
    module.RayWorkerGroup = lambda **kwargs: asked.append(kwargs["device_name"]) or MagicMock()
    module.ResourcePoolManager = MagicMock()

    class Replica(MagicMock):
        async def launch_servers(self):
            pass

    asyncio.run(module.RolloutReplica.init_colocated(Replica(nnodes=1), MagicMock()))
    asyncio.run(module.RolloutReplica.init_standalone(Replica(nnodes=1)))
    return {"asked": asked}


def trtllm():
    from verl.workers.rollout.trtllm_rollout import trtllm_async_server as module
    server = module.TRTLLMHttpServer
    server = getattr(getattr(server, "__ray_metadata__", None), "modified_class", server)

    def after_the_check(*args, **kwargs):
        raise InterruptedError

    module.omega_conf_to_dataclass = after_the_check
    calls.clear()
    try:
        server.__init__(MagicMock(), None, None, False, None, [], 0, 1)
    except InterruptedError:
        return {"calls": list(calls)}


def attempt(function):
    global importing
    importing = True
    try:
        return function()
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    finally:
        importing = False


class Alone(dist.ProcessGroup):
    def allgather(self, outputs, inputs, options=None):
        for received, sent in zip(outputs, inputs):
            received[0].copy_(sent)
        future = torch.futures.Future()
        future.set_result(outputs)
        return torch._C._distributed_c10d._create_work_from_future(future)


dist.Backend.register_backend("alone", lambda store, rank, size, timeout: Alone(rank, size), devices=["cpu"])
dist.init_process_group("alone", store=dist.HashStore(), rank=0, world_size=1)
functions = (nccl, nixl, torchtitan, automodel, mcore, linear_cross_entropy, replica, trtllm)
result = {function.__name__: attempt(function) for function in functions} | {"on_cuda": on_cuda}
print("RESULT", json.dumps(result), flush=True)
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    work = tmp_path_factory.mktemp("calls")
    (work / "probe.py").write_text(PROBE)
    return run_probe(work)


def run_probe(work: Path) -> dict[str, Any]:
    """Runs probe.py and reads its one RESULT line."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("VERL_")}
    env |= {"HOME": str(work), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(work / "probe.py")]
    child = subprocess.run(command, cwd=work, env=env, capture_output=True, text=True, timeout=120)
    results = [line for line in child.stdout.splitlines() if line.startswith("RESULT ")]
    assert results, f"the probe failed:\n{child.stdout[-2000:]}\n{child.stderr[-4000:]}"
    return json.loads(results[-1].removeprefix("RESULT "))


def test_nccl_checkpoint_engine(seen: dict[str, Any]) -> None:
    """Without the patch its buffers are made on "cuda" and torch.cuda is synchronized, whatever the
    platform."""
    assert seen["nccl"] == {
        "buffers": ["cpu", "cpu"], "same": True,
        "send": ["synchronize"] * 3, "receive": ["synchronize"] * 2, "finalize": ["empty_cache"],
    }  # fmt: skip


def test_nixl_checkpoint_engine(seen: dict[str, Any]) -> None:
    """Without the patch it synchronizes torch.cuda."""
    assert seen["nixl"] == {"same": True, "send": ["synchronize"] * 3, "receive": ["synchronize"] * 2}


def test_torchtitan_expert_gather(seen: dict[str, Any]) -> None:
    """Without the patch it empties torch.cuda's cache (which a CPU-only torch silently ignores)."""
    assert seen["torchtitan"] == {"calls": ["empty_cache"], "experts": [[0.0, 0.0], [1.0, 1.0]]}


def test_automodel_initialize(seen: dict[str, Any]) -> None:
    """Without the patch it empties torch.cuda's cache."""
    assert seen["automodel"] == {"calls": ["empty_cache"]}


def test_mcore_recomputation_backward(seen: dict[str, Any]) -> None:
    """Without the patch it asks torch.cuda for the stream."""
    assert seen["mcore"] == {"calls": ["current_stream"], "grad": [3.0, 3.0]}


def test_linear_cross_entropy_ranges(seen: dict[str, Any]) -> None:
    """Without the patch torch.cuda.nvtx is called, though a platform without a profiler has a no-op for
    it."""
    expected = ["LinearCrossEntropy-forward", "LinearCrossEntropy-backward"]
    assert seen["linear_cross_entropy"] == {"calls": expected, "grad": 12.0}


def test_rollout_replicas_ask_for_the_platforms_device(seen: dict[str, Any]) -> None:
    """Without the patch both kinds of replica ask for "cuda" wherever it is not an NPU."""
    assert seen["replica"] == {"asked": ["cpu", "cpu"]}


def test_trtllm_server_asks_the_platform(seen: dict[str, Any]) -> None:
    """Without the patch the server insists on torch.cuda."""
    assert seen["trtllm"] == {"calls": ["is_available"]}


def test_on_cuda_the_abstraction_is_torch_cuda(seen: dict[str, Any]) -> None:
    """On CUDA nothing changes: the platform's device module is torch.cuda itself. Same with and without the
    patch."""
    assert seen["on_cuda"] == [True, "cuda"]
