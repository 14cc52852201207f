"""A loss of the user's own: ``fn(outputs, labels)`` returns one number, the mean over the batch, as a tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qbench import user_code
from qbench.errors import BuildError
from qbench.quant import model_call, training_code
from qbench.quant.pytorch import loss


def choose(text: str, base: Path | None, outputs: Any, labels: Any) -> loss.Loss:
    """The loss for what the network returns for a few examples, and for all labels. What is right, and how far two
    outputs are from each other, is as ``loss.choose`` has it where the first output fits the labels."""
    import torch

    function, file = training_code.load(text, base)
    first = model_call.first(outputs)
    try:
        known = loss.choose(first, labels)
    except BuildError:
        known = loss.imitate(first)

    def call(found: Any, wanted: Any) -> Any:
        value = user_code.call(function, found, wanted, path=file, error=BuildError)
        if not isinstance(value, torch.Tensor):
            got = "nothing (is a `return` missing?)" if value is None else f"a {type(value).__name__}"
            raise BuildError(f"the loss {text} returned {got}; expected one number as a tensor, with its gradient")
        if value.numel() != 1:
            shape = ", ".join(map(str, value.shape))
            raise BuildError(
                f"the loss {text} returned a tensor of shape ({shape}); expected one number: take its mean()"
            )
        if torch.is_grad_enabled() and not value.requires_grad:
            raise BuildError(
                f"the loss {text} returned a number without a gradient; compute it from the outputs by torch, without "
                "item(), detach() or numpy()"
            )
        return value.reshape(())

    return loss.Loss(name=text, targets=labels, of=call, distance=known.distance, right=known.right, whole=True)
