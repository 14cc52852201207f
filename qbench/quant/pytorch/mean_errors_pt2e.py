"""As ``mean_errors``, for a converted graph of float operators between quantize and dequantize nodes (PT2E)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

from qbench.quant.artifacts import torch_export
from qbench.quant.pytorch import mean_errors
from qbench.quant.pytorch.mean_errors import MeanErrors
from qbench.quant.pytorch.narrow_weights_pt2e import held, list_weights, read_kernel
from qbench.quant.pytorch.packed_layers import find_rounded

_BIAS = 2  # its place among the arguments of a convolution and of a matrix product


def give_back(module: Any, floats: Mapping[str, Any], batches: Iterable[tuple[Any, ...]]) -> None:
    """Changes the biases of a converted graph in place, as ``mean_errors.give_back`` does."""
    watched = {}
    for node, weight in list_weights(module):
        rounded = find_rounded(weight, floats.get(str(torch_export.layer_name(node))))
        bias = node.args[_BIAS] if len(node.args) > _BIAS else None
        if rounded is not None and (bias is None or bias.op == "get_attr"):
            watched[node] = MeanErrors(kernel=read_kernel(node), errors=weight.dequantize() - rounded)

    class Watching(torch.fx.Interpreter):  # type: ignore[misc]  # torch is Any to mypy
        def run_node(self, node: Any) -> Any:
            if node in watched:
                watched[node].add(self.env[node.args[0]])
            return super().run_node(node)

    with torch.inference_mode():
        for batch in mean_errors.take(batches):
            Watching(module).run(*batch)
    for place, (node, errors) in enumerate(watched.items()):
        if (error := errors.find()) is not None:
            _subtract(module, node, error, f"_mean_error_{place}")
    module.recompile()


def _subtract(module: Any, node: Any, error: Any, name: str) -> None:
    """Takes values off the bias of a node; one that has none of its own gets one, by that name."""
    bias = node.args[_BIAS] if len(node.args) > _BIAS else None
    parameter: Any = None if bias is None else held(module, bias.target)
    reading = (each for each in module.graph.nodes if bias is not None and each.target == bias.target)
    if sum(len(each.users) for each in reading) == 1:
        parameter.data = parameter.data - error
        return
    module.register_buffer(name, -error if parameter is None else parameter.detach() - error)
    with module.graph.inserting_before(node):
        attribute = module.graph.get_attr(name)
    node.args = (*node.args[:_BIAS], attribute, *node.args[_BIAS + 1 :])
