"""What the flows of torch.ao (fx, eager) share in QAT: freezing, train and eval mode, a network with nothing to train.

A frozen BatchNorm is marked by a buffer, which a GraphModule's copy keeps.
"""

from __future__ import annotations

from typing import Any

from qbench.errors import BuildError, ModeImpossible, first_names
from qbench.quant.pytorch import torch_ao

FROZEN = "qbench_frozen"


def freeze_observers(prepared: Any) -> None:
    """Scales and zero points stay as they are from here on."""
    prepared.apply(torch_ao.disable_observer)


def freeze_batch_norm(prepared: Any) -> None:
    """BatchNorm statistics stay as they are from here on, as in the int8 model."""
    import torch

    from qbench.torch_private import BatchNorm

    prepared.apply(torch_ao.freeze_bn_stats)
    for part in prepared.modules():
        if isinstance(part, BatchNorm):
            part.register_buffer(FROZEN, torch.tensor(True), persistent=False)
            part.eval()


def qat_modes(prepared: Any, training: bool) -> None:
    """Train or eval mode; a frozen BatchNorm stays in eval mode."""
    prepared.train(training)
    for part in prepared.modules():
        if hasattr(part, FROZEN):
            part.eval()


def nothing_faked(module: Any, skipped: bool, trains: str) -> BuildError:
    """The refusal of a network that ``prepare`` put no fake quantization into: a skip, unless layers were left out.

    ``trains``: in words, which layers the flow trains with fake quantization.
    """
    kinds = {type(part).__name__ for part in module.modules() if any(True for _ in part.parameters(recurse=False))}
    has = f"; it has {first_names(sorted(kinds))}" if kinds else ""
    return (BuildError if skipped else ModeImpossible)(
        "prepare inserted no fake-quantize on any weight: this would be plain fp32 training; "
        f"{trains}, and this network has none{' that is not skipped' if skipped else ''}{has}; use static instead"
    )
