"""Gradients of a batch in parts: computed beside each other, summed in one order, so that the number of cores that
work on them changes no bit of the weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from qbench.process.threads import set_torch

if TYPE_CHECKING:
    from torch import Tensor, nn

Loss = Callable[[Any, Any], Any]  # of outputs and labels of a batch, the mean over its examples
FEWEST = 2  # examples in a part: BatchNorm cannot train on one


class Shards:
    """A network in train mode and ``count`` copies of it, one for each part of a batch; a context manager.

    Each part is computed on one thread. BatchNorm sees a part at a time (ghost batch normalization: Hoffer et al.,
    2017, arXiv:1705.08741), and its running statistics are the means over the parts.
    """

    def __init__(self, module: nn.Module, count: int, cores: int, loss: Loss | None = None) -> None:
        self._module, self._loss = module, loss
        self._copies = [copy.deepcopy(module) for _ in range(count)] if count > 1 else [module]
        threads = min(cores, count)
        self._pool = ThreadPoolExecutor(threads, initializer=set_torch, initargs=(1,))
        # One alone has nobody to hand a part to.
        self._map = map if threads == 1 else self._pool.map

    def __enter__(self) -> Shards:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def gradients(self, inputs: list[Tensor], targets: Tensor) -> tuple[float, int | None]:
        """Leaves the gradients of the batch's mean loss in the network; the loss, and how many predictions were right
        (None: with a loss of their own they are no classes).

        ``inputs`` are (n, ...) each, ``targets`` (n,) class numbers, or what the loss takes.
        """
        count = max(1, min(len(self._copies), len(targets) // FEWEST))
        copies = self._copies[:count]
        columns = [x.tensor_split(count) for x in inputs]
        parts = [
            (module, [column[i] for column in columns], part, len(part) / len(targets))
            for i, (module, part) in enumerate(zip(copies, targets.tensor_split(count), strict=True))
        ]
        done = list(self._map(lambda part: self._train(*part), parts))
        self._collect(copies)
        losses, rights = zip(*done, strict=True)
        return sum(losses), None if self._loss is not None else sum(rights)

    def _train(self, module: nn.Module, inputs: list[Tensor], targets: Tensor, share: float) -> tuple[float, int]:
        """One part: its share of the loss and of the gradients, and how many predictions were right."""
        from torch.nn.functional import cross_entropy

        self._follow(module)
        outputs = module(*inputs)
        loss = (cross_entropy if self._loss is None else self._loss)(outputs, targets) * share
        loss.backward()
        if self._loss is not None:
            return float(loss.detach()), 0
        return float(loss.detach()), int((outputs.argmax(dim=1) == targets).sum())

    def _follow(self, module: nn.Module) -> None:
        """Gives a copy the network's weights and statistics, and no gradients."""
        import torch

        for parameter in module.parameters():
            parameter.grad = None
        if module is self._module:
            return
        with torch.no_grad():
            for own, first in zip(_tensors(module), _tensors(self._module), strict=True):
                own.copy_(first)

    def _collect(self, copies: list[nn.Module]) -> None:
        """Gives the network the sum of the copies' gradients and the mean of their statistics, in the copies' order."""
        import torch

        if copies[0] is self._module:
            return
        with torch.no_grad():
            for own, *parts in zip(self._module.parameters(), *(copy.parameters() for copy in copies), strict=True):
                own.grad = None if parts[0].grad is None else _sum([part.grad for part in parts])
            for own, *parts in zip(self._module.buffers(), *(copy.buffers() for copy in copies), strict=True):
                own.copy_(_sum(parts) / len(parts) if own.is_floating_point() else parts[0])


def _tensors(module: nn.Module) -> list[Any]:
    return [*module.parameters(), *module.buffers()]


def _sum(parts: list[Any]) -> Any:
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total
