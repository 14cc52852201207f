"""Balance: the float network stays the same, hard channels of an activation are made easier."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calibration_models import CNN, CNN_CONSTANTS, cnn, config, graph, images, values, written
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.errors import BuildError, UsageError
from qbench.quant import affine
from qbench.quant.onnx.calibration import calibrate, complete_scales
from qbench.quant.onnx.formats import calibration_file
from qbench.quant.onnx.formats import scale_record as record_file
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.settings import WeightParams
from qbench.quant.onnx.sites import find
from qbench.quant.onnx.weights import balance, balance_error, input_samples, weight_steps
from qbench.quant.scale_rules import amct_qparams

ONE = '<ir_version: 8, opset_import: ["" : 17]>\none (float[n,{c},6,6] x) => (float[n,k,h,w] y) {{\n{body}\n}}'
PERCEPTRON = """
<ir_version: 8, opset_import: ["" : 17]>
perceptron (float[n,7,4] x) => (float[n,7,3] y) {
  [norm] a = LayerNormalization <axis: int = -1> (x, g, gb)
  [up] b = MatMul (a, v)
  [shift] c = Add (vb, b)
  [relu] d = Relu (c)
  [down] y = MatMul (d, w)
}
"""
PERCEPTRON_CONSTANTS = {"g": (4,), "gb": (4,), "v": (4, 6), "vb": (6,), "w": (6, 3)}


def balanced(network: Graph, feed: Any, a: float = 0.5) -> tuple[Graph, dict[balance.Group, Any]]:
    """The graph balanced for one batch, and the factors."""
    groups = balance.groups(network, find(network, config(network)))
    tensors = values(network, {"x": feed}, *(group.tensor for group in groups))
    factors = {
        group: balance.factors(network, group, balance.largest(tensor, group.axis), a)
        for group, tensor in zip(groups, tensors, strict=True)
    }
    return balance.apply(network, factors), factors


def kinds(network: Graph) -> list[str]:
    return [node.op_type for node in network.nodes]


def same(mine: Graph, theirs: Graph, feed: Any) -> None:
    (actual,), (expected,) = (values(entry, {"x": feed}, "y") for entry in (mine, theirs))
    np.testing.assert_allclose(actual, expected, atol=1e-4 * float(np.abs(expected).max()))


def test_groups_are_the_layers_of_one_activation() -> None:
    """Layers that read one activation form one group; what has no weights forms none."""
    groups = balance.groups(cnn(), find(cnn(), config(cnn(), tensors=[("sum", 0), ("sum", 1)])))
    assert [(group.tensor, group.layers, group.axis, group.free) for group in groups] == [
        ("x", ("stem",), 1, False),
        ("b", ("deep",), 1, True),
        ("d", ("point",), 1, False),
        ("h", ("head",), -1, False),
    ]


def test_depthwise_weights_with_scales_of_their_own_are_not_spared() -> None:
    """Where each input channel has a scale of its own, its weights cannot get harder: every channel of the activation
    gets the same maximum, whatever the exponent; not so with one scale for all of them."""
    network, feed = cnn(), images(3)
    (b,) = values(network, {"x": feed}, "b")
    for wise in (True, False):
        settings = config(network)
        layers = {
            name: replace(layer, weight=WeightParams(channel_wise=wise)) for name, layer in settings.layers.items()
        }
        groups = balance.groups(network, find(network, replace(settings, layers=layers)))
        group = next(group for group in groups if group.tensor == "b")
        peaks = balance.largest(b, 1) / balance.factors(network, group, balance.largest(b, 1), 0.5)
        assert (float(peaks.max() / peaks.min()) == pytest.approx(1, rel=1e-5)) is wise


@settings(max_examples=20, deadline=None)
@given(
    groups=st.sampled_from([(1, 4, 6), (2, 4, 6), (4, 4, 8)]),
    a=st.floats(0, 1),
    seed=st.integers(0, 99),
    transposed=st.booleans(),
)
def test_the_float_network_stays_the_same(groups: tuple[int, int, int], a: float, seed: int, transposed: bool) -> None:
    """Whatever the groups, the exponent and the kind of convolution, the outputs are equal up to rounding."""
    count, inputs, outputs = groups
    kind = "ConvTranspose" if transposed else "Conv"
    body = (
        "[first] a = Conv <kernel_shape: ints = [1,1]> (x, v, vb)\n[relu] b = Relu (a)\n"
        f"[second] y = {kind} <kernel_shape: ints = [3,3], group: int = {count}> (b, w)"
    )
    shape = (inputs, outputs // count, 3, 3) if transposed else (outputs, inputs // count, 3, 3)
    network = graph(ONE.format(c=3, body=body), {"v": (inputs, 3, 1, 1), "vb": (inputs,), "w": shape}, seed=seed)
    feed = images(2, shape=(3, 6, 6), seed=seed)
    result, _ = balanced(network, feed, a)
    same(result, network, feed)


def test_factors_follow_the_formula() -> None:
    """f_c = max|X_c|^a / max|W_c|^(1 - a), W_c being all weights that read channel c; the largest of them
    for a silent channel."""
    body = "[only] y = Conv <kernel_shape: ints = [1,1], group: int = 2> (x, w)"
    weight = np.float32([[1, 2], [3, -8], [0, 4], [0, 5]]).reshape(4, 2, 1, 1)
    network = graph(ONE.format(c=4, body=body), {"w": weight})
    group = balance.Group(tensor="x", layers=("only",), axis=1)
    x = np.zeros((1, 4, 6, 6), np.float32)
    x[0, :, 0, 0] = [27, -64, 5, 0]
    factors = balance.factors(network, group, balance.largest(x, 1), 2 / 3)
    np.testing.assert_allclose(factors, [9 / 3 ** (1 / 3), 16 / 2, 8, 8], rtol=1e-6)


def test_factors_are_bounded() -> None:
    """A channel that is almost silent does not get an extreme factor."""
    network = graph(ONE.format(c=1, body="[only] y = Conv (x, w)"), {"w": np.float32(1e-9).reshape(1, 1, 1, 1)})
    group = balance.Group(tensor="x", layers=("only",), axis=1)
    assert balance.factors(network, group, np.array([1e9]), 0.5) == [balance.GREATEST]
    assert balance.factors(network, group, np.array([1e-30]), 1.0) == [np.float32(balance.LEAST)]
    two = graph(ONE.format(c=2, body="[only] y = Conv (x, w)"), {"w": np.ones((1, 2, 1, 1), np.float32)})
    quiet, loud = balance.factors(two, group, np.array([0.01, 100]), 1.0)
    assert (quiet, loud) == (np.float32(100 / balance.SPREAD), 100)
    two.set_constant("w", np.float32([1, 1e-6]).reshape(1, 2, 1, 1))
    np.testing.assert_array_equal(balance.factors(two, group, np.array([9, 0.01]), 0.5), [3, 3])
    two.set_constant("w", np.float32([1000, 1]).reshape(1, 2, 1, 1))  # a thousandth is not too faint
    np.testing.assert_allclose(balance.factors(two, group, np.array([9, 0.04]), 0.5), [3 / 1000**0.5, 0.2], rtol=1e-6)


def test_the_division_is_folded_into_the_layer_before() -> None:
    """Behind Relu the layer that makes the activation takes the division in: no operator is added, and the activation
    is the old one divided by f."""
    body = "[first] a = Conv (x, v, vb)\n[relu] b = Relu (a)\n[pool] c = MaxPool <kernel_shape: ints = [2,2]> (b)\n"
    network = graph(
        ONE.format(c=3, body=body + "[second] y = Conv (c, w)"), {"v": (4, 3, 1, 1), "vb": (4,), "w": (2, 4, 1, 1)}
    )
    feed = images(2, shape=(3, 6, 6))
    result, factors = balanced(network, feed)
    assert kinds(result) == ["Mul", *kinds(network)]  # for the input of the network alone
    declared = {value.name: value.type for value in (*network.model.graph.value_info, *network.model.graph.input)}
    told = {value.name: value.type for value in (*result.model.graph.value_info, *result.model.graph.input)}
    assert told == {**declared, result.node("first").input[0]: declared["x"]}
    f = next(f for group, f in factors.items() if group.tensor == "c")
    (before,), (after,) = (values(entry, {"x": feed}, "c") for entry in (network, result))
    np.testing.assert_allclose(after, before / f.reshape(1, -1, 1, 1), rtol=1e-4, atol=1e-6)
    same(result, network, feed)


def test_transformer_layers_are_folded() -> None:
    """LayerNormalization, and MatMul with its Add, take the division in: no operator is added."""
    network = graph(PERCEPTRON, PERCEPTRON_CONSTANTS)
    feed = images(2, shape=(7, 4))
    result, factors = balanced(network, feed)
    assert len(factors) == 2
    assert kinds(result) == kinds(network)
    same(result, network, feed)


@pytest.mark.parametrize("case", ["clip", "shared activation", "network output", "shared bias", "two biases"])
def test_what_others_see_is_not_divided(case: str) -> None:
    """Where the activation is clipped, read by others, or made from what others read as well, a Mul stands before the
    layer and everything else keeps its values."""
    first, between = "[first] a = Conv (x, v, vb)", "[relu] b = Relu (a)"
    more, end = "", "[second] y = Conv (b, w)"
    if case == "clip":
        between = "[relu] b = Clip (a, zero, six)"
    elif case == "shared activation":
        end = "[second] z = Conv (b, w)\n[sum] y = Add (z, b)"
    elif case == "shared bias":
        end = "[second] z = Conv (b, w)\n[third] u = Conv (x, v2, vb)\n[sum] y = Add (z, u)"
    elif case == "two biases":
        between = "[shift] c = Add (a, a)\n[relu] b = Relu (c)"
    text = ONE.format(c=3, body="\n".join(filter(None, [first, between, more, end])))
    if case == "network output":
        text = text.replace("y)", "y, float[n,k2,h,w] b)")
    constants = {"v": (3, 3, 1, 1), "vb": (3,), "w": (3, 3, 1, 1)}
    if case == "shared bias":
        constants |= {"v2": (3, 3, 1, 1)}
    if case == "clip":
        constants |= {"zero": np.float32(0), "six": np.float32(0.5)}
    network = graph(text, constants)
    feed = images(2, shape=(3, 6, 6))
    result, _ = balanced(network, feed)
    second = result.node("second").input[0]
    maker = result.maker(second)
    assert maker is not None
    assert (maker.op_type, maker.input[0]) == ("Mul", "b")
    same(result, network, feed)
    (before,), (after,) = (values(entry, {"x": feed}, "b") for entry in (network, result))
    np.testing.assert_allclose(after, before, atol=1e-5)


def loud() -> Graph:
    """Two convolutions with a Relu between; one of the channels between them is a hundred times the others."""
    random = np.random.default_rng(0)
    by = np.float32([1, 1, 1, 100, 1, 1, 1, 1]).reshape(8, 1, 1, 1)
    v = random.standard_normal((8, 3, 1, 1)).astype(np.float32) * by
    w = random.standard_normal((4, 8, 1, 1)).astype(np.float32) / by.reshape(1, 8, 1, 1)
    body = "[first] a = Conv (x, v)\n[relu] b = Relu (a)\n[second] y = Conv (b, w)"
    return graph(ONE.format(c=3, body=body), {"v": v, "w": w})


def test_a_calibration_with_balance(tmp_path: Path) -> None:
    """Calibration rewrites its model once, records the factors, the scales of the changed weights and of the divided
    activations, and a second calibration leaves the model alone."""
    network = loud()
    file, record = written(tmp_path / "c.onnx", network, config(network, balance=0.5, batch_num=2)), tmp_path / "r.txt"
    data = [images(3, shape=(3, 6, 6), seed=seed) for seed in range(2)]
    result = calibration_file.run(file, data, record)
    actual, model = result.record, calibration_file.read(file)
    graph = model.graph()
    same(graph, network, np.concatenate(data))
    assert model.done == (weight_steps.BALANCE,)
    assert kinds(graph) == kinds(network)
    assert result.warnings[0] == "balance: first stays as it is: only a Mul before a convolution would do it"
    assert not actual["first"].balance
    (x,) = values(network, {"x": np.concatenate(data)}, "b")
    f = np.float32(actual["second"].balance).reshape(1, -1, 1, 1)
    expected = amct_qparams(float((x / f).min()), float((x / f).max()))
    assert actual["second"].scale_d == pytest.approx(expected.scale, rel=1e-4)
    weight = graph.constant(graph.node("second").input[1])
    assert weight is not None
    assert max(actual["second"].scale_w) * 127 == pytest.approx(np.abs(weight).max(), rel=0.02)
    before, text = file.read_bytes(), record.read_text()
    assert calibration_file.run(file, data, record).record == actual
    assert (file.read_bytes(), record.read_text()) == (before, text)


def test_what_gains_too_little_stays_as_it_is(tmp_path: Path) -> None:
    """With channels that are all alike nothing is balanced, and the words say why."""
    network = loud()
    for name in ("v", "w"):
        network.set_constant(name, np.sign(network.constant(name)))
    file = written(tmp_path / "c.onnx", network, config(network, balance=0.5))
    result = calibration_file.run(file, [np.tanh(images(64, shape=(3, 6, 6)))], tmp_path / "r.txt")
    assert "balance: second stays as it is: it would gain too little" in result.warnings
    assert not any(entry.balance for entry in result.record.values())
    same(calibration_file.read(file).graph(), network, images(2, shape=(3, 6, 6)))


def test_no_mul_comes_before_a_convolution(tmp_path: Path) -> None:
    """Where the division cannot be folded, the activation stays as it is, so that ONNX Runtime keeps its integers; the
    first layer left is named with how many more there are."""
    network = cnn()
    file = written(tmp_path / "c.onnx", network, config(network, balance=0.5))
    result = calibration_file.run(file, [images(4)], tmp_path / "r.txt")
    assert [name for name, entry in result.record.items() if entry.balance] == ["head"]
    words = "balance: stem and 2 more layers stay as they are: only a Mul before a convolution would do it"
    assert words in result.warnings


def test_what_is_expected_of_a_channel() -> None:
    """A channel that reaches twice as far in one half of the data may reach twice as far again, but not beyond the
    largest one; one that was silent in one half is taken for the largest, one that always was stays zero."""
    expected = balance.expected(np.array([1.0, 8, 2, 0, 0]), np.array([2.0, 7, 6, 3, 0]))
    np.testing.assert_allclose(expected, [4, 8, 8, 8, 0])


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose", "Gemm"])
def test_the_judge_sees_the_error_that_quantization_leaves(kind: str) -> None:
    """The error of a layer's outputs, computed by onnx's evaluator with quantized input and weight, is what the judge
    finds on all of them; values beyond the range of the other data are clipped."""
    dense = kind == "Gemm"
    attributes = "transB: int = 1" if dense else "kernel_shape: ints = [1,1], group: int = 2"
    text = ONE.format(c=4, body=f"[only] y = {kind} <{attributes}> (x, w)")
    if dense:
        text = text.replace(",6,6]", "]").replace(",h,w]", "]")
    shape = (3, 4) if dense else (4, 2, 1, 1)
    network, x = graph(text, {"w": shape}), images(8, shape=(4,) if dense else (4, 6, 6))
    site, f = find(network, config(network)).weights[0], np.float32([1, 2, 0.5, 4])
    largest = balance.largest(x, -1 if dense else 1) * 0.9  # something is clipped
    places = 1 if dense else 36
    used = np.repeat(np.arange(8), places), np.tile(np.arange(places), 8)
    rows = (
        input_samples.rows(network.node("only"), shape, x, *used)
        .reshape(8 * places, 1 if dense else 2, -1)
        .swapaxes(0, 1)
    )
    top = float((largest / f).max())
    params = amct_qparams(-top, top)
    read = x / (f if dense else f.reshape(-1, 1, 1))
    read = affine.fake_quantize(read, params.scale, params.zero_point)
    result, weight = network.copy(), network.constant("w")
    assert weight is not None
    by = np.repeat(f.reshape(2, 1, 2), 2, axis=1).reshape(4, 2, 1, 1) if kind == "Conv" else f
    scaled = weight * (by.reshape(4, 1, 1, 1) if kind == "ConvTranspose" else by)
    scale = np.abs(scaled).max(axis=None if dense else (1, 2, 3) if kind == "Conv" else (0, 2, 3), keepdims=True) / 127
    result.set_constant("w", affine.fake_quantize(scaled, scale))
    (expected,), (actual,) = values(network, {"x": x}, "y"), values(result, {"x": read}, "y")
    error = float(np.square(actual - expected).mean() / np.square(expected).mean())
    tolerance = 0.3 if kind == "ConvTranspose" else 1e-3  # there one scale is for a channel of each group
    assert balance_error.error(network, site, rows, f, largest) == pytest.approx(error, rel=tolerance)


def test_a_calibration_that_is_killed_after_the_model_changed_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between model and record, the record that quantize wrote has the scales of weights that are gone; the
    model knows the right ones, and calibration run again ends as if it had not been disturbed."""
    network = cnn()
    data = [images(3, seed=seed) for seed in range(2)]
    file, record = written(tmp_path / "c.onnx", network, config(network, balance=0.5, batch_num=2)), tmp_path / "r.txt"
    record_file.write(complete_scales.with_weights({}, calibration_file.read(file)), record)
    (tmp_path / "d.onnx").write_bytes(file.read_bytes())
    (tmp_path / "d.txt").write_bytes(record.read_bytes())
    with monkeypatch.context() as patch:
        patch.setattr(calibrate, "observe", _killed)
        with pytest.raises(KeyboardInterrupt):
            calibration_file.run(file, data, record)
    undisturbed = calibration_file.run(tmp_path / "d.onnx", data, tmp_path / "d.txt")
    assert calibration_file.run(file, data, record).record == undisturbed.record


def test_a_record_of_balanced_weights_needs_balanced_weights(tmp_path: Path) -> None:
    """A record with balance factors does not belong to a model whose weights are as they were: its key is named."""
    network = cnn()
    file, record = written(tmp_path / "c.onnx", network, config(network, balance=0.5)), tmp_path / "r.txt"
    calibration_file.run(file, [images(2)], record)
    written(file, network, config(network, balance=0.5))
    with pytest.raises(UsageError, match=r"'head' has a tensor_balance_factor, but .* quantize the model again"):
        calibration_file.run(file, [images(2)], record)


def _killed(*_: Any) -> Any:
    raise KeyboardInterrupt


def test_hard_channels_cost_less_after_balance() -> None:
    """With one channel a hundred times the others, int8 per tensor loses less of the layer's output when balanced."""
    network = loud()
    feed = images(4, shape=(3, 6, 6))

    def error(candidate: Graph) -> float:
        b, y = values(candidate, {"x": feed}, "b", "y")
        weight = candidate.constant("w")
        assert weight is not None
        x = amct_qparams(float(b.min()), float(b.max()))
        scale = np.abs(weight).max(axis=(1, 2, 3), keepdims=True) / 127
        rounded = affine.fake_quantize(b, x.scale, x.zero_point)
        kernel = affine.fake_quantize(weight, scale)
        return float(np.square(np.einsum("oc,nchw->nohw", kernel[:, :, 0, 0], rounded) - y).mean())

    assert error(balanced(network, feed)[0]) < error(network) / 10


def test_a_balance_that_changes_the_outputs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the balanced model differs by more than rounding, calibration stops and the model stays as it was."""
    network = cnn()
    file = written(tmp_path / "c.onnx", network, config(network, balance=0.5))
    before = file.read_bytes()
    monkeypatch.setattr(balance, "_insert_division", lambda *_: None)
    with pytest.raises(BuildError, match=r"c\.onnx: balance changed output y by up to .*; leave balance out"):
        calibration_file.run(file, [images(2)], tmp_path / "r.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["c.onnx"]
    assert file.read_bytes() == before


def test_a_fixed_batch_is_balanced(tmp_path: Path) -> None:
    """A model that demands its batch size is compared on a whole batch."""
    network = graph(CNN.replace("[n,", "[2,"), CNN_CONSTANTS)
    file = written(tmp_path / "c.onnx", network, config(network, balance=0.5))
    assert calibration_file.run(file, [images(2)], tmp_path / "r.txt").record["head"].balance


# --- which constants a division goes into -----------------------------------------------------------------------------

SIGNAL = (
    '<ir_version: 8, opset_import: ["" : 20]>\nnet (float[n,4,6,6] x, float[n,7,4] u) => ({outputs}) {{\n{body}\n}}'
)


def producers(*lines: str, tensor: str = "t", axis: int = 1, outputs: str = "float[n,a,b,c] y", **held: Any) -> Any:
    """The constants whose division divides ``tensor``, which the layer ``last`` reads."""
    network = graph(SIGNAL.format(outputs=outputs, body="\n".join(lines)), held)
    return balance._producers(network, balance.Group(tensor=tensor, layers=("last",), axis=axis))


LAST, DENSE = "[last] y = Conv (t, w)", "[last] y = MatMul (t, w)"


@pytest.mark.parametrize(
    ("lines", "held", "expected"),
    [
        (["[p] t = Conv (x, v)"], {"v": (4, 4, 1, 1)}, [("v", 0)]),
        (["[p] t = Conv (x, v, b)"], {"v": (4, 4, 1, 1), "b": (4,)}, [("v", 0), ("b", 0)]),
        (["[p] t = ConvTranspose (x, v, b)"], {"v": (4, 4, 1, 1), "b": (4,)}, [("v", 1), ("b", 0)]),
        (["[p] t = ConvTranspose <group: int = 2> (x, v)"], {"v": (4, 2, 1, 1)}, None),
        (["[p] s = Conv (x, v)", "[q] t = LeakyRelu (s)"], {"v": (4, 4, 1, 1)}, [("v", 0)]),
        (["[p] s = Conv (x, v)", "[q] t = AveragePool <kernel_shape: ints = [1,1]> (s)"], {"v": (4, 4, 1, 1)},
         [("v", 0)]),
        (["[p] s = Conv (x, v)", "[q] t = Sigmoid (s)"], {"v": (4, 4, 1, 1)}, None),
        (["[q] t = Relu (x)"], {}, None),  # an input is nobody's to divide
        (["[v] v = Relu (x)", "[p] t = Conv (x, v)"], {}, None),  # a weight that is computed
        (["[p] t = Add (x, b)"], {"b": (1,)}, None),
        (["[p] s = Conv (x, v)", "[z] z = Relu (s)", "[q] t = Relu (s)"], {"v": (4, 4, 1, 1)}, None),
        (["[p] t = Conv (x, v)", "[z] z = Relu (v)"], {"v": (4, 4, 1, 1)}, None),  # others read the weight
        (["[p] t = Conv (x, v)", "[z] z = Relu (t)"], {"v": (4, 4, 1, 1)}, None),  # others read the activation
        (["[p] t = Conv (x, v, v)"], {"v": (4, 4, 1, 1)}, None),
    ],
)  # fmt: skip
def test_which_constants_make_the_channels_of_an_image(lines: list[str], held: dict[str, Any], expected: Any) -> None:
    """Through what scaling passes; None where there is something else."""
    assert producers(*lines, LAST, w=(4, 4, 1, 1), **held) == expected


@pytest.mark.parametrize(
    ("lines", "held", "expected"),
    [
        (["[p] t = MatMul (u, v)"], {"v": (4, 4)}, [("v", -1)]),
        (["[p] s = MatMul (u, v)", "[q] t = Add (s, b)"], {"v": (4, 4), "b": (4,)}, [("b", -1), ("v", -1)]),
        (["[p] s = MatMul (u, v)", "[q] t = Add (b, s)"], {"v": (4, 4), "b": np.float32(2)}, [("b", -1), ("v", -1)]),
        (["[p] s = MatMul (u, v)", "[q] t = Add (s, b)"], {"v": (4, 4), "b": (7, 4)}, None),
        (["[p] s = MatMul (u, v)", "[q] t = Add (s, u)"], {"v": (4, 4)}, None),
        (["[q] t = Add (b, c)"], {"b": (4,), "c": (4,)}, None),
        (["[p] t = LayerNormalization (u, g)"], {"g": (4,)}, [("g", -1)]),
        (["[p] t = LayerNormalization <axis: int = -1> (u, g, b)"], {"g": (4,), "b": (4,)}, [("g", -1), ("b", -1)]),
        (["[p] t = LayerNormalization <axis: int = 1> (u, g)"], {"g": (7, 4)}, None),
        (["[p] s = MatMul (u, v)", "[q] t = MaxPool <kernel_shape: ints = [1]> (s)"], {"v": (4, 4)}, None),
        (["[p] s = MatMul (u, v)", "[q] t = Identity (s)"], {"v": (4, 4)}, [("v", -1)]),
        (["[p] t = Conv (u, v)"], {"v": (4, 7, 1)}, None),
    ],
)  # fmt: skip
def test_which_constants_make_the_features_of_a_row(lines: list[str], held: dict[str, Any], expected: Any) -> None:
    """Behind the last axis."""
    assert producers(*lines, DENSE, axis=-1, outputs="float[n,7,k] y", w=(4, 4), **held) == expected


@pytest.mark.parametrize(("attributes", "axis"), [("", 1), ("<transB: int = 1>", 0)])
def test_the_features_of_a_gemm_are_an_axis_of_its_weight(attributes: str, axis: int) -> None:
    """The other one where it is transposed; its bias has one."""
    lines = ["[f] f = Flatten (x)", f"[p] t = Gemm {attributes} (f, v, b)", "[last] y = MatMul (t, w)"]
    shape = (144, 5) if axis else (5, 144)
    actual = producers(*lines, axis=-1, outputs="float[n,k] y", v=shape, b=(5,), w=(5, 2))
    assert actual == [("v", axis), ("b", -1)]
    assert producers(*lines[:1], lines[1].replace("Gemm", "Gemm").replace(", b", ""), lines[2], axis=-1,
                     outputs="float[n,k] y", v=shape, w=(5, 2)) == [("v", axis)]  # fmt: skip
    lines[2] = "[last] y = Conv (t, w)"
    assert producers(*lines, axis=1, outputs="float[n,k] y", v=shape, b=(5,), w=(5, 2)) is None


def test_an_output_of_the_network_is_not_divided() -> None:
    """Its caller reads it, on the way as well as at the end."""
    lines = ["[p] s = Conv (x, v)", "[q] t = Relu (s)", LAST]
    held = {"v": (4, 4, 1, 1), "w": (4, 4, 1, 1)}
    assert producers(*lines, **held) == [("v", 0)]
    for name in ("s", "t"):
        assert producers(*lines, outputs=f"float[n,a,b,c] y, float[n,d,e,f] {name}", **held) is None


def test_only_a_convolution_with_nothing_to_divide_needs_a_mul() -> None:
    """Before a matrix product one costs little."""
    for line, axis, needs in ((LAST, 1, True), ("[last] y = MatMul (t, w)", -1, False)):
        network = graph(SIGNAL.format(outputs="float[n,a,b,c] y", body=f"[q] t = Sigmoid (x)\n{line}"), {"w": (6, 6)})
        assert balance.needs_mul(network, balance.Group(tensor="t", layers=("last",), axis=axis)) == needs


def test_the_largest_of_a_channel_has_either_sign() -> None:
    """Along any axis; of nothing it is 0."""
    values = np.float32([[[1, -9], [2, 3]], [[0, 1], [-4, 0]]])
    assert balance.largest(values, 1).tolist() == [9, 4]
    assert balance.largest(values, -1).tolist() == [4, 9]
    assert balance.largest(values[:0], 1).tolist() == [0, 0]
    assert balance.largest(values, 1).dtype == np.float64


@pytest.mark.parametrize(
    ("activation", "weight", "a", "expected"),
    [
        ([4.0, 4.0], [1.0, 1.0], 0.5, [2, 2]),
        ([4.0, 4.0], [4.0, 1.0], 0.5, [1, 2]),
        ([4.0, 4.0], [4.0, 1.0], 1.0, [4, 4]),
        ([4.0, 4.0], [4.0, 2.0], 0.0, [0.25, 0.5]),
        ([64.0, 1.0], [1.0, 1.0], 1.0, [64, 1]),  # just within the spread
        ([65.0, 1.0], [1.0, 1.0], 1.0, [65, 65 / 64]),
        ([4.0, 4.0], [1.0, 0.001], 1.0, [4, 4]),
        ([9.0, 4.0], [1.0, 0.0009], 1.0, [9, 9]),  # too faint to tell
        ([0.0, 0.0], [1.0, 1.0], 0.5, [1, 1]),
        ([0.0, 4.0], [1.0, 1.0], 0.5, [2, 2]),
        ([9.0, 4.0], [0.0, 1.0], 0.5, [2, 2]),
    ],
)
def test_factors_of_two_channels(activation: list[float], weight: list[float], a: float, expected: list[float]) -> None:
    """By the exponent of what the activation has; at most 64 times the smallest."""
    network = graph(ONE.format(c=2, body="[only] y = Conv (x, w)"), {"w": np.float32(weight).reshape(1, 2, 1, 1)})
    group = balance.Group(tensor="x", layers=("only",), axis=1)
    actual = balance.factors(network, group, np.array(activation), a)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    assert actual.dtype == np.float32


def test_layers_of_one_activation_share_their_factors() -> None:
    """By the largest weight of any; each exponent and axis is a group of its own."""
    body = "[one] a = Conv (x, v)\n[two] b = Conv (x, w)\n[sum] y = Add (a, b)"
    network = graph(ONE.format(c=2, body=body), {"v": np.ones((1, 2, 1, 1), np.float32),
                                                 "w": np.full((1, 2, 1, 1), 16, np.float32)})  # fmt: skip
    sites = find(network, config(network))
    (group,) = balance.groups(network, sites)
    assert (group.layers, group.exponent, group.free) == (("one", "two"), 0.5, False)
    np.testing.assert_allclose(balance.factors(network, group, np.array([4.0, 4.0]), 0.5), [0.5, 0.5])
    assert [(g.layers, g.exponent) for g in balance.groups(network, sites, {"two": 0.3})] == [(("two",), 0.3)]
    apart = balance.groups(network, sites, {"one": 0.2, "two": 0.3})
    assert [(g.layers, g.exponent) for g in apart] == [(("one",), 0.2), (("two",), 0.3)]
    assert balance.groups(network, sites, {}) == ()


def test_one_value_for_all_channels_becomes_one_for_each() -> None:
    """Of the type that it had."""
    network = graph(ONE.format(c=1, body="[only] y = Add (x, b)"), {"b": np.float32(6)})
    balance._scale_constant(network, "b", -1, np.array([0.5, 2.0]))
    value = network.constant("b")
    assert value is not None
    assert (value.tolist(), value.dtype) == ([3, 12], np.float32)


# --- whether it helps, and what is told of it -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "batch", "count", "parts"),
    [
        (6, 1, 1, (3, 3)),
        (7, 1, 1, (3, 4)),
        (1, 1, 1, (1, 1)),  # one example is in both
        (6, 1, 2, (6, 0)),
        (6, 2, 2, (0, 6)),
        (6, 1, 3, (6, 0)),
        (6, 2, 3, (0, 6)),
        (6, 2, 4, (6, 0)),
        (6, 3, 4, (0, 6)),
    ],
)
def test_data_is_parted_in_the_middle(size: int, batch: int, count: int, parts: tuple[int, int]) -> None:
    """By batches, a single one by its examples; the middle batch is in the second half."""
    values = np.arange(size)
    first, second = weight_steps._halves(values, batch, count)
    assert (len(first), len(second)) == parts
    if size > 1:
        assert np.array_equal(np.concatenate([first, second]), values)


def test_what_stays_as_it_is_is_told_by_its_first_layer() -> None:
    """With how many more there are, for each reason; nothing is said of what was balanced."""
    groups = [
        balance.Group(tensor=str(i), layers=names, axis=1) for i, names in enumerate([("a", "b"), ("c",), ("d",)])
    ]
    describe = weight_steps._describe_balance
    assert describe(groups, groups, groups) == []
    assert describe(groups, groups[1:], groups[2:]) == [
        "balance: a and 1 more layers stay as they are: only a Mul before a convolution would do it",
        "balance: c stays as it is: it would gain too little",
    ]


@pytest.mark.parametrize(("balanced_error", "helps"), [(0.99, True), (1.0, True), (1.01, False)])
def test_balance_helps_where_it_halves_the_error(
    balanced_error: float, helps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all layers of a group together; the range is that of the first half of the data."""
    network = cnn()
    sites = find(network, config(network))
    group = balance.Group(tensor="x", layers=("stem", "deep"), axis=1)
    f = np.float32([2, 2])
    ranges = []

    def error(graph: Graph, site: Any, rows: Any, by: Any, largest: Any) -> float:
        ranges.append((site.layer, rows, largest))
        return (balanced_error - 0.4, 0.4)[site.layer == "deep"] if by is f else 1.0

    monkeypatch.setattr(balance_error, "error", error)
    first, second = np.array([3.0]), np.array([9.0])

    class Rows:
        def rows(self, layer: str) -> str:
            return f"rows of {layer}"

    observed = weight_steps._Observed(maxima={group: (first, second)}, rows=Rows(), example={})  # type: ignore[arg-type]
    assert weight_steps._helps(network, sites, group, f, observed) == helps
    assert {layer: rows for layer, rows, _ in ranges} == {"stem": "rows of stem", "deep": "rows of deep"}
    assert all(largest is first for *_, largest in ranges)


def test_an_error_is_a_share_of_what_a_layer_gives() -> None:
    """Nothing where it gives nothing, and the range has no negative part where no value is negative."""
    network = graph(ONE.format(c=2, body="[only] y = Conv (x, w)"), {"w": np.float32([1, 0]).reshape(1, 2, 1, 1)})
    (site,) = find(network, config(network)).weights
    ones = np.ones(2, np.float32)
    rows = np.float32([[[0.3, 0], [1, 0]]])
    # In 255 steps of 1 / 255, 0.3 lies half between two of them: 76.5 becomes 76.
    error = balance_error.error(network, site, rows, ones, np.array([1.0, 1.0]))
    assert error == pytest.approx((0.5 / 255) ** 2 / (0.3**2 + 1), rel=1e-3)
    signed = balance_error.error(network, site, np.float32([[[-1, 0], [0.3, 0]]]), ones, np.array([1.0, 1.0]))
    assert signed > 2 * error
    assert balance_error.error(network, site, rows * 0, ones, np.array([1.0, 1.0])) == 0.0
    network.set_constant("w", np.zeros((1, 2, 1, 1), np.float32))
    assert balance_error.error(network, site, rows, ones, np.array([1.0, 1.0])) == 0.0


def test_steps_that_wait_are_those_asked_for_and_not_done(tmp_path: Path) -> None:
    """In the order in which they are taken."""
    network = cnn()
    ada = {"algorithm": "ada_quantize", "options": {"num_iteration": 1}}
    settings = config(network, balance=0.5, bias_correction=True, weight=ada)
    model = calibration_file.read(written(tmp_path / "c.onnx", network, settings))
    every = (weight_steps.BALANCE, weight_steps.ADAROUND, weight_steps.BIAS)
    assert weight_steps.waiting(model) == every
    assert weight_steps.waiting(replace(model, done=every[:1])) == every[1:]
    assert weight_steps.waiting(replace(model, done=every)) == ()
    plain = calibration_file.read(written(tmp_path / "d.onnx", network, config(network)))
    assert weight_steps.waiting(plain) == ()
