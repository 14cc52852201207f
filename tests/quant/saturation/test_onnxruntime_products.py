"""The layers of an optimized graph that add in 16 bits on AVX2, as its nodes tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from qbench.quant.saturation import onnxruntime_products, pair_sums, sections
from qbench.quant.saturation.onnxruntime_products import IntegerLayer
from tests.fixtures import integer_layers


def read(model: onnx.ModelProto) -> IntegerLayer | str | None:
    """The one layer of a model."""
    return onnxruntime_products.read_layer(model.graph.node[0], sections.read_constants(model), {})


@pytest.mark.parametrize("name", integer_layers.EXACT)
def test_exact_layers_are_none(name: str) -> None:
    """Both sides signed or unsigned, depthwise, ConvInteger."""
    assert read(integer_layers.EXACT[name]()[0]) is None


def set_constant(model: onnx.ModelProto, place: int, value: Any) -> None:
    """Another constant at this input of the layer."""
    name = model.graph.node[0].input[place]
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(value), name))


def set_attributes(model: onnx.ModelProto, **attributes: Any) -> None:
    """Other attributes of the layer."""
    for name, value in attributes.items():
        kept = [attribute for attribute in model.graph.node[0].attribute if attribute.name != name]
        del model.graph.node[0].attribute[:]
        model.graph.node[0].attribute.extend([*kept, helper.make_attribute(name, value)])


def drop_inputs(model: onnx.ModelProto, first: int) -> None:
    """The layer without its inputs from that one on, which may be left out."""
    del model.graph.node[0].input[first:]


OTHERS: dict[str, tuple[str, Callable[[onnx.ModelProto], None]]] = {
    "one scale for all outputs": ("QLinearMatMul", lambda model: set_constant(model, 4, np.float32(0.0015))),
    "weights around another number": ("QLinearMatMul", lambda model: set_constant(model, 5, np.arange(5, dtype="i1"))),
    "without zero points": ("MatMulInteger", lambda model: drop_inputs(model, 2)),
    "floats without a bias": ("MatMulIntegerToFloat", lambda model: drop_inputs(model, 6)),
    "a factor": ("QGemm", lambda model: set_attributes(model, alpha=0.5)),
    "padded at one side": ("3x3", lambda model: set_attributes(model, pads=[0, 1, 2, 1])),
}
IN_16_BITS = [name for name in integer_layers.ADD_IN_16_BITS if not name.startswith("Dynamic")]


@pytest.mark.parametrize("name", [*IN_16_BITS, *OTHERS])
def test_a_layer_gives_what_the_runtime_gives_for_the_same_sums(name: str) -> None:
    """Geometry, zero points, scales, bias and rounding; with weights of 7 bits, so that its sums are exact here."""
    kind, change = OTHERS.get(name, (name, lambda model: None))
    model, x = integer_layers.ADD_IN_16_BITS[kind]()
    change(model)
    operands = onnxruntime_products.OPERATORS[model.graph.node[0].op_type]
    weight = sections.read_constants(model)[model.graph.node[0].input[operands.weight]]
    set_constant(model, operands.weight, weight // 2)
    layer, constants = read(model), sections.read_constants(model)
    assert isinstance(layer, IntegerLayer)
    (native,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    place, channel = (axis.reshape(-1) for axis in np.indices((native.size // len(layer.weight), len(layer.weight))))
    values = [x, *map(constants.get, layer.inputs[1:])]
    zero = 0 if len(values) <= operands.x_zero else 3
    sums = pair_sums.exact_sums(layer.product, layer.weight, x, zero, place, channel)
    given = onnxruntime_products.finish(layer, values, sums, channel)
    expected = np.moveaxis(native, 1, -1).reshape(-1)
    assert given.dtype == expected.dtype
    np.testing.assert_allclose(given, expected, rtol=1e-6 if given.dtype == np.float32 else 0)
    assert (layer.name, layer.output, layer.inputs[0]) == ("layer", "y", "x")


@pytest.mark.parametrize(
    ("zero", "expected"),
    [
        (np.uint8(120), [0, 120, 122, 255]),
        (np.array([-3], np.int8), [-128, -3, -1, 127]),
        (None, [0, 0, 2, 255]),
    ],
)
def test_sums_become_the_nearest_byte(zero: Any, expected: list[int]) -> None:
    """Ties to even, what lies beyond an end to that; unsigned where nothing is said."""
    zero = None if zero is None else np.asarray(zero)
    given = onnxruntime_products._requantized(np.array([-999, 1, 3, 999]), np.float32(0.5), zero)
    assert given.tolist() == expected


@pytest.mark.parametrize(
    ("kind", "attributes", "largest", "told"),
    [
        ("1x1", {}, {}, (255, False)),
        ("1x1", {"channels_last": 1}, {"x": 127}, (127, True)),
        ("1x1", {"channels_last": 0}, {"x": 2}, (3, False)),  # what stands for zero is a byte of the input, too
        ("MatMulInteger", {}, {"y": 9}, (255, True)),
    ],
)
def test_the_largest_byte_and_the_place_of_the_channels(
    kind: str, attributes: dict[str, Any], largest: dict[str, int], told: tuple[int, bool]
) -> None:
    """Any byte where nothing is known; rows of a product have their channels last."""
    model, _ = integer_layers.ADD_IN_16_BITS[kind]()
    set_attributes(model, **attributes)
    layer = onnxruntime_products.read_layer(model.graph.node[0], sections.read_constants(model), largest)
    assert isinstance(layer, IntegerLayer)
    assert (layer.product.top, layer.channels_last) == told


def test_a_transposed_weight_is_one_by_outputs() -> None:
    """As a convolution's; a product's other weights have their inputs first."""
    model, _ = integer_layers.product("QGemm", 31)
    plain = read(model)
    set_attributes(model, transB=1)
    set_constant(model, 3, sections.read_constants(model)["c2"].T)
    transposed = read(model)
    assert isinstance(plain, IntegerLayer)
    assert isinstance(transposed, IntegerLayer)
    assert plain.weight.shape == (5, 31)
    assert (plain.weight == transposed.weight).all()
    assert (plain.product.weight == transposed.product.weight).all()


@pytest.mark.parametrize(
    ("kind", "change", "why"),
    [
        ("QGemm", {"transA": 1}, "its padding or its transposed input is not modelled"),
        ("1x1", {"auto_pad": "SAME_UPPER"}, "its padding or its transposed input is not modelled"),
        ("1x1", {"auto_pad": "VALID"}, None),
        ("1x1", {"auto_pad": "NOTSET"}, None),
        ("MatMulInteger", np.ones((2, 33, 5), np.int8), "its weight has 3 dimensions"),
    ],
)
def test_what_is_not_modelled_says_why(kind: str, change: Any, why: str | None) -> None:
    """By attributes, or the shape of a product's weight."""
    model, _ = integer_layers.ADD_IN_16_BITS[kind]()
    if isinstance(change, dict):
        set_attributes(model, **change)
    else:
        set_constant(model, 1, change)
    layer = read(model)
    assert layer == why if why else isinstance(layer, IntegerLayer)


def test_bytes_that_are_computed_are_known_by_their_zero_points() -> None:
    """Signed ones are not modelled, others are exact; one that a node has none of tells nothing."""
    node, zeros = integer_layers.product("MatMulInteger", 8)[0].graph.node[0], {"c1": np.uint8(3)}
    unknown = "its signed bytes are computed, not constant"
    assert onnxruntime_products.read_layer(node, {**zeros, "c2": np.int8(0)}, {}) == unknown
    assert onnxruntime_products.read_layer(node, {"c2": np.int8(0)}, {}) == unknown
    assert onnxruntime_products.read_layer(node, {**zeros, "c2": np.uint8(0)}, {}) is None
    assert onnxruntime_products.read_layer(node, zeros, {}) is None


def test_a_convolution_without_attributes_has_those_of_the_standard() -> None:
    """Steps of one, no padding, one group."""
    product = onnxruntime_products.read_convolution(np.ones((4, 3, 2, 2), np.int8), {}, 7)
    assert (product.stride, product.dilation, product.pads) == ((1, 1), (1, 1), ((0, 0), (0, 0)))
    assert (product.pairing, product.groups, product.zero_point, product.top) == ("flat", 1, 7, 255)
    alone = helper.make_node("QLinearConv", [*"x", "s", "z", "w"], ["y"])
    assert onnxruntime_products.read_layer(alone, {"w": np.ones((1, 1, 3, 3), np.int8)}, {}) is None  # depthwise


def test_a_weight_called_after_its_module_names_the_layer() -> None:
    """What a reader knows from the network, not what the optimizer hung on the node."""
    model, _ = integer_layers.convolution((5, 8, 1, 1))
    model.graph.initializer[2].name = "blocks.3.conv.weight_quantized"
    model.graph.node[0].input[3] = "blocks.3.conv.weight_quantized"
    layer = read(model)
    assert isinstance(layer, IntegerLayer)
    assert layer.name == "blocks.3.conv"
    model.graph.node[0].input[3], model.graph.node[0].name = "c2", ""
    model.graph.initializer[2].name = "c2"
    layer = read(model)
    assert isinstance(layer, IntegerLayer)
    assert layer.name == "y"  # of a node without a name


@pytest.mark.parametrize("more", [(), ("zero",), ("zero", "bias"), ("", "bias")])
def test_dynamic_products_are_written_as_what_they_are(more: tuple[str, ...]) -> None:
    """A quantizer and a product, which read and give the same; other nodes stay where they are."""
    words = ["x", "weight", "scale", *more]
    nodes = [
        helper.make_node("Relu", ["a"], ["x"]),
        helper.make_node("DynamicQuantizeMatMul", words, ["y"], name="layer", domain=integer_layers.MS),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    model = helper.make_model(helper.make_graph(nodes, "g", [], []))
    onnxruntime_products.split_dynamic(model)
    before, quantize, product, behind = model.graph.node
    assert [before, behind] == [nodes[0], nodes[2]]
    assert (quantize.op_type, list(quantize.input)) == ("DynamicQuantizeLinear", ["x"])
    x, x_scale, x_zero = quantize.output
    assert (product.op_type, product.name, product.domain) == ("MatMulIntegerToFloat", "layer", integer_layers.MS)
    assert list(product.input) == [x, "weight", x_scale, "scale", x_zero, *more]
    assert list(product.output) == ["y"]


def test_what_multiplies_bytes_within_itself_is_not_modelled() -> None:
    """A recurrent layer says why."""
    node = helper.make_node("DynamicQuantizeLSTM", ["x"], ["y"], domain="com.microsoft")
    assert onnxruntime_products.read_layer(node, {}, {}) == "DynamicQuantizeLSTM is not modelled"


def test_the_largest_byte_is_known_behind_a_clip_and_what_keeps_values() -> None:
    """Not behind an operator that computes others, nor behind a clip of floats."""
    nodes = [
        helper.make_node("Clip", ["x", "low", "six"], ["floats"]),
        helper.make_node("Clip", ["x", "low", "high"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"]),
        helper.make_node("QLinearAdd", ["b"], ["c"]),
    ]
    model = helper.make_model(helper.make_graph(nodes, "g", [], []))
    constants = {"low": np.uint8(0), "high": np.array(127, np.uint8), "six": np.float32(6)}
    assert onnxruntime_products.read_largest(model, constants) == {"a": 127, "b": 127}
