"""Places of a graph that FX or PT2E prepares which int8 cannot hold: what is no float tensor, and masks of -inf.

FX decides by operators, not by values: it puts observers on comparisons, complex spectra, numbers that a shape gives
and attention masks. What is taken away here stays as it is, and so do the operators around it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from qbench.quant.pytorch.clamp_fusion import watching

_ANNOTATION = "quantization_annotation"  # of torch.ao and torchao: what to observe around a node


def drop(prepared: Any, examples: tuple[Any, ...], *, infinite: bool) -> None:
    """Takes observers away where what they watch is no float tensor on these examples (one tensor per input), with
    ``infinite`` also where it holds infinite values while the network's outputs are finite."""
    looking = _Looking(prepared)
    modes = {part: part.training for part in prepared.modules()}
    prepared.eval()
    try:
        with torch.no_grad():
            outputs = looking.run(*examples)
    finally:
        for part, training in modes.items():
            part.training = training
    unfit = looking.no_floats | (looking.infinite if infinite and finite(outputs) else set())
    _remove(prepared, unfit)


def unannotate(graph: Any, floats: Collection[Any]) -> None:
    """Takes the annotation of operators of an exported graph away that are among ``floats``, or have an operand that is
    no float tensor: the product with a mask, say. X86InductorQuantizer decides by operators, too."""
    for node in graph.nodes:
        operands = [operand.meta.get("val") for operand in node.all_input_nodes]
        if node in floats or any(
            isinstance(value, torch.Tensor) and value.dtype != torch.float32 for value in operands
        ):
            node.meta.pop(_ANNOTATION, None)


def drop_infinite(prepared: Any) -> None:
    """Takes observers away that have met infinite values: for calibrated graphs whose outputs were finite on all
    examples."""
    observers = (watching(node, prepared) for node in prepared.graph.nodes)
    _remove(prepared, {id(observer) for observer in observers if met_infinity(observer)})


def met_infinity(observer: Any) -> bool:
    """Whether an observer has met infinite values, and no NaN."""
    inner = getattr(observer, "inner", observer)
    low, high = getattr(inner, "min_val", None), getattr(inner, "max_val", None)
    if low is None or high is None or low.numel() == 0:
        return False
    fresh = bool((low == torch.inf).any()) and bool((high == -torch.inf).any())
    ends = torch.cat([low.reshape(-1), high.reshape(-1)])
    return not fresh and bool(ends.isinf().any()) and not bool(ends.isnan().any())


def finite(outputs: Any) -> bool:
    """Whether every float among a network's outputs is a number."""
    from qbench.torch_private import pytree

    tensors = [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
    return all(bool(tensor.isfinite().all()) for tensor in tensors)


class _Looking(torch.fx.Interpreter):  # type: ignore[misc]  # torch is Any to mypy
    """Runs a prepared graph past its observers and keeps which of them (by id) would watch what they cannot."""

    def __init__(self, prepared: Any) -> None:
        super().__init__(prepared)
        self.no_floats: set[int] = set()
        self.infinite: set[int] = set()

    def run_node(self, n: Any) -> Any:
        observer = watching(n, self.module)
        if observer is None:
            return super().run_node(n)
        value = self.env[n.args[0]]
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
            self.no_floats.add(id(observer))
        elif bool(value.isinf().any()):
            self.infinite.add(id(observer))
        return value


def _remove(prepared: Any, unfit: set[int]) -> None:
    """Takes away the calls of observers by their ids: one that watches several places goes from all of them."""
    nodes = [node for node in prepared.graph.nodes if id(watching(node, prepared)) in unfit]
    for node in nodes:
        node.replace_all_uses_with(node.args[0])
        prepared.graph.erase_node(node)
    prepared.recompile()
