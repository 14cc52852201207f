"""The fp32 network that an int8 file stands for, for files that tools make of real networks."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import people_files
import pytest
from people_files import node, pair, weight, write

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
        ("DequantizeLinear", ["w", "computed"], "the scale computed is computed, and not a constant"),
    ],
)
def test_what_has_no_float_form_is_named(kind, inputs, words, tmp_path):
    """So that a person names the fp32."""
    nodes = [node("Relu", ["x"], "computed"), node(kind, inputs, "y")]
    model = onnx.load(str(write(tmp_path / "m.onnx", nodes, {"w": np.zeros((4, 3, 3, 3), np.int8)})))
    with pytest.raises(BuildError, match=f"^{words}$"):
        make_float(model, tmp_path)
