"""Bias correction: the mean error of each channel of a layer's output is taken off its bias."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calibration_models import CNN_CONSTANTS, cnn, config, graph, images, values, written

from qbench.quant.onnx.formats import calibration_file
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Record, find
from qbench.quant.onnx.weights import bias_correction, weight_steps

DATA = [images(4, seed=seed) for seed in range(3)]
LINEAR = """
<ir_version: 8, opset_import: ["" : {opset}]>
linear (float[n,3,8,8] x) => (float[n,w,4] y) {{
  [flat] f = Reshape (x, rows)
  [first] a = MatMul (f, v)
  [shift] b = Add (vb, a)
  [relu] c = Relu (b)
  [second] y = MatMul (c, w)
}}
"""
LINEAR_CONSTANTS = {"rows": np.array([0, 3, 64]), "v": (64, 16), "vb": (16,), "w": (16, 4)}


def quantized_output(network: Graph, record: Record, layer: str, x: Any) -> Any:
    """What a layer of a graph gives for its quantized input and weights: the graph with these put in their place."""
    changed = network.copy()
    node = changed.node(layer)
    content = record[layer]
    value = values(network, {"x": x}, node.input[0])[0]
    weight = changed.constant(node.input[1])
    assert weight is not None
    shape = [1] * weight.ndim
    shape[0 if node.op_type == "Conv" else 1] = -1 if len(content.scale_w) > 1 else 1
    scale = np.float32(content.scale_w).reshape(shape)
    changed.set_constant(node.input[1], np.clip(np.round(weight / scale), -128, 127) * scale)
    q = np.clip(np.round(value / np.float32(content.scale_d)) + content.offset_d, -128, 127)
    array = ((q - content.offset_d) * np.float32(content.scale_d)).astype(np.float32)
    last = node.output[0]
    readers = changed.readers(last)
    if node.op_type == "MatMul" and readers and readers[0][0].op_type == "Add":
        last = readers[0][0].output[0]  # with its bias
    tensor = node.input[0]
    with changed.editing() as nodes:
        for operator in nodes:
            if tensor in operator.output:
                operator.output[list(operator.output).index(tensor)] = "unused"
    if tensor != "x":
        changed.model.graph.input.append(_input(tensor))
    changed.reindex()
    return values(changed, {"x": array} if tensor == "x" else {"x": x, tensor: array}, last)[0]


def _input(name: str) -> Any:
    import onnx

    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)


def channel_mean(y: Any, *, last: bool) -> Any:
    return y.mean(axis=tuple(range(y.ndim - 1)) if last else (0, *range(2, y.ndim)))


def corrected(folder: Path, network: Graph) -> tuple[Graph, Record]:
    """The graph after calibration with bias correction, and the record."""
    settings = config(network, bias_correction=True, batch_num=len(DATA))
    file = written(folder / "c.onnx", network, settings)
    record = calibration_file.run(file, DATA, folder / "r.txt").record
    return calibration_file.read(file).graph(), record


def test_a_corrected_layer_has_no_mean_error(tmp_path: Path) -> None:
    """On the calibration data each channel of each convolution and of the classifier, given its fp32 input, has the
    mean that it has in fp32; before, it had not."""
    network, x = cnn(), np.concatenate(DATA)
    result, record = corrected(tmp_path, network)
    for layer in ("stem", "deep", "point", "head"):
        (expected,) = values(network, {"x": x}, network.node(layer).output[0])
        before, after = (
            channel_mean(quantized_output(entry, record, layer, x), last=False) - channel_mean(expected, last=False)
            for entry in (network, _with_bias(network, result, f"{layer}_b"))
        )
        size = float(np.abs(expected).max())
        assert np.abs(before).max() > 1e-4 * size, layer
        assert np.abs(after).max() < 2e-6 * size, layer


def _with_bias(network: Graph, other: Graph, name: str) -> Graph:
    """The network with one bias of the other: its layer is then given fp32 inputs."""
    mixed, value = network.copy(), other.constant(name)
    assert value is not None
    mixed.set_constant(name, value)
    return mixed


def test_only_biases_change(tmp_path: Path) -> None:
    """Weights, operators and outputs of the graph stay; scales are those of a calibration without correction."""
    network = cnn()
    result, record = corrected(tmp_path, network)
    for name in CNN_CONSTANTS:
        mine, theirs = result.constant(name), network.constant(name)
        assert mine is not None
        assert theirs is not None
        assert np.array_equal(mine, theirs) is not name.endswith("_b"), name
    assert [node.op_type for node in result.nodes] == [node.op_type for node in network.nodes]
    plain = written(tmp_path / "p.onnx", network, config(network, batch_num=len(DATA)))
    assert calibration_file.run(plain, DATA, tmp_path / "p.txt").record == record


def test_a_layer_without_bias_gets_one(tmp_path: Path) -> None:
    """A convolution without bias gets one that holds the correction alone."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        "one (float[n,3,8,8] x) => (float[n,5,6,6] y) {\n  [only] y = Conv (x, w)\n}"
    )
    network, x = graph(text, {"w": (5, 3, 3, 3)}), np.concatenate(DATA)
    result, record = corrected(tmp_path, network)
    assert len(result.node("only").input) == 3
    expected = channel_mean(quantized_output(network, record, "only", x), last=False)
    expected -= channel_mean(values(network, {"x": x}, "y")[0], last=False)
    np.testing.assert_allclose(result.constant(result.node("only").input[2]), -expected, atol=1e-5)


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
def test_matrix_products(tmp_path: Path, opset: int) -> None:
    """The bias of a MatMul is the constant of the Add behind it; a MatMul without one is left as it is."""
    network, x = graph(LINEAR.format(opset=opset), LINEAR_CONSTANTS), np.concatenate(DATA)
    result, record = corrected(tmp_path, network)
    (expected,) = values(network, {"x": x}, "b")
    before, after = (
        channel_mean(quantized_output(entry, record, "first", x), last=True) - channel_mean(expected, last=True)
        for entry in (network, _with_bias(network, result, "vb"))
    )
    assert np.abs(after).max() < 1e-5 < np.abs(before).max()
    assert [node.op_type for node in result.nodes] == [node.op_type for node in network.nodes]
    np.testing.assert_array_equal(result.constant("w"), network.constant("w"))


def test_what_cannot_be_corrected_is_left_out() -> None:
    """A layer whose input is not quantized stays as it is, and a product that nothing with a bias reads."""
    network = graph(LINEAR.format(opset=17), LINEAR_CONSTANTS)
    sites = find(network, config(network))
    record = dict.fromkeys(("first", "second"), _scales())
    assert list(bias_correction.error_model(network, sites, record)[1]) == ["first"]
    without = replace(sites, activations=())
    assert bias_correction.error_model(network, without, record)[1] == {}


def test_a_bias_that_two_layers_read_becomes_one_of_each() -> None:
    """What is taken off one of them changes the other by nothing."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        "two (float[n,3,8,8] x) => (float[n,3,8,8] y, float[n,3,8,8] z) {\n"
        "  [first] y = Conv (x, w, b)\n  [second] z = Conv (x, v, b)\n}"
    )
    network = graph(text, {"w": (3, 3, 1, 1), "v": (3, 3, 1, 1), "b": (3,)})
    before = values(network, {"x": DATA[0]}, "y", "z")
    bias_correction.subtract(network, {"first": np.array([1.0, 2.0, 3.0])})
    after = values(network, {"x": DATA[0]}, "y", "z")
    np.testing.assert_allclose((before[0] - after[0])[0, :, 0, 0], [1, 2, 3], atol=1e-5)
    np.testing.assert_array_equal(before[1], after[1])


@pytest.mark.parametrize(
    ("line", "shape"),
    [
        ("[first] a = MatMul (x, w)\n  [shift] y = Add (a, b)", (1, 4)),  # no vector
        ("[first] a = MatMul (x, w)\n  [shift] y = Add (a, a)", (4,)),  # no constant
        ("[first] a = MatMul (x, w)\n  [shift] y = Mul (a, b)", (4,)),
        ("[first] y = MatMul (x, w)", (4,)),
        ("[first] y = Gemm (x, w, b)", (1, 4)),
    ],
)
def test_a_layer_without_a_vector_that_is_added_as_it_is_has_no_bias(line: str, shape: tuple[int, ...]) -> None:
    """A product has none unless an Add of a constant vector alone reads it."""
    text = f'<ir_version: 8, opset_import: ["" : 17]>\nlinear (float[n,3] x) => (float[n,4] y) {{\n  {line}\n}}'
    network = graph(text, {"w": (3, 4), "b": shape})
    assert bias_correction.find_bias(network, network.node("first")) is None


def test_a_product_that_is_an_output_or_read_twice_has_no_bias() -> None:
    """Whoever else reads it would get another value."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        "linear (float[n,3] x) => (float[n,4] y, float[n,4] {second}) {{\n"
        "  [first] a = MatMul (x, w)\n  [shift] y = Add (a, b)\n{line}}}"
    )
    for second, line in (("a", ""), ("z", "  [other] z = Relu (a)\n")):
        network = graph(text.format(second=second, line=line), {"w": (3, 4), "b": (4,)})
        assert bias_correction.find_bias(network, network.node("first")) is None


def test_a_product_keeps_the_order_of_its_sum() -> None:
    """The vector may stand on either side of the Add."""
    text = '<ir_version: 8, opset_import: ["" : 17]>\nlinear (float[n,3] x) => (float[n,4] y) {{\n' + (
        "  [first] a = MatMul (x, w)\n  [shift] y = Add ({added})\n}}"
    )
    for added, position in (("a, b", 1), ("b, a", 0)):
        network = graph(text.format(added=added), {"w": (3, 4), "b": (4,)})
        node, place = bias_correction.find_bias(network, network.node("first")) or (None, -1)
        assert (getattr(node, "name", ""), place) == ("shift", position)
        before = values(network, {"x": np.ones((2, 3), np.float32)}, "y")[0]
        bias_correction.subtract(network, {"first": np.array([1.0, 2.0, 3.0, 4.0])})
        after = values(network, {"x": np.ones((2, 3), np.float32)}, "y")[0]
        np.testing.assert_allclose(before - after, [[1, 2, 3, 4]] * 2, atol=1e-5)


def _scales() -> Any:
    from qbench.quant.onnx.sites import Scales

    return Scales(scale_d=0.1, offset_d=0, scale_w=(0.1,), offset_w=(0,))


def test_the_correction_is_made_once(tmp_path: Path) -> None:
    """A second calibration of a corrected model does not correct it again: the step stands in the model."""
    network = cnn()
    corrected(tmp_path, network)
    file = tmp_path / "c.onnx"
    before = file.read_bytes()
    assert calibration_file.read(file).done == (weight_steps.BIAS,)
    calibration_file.run(file, DATA, tmp_path / "r.txt")
    assert file.read_bytes() == before


def test_a_layer_without_a_bias_gets_one_in_the_place_of_an_empty_name() -> None:
    """A node may name a bias that it has not."""
    text = (
        '<ir_version: 8, opset_import: ["" : 17]>\n'
        "one (float[n,3,8,8] x) => (float[n,4,8,8] y) {\n[only] y = Conv <kernel_shape: ints = [1,1]> (x, w)\n}"
    )
    network = graph(text, {"w": (4, 3, 1, 1)})
    network.node("only").input.append("")
    network.reindex()
    shift = np.arange(4, dtype=np.float32)
    changed = network.copy()
    bias_correction.subtract(changed, {"only": shift})
    assert len(changed.node("only").input) == 3
    (before,), (after,) = (values(each, {"x": DATA[0]}, "y") for each in (network, changed))
    np.testing.assert_allclose(before - after, np.broadcast_to(shift.reshape(1, -1, 1, 1), before.shape), atol=1e-5)
