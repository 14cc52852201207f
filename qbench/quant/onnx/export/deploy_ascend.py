"""Graph + record -> what Huawei's Ascend compiler (ATC) takes: AscendQuant, int8 layers, AscendDequant.

    x -> AscendQuant -> int8 -> Conv, int8 weight, int32 bias -> int32 -> AscendDequant -> y

AscendQuant gives clip(round(x * scale + offset), -128, 127) with scale = 1 / scale_d, AscendDequant gives
accumulator * deq_scale with deq_scale = s_d s_w, and AscendAntiQuant (x + offset) * scale: operators of CANN's ONNX
parser (gitcode.com/cann/ops-nn, quant/ascend_quant, ascend_dequant, ascend_anti_quant). The bias is that of the layer,
round(b / (s_d s_w)): the compiler takes offset * sum(weight) off it and pads with the offset (QuantBiasOptimization).
ONNX Runtime does not know these operators; ``ascend_ops`` computes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.affine import dequantize_linear
from qbench.quant.onnx.export import integer_weights
from qbench.quant.onnx.export.fake_quant import without_notes
from qbench.quant.onnx.export.integer_weights import Activation, QuantizedLayer
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Record, Sites
from qbench.quant.onnx.weights.weight_scales import spread

Array = NDArray[Any]
FLOAT = 0  # the compiler's number for float32
_POOL = "AveragePool"


def deploy(graph: Graph, sites: Sites, record: Record) -> Graph:
    """A copy of a prepared graph with the operators of the Ascend compiler; other layers and names stay.

    A layer (also an AveragePool) reads int8 and gives int32, which is dequantized under the name of its output. What is
    quantized for another operator passes AscendQuant and AscendAntiQuant. Raises ``BuildError`` for a bias out of
    int32, ``UsageError`` for an incomplete record.
    """
    writer = _Writer(graph.copy())
    without_notes(writer.graph)
    layers = {layer.name: layer for layer in integer_weights.layers(graph, sites, record)}
    pools = {node.name for node in graph.nodes if node.op_type == _POOL}
    for activation in integer_weights.activations(sites, record):
        whole = tuple(
            place for place in activation.readers if place[1] == 0 and (place[0] in layers or place[0] in pools)
        )
        writer.activation(activation, whole)
    for layer in layers.values():
        writer.layer(layer)
    return writer.finish()


def packed(step: Array) -> Array:
    """deq_scale: float32 values as uint64, their bits in the low half; shift and offset in the high half are 0."""
    return np.atleast_1d(np.asarray(step, np.float32)).view(np.uint32).astype(np.uint64)


class _Writer:
    """Collects the nodes of the new graph, and what is read and written instead of what."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._nodes: list[Any] = []
        self._instead: dict[tuple[str, int], str] = {}
        self._outputs: dict[str, str] = {}  # node -> the name of its accumulator

    def activation(self, activation: Activation, whole: tuple[tuple[str, int], ...]) -> None:
        """Quantizes a tensor: ``whole`` layers read the integers, other readers get floats again."""
        attributes = {
            "scale": float(1 / np.float32(activation.params.scale)),
            "offset": float(activation.params.zero_point),
        }
        quantized = self._add(
            "AscendQuant",
            [activation.tensor],
            f"{activation.tensor}.quant",
            {**attributes, "sqrt_mode": 0, "round_mode": "Round", "dst_type": "INT8"},
        )
        self._instead |= dict.fromkeys(whole, quantized)
        for name, _ in whole:
            if self.graph.node(name).op_type == _POOL:
                self._dequantize(name, np.asarray(activation.params.scale, np.float32))
        if others := [place for place in activation.readers if place not in whole]:
            attributes = {"scale": activation.params.scale, "offset": float(-activation.params.zero_point)}
            dequantized = self._add(
                "AscendAntiQuant",
                [quantized],
                f"{activation.tensor}.antiquant",
                {**attributes, "sqrt_mode": 0, "dtype": FLOAT},
            )
            self._instead |= dict.fromkeys(others, dequantized)

    def layer(self, layer: QuantizedLayer) -> None:
        """Gives a layer its integers; one whose input stays float gets the values that they stand for."""
        if layer.step is None:
            shaped = spread(tuple(np.atleast_1d(layer.scale)), layer.axis, layer.weight.ndim)
            values = dequantize_linear(layer.weight, shaped)
            self._instead[layer.name, 1] = self.graph.add_constant(f"{layer.tensor}.fake", values)
            return
        self._instead[layer.name, 1] = self.graph.add_constant(f"{layer.tensor}.int8", layer.weight)
        if layer.bias is not None:
            self._instead[layer.name, 2] = self.graph.add_constant(f"{layer.bias_tensor}.int32", layer.bias)
        self._dequantize(layer.name, layer.step)

    def finish(self) -> Graph:
        """The graph with everything in its place."""
        integer_weights.replaced(self.graph, iter(self._instead.items()), [])
        with self.graph.editing() as nodes:
            for node in nodes:
                if node.name in self._outputs:
                    node.output[0] = self._outputs[node.name]
            nodes += self._nodes
        self.graph.drop_unused()
        return self.graph

    def _dequantize(self, name: str, step: Array) -> None:
        output = str(self.graph.node(name).output[0])
        self._outputs[name] = self.graph.fresh(f"{output}.int32")
        scale = self.graph.add_constant(f"{name}.deq_scale", packed(step))
        attributes = {"dtype": FLOAT, "sqrt_mode": 0, "relu_flag": 0}
        self._add("AscendDequant", [self._outputs[name], scale], f"{name}.dequant", attributes, output)

    def _add(
        self, kind: str, inputs: list[str], name: str, attributes: Mapping[str, Any], output: str | None = None
    ) -> str:
        import onnx

        name = self.graph.fresh(name)
        output = output or self.graph.fresh(f"{name}.out")
        self._nodes.append(onnx.helper.make_node(kind, inputs, [output], name=name, **attributes))
        return output
