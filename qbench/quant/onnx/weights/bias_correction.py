"""Bias correction: each bias gives back the mean error that quantization leaves in its layer's output.

Quantization of input and weights moves the mean of each output channel; over the calibration data that shift
E[y_quantized - y] is measured layer by layer, each given its fp32 input, and taken off the bias. Nagel et al. 2019
(Data-Free Quantization, section 4.2), with the mean measured instead of derived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.affine import fake_quantize
from qbench.quant.onnx.graph.graph import Graph, attribute, copy_message
from qbench.quant.onnx.sites import Record, Scales, Sites, WeightSite
from qbench.quant.onnx.weights import weight_scales

Array = NDArray[Any]
_AXES_ARE_INPUT = 18  # from this opset on ReduceMean takes its axes as an input


def error_model(graph: Graph, sites: Sites, record: Record) -> tuple[Graph, dict[str, str]]:
    """The graph whose outputs are the mean errors of its layers over one batch, shape (output channels,), and by layer
    the name of its own.

    A layer is left out where its input is not quantized, and where nothing can hold a bias (``find_bias``).
    """
    both = graph.copy()
    keys = {place: key for site in sites.activations for key, place in site.keys.items()}
    shifts, quantized = {}, {}
    for site in sites.weights:
        key = keys.get((site.layer, 0))
        if key is None or find_bias(graph, graph.node(site.layer)) is None:
            continue
        node, scales = both.node(site.layer), record[key]
        place = (node.input[0], scales.scale_d, scales.offset_d)
        if place not in quantized:
            quantized[place] = _fake_quantize(both, node.input[0], scales)
        shifts[site.layer] = _mean_error(both, node, quantized[place], _fake_weight(graph, site, record[site.layer]))
    del both.model.graph.output[:]
    both.model.graph.output.extend(_vector(name) for name in shifts.values())
    return both, shifts


def subtract(graph: Graph, shifts: Mapping[str, Array]) -> None:
    """Takes so much off the outputs of layers, by layer and output channel, in place: off their biases, which
    ``find_bias`` has told of."""
    with graph.editing():
        for layer, shift in shifts.items():
            place = find_bias(graph, graph.node(layer))
            assert place is not None, layer
            node, position = place
            there = position < len(node.input)
            bias = graph.constant(node.input[position]) if there and node.input[position] else None
            value = -shift.astype(np.float32) if bias is None else (bias - shift).astype(bias.dtype)
            own_name = graph.own_constant(node, position, value)
            if there:
                node.input[position] = own_name
            else:
                node.input.append(own_name)


def find_bias(graph: Graph, node: Any) -> tuple[Any, int] | None:
    """The node and the position among its inputs that hold the bias of a layer, or can: of a product the Add that alone
    reads it. None where there is none such, or what is added is no constant vector. The alpha and beta of a Gemm that
    is quantized are 1."""
    if node.op_type == "MatMul":
        readers = graph.readers(node.output[0])
        if len(readers) != 1 or readers[0][0].op_type != "Add" or graph.is_output(node.output[0]):
            return None
        place = readers[0][0], 1 - readers[0][1]
    else:
        place = node, 2
        if len(node.input) < 3 or not node.input[2]:
            return place
    value = graph.constant(place[0].input[place[1]])
    return place if value is not None and value.shape == (_channels(graph, node),) else None


def _channels(graph: Graph, node: Any) -> int:
    """How many output channels a layer has."""
    shape = _weight(graph, node).shape
    if node.op_type == "ConvTranspose":
        return int(shape[1]) * int(attribute(node, "group", 1))
    return int(shape[0] if node.op_type == "Conv" or attribute(node, "transB", 0) else shape[1])


def _weight(graph: Graph, node: Any) -> Array:
    value = graph.constant(node.input[1])
    assert value is not None, f"{node.name} has no constant weight"
    return value


def _fake_weight(graph: Graph, site: WeightSite, scales: Scales) -> Array:
    """The weight as its integers give it back."""
    weight = _weight(graph, graph.node(site.layer))
    scale = weight_scales.spread(scales.scale_w, site.axis, weight.ndim)
    return fake_quantize(weight, scale)


def _fake_quantize(graph: Graph, tensor: str, scales: Scales) -> str:
    """Adds nodes that quantize a tensor and give it back; the name of what they give."""
    assert scales.scale_d is not None, tensor
    scale = graph.add_constant(f"{tensor}_scale", np.array(scales.scale_d, np.float32))
    offset = graph.add_constant(f"{tensor}_offset", np.array(scales.offset_d, np.int8))
    return _chain(graph, tensor, [("QuantizeLinear", scale, offset), ("DequantizeLinear", scale, offset)])


def _mean_error(graph: Graph, node: Any, quantized: str, weight: Array) -> str:
    """Adds the quantized twin of a layer and the mean over all but the channels of how far it is off."""
    twin = copy_message(node)
    twin.name, twin.output[0] = graph.fresh(f"{node.name}_twin"), graph.fresh(f"{node.output[0]}_twin")
    twin.input[0], twin.input[1] = quantized, graph.add_constant(f"{node.input[1]}_twin", weight)
    with graph.editing() as nodes:
        nodes.append(twin)
    steps: list[tuple[str, ...]] = [("Sub", node.output[0])]
    if node.op_type == "MatMul":  # of any rank
        shape = np.array([-1, _channels(graph, node)], np.int64)
        steps.append(("Reshape", graph.add_constant("rows", shape)))
    return _mean(graph, _chain(graph, twin.output[0], steps), [0, *range(2, weight.ndim)])


def _mean(graph: Graph, tensor: str, axes: list[int]) -> str:
    import onnx

    mean = graph.fresh(f"{tensor}_mean")
    if graph.opset < _AXES_ARE_INPUT:
        node = onnx.helper.make_node("ReduceMean", [tensor], [mean], name=f"{mean}_node", axes=axes, keepdims=0)
    else:
        axes_name = graph.add_constant("axes", np.array(axes, np.int64))
        node = onnx.helper.make_node("ReduceMean", [tensor, axes_name], [mean], name=f"{mean}_node", keepdims=0)
    with graph.editing() as nodes:
        nodes.append(node)
    return mean


def _chain(graph: Graph, tensor: str, steps: Iterable[tuple[str, ...]]) -> str:
    """Adds operators one behind the other, each an operator's name and its further inputs; the last one's output."""
    import onnx

    chain = []
    for kind, *others in steps:
        output = graph.fresh(f"{tensor}_{kind.lower()}")
        chain.append(onnx.helper.make_node(kind, [tensor, *others], [output], name=f"{output}_node"))
        tensor = output
    with graph.editing() as nodes:
        nodes += chain
    return tensor


def _vector(name: str) -> Any:
    import onnx

    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None])
