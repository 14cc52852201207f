"""Which inputs, beside those of the layers, are quantized so that ONNX Runtime runs the layers in int8."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.graph.layers import MOVES

# Layers whose int8 kernels in ONNX Runtime give int8 only; Gemm and MatMul give float from int8 inputs as well.
GIVE_INT8 = ("Conv", "ConvTranspose", "AveragePool")
FOLDED = ("Relu", "Clip")  # become part of the range of the layer before them
NO_VALUES = ("Shape", "Size")  # read the shape, not the values
# Convolutions behind which no other layer comes, with a smaller share of the multiply-accumulates, gain next to nothing
# in int8, while their outputs quantized cost much: U-Net, 0.3 %: 1.02 [0.99, 1.04] of the time, 47.7 to 45.5 dB; a
# detector's six heads, 2.2 %: 0.98 of the time, boxes and scores 59 to 47 dB (tests/benchmarks/by_hand.py).
LEAST_SHARE = 0.05
DECODING = 0.001  # of the multiply-accumulates: with fewer, a convolution of probabilities decodes what others give


def find(
    graph: Graph,
    kinds: Mapping[str, str],
    enabled: Collection[str],
    skipped: Collection[str],
    requested: Collection[tuple[str, int]] = (),
) -> Iterator[tuple[str, int]]:
    """Where a layer that can only give int8 is read by a node that is not itself quantized there, and what is
    ``requested`` of the graph: nodes and the positions of their inputs, in the order of the graph. ``kinds``: of the
    nodes, as ``layers`` has them; layers that are ``skipped`` could have been ``enabled``."""
    places: set[tuple[str, int]] = set()
    small = find_small_ends(graph, enabled)
    for node in graph.nodes:
        for index, _ in enumerate(node.input):
            if (node.name, index) in requested:
                places.add((node.name, index))
        gives = node.name in enabled and node.op_type in GIVE_INT8 and node.name not in small
        joins = not gives and _joins(node, kinds, places)
        for tensor in node.output[:1] if gives or joins else ():
            readers = list(_readers(graph, tensor, enabled))
            if joins and readers and all(name in skipped and position == 0 for name, position in readers):
                continue  # a MaxPool or an Add can give floats, so what a skipped layer reads is not rounded
            places.update(readers)
    for node in graph.nodes:
        yield from ((node.name, index) for index, _ in enumerate(node.input) if (node.name, index) in places)


def _joins(node: Any, kinds: Mapping[str, str], places: set[tuple[str, int]]) -> bool:
    """Whether a MaxPool or an Add computes in int8, all that it reads being quantized."""
    if kinds.get(node.name) != "tensor":
        return False
    return all((node.name, index) in places for index, name in enumerate(node.input) if name)


def _readers(graph: Graph, tensor: str, enabled: Collection[str]) -> Iterator[tuple[str, int]]:
    """Who reads a tensor, or it behind a Relu or Clip that alone reads it, without quantizing it as a layer."""
    while not graph.is_output(tensor):
        readers = graph.readers(tensor)
        if len(readers) != 1 or readers[0][0].op_type not in FOLDED or readers[0][1] != 0:
            break
        tensor = readers[0][0].output[0]
    for node, position in graph.readers(tensor):
        if position < 0 or node.op_type in NO_VALUES or (position == 0 and node.name in enabled):
            continue
        yield node.name, position


def find_small_ends(graph: Graph, enabled: Collection[str]) -> set[str]:
    """The convolutions behind which no other layer comes but for what decodes, where all of them together hold next to
    none of the multiply-accumulates, else those that decode: they stay float on a runtime that needs their outputs
    quantized."""
    work = {node.name: _multiply_accumulates(graph, node) for node in graph.nodes if node.name in enabled}
    if any(count is None for count in work.values()):
        return set()
    counts = {name: count or 0 for name, count in work.items()}
    total = sum(counts.values())
    decoding = {name for name, count in counts.items() if count <= DECODING * total and _decodes(graph, name)}
    large = counts.keys() - decoding
    ends = {name for name in counts if graph.node(name).op_type == "Conv" and _ends_layers(graph, name, large)}
    return ends if sum(counts[name] for name in ends) < LEAST_SHARE * total else ends & decoding


def _decodes(graph: Graph, name: str) -> bool:
    """Whether a layer is a convolution of what a Softmax gives, as that of a detector whose distances have bins is."""
    node = graph.node(name)
    maker = graph.maker(node.input[0])
    while maker is not None and maker.op_type in MOVES:
        maker = graph.maker(maker.input[0])
    return node.op_type == "Conv" and maker is not None and maker.op_type == "Softmax"


def _ends_layers(graph: Graph, name: str, layers: Collection[str]) -> bool:
    """Whether none of the layers reads what a layer gives, whatever other operators make of it: the caller gets it as
    it is, in another shape, or decoded (boxes from distances, scores from logits)."""
    pending, visited = [graph.node(name)], {name}
    while pending:
        node = pending.pop()
        for tensor in node.output:
            readers = graph.readers(tensor)
            if any(position < 0 or reader.name in layers for reader, position in readers):
                return False
            pending += [reader for reader, _ in readers if reader.name not in visited]
            visited.update(reader.name for reader, _ in readers)
    return True


def _multiply_accumulates(graph: Graph, node: Any) -> int | None:
    """Those of a layer for one example, up to a factor that all layers share; None where shapes are not known."""
    shape, weight = graph.shape(node.output[0]), graph.shape(node.input[1]) if len(node.input) > 1 else ()
    if node.op_type == "AveragePool":
        return 0
    if not shape or not weight or not all(isinstance(size, int) for size in shape[1:]):
        return None
    window = weight[1:] if node.op_type == "Conv" else weight[:1]
    if node.op_type == "Gemm" and attribute(node, "transB", 0):
        window = weight[1:]
    return math.prod(int(size or 0) for size in (*shape[1:], *window))
