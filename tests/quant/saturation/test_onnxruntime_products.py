"""The layers of an optimized graph that add in 16 bits on AVX2, as its nodes tell."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from qbench.quant.saturation import onnxruntime_products, sections
from qbench.quant.saturation.onnxruntime_products import IntegerLayer
from tests.fixtures import integer_layers


def read(model: onnx.ModelProto) -> IntegerLayer | str | None:
    """The one layer of a model."""
    return onnxruntime_products.read_layer(model.graph.node[0], sections.read_constants(model), {})


@pytest.mark.parametrize("name", integer_layers.EXACT)
def test_exact_layers_are_none(name: str) -> None:
    """Both sides signed or unsigned, depthwise, ConvInteger."""
    assert read(integer_layers.EXACT[name]()[0]) is None


@pytest.mark.parametrize("name", [name for name in integer_layers.ADD_IN_16_BITS if not name.startswith("Dynamic")])
def test_unsigned_times_signed_is_a_layer(name: str) -> None:
    """With the geometry of the node and its weight by output."""
    layer = read(integer_layers.ADD_IN_16_BITS[name]()[0])
    assert isinstance(layer, IntegerLayer)
    assert len(layer.weight) == len(layer.product.weight)
    assert layer.output == "y"
    assert layer.inputs[layer.operands.x] == "x"


def test_a_weight_called_after_its_module_names_the_layer() -> None:
    """What a reader knows from the network, not what the optimizer hung on the node."""
    model, _ = integer_layers.convolution((5, 8, 1, 1))
    model.graph.initializer[2].name = "blocks.3.conv.weight_quantized"
    model.graph.node[0].input[3] = "blocks.3.conv.weight_quantized"
    layer = read(model)
    assert isinstance(layer, IntegerLayer)
    assert layer.name == "blocks.3.conv"


def test_dynamic_products_are_written_as_what_they_are() -> None:
    """A quantizer and a product, which read and give the same."""
    model, _ = integer_layers.product("DynamicQuantizeMatMul", 8)
    onnxruntime_products.split_dynamic(model)
    assert [node.op_type for node in model.graph.node] == ["DynamicQuantizeLinear", "MatMulIntegerToFloat"]
    assert model.graph.node[0].input[0] == "x"
    assert model.graph.node[1].output[0] == "y"


def test_what_multiplies_bytes_within_itself_is_not_modelled() -> None:
    """A recurrent layer says why."""
    node = helper.make_node("DynamicQuantizeLSTM", ["x"], ["y"], domain="com.microsoft")
    assert onnxruntime_products.read_layer(node, {}, {}) == "DynamicQuantizeLSTM is not modelled"


def test_the_largest_byte_is_known_behind_a_clip_and_what_keeps_values() -> None:
    """Not behind an operator that computes others."""
    nodes = [
        helper.make_node("Clip", ["x", "low", "high"], ["a"]),
        helper.make_node("Transpose", ["a"], ["b"]),
        helper.make_node("QLinearAdd", ["b"], ["c"]),
    ]
    model = helper.make_model(helper.make_graph(nodes, "g", [], []))
    constants = {"low": np.uint8(0), "high": np.array(127, np.uint8)}
    assert onnxruntime_products.read_largest(model, constants) == {"a": 127, "b": 127}
