"""What OpenVINO answers for an int8 ONNX file on a CPU that adds products of bytes in 16 bits (AVX2 without VNNI).

The file runs natively, cut behind the layers whose weights let a sum leave 16 bits, and what these lose is put right
before it is read. A cut ends what OpenVINO fuses behind a layer, so that a byte may be rounded the other way. In a
process that is limited to AVX2 nothing is left to put right, and what is counted is what its kernels lose.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.artifacts import openvino_model
from qbench.quant.onnx import openvino_layers
from qbench.quant.saturation import openvino_products, sections
from qbench.quant.saturation.layer_counter import LayerCounter
from qbench.quant.saturation.openvino_products import ByteLayer
from qbench.quant.saturation.section_predictor import SectionPredictor

Array = NDArray[Any]


class OpenVinoPredictor(SectionPredictor[ByteLayer]):
    """Answers of OpenVINO for one file. ``example``: a batch that the file takes, by which OpenVINO chooses kernels."""

    def __init__(self, file: Path, example: tuple[Array, ...], *, threads: int = 1) -> None:
        import onnx

        model = onnx.load(str(file))
        put_beside_readers(model)
        constants, makers = sections.read_constants(model), openvino_products.list_makers(model)
        ran_int8 = _list_int8(file, example)
        parsed = [
            openvino_products.read_layer(node, makers, constants) if node.name in ran_int8 else None
            for node in model.graph.node
        ]
        names = [sections.name_layer(node, makers) for node in model.graph.node]
        super().__init__(model, parsed, names, functools.partial(_Part, threads=threads))

    def _reads(self, layer: ByteLayer) -> Sequence[str]:
        return (layer.x,)

    def _correct(self, layer: ByteLayer, counter: LayerCounter, tensors: dict[str, Array], examples: int) -> Array:
        y = tensors[layer.output] = np.require(tensors[layer.output], requirements=("C", "W"))
        outputs = y if layer.product.kernel else y.reshape(-1, y.shape[-1])
        rows = len(outputs) // examples
        return counter.correct(layer.read_bytes(tensors[layer.x]), layer.zero, outputs, layer.finish, rows=rows)


class _Part:
    """An ONNX model, run by OpenVINO as a session of ONNX Runtime is; compiled for the shapes that it is fed."""

    def __init__(self, model: Any, *, threads: int) -> None:
        read = openvino_model.ReadModel(model.SerializeToString())
        self._inputs = [value.name for value in model.graph.input]
        self._requests = openvino_model.ForShapes(
            lambda shapes: read.compile(shapes, every_size=True, threads=threads).create_infer_request()
        )

    def run(self, outputs: Sequence[str], feed: Mapping[str, Array]) -> list[Array]:
        """The outputs of these names, in memory that the next call writes over."""
        request = self._requests.get([feed[name].shape for name in self._inputs])
        result = request.infer(dict(feed), share_inputs=True, share_outputs=True)
        return [result[name] for name in outputs]


def _list_int8(file: Path, example: tuple[Array, ...]) -> frozenset[str]:
    """The nodes of a file that OpenVINO runs by int8 kernels."""
    ran = openvino_layers.executed(file, example)
    return frozenset(itertools.chain.from_iterable(each.names for each in ran if each.layer.int8))


def put_beside_readers(model: Any) -> None:
    """Moves each DequantizeLinear of a constant right before the first node that reads it: where a graph is cut, its
    bytes and not its floats belong to a section."""
    constants = {tensor.name for tensor in model.graph.initializer}
    nodes = list(model.graph.node)
    waiting = {
        node.output[0]: node for node in nodes if node.op_type == "DequantizeLinear" and node.input[0] in constants
    }
    moved = {id(node) for node in waiting.values()}
    del model.graph.node[:]
    for node in nodes:
        if id(node) not in moved:
            model.graph.node.extend(waiting.pop(name) for name in node.input if name in waiting)
            model.graph.node.append(node)
