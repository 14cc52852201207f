"""Quantization-aware training: a normal training loop around a fake-quantized model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from qbench.errors import BuildError
from qbench.quant import forward, loss, torch_ao
from qbench.quant.recipe import Recipe

PROBES = 2  # examples whose outputs decide the loss; two, so that the axis of the examples is seen


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The int8 GraphModule, and the name of the loss that it was trained with (torch's own name)."""

    module: Any
    loss: str


def train(
    module: Any,
    engine: str,
    recipe: Recipe,
    inputs: tuple[Any, ...],
    labels: Any,
    progress: Callable[[str, float], None],
) -> Trained:
    """The int8 model after ``recipe.epochs`` of training on tensors (first axis = example).

    Adam with a cosine schedule, seeded, on the loss that fits outputs and labels (``loss.choose``); of several
    outputs the first is trained. Observers and BatchNorm statistics are frozen for the second half of the last
    epoch, so that the weights settle on the scales that ship.
    """
    import torch

    epochs, size = recipe.epochs or 1, recipe.batch_size or 64
    torch.manual_seed(recipe.seed or 0)
    shuffle = torch.Generator().manual_seed(recipe.seed or 0)
    with torch.inference_mode():
        chosen = loss.choose(forward.first(module(*(tensor[:PROBES] for tensor in inputs))), labels)
    prepared = torch_ao.prepare_qat(module, engine, recipe, tuple(tensor[:1] for tensor in inputs))
    batches_each = max(1, len(labels) // size)
    total = epochs * batches_each
    optimizer = torch.optim.Adam(prepared.parameters(), lr=recipe.learning_rate or 1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=total)
    step = 0
    for epoch in range(epochs):
        order = torch.randperm(len(labels), generator=shuffle)
        for start in range(0, batches_each * size, size):
            if step == total - batches_each // 2:
                torch_ao.freeze_observers(prepared)
                torch_ao.freeze_batch_norm(prepared)
            index = order[start : start + size]
            outputs = forward.first(prepared(*(tensor[index] for tensor in inputs)))
            missed = chosen.of(outputs, chosen.targets[index])
            value = float(missed.detach())
            if not math.isfinite(value):
                raise BuildError(f"QAT diverged: the loss is {value} in epoch {epoch + 1}; lower learning_rate")
            optimizer.zero_grad()
            missed.backward()
            optimizer.step()
            schedule.step()
            step += 1
            progress(f"QAT epoch {epoch + 1}/{epochs} {chosen.name} {value:.3f}", step / total)
    return Trained(module=torch_ao.convert_qat(prepared), loss=chosen.name)
