"""Weights with which sums hold, in a graph of float operators between quantize and dequantize nodes (PT2E).

A package that Inductor compiles calls oneDNN's kernels, which the engine onednn calls, too: they are asked there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from qbench.quant.artifacts import torch_export
from qbench.quant.pytorch import narrow_weights
from qbench.quant.pytorch.older_kernels import process_engine
from qbench.quant.pytorch.packed_layers import LayerKernel

_DEQUANTIZE = "quantized_decomposed.dequantize_per_channel.default"
_CONVOLUTION, _LINEAR = "aten.conv2d.default", "aten.linear.default"
_DEFAULTS: list[Any] = [[1, 1], [0, 0], [1, 1], 1]  # stride, padding, dilation, groups


def hold(
    module: Any, floats: Mapping[str, Any], *, narrow: bool, kernels: narrow_weights.Kernels = narrow_weights.HERE
) -> narrow_weights.Sums:
    """As ``narrow_weights.hold``, for a converted graph, which is changed."""
    sums = narrow_weights.Sums()
    with process_engine("onednn"):
        for node, weight in list_weights(module):
            kernel, name = read_kernel(node), str(torch_export.layer_name(node))
            fitted = narrow_weights.ask(sums, kernels, name, kernel, weight, floats.get(name), narrow=narrow)
            if fitted is not weight:
                levels, scales = _read_constants(module, node)
                levels.data.copy_(fitted.int_repr())
                scales.data.copy_(fitted.q_per_channel_scales())
    return sums


def list_weights(module: Any) -> Iterator[tuple[Any, Any]]:
    """(node, quantized weight) of each convolution and matrix product with int8 weights by output channel."""
    import torch

    from qbench.torch_private import make_per_channel_quantized_tensor

    for node in module.graph.nodes:
        source: Any = node.args[1] if len(node.args) > 1 else None
        if str(node.target) not in (_CONVOLUTION, _LINEAR) or str(getattr(source, "target", "")) != _DEQUANTIZE:
            continue
        if source.args[3] == 0:
            levels, scales = _read_constants(module, node)
            zeros = torch.zeros(len(scales), dtype=torch.long)
            yield node, make_per_channel_quantized_tensor(levels.data, scales.double(), zeros, 0)


def _read_constants(module: Any, node: Any) -> tuple[Any, Any]:
    """The integers of a node's weight, and their scales."""
    levels, scales = (held(module, argument.target) for argument in node.args[1].args[:2])
    return levels, scales


def held(module: Any, path: str) -> Any:
    """What a module holds under a path."""
    owner, _, name = path.rpartition(".")
    return getattr(module.get_submodule(owner), name)


def read_kernel(node: Any) -> LayerKernel:
    """What a node computes."""
    if str(node.target) == _LINEAR:
        return LayerKernel(kind="linear")
    arguments = list(node.args[3:])
    stride, padding, dilation, groups = arguments + _DEFAULTS[len(arguments) :]
    return LayerKernel(
        kind="conv",
        dimensions=2,
        stride=tuple(stride),
        padding=tuple(padding),
        dilation=tuple(dilation),
        groups=int(groups),
    )
