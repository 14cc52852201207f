"""The layers of a file with quantize and dequantize nodes that OpenVINO adds in 16 bits on AVX2, as its nodes tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from qbench.quant.saturation import openvino_products, sections
from qbench.quant.saturation.openvino_products import ByteLayer
from tests.fixtures import openvino_int8_layers
from tests.fixtures.openvino_int8_layers import LAYERS


def read(model: onnx.ModelProto) -> ByteLayer | str | None:
    """The one layer of a model."""
    node = layer_node(model)
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


def layer_node(model: onnx.ModelProto) -> Any:
    """The node that multiplies."""
    return next(node for node in model.graph.node if node.name == "node")


def edited(name: str, *, kind: str | None = None, inputs: Mapping[int, str] = {}, **attributes: Any) -> onnx.ModelProto:
    """A model whose layer is of another kind, reads others, or has these attributes."""
    model = openvino_int8_layers.model(name)
    node = layer_node(model)
    node.op_type = kind or node.op_type
    for place, tensor in inputs.items():
        node.input.extend([""] * (place + 1 - len(node.input)))
        node.input[place] = tensor
    node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
    return model


UNMOVED = "its padding or its transposed input is not modelled"
NO_SIGNED, COMPUTED = "its weights are no signed bytes around zero", "both of its operands are computed"


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (changed(openvino_int8_layers.model("1x1"), "weight_zero", np.ones(10, np.int8)), NO_SIGNED),
        (
            changed(openvino_int8_layers.model("1x1"), "layer.weight_quantized", np.ones((10, 32, 1, 1), "u1")),
            NO_SIGNED,
        ),
        (
            changed(openvino_int8_layers.model("1x1", signed=True), "x_zero", np.int8(5)),
            "signed bytes around another number than zero are not modelled",
        ),
        (changed(openvino_int8_layers.model("1x1"), "x_scale", np.ones(2, "f4")), "its input has several scales"),
        (
            changed(openvino_int8_layers.model("product"), "layer.weight_quantized", np.ones((1, 64, 10), np.int8)),
            "its weight has 3 dimensions",
        ),
        (edited("1x1", kind="ConvTranspose"), "ConvTranspose is not modelled"),
        (edited("1x1", inputs={2: "x"}), "its bias is computed"),
        (edited("product", inputs={1: "x_floats"}), COMPUTED),
        (edited("product", inputs={0: "w"}), COMPUTED),
        (edited("1x1", auto_pad="SAME_UPPER"), UNMOVED),
        (edited("product", kind="Gemm", transA=1), UNMOVED),
        (edited("product", kind="Gemm", alpha=2.0), "factors of its product are not modelled"),
        (edited("product", kind="Gemm", beta=0.5), "factors of its product are not modelled"),
        (edited("1x1", inputs={0: "x"}), None),
        (edited("1x1", inputs={1: "x"}), None),
        (edited("1x1", kind="Add"), None),
    ],
)
def test_what_is_not_modelled_says_why(model: onnx.ModelProto, why: str | None) -> None:
    """Nothing is claimed of another kind of weight, input or bias; what multiplies floats adds no bytes."""
    assert read(model) == why


@pytest.mark.parametrize(
    "model",
    [
        edited("1x1", auto_pad="VALID"),
        edited("1x1", auto_pad="NOTSET"),
        edited("product", kind="Gemm", alpha=1.0, beta=1.0, transA=0, transB=0),
        changed(openvino_int8_layers.model("1x1"), "x_scale", np.ones(1, np.float32)),
    ],
)
def test_what_an_attribute_says_by_default_may_stand_there(model: onnx.ModelProto) -> None:
    """It changes nothing."""
    assert isinstance(read(model), ByteLayer)


@pytest.mark.parametrize("place", [1, 2])
def test_scales_that_are_computed_tell_nothing(place: int) -> None:
    """Nor do zero points; one that is left out is 0, of unsigned bytes."""
    model = openvino_int8_layers.model("1x1")
    model.graph.node[1].input[place] = "x"
    assert read(model) is None
    del model.graph.node[1].input[place:]
    if place == 2:
        layer = read(model)
        assert isinstance(layer, ByteLayer)
        assert (layer.x, layer.zero, layer.product.zero_point) == ("x_bytes", 0, 0)


def test_a_layer_behind_what_keeps_values_reads_them_as_floats() -> None:
    """However many there are; as bytes only what is dequantized at once."""
    model = edited("product", inputs={0: "moved again"})
    model.graph.node.extend(
        [helper.make_node("Flatten", ["x_floats"], ["moved"]), helper.make_node("Reshape", ["moved"], ["moved again"])]
    )
    layer = read(model)
    assert isinstance(layer, ByteLayer)
    assert (layer.x, layer.zero) == ("moved again", 3)
    x = (np.array([[[0, 255], [3, 9]]], np.float32) - 3) * layer.scale
    assert layer.read_bytes(x).tolist() == [[0, 255], [3, 9]]
    assert layer.read_bytes(np.array([[7]], np.uint8)).tolist() == [[7]]


def test_weights_are_by_outputs() -> None:
    """A product's have their inputs first, but where they are transposed."""
    plain, transposed = openvino_int8_layers.model("product"), edited("product", kind="Gemm", transB=1)
    weight = sections.read_constants(plain)["layer.weight_quantized"]
    for model in (plain, changed(transposed, "layer.weight_quantized", weight.T)):
        layer = read(model)
        assert isinstance(layer, ByteLayer)
        assert (layer.product.weight == weight.T).all()
        assert (layer.counter().weight == weight.T).all()


def test_one_output_of_one_input_is_no_depthwise_layer() -> None:
    """That has several groups."""
    weight = np.ones((1, 1, 1, 1), np.int8)
    layer = read(changed(openvino_int8_layers.model("1x1"), "layer.weight_quantized", weight))
    assert isinstance(layer, ByteLayer)
    assert layer.product.pairing == "even"


@pytest.mark.parametrize("kind", ["none", "floats", "bytes"])
def test_a_bias_is_none_floats_or_bytes(kind: str) -> None:
    """By output channel; one scale may be that of all weights."""
    model = edited("1x1", inputs={2: "" if kind == "none" else "own"})
    model = changed(model, "weight_scale", np.float32(0.01))
    values = np.arange(10) * 2
    if kind == "bytes":
        model.graph.node.append(helper.make_node("DequantizeLinear", ["levels", "half"], ["own"]))
        model.graph.initializer.append(numpy_helper.from_array(values.astype(np.int32), "levels"))
        model.graph.initializer.append(numpy_helper.from_array(np.float32(0.5), "half"))
    else:
        model.graph.initializer.append(numpy_helper.from_array((values / 2).astype(np.float32), "own"))
    layer = read(model)
    assert isinstance(layer, ByteLayer)
    added = 0 if kind == "none" else 9
    assert layer.finish(np.array([100, 200]), np.array([0, 9])) == pytest.approx([0.02, 0.04 + added])


def test_a_tensor_is_made_by_the_node_that_gives_it() -> None:
    """An output that is left out is none."""
    model = openvino_int8_layers.model("1x1")
    model.graph.node.append(helper.make_node("Dropout", ["y"], ["z", ""]))
    makers = openvino_products.list_makers(model)
    assert "" not in makers
    assert makers["z"] == model.graph.node[-1]
