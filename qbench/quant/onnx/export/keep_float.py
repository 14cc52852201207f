"""Layers that are to be float, or to give floats, written so that ONNX Runtime leaves them so.

Between a DequantizeLinear and a QuantizeLinear it (1.31, ``WeightBiasQuantization``) makes bytes of the weights of a
Conv, ConvTranspose or Gemm by itself, with one scale for all channels, and runs what has no kernel on bytes (a
ConvTranspose, any with a Relu behind) in float with weights that it dequantizes at every inference.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from qbench.quant.onnx.export.deploy_onnxruntime import KEEP_VALUES
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.layers import STANDARD

_LAYERS = ("Conv", "ConvTranspose", "Gemm")
_FOLLOWED = ("Relu", "Clip")


def keep_float(graph: Graph) -> None:
    """Puts a Sum of one, which changes nothing and which the runtime does not remove, in front of each float layer of a
    QDQ graph whose weights it would quantize."""
    import onnx

    names = {node.name for node in graph.nodes if _would_be_quantized(graph, node)}
    if not names:
        return
    with graph.editing() as nodes:
        for node in [node for node in nodes if node.name in names]:
            tensor, node.input[0] = node.input[0], graph.fresh(f"{node.input[0]}_float")
            name = graph.fresh(f"{node.input[0]}_node")
            nodes.append(onnx.helper.make_node("Sum", [tensor], [node.input[0]], name=name))


def set_apart(graph: Graph, names: Collection[str]) -> None:
    """Puts a Sum of one behind each of these products on bytes, which then give floats whatever reads them.

    ONNX Runtime (1.32) joins a Relu, a Clip or the Add of a residual with the product before it, and runs that in float
    unless all that reads it is quantized (Linear, ReLU, Concat, Linear: 16 % of the work in int8, all of it so).
    """
    import onnx

    if not names:
        return
    with graph.editing() as nodes:
        for node in [node for node in nodes if node.name in names]:
            tensor, node.output[0] = node.output[0], graph.fresh(f"{node.output[0]}_apart")
            name = graph.fresh(f"{node.name}.apart")
            nodes.append(onnx.helper.make_node("Sum", [node.output[0]], [tensor], name=name))


def _would_be_quantized(graph: Graph, node: Any) -> bool:
    if node.op_type not in _LAYERS or node.domain not in STANDARD or graph.constant(node.input[1]) is None:
        return False
    source = graph.maker(node.input[0])
    while source is not None and source.op_type in KEEP_VALUES:  # bytes pass them
        source = graph.maker(source.input[0])
    return source is not None and source.op_type == "DequantizeLinear" and _quantized_behind(graph, node)


def _quantized_behind(graph: Graph, node: Any) -> bool:
    """Whether a QuantizeLinear alone reads what a node gives, behind a Relu or not."""
    readers = [reader for reader, _ in graph.readers(node.output[0])]
    if len(readers) != 1:
        return False
    return readers[0].op_type == "QuantizeLinear" or (
        readers[0].op_type in _FOLLOWED and _quantized_behind(graph, readers[0])
    )
