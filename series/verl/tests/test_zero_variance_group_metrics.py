"""research/zero-variance-group-metrics: what verl's trainers log about groups whose rewards are all equal.

The trainers' own metric code runs, and verl's own GRPO code says which advantages are zero. Only the
TransferQueue server (of the default trainer) is replaced, by a function that hands over the same fields.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.needs("torch", "ray", "tensordict", "transformers", "omegaconf")

PREFIX = "critic/zero_variance_groups/"
# prompt, session, output: reward. "a" and "c" carry no signal, "b" does; "d" is alone.
# "a_1" has two outputs, of which only the last counts, so its first one (0.5) does not make "a" a signal.
REWARDS = {
    "b_0_0": 1.0,
    "a_0_0": 1.0,
    "a_1_1": 1.0,
    "a_1_0": 0.5,
    "c_0_0": 0.0,
    "b_1_0": 0.0,
    "c_1_0": 0.0,
    "c_2_0": 0.0,
    "d_0_0": 1.0,
}
EXPECTED = {PREFIX + "count": 2, PREFIX + "share": pytest.approx(2 / 3), PREFIX + "wasted_rollouts": 5}


def group_metrics(metrics: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if name.startswith(PREFIX)}


def batch_of(rewards: list[float], **non_tensor: list[Any]) -> Any:
    """A batch as the trainers hold it after a step, each reward on the last of three response tokens."""
    import numpy as np
    import torch
    from verl import DataProto

    token_rewards = torch.zeros(len(rewards), 3)
    token_rewards[:, -1] = torch.tensor(rewards)
    ones = torch.ones(len(rewards), 3)
    tensors = {
        "prompts": ones.long(),
        "responses": ones.long(),
        "response_mask": ones,
        "attention_mask": torch.ones(len(rewards), 6),
        "token_level_scores": token_rewards,
        "token_level_rewards": token_rewards.clone(),
        "advantages": ones,
        "returns": ones,
    }
    arrays = {name: np.array(values, dtype=object) for name, values in non_tensor.items()}
    meta = {"global_token_num": [6] * len(rewards)}
    return DataProto.from_dict(tensors=tensors, non_tensors=arrays, meta_info=meta)


def log_of_default_trainer(monkeypatch: pytest.MonkeyPatch, rewards: dict[str, float], padding: int) -> dict[str, Any]:
    """What the default (v1) trainer logs for these rollouts and some padding rows."""
    import torch
    from omegaconf import OmegaConf
    from tensordict import TensorDict
    from verl.trainer.ppo.v1 import trainer_base

    keys = [*rewards, *(f"pad_{row}_0" for row in range(padding))]
    values = [*rewards.values(), *([0.0] * padding)]

    def rows(of: list[Any]) -> Any:
        return torch.nested.as_nested_tensor([torch.as_tensor(row) for row in of], layout=torch.jagged)

    fields = {name: rows([[1, 1, 1]] * len(keys)) for name in ("prompts", "responses", "response_mask")}
    fields |= {name: rows([[0.0, 0.0, 0.0]] * len(keys)) for name in ("advantages", "returns")}
    fields["rm_scores"] = rows([[0.0, 0.0, reward] for reward in values])
    fields["num_turns"] = torch.ones(len(keys))
    data = TensorDict(fields, batch_size=len(keys))
    monkeypatch.setattr(trainer_base, "tq", SimpleNamespace(kv_batch_get=lambda **_: data))

    trainer = SimpleNamespace(
        config=OmegaConf.create({"actor_rollout_ref": {"rollout": {}, "model": {}}}),
        resource_pool_manager=SimpleNamespace(get_n_gpus=lambda: 1),
        use_critic=False,
        parameter_sync_step=1,
        _rollout_moe_lb_metrics_accumulator=None,
    )
    real = {"min_global_steps": 1, "max_global_steps": 1}
    tags = [real] * len(rewards) + [{**real, "is_padding": True}] * padding
    batch = SimpleNamespace(keys=keys, tags=tags, partition_id="train")
    metrics: dict[str, Any] = {}
    trainer_base.PPOTrainer._compute_metrics(trainer, batch, metrics, {"step": 1.0}, global_steps=2, epoch=0)
    return metrics


@pytest.mark.needs("transfer_queue", "torchdata")
@pytest.mark.parametrize("padding", [0, 3])
def test_default_trainer_logs_them(padding: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpatched, nothing in the log tells such a step from a good one; padding rows are no rollouts."""
    metrics = log_of_default_trainer(monkeypatch, REWARDS, padding)
    assert group_metrics(metrics) == EXPECTED
    assert metrics["critic/rewards/max"] == 1.0 and metrics["training/global_step"] == 2


def test_older_trainers_log_them() -> None:
    """The trainers that keep `uid` in the batch log the same, through `compute_data_metrics`."""
    from verl.experimental.separation.ray_trainer import SeparateRayPPOTrainer

    rewards = {key: reward for key, reward in REWARDS.items() if key != "a_1_0"}
    batch = batch_of(list(rewards.values()), uid=[key[0] for key in rewards])
    trainer = SimpleNamespace(
        metrics={},
        timing_raw={"step": 1.0},
        use_critic=False,
        resource_pool_manager=SimpleNamespace(get_n_gpus=lambda: 1),
    )
    SeparateRayPPOTrainer._fit_collect_metrics(trainer, batch)
    assert group_metrics(trainer.metrics) == EXPECTED


def test_wasted_rollouts_are_those_without_advantage() -> None:
    """The count agrees with verl's GRPO estimator: all and only wasted rollouts get an advantage of zero."""
    import numpy as np
    import torch
    from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage
    from verl.trainer.ppo.metric_utils import compute_data_metrics

    generator = torch.Generator().manual_seed(0)
    rewards = torch.randint(0, 2, (64 * 4,), generator=generator).tolist()
    uids = [f"prompt_{row // 4}" for row in range(len(rewards))]
    batch = batch_of(rewards, uid=uids)
    advantages, _ = compute_grpo_outcome_advantage(
        batch.batch["token_level_rewards"], batch.batch["response_mask"], np.array(uids)
    )
    wasted = int((advantages == 0).all(-1).sum())
    assert 0 < wasted < len(rewards)
    assert group_metrics(compute_data_metrics(batch, use_critic=False)) == {
        PREFIX + "count": wasted / 4,
        PREFIX + "share": wasted / len(rewards),
        PREFIX + "wasted_rollouts": wasted,
    }


def test_nearly_equal_or_undefined_rewards_are_a_signal() -> None:
    """GRPO divides by the deviation, so the smallest difference counts; NaN equals nothing."""
    from verl.trainer.ppo.metric_utils import compute_data_metrics

    batch = batch_of([1.0, 1.0 + 2**-23, float("nan"), float("nan")], uid=["a", "a", "b", "b"])
    metrics = group_metrics(compute_data_metrics(batch, use_critic=False))
    assert metrics == {PREFIX + "count": 0, PREFIX + "share": 0.0, PREFIX + "wasted_rollouts": 0}


@pytest.mark.parametrize("non_tensor", [{}, {"uid": ["a", "b", "c"]}, {"key": ["x", "y", "z"]}])
def test_no_groups_no_metrics_and_nothing_else_changes(non_tensor: dict[str, list[str]]) -> None:
    """Without groups the log is upstream's; with groups only the three keys are added."""
    from verl.trainer.ppo.metric_utils import compute_data_metrics

    rewards = [0.0, 1.0, 1.0]
    plain = compute_data_metrics(batch_of(rewards), use_critic=False)
    assert not group_metrics(plain)
    assert compute_data_metrics(batch_of(rewards, **non_tensor), use_critic=False) == plain
    grouped = compute_data_metrics(batch_of(rewards, uid=["a", "b", "b"]), use_critic=False)
    assert {name: value for name, value in grouped.items() if not name.startswith(PREFIX)} == plain
