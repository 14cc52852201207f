"""The operators of a network whose int8 output range torch's engines fix."""

from __future__ import annotations

from pathlib import Path

from qbench.backends.base import Inputs
from qbench.explain.open_case import OpenCase
from qbench.models.base import ModelReference
from qbench.network import load_network
from qbench.process.parent import call
from qbench.progress.live import Silent

_FLOWS = ("fx", "eager")  # those of torch's engines


def find_fixed_ranges(opened: OpenCase, progress: Silent) -> tuple[str, ...]:
    """The names of a case's sigmoid, tanh and softmax modules; none where its flow calibrates their ranges. Calls count
    where the network is rewritten first, which makes modules of them."""
    recipe = opened.case.variant.recipe
    if recipe.flow not in _FLOWS:
        return ()
    names: tuple[str, ...] = call(
        list_fixed_ranges,
        opened.model.reference,
        opened.model.weights,
        opened.data.evaluation(0, 2) if recipe.canonicalize else None,
        limits=opened.limits,
        progress=progress.advance,
    )
    return names


def list_fixed_ranges(
    reference: ModelReference, weights: Path | None, examples: Inputs | None, *, progress: object
) -> tuple[str, ...]:
    """The names of a network's modules of these kinds, in this process, which is a child; of the network rewritten for
    quantizers where there are ``examples`` to prove that on."""
    from torch import nn

    from qbench.backends.torch_runner import tensors
    from qbench.quant import canonical
    from qbench.quant.pytorch.eager import operator_support

    module = load_network(reference, weights).module
    if examples is not None:
        module = canonical.canonicalize(module, tensors(examples)).module
    kinds = (*operator_support.fixed(), nn.Softmax)
    return tuple(name for name, part in module.named_modules() if name and isinstance(part, kinds))
