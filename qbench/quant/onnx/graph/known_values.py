"""What is known of tensors without running a model: values that follow from constants and from declared sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.onnx.graph import constants
from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.graph.layers import STANDARD, subgraphs
from qbench.quant.onnx.graph.tensor_sources import SIZES, ancestors
from qbench.quant.onnx.graph.without_weights import skeleton

Array = NDArray[Any]
# Operators that move numbers about: where some of these are not known, the others still are.
_MOVING = {"Gather", "Slice", "Squeeze", "Unsqueeze", "Concat", "Identity", "Reshape", "Cast"}


@dataclass(frozen=True, kw_only=True)
class Known:
    """The numbers of a tensor; ``mask``: which of them are known."""

    values: Array
    mask: Array

    @classmethod
    def whole(cls, values: Array) -> Known:
        """Numbers all of which are known."""
        return cls(values=values, mask=np.ones(values.shape, bool))

    @property
    def is_whole(self) -> bool:
        """Whether all of them are known."""
        return bool(self.mask.all())


def values(graph: Graph, names: Iterable[str]) -> dict[str, Known]:
    """What is known of the tensors ``names`` and of those that they are computed from."""
    sources = ancestors(graph, names)
    steps = [node for node in graph.nodes if len(node.output) == 1 and node.output[0] in sources]
    measured = _with_shapes(graph) if any(node.op_type in SIZES for node in steps) else graph
    results: dict[str, Known] = {}
    for name in [*names, *(name for node in steps for name in node.input)]:
        constant = None if name in results else _constant(graph, name)
        if constant is not None:
            results[name] = constant
    for node in steps:
        if node.domain in STANDARD:
            computed = _sizes(measured, node) if node.op_type in SIZES else _computed(graph, node, results)
            if computed is not None:
                results[node.output[0]] = computed
    return results


def _constant(graph: Graph, name: str) -> Known | None:
    """What an initializer or a Constant node holds, where it is small."""
    if math.prod(size for size in graph.shape(name) or () if isinstance(size, int)) > constants.SMALL:
        return None
    value = graph.constant(name)
    return None if value is None else Known.whole(value)


def _with_shapes(graph: Graph) -> Graph:
    """The graph with the shapes that follow from those of its inputs, without large weights; what a file tells of
    other tensors may contradict its nodes."""
    import onnx

    bare = skeleton(graph)
    for value in bare.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_value") and dim.dim_value < 0:
                dim.Clear()
    _forget_shapes(bare.graph)
    constants.compute(Graph(bare))  # onnx follows few operators to the sizes that they compute
    try:
        return Graph(onnx.shape_inference.infer_shapes(bare, data_prop=True))
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return Graph(bare)


def _forget_shapes(body: Any) -> None:
    """Takes away what is told of the tensors that nodes make, in subgraphs too."""
    del body.value_info[:]
    for value in body.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    for node in body.node:
        for _, inner in subgraphs(node):
            _forget_shapes(inner)


def _sizes(graph: Graph, node: Any) -> Known | None:
    """What a Shape or a Size gives, as far as the sizes are known."""
    shape = graph.shape(node.input[0])
    if shape is None:
        return None
    mask = np.array([isinstance(size, int) for size in shape], bool)
    sizes = np.array([size if isinstance(size, int) else 0 for size in shape], np.int64)
    if node.op_type == "Size":
        return Known.whole(np.asarray(sizes.prod())) if mask.all() else None
    part = slice(attribute(node, "start", 0), attribute(node, "end"))
    return Known(values=sizes[part], mask=mask[part])


def _computed(graph: Graph, node: Any, values_so_far: dict[str, Known]) -> Known | None:
    """What a node gives for inputs that are known, for those of ``_MOVING`` also where a part of them is."""
    inputs = [values_so_far.get(name) for name in node.input if name]
    arrays = [value for value in inputs if value is not None]
    if len(arrays) < len(inputs) or node.op_type not in constants.FOLDABLE:
        return None
    result = _run(graph, node, [value.values for value in arrays])
    if result is None or all(value.is_whole for value in arrays):
        return None if result is None else Known.whole(result)
    moved = len(arrays) if node.op_type == "Concat" else 1
    if node.op_type not in _MOVING or not all(value.is_whole for value in arrays[moved:]):
        return None
    if node.op_type == "Cast":
        return Known(values=result, mask=arrays[0].mask)
    mask = _run(graph, node, [*(value.mask for value in arrays[:moved]), *(value.values for value in arrays[moved:])])
    return None if mask is None else Known(values=result, mask=mask)


def _run(graph: Graph, node: Any, inputs: Sequence[Array]) -> Array | None:
    return constants.computed(graph, node, list(inputs), constants.SMALL).get(str(node.output[0]))
