"""Small ONNX graphs for the tests of calibration, written in onnx's text form, and configurations for all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from numpy.typing import NDArray

from qbench.quant.uniform.calibration import calibrate
from qbench.quant.uniform.files.config import ActivationParams, Config, LayerConfig, TensorConfig, WeightParams
from qbench.quant.uniform.graph.graph import Graph

Array = NDArray[Any]
WEIGHTED = ("Conv", "Gemm", "MatMul", "ConvTranspose")
# A residual network: a stem, a depthwise layer, a shortcut and a classifier.
CNN = """
<ir_version: 8, opset_import: ["" : 17]>
cnn (float[n,3,8,8] x) => (float[n,5] y) {
  [stem] a = Conv <kernel_shape: ints = [3,3], pads: ints = [1,1,1,1]> (x, stem_w, stem_b)
  [relu] b = Relu (a)
  [deep] c = Conv <kernel_shape: ints = [3,3], pads: ints = [1,1,1,1], group: int = 8> (b, deep_w, deep_b)
  [clip] d = Clip (c, zero, six)
  [point] e = Conv <kernel_shape: ints = [1,1]> (d, point_w, point_b)
  [sum] f = Add (e, b)
  [mean] g = GlobalAveragePool (f)
  [flat] h = Flatten (g)
  [head] y = Gemm <transB: int = 1> (h, head_w, head_b)
}
"""
CNN_CONSTANTS = {
    "stem_w": (8, 3, 3, 3),
    "stem_b": (8,),
    "deep_w": (8, 1, 3, 3),
    "deep_b": (8,),
    "point_w": (8, 8, 1, 1),
    "point_b": (8,),
    "head_w": (5, 8),
    "head_b": (5,),
    "zero": np.float32(0),
    "six": np.float32(6),
}


def graph(text: str, constants: Mapping[str, Any], *, seed: int = 0) -> Graph:
    """A graph from onnx's text form, with its shapes; a constant given by its shape gets random values. ``[name]``
    before a line names its node (onnx's parser knows this form too, but not in every version)."""
    names = re.findall(r"^\s*\[(\w+)\]", text, re.M)
    model = onnx.parser.parse_model(re.sub(r"^(\s*)\[\w+\]", r"\1", text, flags=re.M))
    for node, name in zip(model.graph.node, names, strict=True):
        node.name = name
    random = np.random.default_rng(seed)
    for name, held in constants.items():
        value = random.standard_normal(held).astype(np.float32) / 2 if isinstance(held, tuple) else np.asarray(held)
        model.graph.initializer.append(onnx.numpy_helper.from_array(value, name))
    return Graph(onnx.shape_inference.infer_shapes(model))


def cnn() -> Graph:
    """The residual network, with the same weights each time."""
    return graph(CNN, CNN_CONSTANTS)


def config(made: Graph, *, tensors: Iterable[tuple[str, int]] = (), algorithm: str = "minmax", **others: Any) -> Config:
    """Every layer with weights quantized, and the inputs of ``tensors`` (node, position)."""
    weight = others.pop("weight", {})
    activation = ActivationParams(algorithm=algorithm, asymmetric=others.pop("asymmetric", True))
    layers = {
        node.name: LayerConfig(
            activation=activation, weight=WeightParams(channel_wise=node.op_type.startswith("Conv"), **weight)
        )
        for node in made.nodes
        if node.op_type in WEIGHTED
    }
    tensor_quantize = tuple(
        TensorConfig(layer_name=name, input_index=position, activation=activation) for name, position in tensors
    )
    return Config(layers=layers, tensor_quantize=tensor_quantize, **others)


def written(file: Path, made: Graph, wanted: Config) -> Path:
    """The calibration model of a graph in a file."""
    calibrate.calibration_model(made, wanted).save(file)
    return file


def images(count: int, *, seed: int = 1, shape: tuple[int, ...] = (3, 8, 8)) -> Array:
    """Random inputs, of standard normal values."""
    return np.random.default_rng(seed).standard_normal((count, *shape)).astype(np.float32)


def values(made: Graph, feed: Mapping[str, Array], *tensors: str) -> list[Array]:
    """Tensors of a graph by onnx's reference evaluator, which shares no code with what is tested; by ONNX Runtime
    where that evaluator fails, on transposed convolutions in groups."""
    import onnxruntime
    from onnx.reference import ReferenceEvaluator

    shown = made.copy()
    del shown.model.graph.output[:]
    for name in tensors:
        value = onnx.ValueInfoProto()
        value.name = name
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        shown.model.graph.output.append(value)
    if any(node.op_type == "ConvTranspose" for node in shown.nodes):
        session = onnxruntime.InferenceSession(shown.model.SerializeToString(), providers=["CPUExecutionProvider"])
        return list(session.run(list(tensors), dict(feed)))
    return list(ReferenceEvaluator(shown.model).run(list(tensors), dict(feed)))
