"""Effect of device/padding-without-flash-attn.patch: verl's padding helpers where flash-attn can't be
imported.

Stand-in: a sys.modules entry (or a two-function module) that plays "flash_attn is missing" (or present);
the padding, the conversion of a batch and the log-probabilities are verl's own code on real tensors.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

pytestmark = pytest.mark.needs("torch", "transformers", "ray", "tensordict")


@pytest.fixture
def no_flash_attn(monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.utils import torch_functional  # first: it looks for flash-attn when it is imported

    monkeypatch.setattr(torch_functional, "FLAH_ATTN_CROSS_ENTROPY_LOSS_AVAILABLE", False)
    for name in ("flash_attn", "flash_attn.bert_padding"):
        monkeypatch.setitem(sys.modules, name, None)  # import raises ModuleNotFoundError


def batch() -> tuple[Any, Any]:
    import torch

    ids = torch.tensor([[0, 0, 5, 6, 7, 8], [0, 3, 4, 9, 2, 0]])
    return ids, (ids != 0).long()


@pytest.mark.usefixtures("no_flash_attn")
def test_unpad_and_pad_are_inverse_and_differentiable() -> None:
    """Without the patch: ModuleNotFoundError, No module named 'flash_attn'."""
    import torch
    from verl.utils.attention_utils import index_first_axis, pad_input, unpad_input

    _, mask = batch()
    hidden = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    flat, indices, cu_seqlens, max_seqlen, seqused = unpad_input(hidden, mask)
    assert flat.shape == (8, 3) and torch.equal(flat, hidden[mask.bool()])
    assert cu_seqlens.tolist() == [0, 4, 8] and cu_seqlens.dtype == torch.int32
    assert max_seqlen == 4 and seqused.tolist() == [4, 4]
    assert torch.equal(index_first_axis(hidden.flatten(0, 1), indices), flat)
    assert torch.equal(pad_input(flat, indices, 2, 6), hidden * mask.unsqueeze(-1))
    assert torch.autograd.gradcheck(lambda x: pad_input(unpad_input(x, mask)[0] ** 2, indices, 2, 6), hidden)


@pytest.mark.usefixtures("no_flash_attn")
def test_a_trainer_batch_loses_its_padding() -> None:
    """Without the patch the PPO trainer dies at its first left_right_2_no_padding, whatever attention is
    configured."""
    from tensordict import TensorDict
    from verl.workers.utils.padding import left_right_2_no_padding

    ids, mask = batch()
    data = TensorDict(
        {
            "input_ids": ids, "attention_mask": mask, "response_mask": mask[:, 3:],
            "position_ids": (mask.cumsum(-1) - 1).clamp(min=0),
        },
        batch_size=2,
    )  # fmt: skip
    data = left_right_2_no_padding(data)
    assert [row.tolist() for row in data["input_ids"].unbind()] == [[5, 6, 7, 8], [3, 4, 9, 2]]
    assert [row.tolist() for row in data["position_ids"].unbind()] == [[0, 1, 2, 3], [0, 1, 2, 3]]


@pytest.mark.usefixtures("no_flash_attn")
def test_log_probs_of_packed_logits_equal_those_of_padded_ones() -> None:
    """Without the patch both *_rmpad functions import flash_attn themselves."""
    import torch
    from verl.utils import torch_functional

    ids, mask = torch.arange(1, 13).view(2, 6), torch.ones(2, 6, dtype=torch.long)
    logits = torch.randn(2, 6, 16)
    expected = torch_functional.log_probs_from_logits_response(ids, logits, 3)
    packed = logits.flatten(0, 1)
    one = torch_functional.log_probs_from_logits_response_rmpad(ids, mask, packed, 3)
    two = torch_functional.log_probs_from_logits_all_rmpad(
        ids.view(1, -1), packed, torch.arange(12), batch_size=2, seqlen=6, response_length=3
    )
    torch.testing.assert_close(one, expected)
    torch.testing.assert_close(two, expected)


def test_flash_attn_is_used_where_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """With flash-attn importable its own functions are called, with and without the patch."""
    from verl.utils import attention_utils

    padding = types.ModuleType("flash_attn.bert_padding")
    for name in ("index_first_axis", "pad_input", "rearrange", "unpad_input"):
        setattr(padding, name, lambda *args, called=name: ("flash_attn", called, args))
    monkeypatch.setitem(sys.modules, "flash_attn", types.ModuleType("flash_attn"))
    monkeypatch.setitem(sys.modules, "flash_attn.bert_padding", padding)
    monkeypatch.setattr("verl.utils.device.is_torch_npu_available", lambda check_device=True: False)
    for name in ("index_first_axis", "pad_input", "rearrange", "unpad_input"):
        assert getattr(attention_utils, name)(1, 2) == ("flash_attn", name, (1, 2))
