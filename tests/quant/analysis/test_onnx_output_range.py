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


CONV = helper.make_node("Conv", ["x", "w"], ["c"], name="conv")
LAST = helper.make_node("Conv", ["x", "w"], ["end"], name="conv")
QUANTIZE = helper.make_node("QuantizeLinear", ["end", "scale", "zero"], ["q"], name="quantize")
POOL = helper.make_node("GlobalAveragePool", ["p"], ["y"], name="pool")
BIAS = helper.make_node("Add", ["c", "b"], ["end"], name="add")
HELD = helper.make_node("DequantizeLinear", ["w", "scale", "zero"], ["held"], name="held")
RELU, CLIP = (helper.make_node(kind, ["c"], ["end"], name=kind.lower()) for kind in ("Relu", "Clip"))
GIVEN = {"w": WEIGHT, "scale": np.float32(0.1), "zero": np.uint8(0)}


def clip_of(tensor, output, name=""):
    """A clamp from one tensor to another."""
    return helper.make_node("Clip", [tensor], [output], name=name)


@pytest.mark.parametrize(
    ("plain", "quantized", "constants", "tensor"),
    [
        ([CONV, BIAS], [CONV, BIAS, QUANTIZE], {"b": WEIGHT}, "end"),
        ([CONV, BIAS], [HELD, CONV, helper.make_node("Add", ["held", "c"], ["end"], name="add"), QUANTIZE],
         {"b": WEIGHT}, "end"),
        ([CONV, BIAS], [helper.make_node("Relu", ["x"], ["b"], name="r"), CONV, BIAS, QUANTIZE], {}, None),
        ([CONV], [CONV, BIAS, QUANTIZE], {"b": WEIGHT}, "c"),
        ([CONV, helper.make_node("Add", ["c", "b"], ["end"], name="more")], [CONV, BIAS, QUANTIZE], {"b": WEIGHT}, "c"),
        ([CONV, RELU], [CONV, RELU, helper.make_node("Abs", ["c"], ["y"]), QUANTIZE], {}, None),
        ([CONV, RELU], [CONV, RELU, QUANTIZE, helper.make_node("Abs", ["end"], ["y"])], {}, "end"),
        ([CONV], [CONV, helper.make_node("Abs", ["c"], ["end"]), QUANTIZE], {}, None),
        ([CONV], [helper.make_node("Conv", ["x", "w"], ["y"], name="conv"),
                  helper.make_node("Relu", ["y"], ["end"], name="r"), QUANTIZE], {}, None),
        ([CONV, CLIP, clip_of("end", "p")], [CONV, clip_of("c", "end", "other"), QUANTIZE], {}, "c"),
        ([CONV, clip_of("c", "d"), clip_of("d", "p"), POOL], [LAST, QUANTIZE], {}, "p"),
        ([CONV, clip_of("c", "d"), clip_of("d", "p"), POOL], [LAST, QUANTIZE, clip_of("q", "p")], {}, "d"),
        ([CONV, clip_of("c", "d"), POOL, helper.make_node("Abs", ["c"], ["e"])],
         [LAST, QUANTIZE], {}, "c"),
        ([RELU], [RELU, QUANTIZE], {}, None),
    ],
)  # fmt: skip
def test_an_output_is_looked_at_where_it_is_quantized(tmp_path, plain, quantized, constants, tensor):
    """Behind what follows as its only reader, changes it value by value and is no output of the file: additions of
    constants, stored in int8 or not; in fp32's file as far as the nodes are the same, and behind the clamps that int8
    has no node of."""
    sides = {"int8": quantized, "fp32": plain}
    files = [save(tmp_path / f"{side}.onnx", nodes, GIVEN | constants) for side, nodes in sides.items()]
    outputs = onnx_output_range.find_layer_ranges(*files)
    assert [output.tensor for output in outputs] == ([] if tensor is None else [tensor])


@pytest.mark.parametrize("kind", onnx_output_range.LAYERS)
def test_a_scale_may_stand_in_a_node_and_layers_need_no_names(tmp_path, kind):
    """A nameless layer is called after its output; a row tells its range, and the share that is clipped where known."""
    layer = helper.make_node(kind, ["x", "w"], ["end"])
    scale = helper.make_node("Constant", [], ["scale"], value=numpy_helper.from_array(np.float32(0.5), "s"))
    files = [
        save(tmp_path / f"{side}.onnx", nodes, {"w": WEIGHT, "zero": np.uint8(2)})
        for side, nodes in (("int8", [scale, layer, QUANTIZE]), ("fp32", [layer]))
    ]
    outputs = onnx_output_range.find_layer_ranges(*files)
    (row,) = onnx_output_range.as_rows(outputs, {})
    assert row["ranges"] == [{"low": -1.0, "high": 126.5, "step": 0.5}]
    assert (row["name"], row["sqnr_db"], row["cosine"], row["n"], row["clipped"]) == ("end", None, None, 0, None)
    assert onnx_output_range.as_rows(outputs, {"end": 0.25})[0]["clipped"] == 0.25
