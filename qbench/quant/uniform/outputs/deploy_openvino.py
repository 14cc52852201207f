"""Graph + record -> what OpenVINO executes in int8: quantize and dequantize nodes where its kernels gain by them.

Its kernels take signed and unsigned bytes side by side and give floats or bytes as their readers want. Against a file
in ONNX Runtime's form (one type for all, every output of a convolution quantized), one thread, with AMX, by NNCF's own
quantization = 1: SRCNN 1.10 -> 0.98, U-Net 1.21 -> 1.04, MobileNetV3 0.74 -> 0.60 (tests/benchmarks/by_hand.py).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from qbench.quant.uniform.files.record import Record, Scales
from qbench.quant.uniform.graph import ends
from qbench.quant.uniform.graph.graph import Graph
from qbench.quant.uniform.graph.layers import STANDARD
from qbench.quant.uniform.outputs import deploy_onnxruntime
from qbench.quant.uniform.outputs.narrow import Fitted
from qbench.quant.uniform.qparams import HIGH, LOW
from qbench.quant.uniform.sites import Sites

# A range is made symmetric where its shorter side is at least this share of the longer one: the zero point, which
# kernels have to take off at every padded border, costs time, and a step widens by a third at most (2.5 dB of that
# tensor; U-Net 47.6 dB where exact ranges have 47.7 and all symmetric ones 44.6).
BALANCED = 0.5
# Read bytes with gain, beside the layers themselves: others take the floats that a convolution gives from bytes.
JOINS = ("Add", "AveragePool", "MaxPool", "Concat")


def deploy(graph: Graph, sites: Sites, fitted: Fitted, *, learned: bool = False) -> Graph:
    """A copy of a prepared graph in QDQ form: what offset 0 has is signed bytes, all else unsigned ones.

    ``learned``: the scales were trained and stay as they are. Raises as ``deploy_onnxruntime.deploy``.
    """
    own = sites_of(graph, sites)
    record = fitted.record if learned else balanced(fitted.record)
    model = deploy_onnxruntime.deploy(graph, own, record, form=fitted.form, signed=True)
    keep_rank(model)
    return model


def keep_rank(graph: Graph) -> None:
    """Writes each Gather of one place (a scalar index: ``x[:, -1]``) as a Gather of a list of one, and a Squeeze.

    OpenVINO 2026.4 moves the scales of an int8 product behind a Gather without taking an axis from them: of a product
    [n, length, classes] with a scale for each class it gives [1, n, classes] in place of [n, classes].
    """
    import onnx

    with graph.editing() as nodes:
        for node in tuple(nodes):
            index = graph.constant(node.input[1]) if node.op_type == "Gather" and node.domain in STANDARD else None
            if index is None or index.ndim:
                continue
            axis = next((one.i for one in node.attribute if one.name == "axis"), 0)
            output, several = node.output[0], graph.fresh(f"{node.output[0]}_of_one")
            places = graph.add_constant(f"{node.name}.places", index.reshape(1))
            axes = graph.add_constant(f"{node.name}.axes", np.array([axis], np.int64))
            node.input[1], node.output[0] = places, several
            name = graph.fresh(f"{node.name}.squeeze")
            nodes.append(onnx.helper.make_node("Squeeze", [several, axes], [output], name=name))


def sites_of(graph: Graph, sites: Sites) -> Sites:
    """Sites without what only ONNX Runtime needs: the graph's outputs, and what float operators read of a layer.

    OpenVINO's int8 kernels give float. Bytes that a float operator then reads cost a conversion and an error, and where
    they go through Reshape and Transpose into a Concat with a constant (the class token of a ViT), OpenVINO 2026.4 adds
    the bias of channel 0 to every channel of the convolution: SQNR 1.8 dB where ONNX Runtime has 32.4 on that file.
    """
    quantized = {place for site in sites.activations for place in site.keys.values()}
    weighted = {site.layer for site in sites.weights}
    activations = []
    for site in sites.activations:
        keys = {key: place for key, place in site.keys.items() if _reads_bytes(graph, place[0], weighted, quantized)}
        if keys:
            activations.append(replace(site, keys=keys))
    return replace(sites, activations=tuple(activations))


def _reads_bytes(graph: Graph, name: str, weighted: Collection[str], quantized: Collection[tuple[str, int]]) -> bool:
    """Whether a node that reads quantized values computes on bytes, or hands them to one that does."""
    node = graph.node(name)
    if name in weighted or ends.is_caller(node):
        return name in weighted
    if node.op_type in JOINS:
        return all((name, i) in quantized for i, tensor in enumerate(node.input) if tensor)
    if node.op_type not in deploy_onnxruntime.KEEP_VALUES:
        return False
    readers = [(reader.name, position) for reader, position in graph.readers(node.output[0])]
    return any(
        _reads_bytes(graph, reader, weighted, quantized)
        for reader, position in readers
        if (reader, position) in quantized or graph.node(reader).op_type in deploy_onnxruntime.KEEP_VALUES
    )


def balanced(record: Record) -> Record:
    """The record with a symmetric range for each activation whose range is nearly so."""
    return {key: _symmetric(scales) for key, scales in record.items()}


def _symmetric(scales: Scales) -> Scales:
    if scales.scale_d is None or scales.offset_d is None:
        return scales
    low, high = (scales.offset_d - LOW) * scales.scale_d, (HIGH - scales.offset_d) * scales.scale_d
    if min(low, high) < BALANCED * max(low, high):
        return scales
    return replace(scales, scale_d=max(low / -LOW, high / HIGH), offset_d=0)
