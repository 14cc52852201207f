"""The layers of a file with quantize and dequantize nodes that OpenVINO adds in 16 bits on AVX2, as its nodes tell."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from qbench.quant.saturation import openvino_products, sections
from qbench.quant.saturation.openvino_products import ByteLayer
from tests.fixtures import openvino_int8_layers
from tests.fixtures.openvino_int8_layers import LAYERS


def read(model: onnx.ModelProto) -> ByteLayer | str | None:
    """The one layer of a model."""
    node = next(node for node in model.graph.node if node.name == "node")
    return openvino_products.read_layer(node, openvino_products.list_makers(model), sections.read_constants(model))


def changed(model: onnx.ModelProto, name: str, value: np.ndarray) -> onnx.ModelProto:
    """The model with another constant."""
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    tensor.CopyFrom(numpy_helper.from_array(value, name))
    return model


@pytest.mark.parametrize("name", LAYERS)
def test_the_order_of_the_sums_of_a_layer(name: str) -> None:
    """Places filled up to even channels; groups as a matrix product; depthwise sums are exact."""
    layer = read(openvino_int8_layers.model(name))
    if "depthwise" in name:
        assert layer is None
    else:
        assert isinstance(layer, ByteLayer)
        assert layer.product.pairing == ("flat" if LAYERS[name].get("group", 1) > 1 else "even")
        assert (layer.name, layer.x, layer.output) == ("layer", "x_bytes", "sums")


def test_signed_bytes_are_those_of_the_kernel_less_128() -> None:
    """The same layer, with unsigned bytes around 128; it is read as floats."""
    layer = read(openvino_int8_layers.model("1x1", signed=True))
    assert isinstance(layer, ByteLayer)
    x = np.array([-128, -1, 0, 127], np.float32).reshape(1, 4, 1, 1) * layer.scale
    assert (layer.x, layer.zero) == ("x_floats", 128)
    assert layer.read_bytes(x).reshape(-1).tolist() == [0, 127, 128, 255]


def test_floats_are_sums_by_scales_and_bias() -> None:
    """Of each output channel its own."""
    model = openvino_int8_layers.model("1x1")
    node = next(node for node in model.graph.node if node.name == "node")
    node.input.append("own")
    model.graph.initializer.append(numpy_helper.from_array(np.arange(10, dtype=np.float32), "own"))
    layer = read(model)
    assert isinstance(layer, ByteLayer)
    values = layer.finish(np.array([100, 100]), np.array([0, 9]))
    assert values == pytest.approx([100 * 0.02 * 0.01, 100 * 0.02 * 0.02 + 9])


def test_what_is_not_modelled_says_why() -> None:
    """Nothing is claimed of another kind of weight, input or bias."""
    weights = changed(openvino_int8_layers.model("1x1"), "weight_zero", np.ones(10, np.int8))
    assert read(weights) == "its weights are no signed bytes around zero"
    signed = changed(openvino_int8_layers.model("1x1", signed=True), "x_zero", np.int8(5))
    assert read(signed) == "signed bytes around another number than zero are not modelled"
    transposed = openvino_int8_layers.model("1x1")
    next(node for node in transposed.graph.node if node.name == "node").op_type = "ConvTranspose"
    assert read(transposed) == "ConvTranspose is not modelled"
    biased = openvino_int8_layers.model("1x1")
    next(node for node in biased.graph.node if node.name == "node").input.append("x")
    assert read(biased) == "its bias is computed"


def test_floats_are_no_layer() -> None:
    """A convolution that reads the input itself adds no bytes."""
    model = openvino_int8_layers.model("1x1")
    next(node for node in model.graph.node if node.name == "node").input[0] = "x"
    assert read(model) is None
