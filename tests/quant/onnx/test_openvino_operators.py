"""Fourier transforms that OpenVINO reads otherwise than ONNX says are refused, and no others."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

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
        openvino_operators.require_transforms(tmp_path / "model.onnx")


@pytest.mark.parametrize(("opset", "axis"), [(17, 2), (17, 1), (20, 1)])
def test_a_transform_that_openvino_reads_as_onnx_does_is_taken(tmp_path, opset, axis):
    """Complex values along axis 1, or along any that is an attribute: the outputs are ONNX Runtime's."""
    file = tmp_path / "model.onnx"
    transform(file, (2, 8, 16, 2), opset=opset, axis=axis, onesided=0)
    openvino_operators.require_transforms(file)
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
            openvino_operators.require_transforms(file)
    else:
        openvino_operators.require_transforms(file)
