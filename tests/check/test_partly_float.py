"""Some layers of an int8 file in float, and no more than these."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import people_files
import pytest
from people_files import UINT8, node, pair, weight, write

from qbench.check.partly_float import write_partly_float
from qbench.errors import BuildError
from qbench.quant.onnx import onnxruntime_layers

X = np.random.default_rng(0).standard_normal((1, 32, 48, 48)).astype(np.float32)


def two_convolutions(path):
    """Both with Q and DQ around all of them."""
    first, dequantize_first = weight("w", 48, 32, 3, 3, most=60)
    second, dequantize_second = weight("v", 64, 48, 3, 3, most=60)
    constants = {**first, **second, **UINT8, "s3": np.float32(2), "z3": np.uint8(128)}
    nodes = [
        *pair("x", "s", "z"), dequantize_first, node("Conv", ["x_d", "w"], "a"), *pair("a", "s2", "z2"),
        dequantize_second, node("Conv", ["a_d", "v"], "b"), *pair("b", "s3", "z3"), node("Identity", ["b_d"], "y"),
    ]  # fmt: skip
    return write(path, nodes, constants)


def answer(file):
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": X})[0].astype(np.float64)


@pytest.mark.parametrize(
    ("make", "layer", "precisions"),
    [(two_convolutions, "a", ["fp32", "int8"]), (two_convolutions, "b", ["int8", "fp32"]),
     (people_files.operators_on_bytes, "c", ["fp32"])],
)  # fmt: skip
def test_the_named_layer_runs_in_float(make, layer, precisions, tmp_path):
    """As what the runtime executes tells, and it answers as before, but for rounding."""
    file, target = make(tmp_path / "int8.onnx"), tmp_path / "part.onnx"
    write_partly_float(onnx.load(str(file)), target, [layer])
    layers = onnxruntime_layers.layers(target, (X,))
    assert [each.precision for each in layers] == precisions
    before, after = answer(file), answer(target)
    assert 20 * np.log10(np.linalg.norm(before) / np.linalg.norm(before - after)) > 25


def test_what_cannot_be_in_float_alone_is_named(tmp_path):
    """A product whose scale is multiplied in later, and a layer that is not there."""
    dynamic = onnx.load(str(people_files.dynamic_matmul(tmp_path / "dynamic.onnx")))
    with pytest.raises(BuildError, match="MatMulInteger has no float form of its own here"):
        write_partly_float(dynamic, tmp_path / "part.onnx", ["sums"])
    with pytest.raises(BuildError, match="no node goes by nobody"):
        write_partly_float(dynamic, tmp_path / "part.onnx", ["nobody"])
