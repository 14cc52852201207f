"""What a training lowers: the loss of the labels, the distance to the fp32 network's outputs, or a mix of the two."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from qbench.errors import BuildError, ModeImpossible
from qbench.quant import model_call
from qbench.quant.pytorch import loss

PROBES = 2  # examples whose outputs decide the loss; two, so that the axis of the examples is seen


@dataclass(frozen=True, kw_only=True)
class Aim:
    """What training lowers: a share of it the loss of the labels, ``distill`` the distance to the teacher's outputs."""

    loss: loss.Loss
    distill: float
    teacher: Any  # the fp32 network's first output for every example; None without distillation

    @property
    def name(self) -> str:
        """The loss by torch's name, and the share of the distance."""
        if not self.distill:
            return self.loss.name
        distance = f"{self.distill:.0%} distance to the fp32 network's outputs"
        return distance if self.distill == 1 else f"{self.loss.name} and {distance}"

    def of(self, outputs: Any, index: Any) -> Any:
        """The mean over the examples of ``index``, as a tensor to differentiate; ``outputs`` is what the network
        returned for them."""
        first = model_call.first(outputs)
        labels: Any = 0.0
        if self.distill < 1:
            labels = self.loss.of(outputs if self.loss.whole else first, self.loss.targets[index])
        if not self.distill:
            return labels
        expected = self.teacher[index]
        if first.shape != expected.shape:
            raise ModeImpossible(
                f"in train mode the network gives {tuple(first.shape)} where it gives {tuple(expected.shape)} in eval "
                "mode, so that its outputs cannot be held against those of fp32 while it is trained; train it by a "
                "loop of your own (quantize.qat.train: {python: file.py:train}), or leave qat out"
            )
        return (1 - self.distill) * labels + self.distill * self.loss.distance(first, expected)

    def right(self, outputs: Any, index: Any) -> int | None:
        """How many predictions are right; None where the task has no right and wrong."""
        first = model_call.first(outputs).detach()
        return self.loss.right(first, self.loss.targets[index]) if self.loss.right else None


def aim(
    module: Any,
    share: float,
    inputs: tuple[Any, ...],
    labels: Any,
    size: int,
    named: Callable[[Any, Any], loss.Loss] | None = None,
) -> Aim:
    """The aim for a network in eval mode and its training examples; the teacher's outputs are made in batches of
    ``size`` and all kept. With a share of 1 any outputs will do: where labels fit none, they are not looked at,
    and where there are none (None) they are not missed. ``named(outputs, labels)``: the loss that the recipe names."""
    import torch

    with torch.inference_mode():
        returned = module(*(tensor[:PROBES] for tensor in inputs))
    outputs = model_call.first(returned)
    if named is not None and labels is not None:
        teacher = _outputs(module, inputs, size) if share else None
        return Aim(loss=named(returned, labels), distill=share, teacher=teacher)
    try:
        chosen = loss.imitate(outputs) if labels is None else loss.choose(outputs, labels)
    except BuildError:
        if share < 1 or labels is None:
            raise
        chosen = loss.imitate(outputs)
    teacher = _outputs(module, inputs, size) if share else None
    return Aim(loss=chosen, distill=share, teacher=teacher)


def _outputs(module: Any, inputs: tuple[Any, ...], size: int) -> Any:
    """The first output for every example: once for all epochs, since examples do not change between them."""
    import torch

    with torch.no_grad():  # inference tensors could not be saved for the backward pass
        pieces = zip(*(tensor.split(size) for tensor in inputs), strict=True)
        return torch.cat([model_call.first(module(*piece)) for piece in pieces])
