"""research/auxiliary-loss: verl's real actor loss with and without the auxiliary term, down to the bits.

Nothing is replaced; the model is a table of logits, so that the gradient can be compared in full. What the
term does to a training run is an experiment, and no CPU test can tell.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

import pytest

pytestmark = pytest.mark.needs("torch", "ray", "tensordict", "transformers", "omegaconf")

MODES = ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"]
NAME = "actor/positive_nll_loss"
PROMPTS, RESPONSES, VOCABULARY = [2, 1, 3, 2], [3, 4, 2, 4], 11
ADVANTAGES = [1.5, -0.5, 0.0, 0.25]


def config_of(**changes: Any) -> Any:
    from verl.workers.config import FSDPActorConfig

    return FSDPActorConfig(rollout_n=4, ppo_micro_batch_size_per_gpu=4, **changes)


def nested(rows: list[Any]) -> Any:
    import torch

    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def step(config: Any, loss_fn: Any = None) -> tuple[Any, Any, dict[str, Any], Any]:
    """Forward and backward on a fixed batch of four responses: loss, gradient, metrics, log-probabilities."""
    import torch
    from tensordict import NonTensorData, TensorDict
    from verl.workers.utils.losses import ppo_loss

    generator = torch.Generator().manual_seed(7)
    lengths = [prompt + response for prompt, response in zip(PROMPTS, RESPONSES, strict=True)]
    logits = torch.randn(sum(lengths), VOCABULARY, generator=generator).requires_grad_()
    targets = torch.randint(0, VOCABULARY, (sum(lengths), 1), generator=generator)
    table = torch.log_softmax(logits, dim=-1)
    log_probs = table.gather(-1, targets).squeeze(-1)
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    entropy = -(table.exp() * table).sum(-1)
    output = {
        "log_probs": torch.nested.nested_tensor_from_jagged(log_probs, offsets),
        "entropy": torch.nested.nested_tensor_from_jagged(entropy, offsets),
    }

    noise = [0.3 * torch.randn(length, generator=generator) for length in RESPONSES]
    starts = [offset + prompt - 1 for offset, prompt in zip(offsets.tolist(), PROMPTS, strict=False)]
    taken = [log_probs[start : start + length] for start, length in zip(starts, RESPONSES, strict=True)]
    rows = list(zip(taken, noise, ADVANTAGES, strict=True))
    masks = [torch.ones(length, dtype=torch.long) for length in RESPONSES]
    masks[3][1] = 0  # a token of the environment, inside a response
    data = TensorDict(
        {
            "prompts": nested([torch.ones(length, dtype=torch.long) for length in PROMPTS]),
            "responses": nested([torch.ones(length, dtype=torch.long) for length in RESPONSES]),
            "response_mask": nested(masks),
            "old_log_probs": nested([(row + shift).detach() for row, shift, _ in rows]),
            "ref_log_prob": nested([(row - shift).detach() for row, shift, _ in rows]),
            "advantages": nested([torch.full_like(shift, advantage) for _, shift, advantage in rows]),
            "dp_size": NonTensorData(1),
            "batch_num_tokens": NonTensorData(int(sum(mask.sum() for mask in masks))),
            "global_batch_size": NonTensorData(len(RESPONSES)),
        },
        batch_size=len(RESPONSES),
    )
    loss, metrics = (loss_fn or ppo_loss)(config, output, data)
    loss.backward()
    logged = {name: getattr(metric, "values", metric) for name, metric in metrics.items()}
    return loss.detach(), logits.grad, logged, taken


def without_the_term() -> Any:
    """The patched loss function with every statement that names the coefficient cut out: upstream's text."""
    from verl.workers.utils import losses

    tree = ast.parse(textwrap.dedent(inspect.getsource(losses.ppo_loss)))
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    kept = [statement for statement in function.body if "positive_nll_coef" not in ast.unparse(statement)]
    assert len(kept) == len(function.body) - 1
    function.body = kept
    names = dict(vars(losses))
    exec(compile(tree, losses.__file__, "exec"), names)
    return names["ppo_loss"]


def bits(tensor: Any) -> bytes:
    return tensor.numpy().tobytes()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("extra", [{}, {"entropy_coeff": 0.01, "use_kl_loss": True}])
def test_zero_changes_no_bit(mode: str, extra: dict[str, Any]) -> None:
    """A baseline step can be gated first: 0.0, default or explicit, gives upstream's bits and metrics."""
    upstream = step(config_of(loss_agg_mode=mode, **extra), without_the_term())
    for zero in ({}, {"positive_nll_coef": 0.0}, {"positive_nll_coef": -0.0}, {"positive_nll_coef": 0}):
        loss, gradient, metrics, _ = step(config_of(loss_agg_mode=mode, **extra, **zero))
        assert bits(loss) == bits(upstream[0])
        assert bits(gradient) == bits(upstream[1])
        assert metrics == upstream[2]
        assert NAME not in metrics


def test_the_term_is_the_likelihood_of_better_responses() -> None:
    """By hand: minus the log-probabilities of responses 0 and 3, over all 12 response tokens."""
    import torch

    base, _, _, taken = step(config_of())
    loss, _, metrics, _ = step(config_of(positive_nll_coef=0.1))
    positive = torch.cat([taken[0], taken[3][[0, 2, 3]]]).detach()
    expected = -positive.sum().item() / 12
    assert metrics[NAME] == [pytest.approx(expected)]
    assert (loss - base).item() == pytest.approx(0.1 * expected, rel=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_it_takes_part_in_loss_and_gradient(mode: str) -> None:
    """Twice the coefficient, twice the change; only tokens of better responses feel it."""
    import torch

    base = step(config_of(loss_agg_mode=mode))
    once = step(config_of(loss_agg_mode=mode, positive_nll_coef=0.1))
    twice = step(config_of(loss_agg_mode=mode, positive_nll_coef=0.2))
    change = once[1] - base[1]
    torch.testing.assert_close(twice[0] - base[0], 2 * (once[0] - base[0]), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(twice[1] - base[1], 2 * change, rtol=1e-4, atol=1e-6)

    touched = change.abs().sum(-1) > 1e-7
    assert torch.nonzero(touched).flatten().tolist() == [1, 2, 3, 16, 18, 19]
    assert {name: value for name, value in once[2].items() if name != NAME} == base[2]


def actor_config_of(*overrides: str) -> Any:
    """The actor's configuration as the command line of a trainer makes it."""
    from importlib.util import find_spec
    from pathlib import Path

    import hydra

    spec = find_spec("verl")
    assert spec is not None and spec.origin is not None
    with hydra.initialize_config_dir(str(Path(spec.origin).parent / "trainer" / "config"), version_base=None):
        return hydra.compose("ppo_trainer", [*overrides]).actor_rollout_ref.actor


@pytest.mark.needs("hydra")
@pytest.mark.parametrize("engine", ["dp", "megatron"])
def test_the_override_reaches_the_loss(engine: str) -> None:
    """Unpatched, the override is refused: "Key 'positive_nll_coef' is not in struct"."""
    from verl.utils.config import omega_conf_to_dataclass

    common = [f"model_engine={engine}", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4"]
    default = omega_conf_to_dataclass(actor_config_of(*common))
    changed = omega_conf_to_dataclass(actor_config_of(*common, "actor_rollout_ref.actor.positive_nll_coef=0.1"))
    assert repr(default.positive_nll_coef) == "0.0"
    assert NAME not in step(default)[2]
    assert NAME in step(changed)[2]
