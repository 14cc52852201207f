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

AROUND = ("QuantizeLinear", "DequantizeLinear")
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
    with pytest.raises(BuildError, match="no node goes by e, f, g and 1 more$"):
        write_partly_float(dynamic, tmp_path / "part.onnx", ["h", "g", "f", "e"])


def chain(path, *kinds, unnamed=False):
    """Layers of these kinds one behind the other, each with Q and DQ before it: ``x`` -> ``l0`` -> ``l1`` …; a Relu has
    none."""
    constants, nodes, x = dict(UINT8), [], "x"
    for place, kind in enumerate(kinds):
        if kind == "Relu":
            nodes.append(node("Relu", [x], f"l{place}"))
        else:
            more, dequantize = weight(f"w{place}", *((4, 4, 1, 1) if kind == "Conv" else (4, 4)))
            constants |= more
            nodes += [*pair(x, "s", "z"), dequantize, node(kind, [f"{x}_d", f"w{place}"], f"l{place}")]
        x = f"l{place}"
    for each in nodes:
        each.name = "" if unnamed else each.name
    shape = ["n", 4, 2, 2] if "Conv" in kinds else ["n", 4]
    return write(path, nodes, constants, inputs=(("x", shape),), outputs=(x,))


def reads(path, target, *layers):
    """What the named layers, and those that are not, read in the file that is written."""
    write_partly_float(onnx.load(str(path)), target, layers)
    written = onnx.load(str(target))
    makers = {each.output[0]: each for each in written.graph.node}
    return {name: list(each.input) for name, each in makers.items() if each.op_type not in AROUND}, makers


@pytest.mark.parametrize(
    ("kinds", "layers", "last"),
    [
        pytest.param(("MatMul", "MatMul"), ["l1"], "l0_d", id="behind one in int8, whose Q is needed"),
        pytest.param(("MatMul", "MatMul"), ["l0", "l1"], "l0", id="behind one in float"),
        pytest.param(("MatMul", "Relu", "MatMul"), ["l2"], "l1_d", id="over a ReLU"),
        pytest.param(("MatMul", "Relu", "MatMul"), ["l0", "l2"], "l1", id="over a ReLU in float"),
        pytest.param(("MatMul",), ["l0"], "x", id="behind the input"),
    ],
)
def test_a_layer_in_float_reads_floats_where_nothing_needs_the_bytes(kinds, layers, last, tmp_path):
    """And floats as weights; the layers that stay read what they read."""
    inputs, _ = reads(chain(tmp_path / "m.onnx", *kinds), tmp_path / "part.onnx", *layers)
    name = f"l{len(kinds) - 1}"
    assert inputs[name] == [last, f"w{len(kinds) - 1}_as_floats"]
    if len(layers) == 1 and len(kinds) > 1:
        assert inputs["l0"] == ["x_d", "w0"]


def test_what_a_runtime_would_quantize_again_is_set_apart(tmp_path):
    """A convolution between Q and DQ, by a sum of one; its weights hold what the bytes said."""
    file = chain(tmp_path / "m.onnx", "Conv", "Conv")
    inputs, nodes = reads(file, tmp_path / "part.onnx", "l1")
    assert inputs["l1"] == ["l1_reads", "w1_as_floats"]
    assert (nodes["l1_reads"].op_type, list(nodes["l1_reads"].input)) == ("Sum", ["l0_d"])
    tensors = {each.name: each for each in onnx.load(str(tmp_path / "part.onnx")).graph.initializer}
    before = {each.name: onnx.numpy_helper.to_array(each) for each in onnx.load(str(file)).graph.initializer}
    after = onnx.numpy_helper.to_array(tensors["w1_as_floats"])
    assert np.array_equal(after, before["w1_i"].astype(np.float32) * before["w1_s"])


def test_nodes_without_a_name_are_numbered(tmp_path):
    """As a runtime does; the kind alone is no name."""
    file = chain(tmp_path / "m.onnx", "MatMul", "MatMul", unnamed=True)
    inputs, _ = reads(file, tmp_path / "part.onnx", "MatMul_7")
    assert (inputs["l0"][0], inputs["l1"][0]) == ("x_d", "l0_d")
    assert (inputs["l0"][1], inputs["l1"][1]) == ("w0", "w1_as_floats")
    with pytest.raises(BuildError, match="no node goes by MatMul$"):
        write_partly_float(onnx.load(str(file)), tmp_path / "part.onnx", ["MatMul"])


def test_weights_are_floats_by_the_scales_of_their_columns(tmp_path):
    """Along the second axis where no other is named, without a zero point where there is none, and whatever the layer
    reads before them."""
    scales = np.array([0.1, 0.2, 0.3], np.float32)
    constants = {"w": np.arange(12, dtype=np.int8).reshape(4, 3), "s": scales}
    nodes = [node("DequantizeLinear", ["w", "s"], "d"), node("MatMul", ["x", "d"], "y")]
    file = write(tmp_path / "m.onnx", nodes, constants, inputs=(("x", ["n", 4]),))
    inputs, _ = reads(file, tmp_path / "part.onnx", "y")
    assert inputs["y"] == ["x", "d_as_floats"]
    (tensor,) = (
        each for each in onnx.load(str(tmp_path / "part.onnx")).graph.initializer if each.name == "d_as_floats"
    )
    assert np.allclose(onnx.numpy_helper.to_array(tensor), constants["w"] * scales)
