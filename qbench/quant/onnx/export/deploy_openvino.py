"""Graph + record -> what OpenVINO executes in int8: quantize and dequantize nodes where its kernels gain by them.

Its kernels take signed and unsigned bytes side by side and give floats or bytes as their readers want. Against a file
in ONNX Runtime's form (one type for all, every output of a convolution quantized), one thread, with AMX, by NNCF's own
quantization = 1: SRCNN 1.10 -> 0.98, MobileNetV3 0.74 -> 0.60 (tests/benchmarks/by_hand.py).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.affine import HIGH, LOW
from qbench.quant.onnx import attention
from qbench.quant.onnx.export import (
    concat_ranges,
    deploy_onnxruntime,
    flat_norms,
    left_out_ranges,
    split_concats,
)
from qbench.quant.onnx.export.narrow_weights import Fitted
from qbench.quant.onnx.export.swish_apart import TINY
from qbench.quant.onnx.graph import output_ends
from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.graph.layers import STANDARD
from qbench.quant.onnx.sites import ActivationSite, Record, Scales, Sites

Array = NDArray[Any]
# A range is made symmetric where its shorter side is at least this share of the longer one: the zero point, which
# kernels have to take off at every padded border, costs time, and a step widens by a third at most (2.5 dB of that
# tensor; U-Net 47.6 dB where exact ranges have 47.7 and all symmetric ones 44.6).
BALANCED = 0.5
# An even row of the probabilities of attention keeps so many steps in each place. With fewer, rounding takes them away:
# of 512 keys each has 1/512, where a step for probabilities of up to 1 is 1/255.
LEAST_STEPS = 2.0
# Read bytes with gain, beside the layers themselves: others take the floats that a convolution gives from bytes.
JOINS = ("Add", "AveragePool", "MaxPool", "Concat")
_LARGE_WINDOW, _FEW_CHANNELS = 49, 16  # of a pool, see ``leave_pools_float``
_CONVOLUTIONS = ("Conv", "ConvTranspose")
_PRODUCTS = ("MatMul", "Gemm")
_REDUCTIONS = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin")
_EXTREMES = ("ReduceMax", "ReduceMin", "GlobalMaxPool")


def deploy(
    graph: Graph,
    sites: Sites,
    fitted: Fitted,
    *,
    learned: bool = False,
    narrow: bool = False,
    calibration: Sequence[Array] = (),
) -> Graph:
    """A copy of a prepared graph in QDQ form: what offset 0 has is signed bytes, all else unsigned ones.

    ``learned``: the scales were trained and stay as they are. ``narrow``: keys and values get 7 bits, so that sums of
    two products fit 16 bits within the calibrated ranges (255 x 64 twice). ``calibration``: see ``split_concats``,
    which is for scales that may change. Raises as ``deploy_onnxruntime.deploy``.
    """
    products = attention.find_products(graph)
    coarse = [product for product in products if _is_coarse(product, fitted.record)]
    own = sites_of(graph, attention.leave_float(sites, coarse))
    if learned:
        record = fitted.record
        graph = left_out_ranges.clip(graph, sites, own, record)
    else:
        graph, own, record = split_concats.split(graph, own, fitted.record, calibration)
        record = record_of(graph, own, record, narrow=narrow)
    own = leave_pools_float(graph, own, record)
    model = deploy_onnxruntime.deploy(graph, own, record, form=fitted.form, signed=True)
    keep_rank(model)
    keep_reduced(model)
    own_biases(model)
    read_extremes_twice(model)
    flat_norms.flatten(model)
    return model


def leave_pools_float(graph: Graph, sites: Sites, record: Record) -> Sites:
    """Sites without what those AveragePools read that OpenVINO 2026.4 computes wrongly from bytes.

    Where padding is counted it pads bytes with 0, whatever stands for zero, so that means at the borders are off. With
    AVX2 alone it has no kernel from and to signed bytes for few channels and a large window (3 channels and 49 places,
    15 and 256), and a wrong one for unsigned bytes and one example.
    """
    activations = []
    for site in sites.activations:
        keys = {
            key: place
            for key, place in site.keys.items()
            if graph.node(place[0]).op_type != "AveragePool" or _pools_bytes(graph, place[0], record[key])
        }
        if keys:
            activations.append(replace(site, keys=keys))
    return replace(sites, activations=tuple(activations))


def _pools_bytes(graph: Graph, pool: str, scales: Scales) -> bool:
    """Whether an AveragePool takes bytes of a scale as they are."""
    node = graph.node(pool)
    padded = any(attribute(node, "pads", [])) or attribute(node, "auto_pad", b"NOTSET").startswith(b"SAME")
    if padded and attribute(node, "count_include_pad", 0) and scales.offset_d != LOW:
        return False
    channels = (graph.shape(node.input[0]) or (None, None))[1]
    few = not isinstance(channels, int) or channels < _FEW_CHANNELS
    return not few or math.prod(attribute(node, "kernel_shape")) < _LARGE_WINDOW


def read_extremes_twice(graph: Graph) -> None:
    """Writes ``Max(x, x)`` behind each largest or smallest value of a dimension, which changes nothing.

    OpenVINO 2026.4 fuses a quantization into the reduction before it, and then compares values that it has rounded to
    bytes before they are scaled (a CBAM: 34.2 dB where ONNX Runtime has 45.9); not where two inputs read the reduction.
    """
    import onnx

    with graph.editing() as nodes:
        for node in tuple(nodes):
            if node.op_type not in _EXTREMES or node.domain not in STANDARD:
                continue
            output, extreme = node.output[0], graph.fresh(f"{node.output[0]}_once")
            node.output[0] = extreme
            name = graph.fresh(f"{node.name}.twice")
            nodes.append(onnx.helper.make_node("Max", [extreme, extreme], [output], name=name))


def keep_rank(graph: Graph) -> None:
    """Writes each Gather of a scalar index (``x[:, -1]``) as a Gather of a list of one and a Squeeze, and each of
    places in several dimensions (the windows of HaloNet's attention) as a Gather of a list and a Reshape.

    OpenVINO 2026.4 moves the scales of an int8 product behind a Gather without taking an axis from them or adding one:
    of a product [n, length, classes] with a scale for each class it gives [1, n, classes] in place of [n, classes], and
    of a convolution whose rows are gathered two by two it does not load the file.
    """
    import onnx

    with graph.editing() as nodes:
        for node in tuple(nodes):
            index = graph.constant(node.input[1]) if node.op_type == "Gather" and node.domain in STANDARD else None
            if index is None or index.ndim == 1:
                continue
            axis = attribute(node, "axis", 0)
            kind = "Reshape" if index.ndim else "Squeeze"
            gathered = _shape_of_places(graph.shape(node.input[0]), index.shape, axis)
            dimensions = gathered if index.ndim else np.array([axis], np.int64)
            if dimensions is None:
                continue
            output, several = node.output[0], graph.fresh(f"{node.output[0]}_of_list")
            node.input[1] = graph.add_constant(f"{node.name}.places", index.reshape(-1))
            node.output[0] = several
            name = graph.fresh(f"{node.name}.{kind.lower()}")
            inputs = [several, graph.add_constant(f"{name}.dimensions", dimensions)]
            nodes.append(onnx.helper.make_node(kind, inputs, [output], name=name))


def _shape_of_places(shape: tuple[int | str | None, ...] | None, places: tuple[int, ...], axis: int) -> Array | None:
    """What a Reshape takes to give a gathered axis the dimensions of its places; None where more than one size behind
    it is open."""
    if shape is None:
        return None
    axis %= len(shape)
    behind = [size if isinstance(size, int) else -1 for size in shape[axis + 1 :]]
    return None if behind.count(-1) > 1 else np.array([*[0] * axis, *places, *behind], np.int64)


def keep_reduced(graph: Graph) -> None:
    """Writes each mean, sum or extreme that drops dimensions as one that keeps them, and a Squeeze.

    OpenVINO 2026.4 fuses a quantization into the reduction before it, with the scales that the channels of an int8
    product have, and takes these along the wrong axis where dimensions are dropped: of a product [n, tokens, channels]
    whose channels have unlike scales, the mean over tokens, quantized, has nothing of what it should (-23 dB; so 116).
    """
    import onnx

    with graph.editing() as nodes:
        for node in tuple(nodes):
            if node.op_type not in _REDUCTIONS or node.domain not in STANDARD or attribute(node, "keepdims", 1):
                continue
            axes = _axes_of(graph, node)
            if axes is None or not axes.size:
                continue
            for kept in [attr for attr in node.attribute if attr.name == "keepdims"]:
                kept.i = 1
            output, reduced = node.output[0], graph.fresh(f"{node.output[0]}_kept")
            node.output[0] = reduced
            places = graph.add_constant(f"{node.name}.axes", axes)
            name = graph.fresh(f"{node.name}.squeeze")
            nodes.append(onnx.helper.make_node("Squeeze", [reduced, places], [output], name=name))


def _axes_of(graph: Graph, node: Any) -> Array | None:
    """The axes that a node reduces; None where they are computed or not named."""
    named = attribute(node, "axes", None)
    if named is not None:
        return np.asarray(named, np.int64).ravel()
    axes = graph.constant(node.input[1]) if len(node.input) > 1 and node.input[1] else None
    return None if axes is None else axes.astype(np.int64).ravel()


def own_biases(graph: Graph) -> None:
    """Writes the bias of each convolution as an Add, and a tiny one for convolutions and products on bytes that have
    none and are read by several.

    Where the batch may have any size, OpenVINO 2026.4 computes wrongly if two nodes read such sums and one of them
    quantizes (a product: 2.2 dB, with a tiny bias 42.0). Its reader of ONNX asks for the shape of every Conv with a
    bias, and whatever needs the batch size (LSTM, GRU, a class token) then takes it from the first of these: that one
    adds channel 0's bias to all of its channels (a CRNN: 8.9 dB; with an Add 35.1). Without a bias the scales of the
    sums reach one of two readers twice.
    """
    import onnx

    with graph.editing() as nodes:
        for node in tuple(nodes):
            bias = _bias(graph, node) if node.domain in STANDARD else None
            if bias is None:
                continue
            output, sums = node.output[0], graph.fresh(f"{node.output[0]}_sums")
            added = graph.add_constant(f"{node.name}.bias", bias)
            del node.input[2:]
            node.output[0] = sums
            nodes.append(onnx.helper.make_node("Add", [sums, added], [output], name=graph.fresh(f"{node.name}.add")))
    graph.drop_unused()


def _bias(graph: Graph, node: Any) -> Array | None:
    """What to add to the sums of a layer; None where nothing is, or it is no constant."""
    if node.op_type in _CONVOLUTIONS:
        return _bias_of_convolution(graph, node)
    return _bias_of_product(graph, node) if node.op_type in _PRODUCTS else None


def _bias_of_product(graph: Graph, node: Any) -> Array | None:
    """A tiny number for each column of an int8 matrix whose product has no bias of its own and is read by several."""
    weight, scale = _stored(graph, node.input[1])
    if weight is None or scale is None or weight.ndim < 2 or any(node.input[2:]) or not _read_by_several(graph, node):
        return None
    return np.full(weight.shape[-2 if attribute(node, "transB", 0) else -1], TINY, np.float32)


def _bias_of_convolution(graph: Graph, node: Any) -> Array | None:
    """What to add to the sums of a convolution, [1, channels, 1, ...]."""
    weight, scale = _stored(graph, node.input[1])
    if weight is None:
        return None
    if len(node.input) > 2 and node.input[2]:
        values, step = _stored(graph, node.input[2])
        if values is None:
            return None
        bias: Array = values.astype(np.float32) * np.float32(1 if step is None else step)
    elif scale is None or not _read_by_several(graph, node):
        return None
    else:
        groups = attribute(node, "group", 1)
        bias = np.zeros(len(weight) if node.op_type == "Conv" else weight.shape[1] * groups, np.float32)
    if not bias.any():
        bias = np.full_like(bias, TINY)
    return bias.reshape(1, -1, *[1] * (weight.ndim - 2))


def _read_by_several(graph: Graph, node: Any) -> bool:
    """Whether more than one reads what a node gives, the caller among them."""
    return len(graph.readers(node.output[0])) + graph.is_output(node.output[0]) > 1


def _stored(graph: Graph, tensor: str) -> tuple[Array | None, Array | None]:
    """A constant and its scale; a float has none."""
    maker = graph.maker(tensor)
    if maker is not None and maker.op_type == "DequantizeLinear":
        return graph.constant(maker.input[0]), graph.constant(maker.input[1])
    return graph.constant(tensor), None


def sites_of(graph: Graph, sites: Sites) -> Sites:
    """Sites without what only ONNX Runtime needs: the graph's outputs, and what float operators read of a layer.

    OpenVINO's int8 kernels give float. Bytes that a float operator then reads cost a conversion and an error: a Concat
    of a detector's heads that only the caller reads has one range for boxes and scores (47 dB, in float 57).
    """
    quantized = {place for site in sites.activations for place in site.keys.values()}
    weighted = {site.layer for site in sites.weights}
    multiplied = quantized & set(attention.find_inputs(graph))
    activations = []
    for site in sites.activations:
        keys = {
            key: place
            for key, place in site.keys.items()
            if place in multiplied or _reads_bytes(graph, place[0], weighted, quantized)
        }
        if keys:
            activations.append(replace(site, keys=keys))
    return replace(sites, activations=tuple(activations))


def _is_coarse(product: attention.Product, record: Record) -> bool:
    """Whether an even row of probabilities would have less than ``LEAST_STEPS`` in each place."""
    step = record.get(f"{product.name}:0", Scales()).scale_d or 0.0
    return product.keys * step * LEAST_STEPS > 1


def _reads_bytes(graph: Graph, name: str, weighted: Collection[str], quantized: Collection[tuple[str, int]]) -> bool:
    """Whether a node that reads quantized values computes on bytes, or hands them to one that does."""
    node = graph.node(name)
    if name in weighted or output_ends.is_caller(node):
        return name in weighted
    if node.op_type in JOINS and not all((name, i) in quantized for i, tensor in enumerate(node.input) if tensor):
        return False
    if node.op_type in JOINS and node.op_type != "Concat":
        return True
    if node.op_type not in ("Concat", *deploy_onnxruntime.KEEP_VALUES):
        return False
    readers = [(reader.name, position) for reader, position in graph.readers(node.output[0])]
    return any(
        _reads_bytes(graph, reader, weighted, quantized)
        for reader, position in readers
        if (reader, position) in quantized or graph.node(reader).op_type in deploy_onnxruntime.KEEP_VALUES
    )


def record_of(graph: Graph, sites: Sites, record: Record, *, narrow: bool = False) -> Record:
    """The record with the ranges that OpenVINO's kernels want: one for what a Concat reads and gives, as NNCF has it,
    where it was not split (``split_concats``).

    Of ranges of their own OpenVINO 2026.4 quantizes bytes again, or joins floats and multiplies floats behind: so it
    does with signed bytes, hence these keep their zero point. U-Net, by NNCF's file = 1: 1.26 [1.24, 1.27] with ranges
    of their own, 1.24 [1.23, 1.26] with one that is balanced, 0.99 [0.98, 1.00] so (tests/benchmarks/by_hand.py).
    """
    return {
        **balanced(record),
        **of_products(graph, sites, record),
        **concat_ranges.ranges(graph, sites, record),
        **beside_constants(graph, sites, record),
        **of_attention(graph, sites, record, narrow=narrow),
    }


def of_attention(graph: Graph, sites: Sites, record: Record, *, narrow: bool) -> Record:
    """Symmetric ranges, by their keys, of what the products of attention read, but for probabilities, which begin at 0.
    What comes from a Split, or behind a move, has the steps of what that reads, so that it is rounded once, and
    the product before it gives bytes; ``narrow``: see ``deploy``."""
    keys = {place: key for site in sites.activations for key, place in site.keys.items()}
    scales: dict[str, Scales] = {}
    for product in attention.find_products(graph):
        for i in (0, 1):
            key = keys.get((product.name, i))
            if key is None or (product.keys and i == 0):
                continue
            node, factor = product.sources.get(i, ("", 1.0))
            source = keys.get((node, 0), key)
            scales[source] = _around_zero(record[source])
            widened = abs(factor) * (2 if narrow and i == 1 else 1)
            scales[key] = replace(scales[source], scale_d=(scales[source].scale_d or 0.0) * widened)
    return scales


def of_products(graph: Graph, sites: Sites, record: Record) -> Record:
    """Symmetric ranges, by their keys, of what matrix products read, but for what begins at 0.

    A zero point of theirs is taken off in a step of its own. BERT, by NNCF's file = 1: 1.03 with zero points, 0.96 and
    0.98 without in two runs, at 0.4 dB of a lead of 3.8 (tests/benchmarks/by_hand.py bert).
    """
    keys = [key for site in sites.activations if _is_of_product(graph, site) for key in site.keys]
    return {key: _around_zero(record[key]) for key in keys if record[key].offset_d != LOW}


def beside_constants(graph: Graph, sites: Sites, record: Record) -> Record:
    """Symmetric ranges, by their keys, of what a product reads from a Concat with a constant (a token in a file of one
    batch size): with a zero point OpenVINO 2026.4 does not load the file."""
    keys = [key for site in sites.activations if _reads_constants(graph, site) for key in site.keys]
    return {key: _around_zero(record[key]) for key in keys if record[key].offset_d != LOW}


def _reads_constants(graph: Graph, site: ActivationSite) -> bool:
    """Whether a product reads a tensor that a Concat joins with a constant."""
    maker = graph.maker(site.tensor)
    if maker is None or maker.op_type != "Concat" or all(graph.constant(tensor) is None for tensor in maker.input):
        return False
    return _is_of_product(graph, site)


def _is_of_product(graph: Graph, site: ActivationSite) -> bool:
    """Whether a product reads a tensor."""
    return any(graph.node(reader).op_type in _PRODUCTS for reader, _ in site.keys.values())


def balanced(record: Record) -> Record:
    """The record with a symmetric range for each activation whose range is nearly so."""
    return {key: _symmetric(scales) for key, scales in record.items()}


def _symmetric(scales: Scales) -> Scales:
    low, high = _sides(scales)
    return scales if min(low, high) < BALANCED * max(low, high) else _around_zero(scales)


def _around_zero(scales: Scales) -> Scales:
    """The range with its shorter side as long as the other."""
    low, high = _sides(scales)
    return replace(scales, scale_d=max(low / -LOW, high / HIGH), offset_d=0) if low or high else scales


def _sides(scales: Scales) -> tuple[float, float]:
    """How far a range reaches below and above zero; 0 and 0 for the scales of weights alone."""
    if scales.scale_d is None or scales.offset_d is None:
        return 0.0, 0.0
    return (scales.offset_d - LOW) * scales.scale_d, (HIGH - scales.offset_d) * scales.scale_d
