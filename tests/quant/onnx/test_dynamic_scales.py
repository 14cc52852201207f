"""Dynamic int8 on ONNX Runtime: a scale for each channel, also where the runtime's own quantizer has one for all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench.quant.onnx import onnxruntime_quantizers, onnxruntime_session
from qbench.quant.onnx.export.deploy_model import adds_in_16_bits
from qbench.quant.recipe import Recipe

RECIPE = Recipe(per_channel=True)
LEAST_DECIBELS = 30.0
STEPS = np.logspace(-2, 1, 8).astype(np.float32)  # how large the channels' weights are
RNG = np.random.default_rng(0)


def draw(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def save(file, nodes, weights, *, x):
    """A file of nodes from ``x`` to ``y``, for a batch of any size."""
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *x])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))
    return file


CASES = {
    "convolution": (helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]), (8, 6, 3, 3), (6, 9, 9), 1),
    "depthwise": (helper.make_node("Conv", ["x", "w"], ["y"], group=8), (8, 1, 3, 3), (8, 9, 9), 1),
    "over time": (helper.make_node("Conv", ["x", "w"], ["y"]), (8, 6, 3), (6, 12), 1),
    "stack of matrices": (helper.make_node("MatMul", ["x", "w"], ["y"]), (1, 4, 16, 8), (4, 5, 16), 3),
    "stack for each example": (helper.make_node("MatMul", ["x", "w"], ["y"]), (4, 16, 8), (4, 5, 16), 3),
}


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize(("node", "shape", "x", "axis"), CASES.values(), ids=CASES)
def test_each_channel_keeps_its_values(tmp_path, node, shape, x, axis, narrow):
    """However much smaller its weights are than those of another; with 7 bits, too, where sums have 16, here or on a
    CPU of the target."""
    axis_of_weight = 0 if node.op_type == "Conv" else len(shape) - 1
    steps = STEPS.reshape([-1 if place == axis_of_weight else 1 for place in range(len(shape))])
    fp32 = save(tmp_path / "fp32.onnx", [node], {"w": draw(*shape) * steps}, x=x)
    recipe = replace(RECIPE, target=("avx2",)) if narrow else RECIPE
    onnxruntime_quantizers.dynamic(fp32, tmp_path / "int8.onnx", recipe)
    inputs = (draw(4, *x),)
    expected, given = (
        np.moveaxis(onnxruntime_session.run(file, inputs), axis, 0).reshape(len(STEPS), -1)
        for file in (fp32, tmp_path / "int8.onnx")
    )
    left = 10 * np.log10((expected**2).sum(1) / ((given - expected) ** 2).sum(1))
    assert left.min() > LEAST_DECIBELS
    bytes_of = [numpy_helper.to_array(tensor) for tensor in onnx.load(str(tmp_path / "int8.onnx")).graph.initializer]
    (weight,) = (array for array in bytes_of if array.dtype == np.int8 and array.shape == shape)
    assert np.abs(weight.astype(int)).max() == (64 if narrow or adds_in_16_bits("onnxruntime", ()) else 127)


def test_a_channel_of_zeros_gives_zeros(tmp_path):
    """It has no largest weight to take a scale from."""
    weight = draw(8, 6, 3, 3)
    weight[3] = 0
    fp32 = save(tmp_path / "fp32.onnx", [CASES["convolution"][0]], {"w": weight}, x=(6, 9, 9))
    onnxruntime_quantizers.dynamic(fp32, tmp_path / "int8.onnx", RECIPE)
    given = onnxruntime_session.run(tmp_path / "int8.onnx", (draw(2, 6, 9, 9),))
    assert not given[:, 3].any()
    assert np.isfinite(given).all()
