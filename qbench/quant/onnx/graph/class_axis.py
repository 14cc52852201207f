"""Along which axis of an output its classes lie, as the graph tells."""

from __future__ import annotations

from typing import Any

from qbench.quant.onnx.graph.graph import Graph, attribute

_LAST = {"MatMul", "Gemm", "FusedMatMul", "MatMulInteger", "QLinearMatMul", "LSTM", "GRU", "RNN", "Einsum"}
_SECOND = {
    "Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "BatchNormalization", "InstanceNormalization",
    "GroupNormalization", "MaxPool", "AveragePool", "Resize", "Upsample",
}  # fmt: skip
# They keep every value, or change it, at its place.
_SAME_PLACE = {
    "Identity", "Cast", "Dropout", "QuantizeLinear", "DequantizeLinear", "Relu", "LeakyRelu", "PRelu", "Elu", "Selu",
    "Gelu", "HardSigmoid", "HardSwish", "Sigmoid", "Tanh", "Erf", "Exp", "Log", "Neg", "Clip", "Round", "Add", "Sub",
    "Mul", "Div", "Max", "Min", "Pow", "Where", "Slice", "Pad", "Concat", "LayerNormalization", "RMSNormalization",
    "AscendQuant", "AscendDequant",
}  # fmt: skip
_NORMALIZES = {"Softmax", "LogSoftmax", "Hardmax"}
_DEEPEST = 200  # nodes between an output and what tells


def class_axis(graph: Graph, output: str, rank: int) -> int:
    """The axis of an output of ``rank`` axes (two at least) whose highest value is the predicted class.

    The one that a Softmax runs over; behind a matrix product or a recurrent layer the last, behind a convolution the
    second. Where nothing tells: the last of three, as sequences have it (batch, steps, classes), otherwise the second.
    """
    axis = _axis(graph, output, rank, _DEEPEST)
    return axis if axis is not None else usual_axis(rank)


def usual_axis(rank: int) -> int:
    """Where classes usually lie: the last axis of three, otherwise the second."""
    return 2 if rank == 3 else 1


def _axis(graph: Graph, tensor: str, rank: int, steps: int) -> int | None:
    node = graph.maker(tensor)
    if node is None or not steps:
        return None
    if node.op_type in _NORMALIZES:
        return int(attribute(node, "axis", -1 if graph.opset >= 13 else 1)) % rank
    if node.op_type in _LAST | _SECOND:
        return rank - 1 if node.op_type in _LAST else 1
    if node.op_type == "Transpose":
        order = list(attribute(node, "perm", range(rank)[::-1]))
        before = _axis(graph, node.input[0], rank, steps - 1)
        return None if before is None or sorted(order) != list(range(rank)) else order.index(before)
    if node.op_type in ("Reshape", "Squeeze", "Unsqueeze", "Flatten"):
        return _reshaped(graph, node, rank, steps)
    if node.op_type in _SAME_PLACE:
        computed = (name for name in node.input if name and graph.maker(name) is not None)
        return next((axis for name in computed if (axis := _axis(graph, name, rank, steps - 1)) is not None), None)
    return None


def _reshaped(graph: Graph, node: Any, rank: int, steps: int) -> int | None:
    """The axis behind a change of shape, where it kept its size at its place from the front or from the end."""
    before, after = graph.shape(node.input[0]), graph.shape(node.output[0])
    if before is None or after is None or len(after) != rank:
        return None
    axis = _axis(graph, node.input[0], len(before), steps - 1)
    if axis is None or not isinstance(before[axis], int):
        return None
    from_end = axis - len(before)
    if from_end >= -rank and after[from_end] == before[axis] and (from_end == -1 or len(before) == rank):
        return from_end + rank
    unchanged = axis < rank and before[: axis + 1] == after[: axis + 1]
    return axis if unchanged or (axis == 1 < rank and after[1] == before[1]) else None
