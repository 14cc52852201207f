"""SiLU apart from OpenVINO's convolutions, for a CPU with AMX.

OpenVINO 2026.4 makes x * sigmoid(x) part of the convolution before it, in which its kernels for AMX take longer for it
than a step of its own does; those for VNNI do not. A YOLO of 320 pixels, one thread, the file with SiLU inside = 1:
0.89 with AMX, with VNNI alone 1.21 (``tests/benchmarks/by_hand.py detector --forms``, for the second with
ONEDNN_MAX_CPU_ISA=AVX512_CORE_VNNI).
"""

from __future__ import annotations

import numpy as np

from qbench.quant.onnx.graph.graph import Graph, attribute

TINY = 1e-30  # changes no sum and is no zero, which OpenVINO would take away


def set_apart(graph: Graph) -> int:
    """Adds a tiny number to what the Sigmoid of each SiLU reads behind an int8 convolution of one group, so that two
    nodes read the convolution; no value changes by it. How many there were."""
    import onnx

    count = 0
    with graph.editing() as nodes:
        for node in [node for node in nodes if node.op_type == "Sigmoid"]:
            tensor = node.input[0]
            products = [reader for reader, _ in graph.readers(tensor) if reader.op_type == "Mul"]
            is_silu = any(set(product.input) == {tensor, node.output[0]} for product in products)
            if is_silu and _from_int8_convolution(graph, tensor):
                number = graph.add_constant(f"{node.name}.tiny", np.array(TINY, np.float32))
                node.input[0] = graph.fresh(f"{tensor}_apart")
                name = graph.fresh(f"{node.name}.apart")
                nodes.append(onnx.helper.make_node("Add", [tensor, number], [node.input[0]], name=name))
                count += 1
    return count


def _from_int8_convolution(graph: Graph, tensor: str) -> bool:
    """Whether a convolution of one group with an int8 weight gives a tensor, its bias added or not."""
    maker = graph.maker(tensor)
    if maker is not None and maker.op_type == "Add" and graph.constant(maker.input[1]) is not None:
        maker = graph.maker(maker.input[0])
    if maker is None or maker.op_type != "Conv" or attribute(maker, "group", 1) != 1:
        return False
    weight = graph.maker(maker.input[1])
    return weight is not None and weight.op_type == "DequantizeLinear"
