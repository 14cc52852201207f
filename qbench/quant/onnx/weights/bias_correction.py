"""Bias correction: each bias gives back the mean error that quantization leaves in its layer's output.

Quantization of input and weights moves the mean of each output channel; over the calibration data that shift
E[y_quantized - y] is measured layer by layer, each given its fp32 input, and taken off the bias. Nagel et al. 2019
(Data-Free Quantization, section 4.2), with the mean measured instead of derived.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.affine import fake_quantize
from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.sites import Record, Scales, Sites, WeightSite
from qbench.quant.onnx.weights import weight_scales

Array = NDArray[Any]
_AXES_ARE_INPUT = 18  # from this opset on ReduceMean takes its axes as an input


@dataclass(frozen=True, kw_only=True)
class Correctable:
    """A layer whose bias can be corrected. ``bias``: the constant that holds it, None where there is none yet;
    ``shift``: the output of the error model that gives its mean error, shape (output channels,)."""

    layer: str
    bias: str | None
    shift: str


def error_model(graph: Graph, sites: Sites, record: Record) -> tuple[Graph, tuple[Correctable, ...]]:
    """The graph whose outputs are the mean errors of its layers over one batch, and which layer's each is.

    A layer is left out where its input is not quantized, where nothing can hold a bias (a MatMul without an Add), or
    where that is not a vector of its own.
    """
    both = graph.copy()
    keys = {place: key for site in sites.activations for key, place in site.keys.items()}
    layers, quantized = [], {}
    for site in sites.weights:
        key = keys.get((site.layer, 0))
        correctable, bias = _bias_of(graph, graph.node(site.layer))
        if key is None or not correctable:
            continue
        node, scales = both.node(site.layer), record[key]
        place = (node.input[0], scales.scale_d, scales.offset_d)
        if place not in quantized:
            quantized[place] = _fake_quantize(both, node.input[0], scales)
        shift = _mean_error(both, node, quantized[place], _fake_weight(graph, site, record[site.layer]))
        layers.append(Correctable(layer=site.layer, bias=bias, shift=shift))
    del both.model.graph.output[:]
    for corrected_layer in layers:
        both.model.graph.output.append(_vector(corrected_layer.shift))
    return both, tuple(layers)


def corrected(graph: Graph, layers: tuple[Correctable, ...], shifts: Mapping[str, Array]) -> Graph:
    """A copy of the graph with every bias less its layer's mean error (``shifts``, by ``Correctable.shift``)."""
    changed = graph.copy()
    for corrected_layer in layers:
        shift = np.asarray(shifts[corrected_layer.shift], np.float32)
        if corrected_layer.bias is not None:
            bias = changed.constant(corrected_layer.bias)
            assert bias is not None, corrected_layer.bias
            changed.set_constant(corrected_layer.bias, (bias - shift).astype(bias.dtype))
            continue
        name = changed.add_constant(f"{corrected_layer.layer}_bias", -shift)
        with changed.editing() as nodes:
            node = next(node for node in nodes if node.name == corrected_layer.layer)
            del node.input[2:]
            node.input.append(name)
    return changed


def _bias_of(graph: Graph, node: Any) -> tuple[bool, str | None]:
    """Whether a layer's bias can be corrected, and the constant that holds it (None: it can get one)."""
    if node.op_type == "MatMul":
        readers = graph.readers(node.output[0])
        if len(readers) != 1 or readers[0][0].op_type != "Add" or graph.is_output(node.output[0]):
            return False, None
        name = readers[0][0].input[1 - readers[0][1]]
    elif len(node.input) > 2 and node.input[2]:
        name = node.input[2]
    else:
        return True, None
    value = graph.constant(name)
    if value is None or graph.maker(name) is not None or len(graph.readers(name)) != 1:
        return False, None
    return value.shape == (_channels(graph, node),), name


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
    twin = type(node)()
    twin.CopyFrom(node)
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
