"""Transposed convolutions as convolutions, for which ONNX Runtime has kernels on bytes (1.31 has none for the others).

Where the windows do not overlap (the kernel is the stride), each input gives a window of its own: a convolution 1x1
gives the values of all places of the window, and moving bytes puts them side by side, the channels staying together as
the runtime's layout has them. A U-Net with three of them, one thread, int8 by ONNX Runtime's own tool = 1: 0.87 [0.86,
0.88], as transposed convolutions 1.00 [0.99, 1.01], with DepthToSpace, which moves byte by byte, 1.02 [1.00, 1.04]
(tests/benchmarks/by_hand.py unet).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.graph.layers import STANDARD

Array = NDArray[Any]


def as_convolutions(graph: Graph) -> None:
    """Rewrites, in place and to the same bytes, each quantized ConvTranspose of a QDQ graph whose windows do not
    overlap and whose output is quantized. The node keeps its name."""
    for name in [node.name for node in graph.nodes if _can_be(graph, node)]:
        _rewrite(graph, name)


def _can_be(graph: Graph, node: Any) -> bool:
    if node.op_type != "ConvTranspose" or node.domain not in STANDARD or graph.is_output(node.output[0]):
        return False
    readers = [reader.op_type for reader, _ in graph.readers(node.output[0])]
    sources = [graph.maker(name) for name in node.input if name]
    dequantized = all(source is not None and source.op_type == "DequantizeLinear" for source in sources)
    return readers == ["QuantizeLinear"] and dequantized and _apart(graph, node) and _size(graph, node) is not None


def _apart(graph: Graph, node: Any) -> bool:
    """Whether the windows of a two-dimensional layer lie side by side."""
    weight = _weight(graph, node)
    if weight.ndim != 4 or attribute(node, "group", 1) != 1:
        return False
    window = list(weight.shape[2:])
    moved = [*attribute(node, "pads", ()), *attribute(node, "output_padding", ()), *attribute(node, "output_shape", ())]
    plain = attribute(node, "auto_pad", b"NOTSET") == b"NOTSET" and set(attribute(node, "dilations", ())) <= {1}
    return plain and not any(moved) and list(attribute(node, "strides", (1, 1))) == window


def _weight(graph: Graph, node: Any) -> Array:
    """The integers of a layer's weight."""
    source = graph.maker(node.input[1])
    array = None if source is None else graph.constant(source.input[0])
    assert array is not None, node.name
    return array


def _size(graph: Graph, node: Any) -> tuple[int, int] | None:
    """Height and width of the output; None where they are not known."""
    shape = graph.shape(node.output[0])
    if shape is None or len(shape) != 4 or not all(isinstance(size, int) and size > 0 for size in shape[2:]):
        return None
    return int(shape[2] or 0), int(shape[3] or 0)


def _rewrite(graph: Graph, name: str) -> None:
    import onnx

    node = graph.node(name)
    size, weight = _size(graph, node), _weight(graph, node)
    assert size is not None, name
    places = math.prod(weight.shape[2:])
    (quantize,) = (reader.name for reader, _ in graph.readers(node.output[0]))
    constants = [_dequantize(graph, graph.maker(tensor), places) for tensor in node.input[1:] if tensor]
    before, after = graph.fresh(f"{node.output[0]}_places"), graph.node(quantize).output[0]
    moved = graph.fresh(f"{after}_places")
    inputs = [node.input[0], *(constant.output[0] for constant in constants)]
    conv = onnx.helper.make_node("Conv", inputs, [before], name=name, kernel_shape=[1, 1])
    with graph.editing() as nodes:
        nodes[:] = [node for node in nodes if node.name != name]
        for added in nodes:
            if added.name == quantize:
                added.input[0], added.output[0] = before, moved
        nodes += [conv, *constants, *_side_by_side(graph, moved, after, size, tuple(weight.shape[1:]))]
    graph.drop_unused()


def _dequantize(graph: Graph, source: Any, places: int) -> Any:
    """What a DequantizeLinear gives, for the convolution: a weight with an output channel for each place of the window
    and each channel, place by place, or a bias repeated for each place."""
    import onnx

    names = []
    for name in source.input:
        value = graph.constant(name)
        assert value is not None, name
        if value.ndim == 4:
            value = value.transpose(2, 3, 1, 0).reshape(-1, value.shape[0], 1, 1)
        elif value.ndim:
            value = np.tile(value, places)
        names.append(graph.add_constant(name, value))
    output = graph.fresh(source.output[0])
    along: dict[str, Any] = {"axis": 0} if graph.shape(names[1]) else {}
    return onnx.helper.make_node("DequantizeLinear", names, [output], name=graph.fresh(f"{output}_node"), **along)


def _side_by_side(graph: Graph, moved: str, after: str, size: tuple[int, int], window: tuple[int, ...]) -> list[Any]:
    """Nodes that take [n, places * channels, height, width] to [n, channels, places across], channels last between: the
    transpositions at the ends are those of the runtime's layout, which take each other's place."""
    import onnx

    (height, width), (channels, high, wide) = size, window
    names = [graph.fresh(f"{after}_{step}") for step in ("last", "split", "turned", "joined")]
    split = graph.add_constant(f"{after}_split_shape", np.array([-1, width // wide, high, wide * channels], np.int64))
    joined = graph.add_constant(f"{after}_joined_shape", np.array([-1, height, width, channels], np.int64))
    steps: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Transpose", [moved], names[0], {"perm": [0, 2, 3, 1]}),
        ("Reshape", [names[0], split], names[1], {}),
        ("Transpose", [names[1]], names[2], {"perm": [0, 2, 1, 3]}),
        ("Reshape", [names[2], joined], names[3], {}),
        ("Transpose", [names[3]], after, {"perm": [0, 3, 1, 2]}),
    ]
    return [
        onnx.helper.make_node(kind, inputs, [output], name=graph.fresh(f"{output}_node"), **attributes)
        for kind, inputs, output, attributes in steps
    ]
