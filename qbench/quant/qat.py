"""Quantization-aware training: a normal training loop around a fake-quantized model."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from qbench.errors import BuildError
from qbench.quant import torch_ao
from qbench.quant.recipe import Recipe


def train(
    module: Any,
    engine: str,
    recipe: Recipe,
    inputs: tuple[Any, ...],
    labels: Any,
    progress: Callable[[str, float], None],
) -> Any:
    """The int8 GraphModule after ``recipe.epochs`` of training on tensors (first axis = example).

    Adam with a cosine schedule, cross-entropy, seeded; observers and BatchNorm statistics are frozen for the
    second half of the last epoch, so that the weights settle on the scales that ship.
    """
    import torch
    from torch.nn.functional import cross_entropy

    epochs, size = recipe.epochs or 1, recipe.batch_size or 64
    torch.manual_seed(recipe.seed or 0)
    shuffle = torch.Generator().manual_seed(recipe.seed or 0)
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
            loss = cross_entropy(prepared(*(tensor[index] for tensor in inputs)), labels[index])
            value = float(loss.detach())
            if not math.isfinite(value):
                raise BuildError(f"QAT diverged: the loss is {value} in epoch {epoch + 1}; lower learning_rate")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            progress(f"QAT epoch {epoch + 1}/{epochs} loss {value:.3f}", step / total)
    return torch_ao.convert_qat(prepared)
