"""What OpenVINO reads otherwise than ONNX says: Fourier transforms are refused, and no others; what an Einsum is given
of constants is computed before."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench import registry
from qbench.errors import ModeImpossible
from qbench.quant.artifacts import openvino_model
from qbench.quant.onnx import onnxruntime_session, openvino_operators

pytest.importorskip("openvino")


def transform(file, shape, *, opset, axis, onesided):
    """A file of one DFT of ``x``; ``axis`` None leaves the operator's own."""
    names = axis is not None
    as_input = names and opset >= 20
    node = helper.make_node("DFT", ["x", "", "axis"] if as_input else ["x"], ["y"], name="fourier", onesided=onesided)
    if names and not as_input:
        node.attribute.append(helper.make_attribute("axis", axis))
    value = helper.make_tensor_value_info
    constants = [helper.make_tensor("axis", TensorProto.INT64, [], [axis])] if as_input else []
    inputs, outputs = value("x", TensorProto.FLOAT, ["n", *shape[1:]]), value("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [inputs], [outputs], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), file)


@pytest.mark.parametrize(
    ("shape", "opset", "axis", "onesided"),
    [((2, 8, 16, 2), 20, 2, 0), ((2, 8, 16, 2), 20, None, 0), ((2, 8, 16, 1), 20, -2, 1), ((2, 16, 1), 17, 1, 1)],
    ids=["axis of opset 20", "own axis of opset 20", "real, axis", "real"],
)
def test_a_transform_that_openvino_misreads_is_a_skip(tmp_path, shape, opset, axis, onesided):
    """Its axis as an input is not read, real values get one dimension too many: wrong numbers, and no error."""
    transform(tmp_path / "model.onnx", shape, opset=opset, axis=axis, onesided=onesided)
    with pytest.raises(ModeImpossible, match="Fourier transform fourier wrongly .*use the onnxruntime backend"):
        openvino_operators.take_operators(tmp_path / "model.onnx")


@pytest.mark.parametrize(("opset", "axis"), [(17, 2), (17, 1), (20, 1)])
def test_a_transform_that_openvino_reads_as_onnx_does_is_taken(tmp_path, opset, axis):
    """Complex values along axis 1, or along any that is an attribute: the outputs are ONNX Runtime's."""
    file = tmp_path / "model.onnx"
    transform(file, (2, 8, 16, 2), opset=opset, axis=axis, onesided=0)
    openvino_operators.take_operators(file)
    signal = np.random.default_rng(0).standard_normal((2, 8, 16, 2)).astype(np.float32)
    (expected,) = onnxruntime_session.call(onnxruntime_session.open_session(file), None, {"x": signal})
    spectrum = openvino_model.run(openvino_model.compile_file(file), (signal,))
    np.testing.assert_allclose(spectrum, expected, atol=1e-4)


@pytest.mark.parametrize(("axis", "misread"), [(1, False), (2, True), (-2, True)])
def test_an_axis_of_values_whose_shape_is_not_known_is_read_from_the_front(tmp_path, axis, misread):
    """One from the back could be any, and is refused."""
    file = tmp_path / "model.onnx"
    transform(file, (2, 8, 16, 2), opset=20, axis=axis, onesided=0)
    model = onnx.load(file)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    onnx.save(model, file)
    if misread:
        with pytest.raises(ModeImpossible, match="fourier wrongly"):
            openvino_operators.take_operators(file)
    else:
        openvino_operators.take_operators(file)


@pytest.mark.parametrize("width", [16, 512], ids=["small", "more than a computed constant may have"])
def test_positions_picked_from_a_table_reach_the_second_einsum_in_order(tmp_path, width):
    """As in Funnel: GatherElements among constants, a product by a weight, a product by the network's values."""
    rng = np.random.default_rng(0)
    positions, heads, each = 160, 4, 8
    weights = {
        "table": rng.normal(size=(2 * positions, width + 3)).astype(np.float32),
        "places": np.repeat(-np.arange(1, positions + 1)[:, None], width, 1),
        "weight": rng.normal(size=(width, heads, each)).astype(np.float32),
    }
    nodes = [
        helper.make_node("GatherElements", ["table", "places"], ["picked"], axis=0),
        helper.make_node("Einsum", ["picked", "weight"], ["keys"], equation="td,dnh->tnh"),
        helper.make_node("Einsum", ["x", "keys"], ["y"], equation="binh,tnh->bnit"),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 5, heads, each])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    file = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), file)
    queries = rng.normal(size=(3, 5, heads, each)).astype(np.float32)
    expected = onnxruntime_session.run(file, (queries,))
    registry.load("backend", "openvino").take_operators(file)
    given = openvino_model.run(openvino_model.compile_file(file), (queries,))
    np.testing.assert_allclose(given, expected, atol=1e-4 * np.abs(expected).max())
