"""Layers that ONNX Runtime runs faster in float than on bytes, told by their shapes.

Its float convolutions read the image of a caller as it lies. Those on bytes want it quantized, its channels last, and
each window copied; few channels in and out do not pay for that. Processor time on bytes over that in float, with the
layer behind on bytes, one thread, AVX512-VNNI (``tests/benchmarks/first_layer.py``): three channels in, 3x3, Relu
behind: 1.52 with 16 channels out, 1.15 with 32, 0.84 with 64; 7x7 with 64: 0.64. With a Hardswish behind, which reads
floats: 1.75, 1.49, 1.45 and 0.92; one channel, 9x9: 1.10. Without VNNI bytes are slower still.
"""

from __future__ import annotations

import math
from typing import Any

from qbench.quant.onnx.export.executed_layers import ON_BYTES
from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.graph.layers import STANDARD
from qbench.quant.onnx.sites import Sites

CHANNELS = 3  # most input channels of such a layer
# (most values of a window over all input channels, most output channels): bytes are read behind it, or floats.
_BYTES_BEHIND, _FLOATS_BEHIND = (32, 32), (81, 64)
_PREPROCESSING = ("Add", "Sub", "Mul", "Div", "Cast", "Transpose")
LARGEST_SHARE = 0.25  # of the multiply-accumulates that would run in int8: a network stays an int8 one
REASON = (
    "ONNX Runtime runs a first convolution of so few channels faster in float (first_layer_float: false quantizes it)"
)


def find_slow(graph: Graph, sites: Sites) -> dict[str, str]:
    """The layers of the sites of a prepared graph that are better left float -> why."""
    macs = {site.layer: _count_macs(graph, graph.node(site.layer)) for site in sites.weights}
    if not macs or any(count is None for count in macs.values()):
        return {}
    total = sum(count or 0 for count in macs.values())
    return {
        name: REASON
        for name, count in macs.items()
        if (count or 0) <= LARGEST_SHARE * total and _is_small_first(graph, sites, graph.node(name))
    }


def _is_small_first(graph: Graph, sites: Sites, node: Any) -> bool:
    """Whether a node is a convolution of few channels that alone reads an image of the caller."""
    if node.op_type != "Conv" or node.domain not in STANDARD or attribute(node, "group", 1) != 1:
        return False
    if len(graph.readers(node.input[0])) != 1 or not _comes_from_caller(graph, node.input[0]):
        return False
    shape = _weight_shape(graph, node)
    window, channels = _BYTES_BEHIND if _bytes_behind(graph, sites, node) else _FLOATS_BEHIND
    few = len(shape) == 4 and shape[1] <= CHANNELS
    return few and math.prod(shape[1:]) <= window and shape[0] <= channels


def _comes_from_caller(graph: Graph, tensor: str) -> bool:
    """Whether a tensor is an input of the graph, or one that is scaled, shifted or transposed."""
    maker = graph.maker(tensor)
    while maker is not None and maker.op_type in _PREPROCESSING and maker.domain in STANDARD:
        data = [name for name in maker.input if name and graph.constant(name) is None]
        if len(data) != 1:
            return False
        tensor, maker = data[0], graph.maker(data[0])
    return tensor in graph.inputs


def _bytes_behind(graph: Graph, sites: Sites, node: Any) -> bool:
    """Whether all who read what a layer gives, behind a Relu or Clip or not, run on bytes."""
    layers = {site.layer for site in sites.weights}
    readers = [reader for reader, _ in graph.readers(node.output[0])]
    return bool(readers) and all(
        reader.name in layers
        or reader.op_type in ON_BYTES
        or (reader.op_type in ("Relu", "Clip") and _bytes_behind(graph, sites, reader))
        for reader in readers
    )


def _weight_shape(graph: Graph, node: Any) -> tuple[int, ...]:
    weight = graph.constant(node.input[1])
    assert weight is not None, node.name
    return weight.shape


def _count_macs(graph: Graph, node: Any) -> int | None:
    """Multiply-accumulates of a layer for one example; None where the size of what it gives is not known."""
    shape, output = _weight_shape(graph, node), graph.shape(node.output[0])
    if output is None:
        return None
    places = output[2:] if node.op_type in ("Conv", "ConvTranspose") else output[1:-1]
    sizes = [size for size in places if isinstance(size, int)]
    return math.prod(shape) * math.prod(sizes) if len(sizes) == len(places) else None
