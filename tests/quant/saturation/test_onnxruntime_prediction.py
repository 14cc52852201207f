"""What ONNX Runtime answers on AVX2: predicted, held against a slow reference and against an emulated CPU."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from qbench.quant.onnx import onnxruntime_session
from qbench.quant.saturation.onnxruntime_prediction import predict_outputs
from qbench.quant.saturation.pair_sums import PairedProduct
from tests.fixtures import integer_layers, pair_sum_reference

ADD_IN_16_BITS = integer_layers.ADD_IN_16_BITS | {"residual": integer_layers.residual}
ALL = ADD_IN_16_BITS | integer_layers.EXACT
HASWELL = "qemu-x86_64"
EMULATED = """
import sys
import numpy, onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.log_severity_level = 1, 3
for file in sys.argv[1:]:
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    numpy.save(file + ".y.npy", session.run(None, {session.get_inputs()[0].name: numpy.load(file + ".x.npy")})[0])
"""


def saved(folder: Path, name: str) -> tuple[Path, np.ndarray]:
    """The file of a layer, and its input."""
    model, x = ALL[name]()
    file = folder / f"{name}.onnx"
    onnx.save(model, str(file))
    np.save(f"{file}.x.npy", x)
    return file, x


@pytest.mark.skipif(shutil.which(HASWELL) is None, reason=f"needs {HASWELL} (Debian's package qemu-user)")
def test_predicted_answers_are_those_of_an_emulated_haswell(tmp_path: Path) -> None:
    """Bit for bit, for every kind of layer that adds in 16 bits and every kind that does not; and those that do differ
    from exact ones, or the comparison would be worth nothing."""
    files = {name: saved(tmp_path, name) for name in ALL}
    command = [HASWELL, "-cpu", "Haswell", sys.executable, "-c", EMULATED, *(str(file) for file, _ in files.values())]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, timeout=240)
    differ, wrong = set(), []
    for name, (file, x) in files.items():
        emulated, prediction = np.load(f"{file}.y.npy"), predict_outputs(file, (x,))
        if not np.array_equal(emulated, prediction.outputs):
            wrong.append(name)
        if prediction.saturated.size:
            differ.add(name)
        assert not prediction.unknown
        assert sum(layer.rounded for layer in prediction.layers) == 0
    assert wrong == []
    assert differ == set(ADD_IN_16_BITS)


def sums_of(model: onnx.ModelProto, x: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The sums of the one layer of a model by the slow reference, less their zero points; and its constants."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    convolution = model.graph.node[0].op_type == "QLinearConv"
    weight = constants["c2"] if convolution else constants["c0"].T
    axes = weight.ndim - 2 if convolution else 0
    product = PairedProduct(
        weight=weight, pairing="flat", stride=(1,) * axes, dilation=(1,) * axes, pads=((1, 1),) * axes, zero_point=3
    )
    less = 3 * weight.astype(int).reshape(len(weight), -1).sum(axis=1).reshape(-1, *[1] * axes)
    return pair_sum_reference.sums(product, x) - less, constants


def test_integers_are_the_sums_of_the_slow_reference(tmp_path: Path) -> None:
    """What MatMulInteger gives, and how many sums of how many were too large."""
    file, x = saved(tmp_path, "MatMulInteger")
    prediction = predict_outputs(file, (x,))
    assert (prediction.outputs == sums_of(onnx.load(file), x)[0]).all()
    (layer,) = prediction.layers
    assert (layer.name, layer.operator) == ("layer", "MatMulInteger")
    assert layer.sums == 4 * 5 * 17
    assert 0 < layer.outputs <= layer.saturated <= layer.sums
    assert 0 < layer.largest_excess <= 2 * 255 * 128 - 32768


def test_bytes_are_the_sums_of_the_slow_reference_rounded(tmp_path: Path) -> None:
    """A convolution: bias, scale of each channel, ties to even, clipped to a byte."""
    file, x = saved(tmp_path, "3x3")
    sums, c = sums_of(onnx.load(file), x)
    scale = np.float32(0.02) * c["c3"] / np.float32(0.3)
    scaled = (sums + c["c7"].reshape(-1, 1, 1)).astype(np.float32) * scale.reshape(-1, 1, 1)
    assert (predict_outputs(file, (x,)).outputs == np.clip(np.rint(scaled) + 120, 0, 255)).all()


def test_a_layer_reads_what_the_one_before_it_will_give(tmp_path: Path) -> None:
    """A graph with two such layers is predicted as one after the other."""
    models = {"a": integer_layers.convolution((6, 6, 1, 1)), "b": integer_layers.convolution((6, 6, 3, 3), pad=1)}
    for name, (model, _) in models.items():
        onnx.save(model, str(tmp_path / name))
    first = predict_outputs(tmp_path / "a", (models["a"][1],)).outputs
    second = predict_outputs(tmp_path / "b", (first,)).outputs
    file, x = saved(tmp_path, "residual")
    expected = np.clip(first.astype(int) + second - 120, 0, 255)
    assert (predict_outputs(file, (x,)).outputs == expected).all()


def test_a_file_without_such_pairs_is_exact_and_answers_as_it_does_here(tmp_path: Path) -> None:
    """Weights of 7 bits leave room: no sum is computed, every answer is the native one."""
    model, x = integer_layers.convolution((5, 8, 3, 3))
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == "c2")
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) // 2, "c2"))
    onnx.save(model, str(tmp_path / "narrow.onnx"))
    prediction = predict_outputs(tmp_path / "narrow.onnx", (x,))
    assert [layer.pairs for layer in prediction.layers] == [0]
    assert prediction.saturated.tolist() == []
    assert (prediction.outputs == onnxruntime_session.run(tmp_path / "narrow.onnx", (x,))).all()


def test_examples_are_counted_over_batches(tmp_path: Path) -> None:
    """Which examples had a saturated sum, when some of many have none: an input of zeros has no sum at all."""
    file, x = saved(tmp_path, "1x1")
    many = np.zeros((21, *x.shape[1:]), np.uint8)
    many[[2, 9, 20]] = x
    prediction = predict_outputs(file, (many,))
    assert prediction.saturated.tolist() == [2, 9, 20]
    assert prediction.layers[0].examples == 3
    alone = predict_outputs(file, (x,))
    assert (prediction.outputs[[2, 9, 20]] == alone.outputs).all()
    assert prediction.layers[0].saturated == alone.layers[0].saturated


def test_what_is_not_modelled_is_said(tmp_path: Path) -> None:
    """A product with signed bytes that are computed has no weights to look at."""
    model, x = integer_layers.product("MatMulInteger", 8)
    model.graph.initializer.pop(0)
    model.graph.input.append(onnx.helper.make_tensor_value_info("c0", onnx.TensorProto.INT8, [8, 5]))
    onnx.save(model, str(tmp_path / "computed.onnx"))
    weight = np.ones((8, 5), np.int8)
    prediction = predict_outputs(tmp_path / "computed.onnx", (x, weight))
    assert prediction.unknown == {"layer": "its signed bytes are computed, not constant"}


def test_a_clip_of_bytes_proves_more_layers_exact(tmp_path: Path) -> None:
    """Activations of 7 bits leave room for the largest weights."""
    model, x = integer_layers.convolution((5, 8, 1, 1))
    for name, value in (("low", 0), ("high", 127)):
        model.graph.initializer.append(numpy_helper.from_array(np.uint8(value), name))
    model.graph.node.insert(0, onnx.helper.make_node("Clip", ["x", "low", "high"], ["clipped"]))
    model.graph.node[1].input[0] = "clipped"
    onnx.save(model, str(tmp_path / "clipped.onnx"))
    prediction = predict_outputs(tmp_path / "clipped.onnx", (x,))
    assert [layer.pairs for layer in prediction.layers] == [0]


def test_a_layer_in_a_branch_is_said_to_be_unknown(tmp_path: Path) -> None:
    """What runs within If is not looked at, so nothing is claimed of it."""
    model, x = integer_layers.product("MatMulInteger", 8)
    node, constants = model.graph.node[0], list(model.graph.initializer)
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)
    branches = []
    for name in ("then", "else"):
        inner = onnx.NodeProto()
        inner.CopyFrom(node)
        inner.output[0] = f"y_{name}"
        own = onnx.helper.make_tensor_value_info(f"y_{name}", onnx.TensorProto.INT32, None)
        branches.append(onnx.helper.make_graph([inner], name, [], [own]))
    condition = onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [1])
    choice = onnx.helper.make_node("If", ["c"], ["y"], name="choice", then_branch=branches[0], else_branch=branches[1])
    graph = onnx.helper.make_graph([choice], "g", [model.graph.input[0], condition], [y], constants)
    onnx.save(onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=8), str(tmp_path / "if.onnx"))
    prediction = predict_outputs(tmp_path / "if.onnx", (x, np.array([True])))
    assert prediction.unknown == {"choice": "int8 layers within If are not modelled"}
