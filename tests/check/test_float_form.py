"""The fp32 network that an int8 file stands for, for files that tools make of real networks."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import people_files
import pytest
from people_files import node, pair, weight, write

from qbench.check import float_form
from qbench.check.float_form import write_float
from qbench.errors import BuildError


def answer(model, **feed):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feed)[0].astype(np.float64)


def make_float(model, folder):
    """The float form of a model, its weights taken in."""
    write_float(model, folder / "float.onnx")
    return onnx.load(str(folder / "float.onnx"))


def sqnr(own, other):
    return 20 * np.log10(np.linalg.norm(other) / np.linalg.norm(own - other))


def convolutions(path):
    """Two convolutions with ReLU, an addition, a pooling and a product."""
    rng = np.random.default_rng(1)
    constants = {
        "w": rng.normal(size=(16, 8, 3, 3)).astype(np.float32) / 8, "b": rng.normal(size=16).astype(np.float32),
        "v": rng.normal(size=(16, 16, 3, 3)).astype(np.float32) / 12, "m": rng.normal(size=(16, 10)).astype(np.float32),
        "c": rng.normal(size=10).astype(np.float32),
    }  # fmt: skip
    nodes = [
        node("Conv", ["x", "w", "b"], "c1", pads=[1] * 4), node("Relu", ["c1"], "r1"),
        node("Conv", ["r1", "v"], "c2", pads=[1] * 4), node("Add", ["c2", "r1"], "sum"), node("Relu", ["sum"], "r2"),
        node("GlobalAveragePool", ["r2"], "pool"), node("Flatten", ["pool"], "flat"),
        node("Gemm", ["flat", "m", "c"], "y"),
    ]  # fmt: skip
    return write(path, nodes, constants, inputs=(("x", [1, 8, 12, 12]),))


class Reader:
    def __init__(self, arrays):
        self._left = iter(arrays)

    def get_next(self):
        array = next(self._left, None)
        return None if array is None else {"x": array}


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_what_onnx_runtime_quantizes_becomes_its_network_again(form, per_channel, tmp_path):
    """But for the rounding of weights, which stays, and ranges that were cut."""
    from onnxruntime.quantization import QuantFormat, quantize_static

    x = np.random.default_rng(0).normal(size=(20, 1, 8, 12, 12)).astype(np.float32)
    source, target = convolutions(tmp_path / "fp32.onnx"), tmp_path / "int8.onnx"
    quantize_static(str(source), str(target), Reader(x), quant_format=QuantFormat[form], per_channel=per_channel)
    int8 = onnx.load(str(target))
    form_of = make_float(int8, tmp_path)
    assert not any("Quantize" in node.op_type or node.op_type.startswith("Q") for node in form_of.graph.node)
    fp32, own, rounded = (answer(model, x=x[0]) for model in (onnx.load(str(source)), form_of, int8))
    assert sqnr(own, fp32) > 32
    assert sqnr(rounded, own) > 25


def test_what_onnx_runtime_quantizes_dynamically_too(tmp_path):
    """Scales of activations are 1 in floats."""
    from onnxruntime.quantization import quantize_dynamic

    rng = np.random.default_rng(0)
    constants = {
        "m": rng.normal(size=(32, 64)).astype(np.float32), "c": rng.normal(size=64).astype(np.float32),
        "n": rng.normal(size=(64, 10)).astype(np.float32),
    }  # fmt: skip
    nodes = [
        node("MatMul", ["x", "m"], "p"), node("Add", ["p", "c"], "s"), node("Relu", ["s"], "r"),
        node("MatMul", ["r", "n"], "y"),
    ]  # fmt: skip
    source = write(tmp_path / "fp32.onnx", nodes, constants, inputs=(("x", [4, 32]),))
    quantize_dynamic(str(source), str(tmp_path / "int8.onnx"))
    x = rng.normal(size=(4, 32)).astype(np.float32)
    form = make_float(onnx.load(str(tmp_path / "int8.onnx")), tmp_path)
    assert sqnr(answer(form, x=x), answer(onnx.load(str(source)), x=x)) > 35


@pytest.mark.parametrize("make", [people_files.sound, people_files.operators_on_bytes, people_files.joined])
def test_int8_is_its_float_form_but_for_rounding(make, tmp_path):
    """And whatever clamps stood in a range stay."""
    int8 = onnx.load(str(make(tmp_path / "m.onnx")))
    x = np.random.default_rng(0).normal(size=(1, 32, 48, 48)).astype(np.float32)
    assert sqnr(answer(int8, x=x), answer(make_float(int8, tmp_path), x=x)) > 25


def test_a_clamp_that_became_a_range_stays(tmp_path):
    """A range from zero on behind a convolution: the network had a ReLU6, or would be another one."""
    constants, dequantize = weight("w", 64, 32, 3, 3, most=60)
    ranges = {"s": np.float32(0.03), "z": np.uint8(128), "six": np.float32(6 / 255), "none": np.uint8(0)}
    nodes = [*pair("x", "s", "z"), dequantize, node("Conv", ["x_d", "w"], "c"), *pair("c", "six", "none")]
    file = write(tmp_path / "m.onnx", [*nodes, node("Identity", ["c_d"], "y")], {**constants, **ranges})
    x = np.random.default_rng(0).normal(size=(1, 32, 48, 48)).astype(np.float32)
    floats = answer(make_float(onnx.load(str(file)), tmp_path), x=x)
    assert (floats.min(), floats.max()) == (0.0, pytest.approx(6))


def test_a_table_of_bytes_is_one_of_floats(tmp_path):
    """Looked up, it gives what the bytes stand for."""
    int8 = onnx.load(str(people_files.table_only(tmp_path / "m.onnx")))
    ids = np.array([[0, 1, 99, 50, 3, 3, 7, 8]], np.int64)
    assert np.allclose(answer(make_float(int8, tmp_path), ids=ids), answer(int8, ids=ids), rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "inputs", "words"),
    [
        ("QAttention", ["x", "w"], "QAttention has no float form here"),
        ("ConvInteger", ["x", "w"], "ConvInteger of what was not quantized while it runs has no float form here"),
        (
            "MatMulInteger",
            ["computed", "w"],
            "MatMulInteger of what was not quantized while it runs has no float form here",
        ),
        ("MatMulNBits", ["x", "w"], "MatMulNBits has no float form here"),
        ("AddInteger", ["x", "w"], "AddInteger has no float form here"),
        (
            "DynamicQuantizeMatMul",
            ["w", "w", "s"],
            "DynamicQuantizeMatMul multiplies a constant of bytes without a scale",
        ),
        ("DequantizeLinear", ["w", "computed"], "the scale computed is computed, and not a constant"),
    ],
)
def test_what_has_no_float_form_is_named(kind, inputs, words, tmp_path):
    """So that a person names the fp32."""
    nodes = [node("Relu", ["x"], "computed"), node(kind, inputs, "y")]
    constants = {"w": np.zeros((4, 3, 3, 3), np.int8), "s": np.float32(1)}
    model = onnx.load(str(write(tmp_path / "m.onnx", nodes, constants)))
    with pytest.raises(BuildError, match=f"^{words}$"):
        make_float(model, tmp_path)


A, B, OUT = ["x_q", "s", "z"], ["y_q", "t", "u"], ["so", "zo"]
WEIGHTS = np.random.default_rng(3).integers(-60, 61, (16, 12)).astype(np.int8)
CONSTANTS = {
    "s": np.float32(0.03), "z": np.uint8(120), "t": np.float32(0.02), "u": np.uint8(100), "so": np.float32(0.12),
    "zo": np.uint8(130), "p": np.float32(1 / 255), "zero": np.uint8(0), "w": WEIGHTS, "wt": WEIGHTS.T.copy(),
    "ws": np.linspace(0.005, 0.02, 12).astype(np.float32), "wz": np.zeros(12, np.int8), "one": np.float32(0.01),
    "odd": np.int8(3), "bias": np.arange(-6, 6).astype(np.int32) * 400, "b": np.linspace(-1, 1, 12).astype(np.float32),
}  # fmt: skip
ROWS = np.random.default_rng(4).normal(size=(4, 16)).astype(np.float32)
BYTES = {
    "QLinearMul": ([*A, *B, "so", "zo"], {}, OUT),
    "QLinearAdd": ([*A, *B, "so", "zo"], {}, OUT),
    "QLinearSigmoid": ([*A, "p", "zero"], {}, ["p", "zero"]),
    "QLinearLeakyRelu": ([*A, "so", "zo"], {"alpha": 0.2}, OUT),
    "QLinearSoftmax": ([*A, "p", "zero"], {"opset": 13}, ["p", "zero"]),
    "QLinearMatMul": ([*A, "w", "ws", "wz", "so", "zo"], {}, OUT),
    "QGemm": ([*A, "w", "ws", "wz", "bias", "so", "zo"], {}, OUT),
    "QGemm of a transposed weight": ([*A, "wt", "ws", "wz", "bias", "so", "zo"], {"transB": 1}, OUT),
    "QGemm without a bias": ([*A, "w", "one", "odd", "", "so", "zo"], {}, OUT),
    "QLinearConcat": (["so", "zo", *A, *B], {"axis": 1}, OUT),
}


@pytest.mark.parametrize("name", BYTES)
def test_each_operator_on_bytes_is_one_on_floats(name, tmp_path):
    """With the attributes and the bias that it has; a weight by its own scales and zero point."""
    inputs, attributes, (scale, zero) = BYTES[name]
    own = onnx.helper.make_node(name.split()[0], inputs, ["o"], name="o", domain="com.microsoft", **attributes)
    if name.startswith("QLinearMatMul"):
        own.domain = ""
    nodes = [
        *(node("QuantizeLinear", ["x", *each[1:]], each[0]) for each in (A, B)), own,
        node("DequantizeLinear", ["o", scale, zero], "y"),
    ]  # fmt: skip
    int8 = onnx.load(str(write(tmp_path / "m.onnx", nodes, CONSTANTS, inputs=(("x", [4, 16]),))))
    form = make_float(int8, tmp_path)
    assert not any(each.op_type.startswith("Q") for each in form.graph.node)
    assert sqnr(answer(int8, x=ROWS), answer(form, x=ROWS)) > 25


@pytest.mark.parametrize("bias", [(), ("b",)])
@pytest.mark.parametrize("kind", ["MatMulIntegerToFloat", "DynamicQuantizeMatMul", "MatMulInteger"])
def test_products_of_bytes_and_floats_are_products(kind, bias, tmp_path):
    """Of what was quantized while it ran, or before; a bias is added."""
    quantize = onnx.helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"], name="q")
    product = {
        "MatMulIntegerToFloat": [quantize, ("q", "w", "qs", "ws", "qz", "wz", *bias)],
        "DynamicQuantizeMatMul": [("x", "w", "ws", "wz", *bias)],
        "MatMulInteger": [quantize, ("q", "w", "qz", "odd")],
    }[kind]
    nodes = [*product[:-1], onnx.helper.make_node(kind, product[-1], ["o"], name="o", domain="com.microsoft")]
    last = "o"
    if kind == "MatMulInteger":
        nodes[-1].domain = ""
        nodes += [
            node("Cast", ["o"], "f", to=onnx.TensorProto.FLOAT), node("Mul", ["qs", "one"], "scale"),
            node("Mul", ["f", "scale"], "r"),
        ]  # fmt: skip
        nodes += [node("Add", ["r", *bias], "a")] if bias else []
        last = "a" if bias else "r"
    nodes.append(node("Identity", [last], "y"))
    int8 = onnx.load(str(write(tmp_path / "m.onnx", nodes, CONSTANTS, inputs=(("x", [4, 16]),))))
    form = make_float(int8, tmp_path)
    assert not any("Integer" in each.op_type or "Quantize" in each.op_type for each in form.graph.node)
    assert sqnr(answer(int8, x=ROWS), answer(form, x=ROWS)) > 25


@pytest.mark.parametrize("rounding", ["Floor", "Round", None])
def test_a_bias_among_integer_sums_is_not_rounded(rounding, tmp_path):
    """As ONNX Runtime once wrote dynamic convolutions: the bias in steps of both scales, rounded as it runs; it may
    also be computed otherwise."""
    weights = np.random.default_rng(0).integers(-60, 60, (4, 2, 1, 1)).astype(np.int8)
    bias = np.array([3.0, -2.0, 0.5, 7.0], np.float32)
    constants = {"w": weights, "wz": np.int8(0), "ws": np.float32(0.01), "b": bias, "to": np.array([1, 4, 1, 1])}
    constants |= {"whole": np.array([300, -200, 50, 700], np.int32)}
    quantize = onnx.helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"], name="q")
    nodes = [quantize, node("Mul", ["qs", "ws"], "scale"), node("ConvInteger", ["q", "w", "qz", "wz"], "sums")]
    if rounding is None:
        nodes += [node("Abs", ["whole"], "sizes"), node("Reshape", ["sizes", "to"], "steps")]
        expected = np.abs(constants["whole"]) * 0.01
    else:
        nodes += [
            node("Div", ["b", "scale"], "exact"), node(rounding, ["exact"], "near"),
            node("Cast", ["near"], "whole_steps", to=onnx.TensorProto.INT32),
            node("Reshape", ["whole_steps", "to"], "steps"),
        ]  # fmt: skip
        expected = bias
    nodes += [
        node("Add", ["sums", "steps"], "both"), node("Cast", ["both"], "floats", to=onnx.TensorProto.FLOAT),
        node("Add", ["steps", "sums"], "again"), node("Cast", ["again"], "more", to=onnx.TensorProto.FLOAT),
        node("Add", ["floats", "more"], "twice"), node("Mul", ["twice", "scale"], "y"),
    ]  # fmt: skip
    x = np.random.default_rng(1).normal(size=(1, 2, 3, 3)).astype(np.float32)
    int8 = onnx.load(str(write(tmp_path / "m.onnx", nodes, constants, inputs=(("x", [1, 2, 3, 3]),))))
    products = np.einsum("oi,bihw->bohw", weights[:, :, 0, 0] * 0.01, x)
    assert np.allclose(
        answer(make_float(int8, tmp_path), x=x), 2 * (products + expected.reshape(1, 4, 1, 1)), atol=1e-4
    )


@pytest.mark.parametrize("of_rows", [False, True])
def test_an_lstm_of_bytes_is_one_of_floats(of_rows, tmp_path):
    """Its weights have the inputs first, and a scale for a direction or for each row of a gate."""
    rng = np.random.default_rng(0)
    shape = (1, 12) if of_rows else (1,)
    constants = {
        "w": rng.integers(-99, 99, (1, 5, 12)).astype(np.int8), "r": rng.integers(-99, 99, (1, 3, 12)).astype(np.int8),
        "ws": rng.uniform(0.005, 0.02, shape).astype(np.float32), "wz": np.zeros(shape, np.int8),
        "rs": rng.uniform(0.005, 0.02, shape).astype(np.float32), "rz": np.zeros(shape, np.int8),
    }  # fmt: skip
    names = ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"]
    lstm = onnx.helper.make_node("DynamicQuantizeLSTM", names, ["y"], name="l", domain="com.microsoft", hidden_size=3)
    x = rng.normal(size=(7, 1, 5)).astype(np.float32)
    int8 = onnx.load(str(write(tmp_path / "m.onnx", [lstm], constants, inputs=(("x", [7, 1, 5]),))))
    form = make_float(int8, tmp_path)
    assert [each.op_type for each in form.graph.node] == ["LSTM"]
    assert sqnr(answer(int8, x=x), answer(form, x=x)) > 25


@pytest.mark.parametrize(
    ("kind", "zero", "scale", "is_clipped"),
    [
        ("Conv", np.uint8(0), 0.02, True),
        ("Conv", np.int8(-128), 0.02, True),
        ("Conv", np.uint8(1), 0.02, False),
        ("Conv", np.int8(0), 0.02, False),
        ("Conv", None, 0.02, True),
        ("Conv", np.uint16(0), 0.02, False),
        ("Conv", np.zeros(2, np.uint8), [0.02, 0.02], False),
        ("Abs", np.uint8(0), 0.02, False),
    ],
)
def test_only_a_range_from_zero_on_behind_a_layer_is_a_clamp(kind, zero, scale, is_clipped, tmp_path):
    """Up to where its bytes end."""
    constants, dequantize = weight("w", 2, 32, 1, 1)
    constants |= {"s": np.asarray(scale, np.float32)} | ({} if zero is None else {"z": zero})
    names = ["c", "s", "z"] if zero is not None else ["c", "s"]
    layer = node("Conv", ["x", "w"], "c") if kind == "Conv" else node(kind, ["x"], "c")
    nodes = [dequantize, layer, node("QuantizeLinear", names, "q"), node("DequantizeLinear", ["q", *names[1:]], "d")]
    inputs = (("x", [1, 32, 4, 4]),)
    file = write(tmp_path / "m.onnx", [*nodes, node("Identity", ["d"], "y")], constants, inputs=inputs)
    rows = 50 * np.random.default_rng(0).normal(size=(1, 32, 4, 4)).astype(np.float32)
    floats = answer(make_float(onnx.load(str(file)), tmp_path), x=rows)
    assert (floats.max() == pytest.approx(255 * 0.02, rel=1e-5)) == is_clipped


def test_large_weights_lie_beside_the_file(tmp_path):
    """Small ones are a part of it, and what nothing reads is left out."""
    constants, dequantize = weight("w", 64, 32, 1, 1)  # 8 kB of floats
    small, dequantize_small = weight("v", 4, 64, 1, 1)
    nodes = [dequantize, node("Conv", ["x", "w"], "c"), dequantize_small, node("Conv", ["c", "v"], "y")]
    unread = {"nobody": np.ones(3, np.float32)}
    write_float(
        onnx.load(str(write(tmp_path / "m.onnx", nodes, {**constants, **small, **unread}))), tmp_path / "f.onnx"
    )
    plain = onnx.load(str(tmp_path / "f.onnx"), load_external_data=False)
    assert {each.name: each.data_location for each in plain.graph.initializer} == {
        "w": onnx.TensorProto.EXTERNAL, "v": onnx.TensorProto.DEFAULT,
    }  # fmt: skip
    assert (tmp_path / "f.bin").stat().st_size == 64 * 32 * 4
    (whole,) = (each for each in onnx.load(str(tmp_path / "f.onnx")).graph.initializer if each.name == "w")
    assert np.allclose(onnx.numpy_helper.to_array(whole), 0.01 * constants["w_i"])


def test_bytes_that_are_given_and_scales_of_blocks_have_no_float_form(tmp_path):
    """The file does not hold the scale of the first; the second are not written as floats here."""
    kinds = {"y": onnx.TensorProto.UINT8}
    given = write(tmp_path / "a.onnx", [node("QuantizeLinear", ["x", "s", "z"], "y")], CONSTANTS, kinds=kinds)
    with pytest.raises(BuildError, match="y is given as bytes, whose scale the file does not hold"):
        make_float(onnx.load(str(given)), tmp_path)
    blocks = {"w": WEIGHTS, "bs": np.ones((2, 12), np.float32), "bz": np.zeros((2, 12), np.int8)}
    nodes = [node("DequantizeLinear", ["w", "bs", "bz"], "d"), node("MatMul", ["x", "d"], "y")]
    with pytest.raises(BuildError, match="the scales of w are those of blocks"):
        make_float(onnx.load(str(write(tmp_path / "b.onnx", nodes, blocks))), tmp_path)


@pytest.mark.parametrize(("channels", "is_beside"), [(32, True), (31, False)])
def test_weights_of_4_kb_lie_beside_the_file(channels, is_beside, tmp_path):
    """And less than that in it."""
    constants, dequantize = weight("w", 32, channels, 1, 1)
    inputs = (("x", [1, channels, 4, 4]),)
    file = write(tmp_path / "m.onnx", [dequantize, node("Conv", ["x", "w"], "y")], constants, inputs=inputs)
    write_float(onnx.load(str(file)), tmp_path / "f.onnx")
    assert ((tmp_path / "f.bin").stat().st_size == 4096) == is_beside


@pytest.mark.parametrize("kind", ["QLinearAveragePool", "QLinearGlobalAveragePool"])
def test_a_pooling_of_bytes_is_one_of_floats_where_its_channels_come_first(kind, tmp_path):
    """What is only the operator's own is left out."""
    attributes = {"kernel_shape": [2, 2]} if kind == "QLinearAveragePool" else {}
    for last in (0, 1):
        pool = onnx.helper.make_node(
            kind, ["q", "s", "z", "s", "z"], ["o"], name="o", domain="com.microsoft", channels_last=last, **attributes
        )
        nodes = [node("QuantizeLinear", ["x", "s", "z"], "q"), pool, node("DequantizeLinear", ["o", "s", "z"], "y")]
        int8 = onnx.load(str(write(tmp_path / "m.onnx", nodes, CONSTANTS, inputs=(("x", [1, 4, 8, 8]),))))
        if last:
            with pytest.raises(BuildError, match=f"{kind} with channels last has no float form here"):
                make_float(int8, tmp_path)
            continue
        x = np.random.default_rng(0).normal(size=(1, 4, 8, 8)).astype(np.float32)
        form = make_float(int8, tmp_path)
        assert [each.op_type for each in form.graph.node if each.op_type != "Identity"] == [
            kind.removeprefix("QLinear")
        ]
        assert sqnr(answer(int8, x=x), answer(form, x=x)) > 20


def test_what_is_no_sum_of_bytes_is_cast_as_it_was(tmp_path):
    """Only a cast of what is a float here already goes."""
    kinds = (("x", "whole", onnx.TensorProto.INT32), ("whole", "y", onnx.TensorProto.FLOAT))
    nodes = [node("Cast", [before], after, to=kind) for before, after, kind in kinds]
    model = onnx.load(str(write(tmp_path / "m.onnx", nodes, {}, inputs=(("x", [1, 2]),))))
    assert answer(make_float(model, tmp_path), x=np.array([[1.5, -2.5]], np.float32)).tolist() == [[1.0, -2.0]]


@pytest.mark.parametrize(("attributes", "axis"), [({}, 1), ({"axis": 0}, 0), ({"axis": -1}, 1)])
def test_scales_lie_along_the_axis_that_is_named(attributes, axis, tmp_path):
    """The second one where none is."""
    scales = np.array([0.5, 2.0, 4.0], np.float32)
    constants = {"w": np.ones((3, 3), np.int8), "ws": scales, "wz": np.array([0, 1, 2], np.int8)}
    nodes = [node("DequantizeLinear", ["w", "ws", "wz"], "d", **attributes), node("MatMul", ["x", "d"], "y")]
    model = onnx.load(str(write(tmp_path / "m.onnx", nodes, constants, inputs=(("x", [3, 3]),))))
    values = answer(make_float(model, tmp_path), x=np.eye(3, dtype=np.float32))
    expected = np.broadcast_to(scales * [1, 0, -1], (3, 3))
    assert np.array_equal(values, expected if axis else expected.T)


def test_wide_whole_numbers_keep_their_differences(tmp_path):
    """A zero point is taken off before they are rounded to floats."""
    constants = {"w": np.array([[2**24 + 1]], np.int32), "s": np.float32(1), "z": np.array(2**24, np.int32)}
    nodes = [node("DequantizeLinear", ["w", "s", "z"], "d"), node("MatMul", ["x", "d"], "y")]
    model = onnx.load(str(write(tmp_path / "m.onnx", nodes, constants, inputs=(("x", [1, 1]),))))
    assert answer(make_float(model, tmp_path), x=np.ones((1, 1), np.float32)).tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("kind", "shape"), [("ConvInteger", (3, 1, 1, 1)), ("MatMulInteger", (1, 3)), ("ConvInteger", ())]
)
def test_zero_points_of_integers_lie_along_their_channels(kind, shape, tmp_path):
    """Of a convolution the first axis, of a product the last."""
    zero = np.arange(3, dtype=np.int8) if shape else np.int8(1)
    weights = np.full((3, 2, 1, 1) if kind == "ConvInteger" else (2, 3), 5, np.int8)
    quantize = onnx.helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"], name="q")
    names = ["q", "w", "qz", "wz"]
    model = onnx.load(str(write(tmp_path / "m.onnx", [quantize, node(kind, names, "y")], {"w": weights, "wz": zero})))
    form = make_float(model, tmp_path)
    (stored,) = (each for each in form.graph.initializer if each.name == "w_as_floats_1")
    assert np.array_equal(onnx.numpy_helper.to_array(stored), weights - zero.reshape(shape).astype(np.float32))


def test_nodes_get_names_that_are_their_own():
    """Those that have none, and the second of two that are called alike."""
    nodes = [onnx.helper.make_node("Relu", ["x"], ["y"], name=name) for name in ("a", "a", "", "Relu_1", "Relu_2_")]
    assert [each.name for each in float_form._name_nodes(nodes)] == ["a", "Relu_1_", "Relu_2", "Relu_1", "Relu_2_"]


def test_what_a_graph_within_a_node_reads_is_kept(tmp_path):
    """As of a branch, and of a branch in it."""
    out = [onnx.helper.make_tensor_value_info("o", onnx.TensorProto.FLOAT, None)]

    def branch(nodes):
        return onnx.helper.make_graph(nodes, "branch", [], out)

    inner = branch([node("Add", ["x", "w"], "o")])
    outer = branch([onnx.helper.make_node("If", ["c"], ["o"], then_branch=inner, else_branch=inner)])
    both = onnx.helper.make_node("If", ["c"], ["y"], name="y", then_branch=outer, else_branch=inner)
    constants = {"c": np.array(True), "w": np.ones(3, np.float32), "unread": np.ones(3, np.float32)}
    model = onnx.load(str(write(tmp_path / "m.onnx", [both], constants, inputs=(("x", [3]),))))
    form = make_float(model, tmp_path)
    assert {each.name for each in form.graph.initializer} == {"c", "w"}


def test_a_bias_that_is_left_empty_is_none(tmp_path):
    """As an operator may write it, whose further inputs follow."""
    quantize = onnx.helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"], name="q")
    names = ["q", "w", "qs", "ws", "qz", "wz", ""]
    product = onnx.helper.make_node("MatMulIntegerToFloat", names, ["y"], name="y", domain="com.microsoft")
    model = onnx.load(str(write(tmp_path / "m.onnx", [quantize, product], CONSTANTS, inputs=(("x", [4, 16]),))))
    assert [each.op_type for each in make_float(model, tmp_path).graph.node] == ["MatMul"]
