"""One rank of a small model's training under FSDP: forward and backward in bf16, an optimizer step, shards on disk.

Run by `rank`. Question: {"folder": FOLDER, "resume": whether to go on from shards that others wrote there}. Loss and
gradients of the first step are compared with the same model's in float64, unsharded; the step with AdamW's own formula.
Shards lie as VERL's FSDP workers write them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

WORDS, WIDTH, LENGTH, BATCH = 256, 64, 32, 4
RATE, DECAY, EPSILON = 1e-2, 0.1, 1e-8


def small_model(seed: int) -> Any:
    import torch

    torch.manual_seed(seed)
    blocks = [
        torch.nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        for _ in range(2)
    ]
    return torch.nn.Sequential(torch.nn.Embedding(WORDS, WIDTH), *blocks, torch.nn.Linear(WIDTH, WORDS))


def loss_of(model: Any, step: int, number: int, device: Any) -> Any:
    import torch

    dice = torch.Generator().manual_seed(1000 * step + number)
    rows = torch.randint(WORDS, (BATCH, LENGTH + 1), generator=dice).to(device)
    logits = model(rows[:, :-1])
    exact = logits if logits.dtype == torch.float64 else logits.float()
    return torch.nn.functional.cross_entropy(exact.flatten(0, 1), rows[:, 1:].flatten())


def reference(world: int) -> tuple[float, dict[str, Any]]:
    """Loss and gradients of the first step over every rank's rows, in float64 on the CPU."""
    import torch

    model = small_model(0).double()
    loss = torch.stack([loss_of(model, 1, other, "cpu") for other in range(world)]).mean()
    loss.backward()
    return loss.item(), {name: one.grad for name, one in model.named_parameters()}


class Training:
    """The sharded model of one rank, its optimizer and its schedule."""

    def __init__(self, seed: int, rank: Any) -> None:
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        self.device = rank.device
        self.model = small_model(seed).to(self.device)
        mesh = init_device_mesh(self.device.type, (rank.world,))
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        for block in (*self.model, self.model):
            fully_shard(block, mesh=mesh, mp_policy=policy)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE, weight_decay=DECAY, eps=EPSILON)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1 / (1 + step))

    def backward(self, step: int, number: int) -> float:
        """The loss of this rank's rows, averaged over the ranks; gradients are in place."""
        import torch.distributed as dist

        self.optimizer.zero_grad()
        loss = loss_of(self.model, step, number, self.device)
        loss.backward()
        whole = loss.detach().clone()
        dist.all_reduce(whole)
        return float(whole.item() / dist.get_world_size())

    def step(self) -> None:
        self.optimizer.step()
        self.schedule.step()

    def local(self) -> dict[str, Any]:
        return {name: one.to_local() for name, one in self.model.state_dict().items()}

    def moments(self) -> dict[str, dict[str, Any]]:
        """What AdamW remembers of each parameter, this rank's part."""
        held = {name: self.optimizer.state[one] for name, one in self.model.named_parameters()}
        return {
            name: {key: getattr(value, "to_local", lambda value=value: value)() for key, value in state.items()}
            for name, state in held.items()
        }

    def restore(self, model: dict[str, Any], moments: dict[str, dict[str, Any]], extra: dict[str, Any]) -> None:
        import torch

        with torch.no_grad():
            for name, one in self.local().items():
                one.copy_(model[name])
        self.backward(1, 0)  # makes gradients, so that a step of rate zero makes the optimizer's tensors
        for group in self.optimizer.param_groups:
            group["lr"] = 0.0
        self.optimizer.step()
        with torch.no_grad():
            for name, state in self.moments().items():
                for key, value in state.items():
                    value.copy_(moments[name][key])
        self.schedule.load_state_dict(extra["lr_scheduler"])
        for group, rate in zip(self.optimizer.param_groups, self.schedule.get_last_lr(), strict=True):
            group["lr"] = rate


def gradient_error(training: Training, exact: dict[str, Any]) -> float:
    """How far the whole gradient is off, as a share of its norm."""
    found = {name: one.grad.full_tensor().double().cpu() for name, one in training.model.named_parameters()}
    off = sum(float((found[name] - one).square().sum()) for name, one in exact.items())
    return float((off / sum(float(one.square().sum()) for one in exact.values())) ** 0.5)


def step_error(before: dict[str, Any], training: Training) -> float:
    """How far AdamW's first step is from its formula, on this rank's part."""
    worst = 0.0
    for name, one in training.model.named_parameters():
        old, new, slope = before[name].double(), one.to_local().double(), one.grad.to_local().double()
        due = old * (1 - RATE * DECAY) - RATE * slope / (slope.abs() + EPSILON)
        worst = max(worst, float((new - due).abs().max()) if new.numel() else 0.0)
    return worst


def shards(folder: Path, number: int, world: int) -> dict[str, Path]:
    names = ("model", "optim", "extra_state")
    return {name: folder / f"global_step_1/actor/{name}_world_size_{world}_rank_{number}.pt" for name in names}


def first(training: Training, rank: Any, folder: Path) -> dict[str, Any]:
    """Step 1, compared and saved; then on, for what a resumed run has to reach."""
    import torch

    loss, exact = reference(rank.world)
    found = training.backward(1, rank.number)
    errors = {"loss": abs(found - loss) / abs(loss), "gradients": gradient_error(training, exact)}
    rank.tell("went forward and back")
    before = {name: one.clone() for name, one in training.local().items()}
    training.step()
    errors["step"] = step_error(before, training)
    paths = shards(folder, rank.number, rank.world)
    paths["model"].parent.mkdir(parents=True, exist_ok=True)
    torch.save(training.local(), paths["model"])
    torch.save(training.moments(), paths["optim"])
    torch.save({"step": 1, "lr_scheduler": training.schedule.state_dict()}, paths["extra_state"])
    if rank.number == 0:
        (folder / "latest_checkpointed_iteration.txt").write_text("1")
    rank.tell("saved its shards")
    return {"loss": found, "errors": errors, "after": onward(training, rank.number)}


def resumed(training: Training, rank: Any, folder: Path) -> dict[str, Any]:
    import torch

    paths = shards(folder, rank.number, rank.world)
    loaded = {name: torch.load(path, weights_only=True) for name, path in paths.items()}
    training.restore(loaded["model"], loaded["optim"], loaded["extra_state"])
    rank.tell("read its shards")
    return {"after": onward(training, rank.number)}


def onward(training: Training, number: int) -> list[float]:
    """The losses of steps 2 and 3."""
    losses = [training.backward(2, number)]
    training.step()
    return [*losses, training.backward(3, number)]


def work(rank: Any, question: dict[str, Any]) -> dict[str, Any]:
    go, seed = (resumed, 1) if question.get("resume") else (first, 0)
    return go(Training(seed, rank), rank, Path(question["folder"]))
