"""One forward and backward pass on one device, checked against float64 on the CPU. Prints one JSON document.

Question: {"dtype": "bfloat16" or another, "device": "cuda" or "cpu", "size": N}.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def passes(torch: Any, weights: list[Any], given: Any) -> tuple[Any, list[Any]]:
    """The loss of two layers and the gradients of their weights."""
    parameters = [weight.detach().clone().requires_grad_(True) for weight in weights]
    hidden = torch.nn.functional.gelu(given @ parameters[0])
    loss = (
        (hidden @ parameters[1]).float().pow(2).mean()
        if given.dtype != torch.float64
        else ((hidden @ parameters[1]).pow(2).mean())
    )
    loss.backward()
    return loss.detach(), [parameter.grad for parameter in parameters]


def relative(torch: Any, found: Any, true: Any) -> float:
    found = found.double().cpu()
    return float((found - true).norm() / true.norm())


def answer(question: dict[str, Any]) -> dict[str, Any]:
    try:
        import torch
    except ImportError as error:
        return {"not_run": f"torch cannot be imported: {error}"}
    device = question.get("device", "cuda")
    if device == "cuda" and not torch.cuda.is_available():
        return {"not_run": "torch sees no device"}
    size, dtype = int(question.get("size", 1024)), getattr(torch, question.get("dtype", "bfloat16"))
    torch.manual_seed(0)
    exact = [torch.randn(size, size, dtype=torch.float64) / size**0.5 for _ in range(2)]
    given = torch.randn(size, size, dtype=torch.float64)
    # The reference starts from the rounded numbers, so that only the arithmetic is compared.
    rounded = [weight.to(dtype) for weight in exact]
    true_loss, true_grads = passes(torch, [w.double() for w in rounded], given.to(dtype).double())
    loss, grads = passes(torch, [w.to(device) for w in rounded], given.to(dtype).to(device))
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "dtype": str(dtype),
        "finite": bool(torch.isfinite(loss)) and all(bool(torch.isfinite(grad).all()) for grad in grads),
        "loss": [float(loss), float(true_loss)],
        "errors": {
            "loss": abs(float(loss) - float(true_loss)) / abs(float(true_loss)),
            "gradients": max(relative(torch, found, true) for found, true in zip(grads, true_grads, strict=True)),
        },
    }


def main() -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.pop(0)  # the folder of this script
    print("\n" + json.dumps(answer(json.load(sys.stdin))))


if __name__ == "__main__":
    main()
