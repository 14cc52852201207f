"""The operators of a network whose int8 output range torch's engines fix."""

from __future__ import annotations

from pathlib import Path

from qbench.explain.open_case import OpenCase
from qbench.models.base import ModelReference
from qbench.network import load_network
from qbench.process.parent import call
from qbench.progress.live import Silent

_FLOWS = ("fx", "eager")  # those of torch's engines


def find_fixed_ranges(opened: OpenCase, progress: Silent) -> tuple[str, ...]:
    """The names of a case's sigmoid, tanh and softmax modules; none where its flow calibrates their ranges."""
    if opened.case.variant.recipe.flow not in _FLOWS:
        return ()
    model = opened.model
    names: tuple[str, ...] = call(
        list_fixed_ranges, model.reference, model.weights, limits=opened.limits, progress=progress.advance
    )
    return names


def list_fixed_ranges(reference: ModelReference, weights: Path | None, *, progress: object) -> tuple[str, ...]:
    """The names of a network's modules of these kinds, in this process, which is a child."""
    from torch import nn

    from qbench.quant.pytorch.eager import operator_support

    module = load_network(reference, weights).module
    kinds = (*operator_support.fixed(), nn.Softmax)
    return tuple(name for name, part in module.named_modules() if name and isinstance(part, kinds))
