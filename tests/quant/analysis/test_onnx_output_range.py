"""What int8 layers of ONNX files clip: at the place that is quantized, by the file's own scales."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench.quant.analysis import onnx_output_range

RNG = np.random.RandomState(0)
IMAGES = RNG.standard_normal((12, 2, 4, 4)).astype(np.float32)
WEIGHT = RNG.standard_normal((3, 2, 1, 1)).astype(np.float32)


def save(file, nodes, constants):
    """A file from input x to output y."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(file))
    return file


def fp32(folder, *, name="conv"):
    """Convolution, ReLU6, and a mean over the image."""
    nodes = [
        helper.make_node("Conv", ["x", "stem.weight"], ["c"], name=name),
        helper.make_node("Clip", ["c", "least", "most"], ["a"], name="clip"),
        helper.make_node("GlobalAveragePool", ["a"], ["y"], name="pool"),
    ]
    return save(folder / "fp32.onnx", nodes, {"stem.weight": WEIGHT, "least": np.float32(0), "most": np.float32(6)})


def int8(folder, *, scale=0.01, zero=0, clamp=False, name="conv", quantized=True):
    """The same with a quantized output; ``clamp``: the ReLU6 stays a node before the QuantizeLinear."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name=name)]
    nodes += [helper.make_node("Clip", ["c", "least", "most"], ["a"], name="clip")] if clamp else []
    last = "a" if clamp else "c"
    if quantized:
        nodes.append(helper.make_node("QuantizeLinear", [last, "scale", "zero"], ["q"], name="quantize"))
        nodes.append(helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"], name="dequantize"))
    nodes.append(helper.make_node("GlobalAveragePool", ["d" if quantized else last], ["y"], name="pool"))
    constants = {"w": WEIGHT, "scale": np.float32(scale), "zero": np.uint8(zero)}
    constants |= {"least": np.float32(0), "most": np.float32(6)} if clamp else {}
    return save(folder / "int8.onnx", nodes, constants)


def batches(size=5):
    return [(IMAGES[i : i + size],) for i in range(0, len(IMAGES), size)]


def convolved():
    return np.einsum("oc,nchw->nohw", WEIGHT[:, :, 0, 0], IMAGES)


@pytest.mark.parametrize("clamp", [False, True])
def test_values_are_looked_at_behind_the_activation_that_quantizing_takes_in(tmp_path, clamp):
    """What the ReLU6 cuts off is not clipped by int8, whether its node stays or not; what exceeds the scale is."""
    files = int8(tmp_path, clamp=clamp), fp32(tmp_path)
    (actual,) = onnx_output_range.find_layer_ranges(*files)
    assert (actual.name, actual.tensor) == ("stem", "a")
    assert (actual.fitting.low, actual.fitting.high) == (0, pytest.approx(2.55))
    (shares,) = onnx_output_range.measure_clipping(files[1], batches(), [[actual]])
    assert shares["stem"] == pytest.approx(np.mean(np.clip(convolved(), 0, 6) > 2.555))
    assert shares["stem"] > 0


def test_a_clamp_that_int8_keeps_behind_its_quantized_output_stays_behind(tmp_path):
    """A convolution that is quantized before its ReLU6 is looked at before it: negative values are clipped there."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv"),
        helper.make_node("QuantizeLinear", ["c", "scale", "zero"], ["q"], name="quantize"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"], name="dequantize"),
        helper.make_node("Clip", ["d", "least", "most"], ["a"], name="clip"),
        helper.make_node("GlobalAveragePool", ["a"], ["y"], name="pool"),
    ]
    constants = {"w": WEIGHT, "scale": np.float32(0.1), "zero": np.uint8(10)}
    constants |= {"least": np.float32(0), "most": np.float32(6)}
    files = save(tmp_path / "int8.onnx", nodes, constants), fp32(tmp_path)
    (actual,) = onnx_output_range.find_layer_ranges(*files)
    assert (actual.tensor, actual.fitting.low) == ("c", pytest.approx(-1))
    assert onnx_output_range.measure_clipping(files[1], batches(), [[actual]])[0]["stem"] == np.mean(
        convolved() < -1.05
    )


def test_several_variants_share_a_pass(tmp_path):
    """Each by its own scale, over tensors that both or one of them need."""
    plain = fp32(tmp_path)
    outputs = [onnx_output_range.find_layer_ranges(int8(tmp_path, scale=scale), plain) for scale in (0.001, 1.0)]
    tight, wide = onnx_output_range.measure_clipping(plain, batches(), [*outputs])
    assert tight["stem"] == pytest.approx(np.mean(np.clip(convolved(), 0, 6) > 0.2555))
    assert wide["stem"] == 0


@pytest.mark.parametrize("facts", [{"quantized": False}, {"name": "other"}])
def test_what_is_not_known_has_no_row(tmp_path, facts):
    """A layer whose output stays float, and one that fp32's file does not have."""
    assert onnx_output_range.find_layer_ranges(int8(tmp_path, **facts), fp32(tmp_path)) == ()
