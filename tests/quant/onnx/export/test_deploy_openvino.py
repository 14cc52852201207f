"""The deploy model for OpenVINO: signed and unsigned bytes where its kernels gain by them, floats elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_networks
import pytest
from calibration_models import graph
from onnx_networks import Draft
from optional_packages import needs_openvino
from quantized_networks import Quantized, of, quantized, run

from qbench.quant.artifacts import openvino_model
from qbench.quant.onnx import attention, static
from qbench.quant.onnx.export import deploy_model, deploy_openvino, narrow_weights
from qbench.quant.onnx.export.fake_quant import fake_quant
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.settings import ActivationParams
from qbench.quant.onnx.sites import ActivationSite, Scales, Sites
from qbench.quant.onnx.weights.narrow_steps import narrow_steps
from qbench.quant.recipe import Recipe
from qbench.quant.sqnr import measure_sqnr


def deployed(network: Quantized, *, learned: bool = False) -> Graph:
    fitted = narrow_weights.fitted(network.graph, network.sites, network.record)
    return deploy_openvino.deploy(network.graph, network.sites, fitted, learned=learned)


def types(model: Graph) -> dict[str, Any]:
    """What is quantized -> the type of its bytes."""
    return {
        node.input[0]: model.constant(node.input[2]).dtype for node in model.nodes if node.op_type == "QuantizeLinear"
    }


def test_a_nearly_symmetric_range_becomes_symmetric() -> None:
    """[-6, 10] is widened to [-10, 10] and loses its zero point; [-1, 10] and [0, 10] keep theirs."""

    def scales(low: float, high: float) -> Scales:
        step = (high - low) / 255
        return Scales(scale_d=step, offset_d=-128 - round(low / step))

    balanced = deploy_openvino.balanced({"a": scales(-6, 10), "b": scales(-1, 10), "c": scales(0, 10), "w": Scales()})
    assert balanced["a"].offset_d == 0
    assert balanced["a"].scale_d == pytest.approx(10 / 127, rel=0.01)
    assert balanced["b"] == scales(-1, 10)
    assert balanced["c"] == scales(0, 10)
    assert balanced["w"] == Scales()


@pytest.mark.parametrize(
    ("layer", "activation", "kind"),
    [("Gemm", "LeakyRelu", "int8"), ("Gemm", "Relu", "uint8"), ("Conv", "LeakyRelu", "uint8")],
)
def test_matrix_products_read_no_zero_point(layer: str, activation: str, kind: str) -> None:
    """A range that reaches little below zero is symmetric in front of a matrix product, where a zero point costs a
    step; convolutions keep it, and what begins at zero has all the bytes above."""
    draft = Draft()
    size = ["batch", 8] if layer == "Gemm" else ["batch", 8, 6, 6]
    tensor = "x"
    for name in ("one", "two"):
        tensor = draft.linear(tensor, name, 8, 8) if layer == "Gemm" else draft.conv(tensor, name, 8, 8)
        tensor = draft.add(activation, [tensor], f"{name}.act")
    draft.nodes[-1].output[0] = "y"
    read = types(deployed(of(draft.model({"x": size}, {"y": size}))))
    assert [str(dtype) for tensor, dtype in read.items() if tensor != "x"] == [kind]


def test_signed_and_unsigned_bytes_side_by_side() -> None:
    """What has no offset is signed, what a ReLU gives is unsigned; trained scales stay as they are."""
    draft = Draft()
    x = draft.add("Relu", [draft.conv("x", "one", 4, 4)], "relu")
    draft.conv(x, "two", 4, 4)
    draft.nodes[-1].output[0] = "y"
    network = of(draft.model({"x": ["batch", 4, 8, 8]}, {"y": ["batch", 4, 8, 8]}))
    assert sorted(str(kind) for kind in types(deployed(network)).values()) == ["int8", "uint8"]
    assert {str(kind) for kind in types(deployed(network, learned=True)).values()} == {"uint8"}


def test_what_takes_floats_gets_floats() -> None:
    """A convolution's output is quantized for the next layer and an Add, not for other operators nor the caller."""
    draft = Draft()
    conv = draft.conv("x", "one", 4, 4)
    added = draft.add("Add", [draft.conv(conv, "two", 4, 4), conv], "add")
    draft.add("Sigmoid", [draft.conv(added, "three", 4, 4)], "act", outputs=["y"])
    draft.add("Identity", [draft.conv(added, "four", 4, 4)], "give", outputs=["z"])
    network = of(draft.model({"x": ["batch", 4, 8, 8]}, {name: ["batch", 4, 8, 8] for name in "yz"}))
    assert set(types(deployed(network))) == {"x", "one_out", "two_out", "add_out"}


def test_a_trained_range_that_is_left_out_still_clips() -> None:
    """In training a ReLU6 goes where the range behind it ends at 0 and 6: a float operator reads what lies in it."""
    draft = Draft()
    draft.add("Sigmoid", [draft.conv("x", "one", 4, 4)], "act", outputs=["y"])
    network = of(draft.model({"x": ["batch", 4, 8, 8]}, {"y": ["batch", 4, 8, 8]}))
    keys = [key for site in network.sites.activations if site.tensor == "one_out" for key in site.keys]
    half = {key: Scales(scale_d=0.5 / 255, offset_d=-128) for key in keys}
    network = replace(network, record={**network.record, **half})
    (trained,) = run(deployed(network, learned=True), network.feed)
    (calibrated,) = run(deployed(network), network.feed)
    assert keys
    assert "one_out" not in types(deployed(network, learned=True))
    assert (trained.min(), trained.max()) == pytest.approx((0.5, 1 / (1 + np.exp(-0.5))), abs=1e-5)
    assert calibrated.min() < 0.4
    assert calibrated.max() > 0.7


@pytest.mark.parametrize("name", sorted(onnx_networks.NETWORKS))
def test_its_values_are_those_of_its_record(name: str) -> None:
    """The file gives what the float simulation of the same places and scales gives."""
    network = quantized(name)
    fitted = narrow_weights.fitted(network.graph, network.sites, network.record)
    sites = deploy_openvino.sites_of(network.graph, network.sites)
    simulated = fake_quant(network.graph, sites, deploy_openvino.record_of(network.graph, sites, fitted.record))
    for first, other in zip(run(deployed(network), network.feed), run(simulated, network.feed), strict=True):
        assert np.abs(first.astype(np.float64) - other).max() <= 0.05 * np.abs(other).max()


@needs_openvino
def test_one_place_of_a_sequence_keeps_its_rank(tmp_path: Path) -> None:
    """``x[:, -1]`` is written without a scalar index, for which OpenVINO gave [1, batch, classes] (a GPT)."""
    openvino_model = pytest.importorskip("qbench.quant.artifacts.openvino_model")
    draft = Draft()
    product = draft.add("MatMul", ["x", draft.weight("w", 8, 6)], "product")
    draft.add("Gather", [product, draft.constant("last", np.array(-1, np.int64))], "last_place", outputs=["y"], axis=1)
    network = of(draft.model({"x": ["batch", 4, 8]}, {"y": ["batch", 6]}))
    model = deployed(network)
    assert [model.constant(node.input[1]).shape for node in model.nodes if node.op_type == "Gather"] == [(1,)]
    model.save(tmp_path / "int8.onnx")
    x = np.random.default_rng(1).normal(size=(3, 4, 8)).astype(np.float32)
    (expected,) = run(model, {"x": x})
    result = openvino_model.run(openvino_model.compile_file(tmp_path / "int8.onnx"), (x,))
    assert result.shape == expected.shape == (3, 6)
    assert np.abs(result - expected).max() < 0.05 * np.abs(expected).max()


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@needs_openvino
def test_pixels_are_repeated_as_bytes(mode: str, tmp_path: Path) -> None:
    """A nearest Resize before a convolution moves bytes, a quarter of the memory; one that mixes pixels has floats."""
    draft = Draft()
    small = draft.add("LeakyRelu", [draft.conv("x", "one", 4, 4)], "one_act")
    twice = draft.constant("twice", np.float32([1, 1, 2, 2]))
    draft.conv(draft.add("Resize", [small, "", twice], "large", mode=mode), "two", 4, 4)
    draft.nodes[-1].output[0] = "y"
    network = of(draft.model({"x": ["batch", 4, 8, 8]}, {"y": [None] * 4}))
    model = deployed(network)
    assert set(types(model)) == {"x", "large_out"} | ({"one_act_out"} if mode == "nearest" else set())
    model.save(tmp_path / "int8.onnx")
    (expected,) = run(model, network.feed)
    answer = openvino_model.run(openvino_model.compile_file(tmp_path / "int8.onnx"), tuple(network.feed.values()))
    assert np.abs(answer - expected).max() < 0.05 * np.abs(expected).max()


@pytest.mark.parametrize("height", [6, "height"])
@needs_openvino
def test_rows_that_are_gathered_by_windows_load(height: int | str, tmp_path: Path) -> None:
    """Places of two dimensions are written as a list and a Reshape: OpenVINO did not load the file (HaloNet's
    attention), whose convolution has no bias."""
    draft = Draft()
    rows = draft.conv("x", "one", 3, 8, bias=False)
    places = draft.constant("places", np.array([[0, 1, 2], [2, 3, 4]]))
    draft.conv(draft.add("ReduceMean", [draft.add("Gather", [rows, places], "rows", axis=2)], "mean", axes=[2],
               keepdims=0), "two", 8, 4)  # fmt: skip
    draft.nodes[-1].output[0] = "y"
    model = draft.model({"x": ["batch", 3, 6, height]}, {"y": [None] * 4}, opset=17)
    inputs = (np.random.default_rng(0).standard_normal((8, 3, 6, 6)).astype(np.float32),)
    chosen = static.choose_scales(onnx_networks.save(model, tmp_path), Recipe(), inputs, lambda *_: None)
    deploy_model.write(chosen.graph, chosen.sites, chosen.record, tmp_path / "int8.onnx", runtime="openvino")
    (expected,) = run(fake_quant(chosen.graph, chosen.sites, chosen.record), {"x": inputs[0]})
    outputs = openvino_model.run(openvino_model.compile_file(tmp_path / "int8.onnx"), inputs)
    assert outputs.shape == expected.shape == (8, 4, 3, 6)
    assert 10 * np.log10((expected**2).sum() / ((outputs - expected) ** 2).sum()) > 25


@pytest.mark.parametrize(
    ("shape", "axis", "expected"),
    [
        (("batch", 8, 6, 6), 2, [0, 0, 2, 3, 6]),
        (("batch", 8, 6, "width"), -2, [0, 0, 2, 3, -1]),
        (("batch", 8), 0, [2, 3, 8]),
        (("batch", "height", "width"), 0, None),
        (None, 0, None),
    ],
)
def test_a_gathered_axis_gets_the_dimensions_of_its_places(shape, axis: int, expected: list[int] | None) -> None:
    """Sizes before it are copied, one behind it may be open."""
    actual = deploy_openvino._shape_of_places(shape, (2, 3), axis)
    assert (None if actual is None else actual.tolist()) == expected


class Biased(Draft):
    """Its biases are as large as the sums that they are added to."""

    def bias(self, name: str, size: Any) -> str:
        return self.constant(name, self.rng.normal(size=size).astype(np.float32))


def bias_beside_the_batch_size() -> Draft:
    """Two convolutions, and a token that is repeated for each example behind them."""
    draft = Biased()
    tensor = draft.conv(draft.conv("x", "one", 4, 8), "two", 8, 4)
    batch = draft.add("Shape", ["x"], "batch", start=0, end=1)
    sizes = draft.add("Concat", [batch, draft.constant("others", np.array([4, 1, 8]))], "sizes", axis=0)
    tokens = draft.add("Expand", [draft.weight("token", 1, 4, 1, 8), sizes], "tokens")
    draft.add("Concat", [tensor, tokens], "join", outputs=["y"], axis=2)
    return draft


def lstm_behind_a_pool() -> Draft:
    """A CRNN: convolution, pool over the height, columns as steps of an LSTM, whose outputs a product reads."""
    draft = Biased()
    tensor = draft.conv("x", "one", 4, 8)
    tensor = draft.add("MaxPool", [draft.conv(tensor, "two", 8, 8)], "pool", kernel_shape=[8, 1])
    tensor = draft.add("Squeeze", [tensor, draft.constant("height", np.array([2]))], "columns")
    tensor = draft.add("Transpose", [tensor], "steps", perm=[2, 0, 1])
    weights = [
        draft.weight("w", 1, 24, 8),
        draft.weight("r", 1, 24, 6),
        draft.bias("b", (1, 48)),
    ]
    draft.add("LSTM", [tensor, *weights], "lstm", outputs=["y"], hidden_size=6)
    return draft


def read_by_two(kind: str, group: int = 1) -> Draft:
    """A convolution without a bias that another convolution reads, as bytes, and an operator on floats."""
    draft = Biased()
    if kind == "Conv":
        tensor = draft.conv("x", "one", 4, 4, group=group, bias=False)
    else:
        weight = draft.weight("one.weight", 4, 4 // group, 3, 3)
        tensor = draft.add(kind, ["x", weight], "one", kernel_shape=[3, 3], pads=[1] * 4, group=group)
    sides = [draft.conv(tensor, "two", 4, 4), draft.add("Sigmoid", [tensor], "act")]
    draft.add("Concat", sides, "join", outputs=["y"], axis=2)
    return draft


def product_read_by_two(kind: str) -> Draft:
    """A product without a bias; another reads it behind the addition of a constant, as bytes, an operator as floats."""
    draft = Draft()
    rows = draft.add("Reshape", ["x", draft.constant("sizes", np.array([-1, 8]))], "rows")
    tensor = draft.add(kind, [rows, draft.weight("one.weight", 8, 8)], "one")
    moved = draft.add("Add", [tensor, draft.constant("shift", np.linspace(1, 3, 8, dtype=np.float32))], "moved")
    behind = draft.add("MatMul", [moved, draft.weight("two.weight", 8, 8)], "two")
    added = draft.add("Add", [behind, draft.add("Sigmoid", [tensor], "act")], "sum")
    draft.add("Reshape", [added, draft.constant("like", np.array([-1, 4, 8, 8]))], "last", outputs=["y"])
    return draft


def extreme(kind: str, *axes: int) -> Draft:
    """A convolution of the largest or smallest values of a tensor."""
    draft = Draft()
    tensor = draft.add(kind, ["x"], "extreme", **({"axes": axes, "keepdims": 1} if axes else {}))
    draft.conv(tensor, "conv", 1 if 1 in axes else 4, 4)
    draft.nodes[-1].output[0] = "y"
    return draft


def signed_concat(*, quantized: bool) -> Draft:
    """A convolution of two tensors side by side, of values on both sides of zero."""
    draft = Draft()
    sides = [draft.conv("x", name, 4, 4, bias=False) if quantized else "x" for name in ("one", "two")]
    draft.conv(draft.add("Concat", sides, "join", axis=1), "last", 8, 4)
    draft.nodes[-1].output[0] = "y"
    return draft


WRONG_ELSEWHERE = {
    "class token": bias_beside_the_batch_size,
    "LSTM": lstm_behind_a_pool,
    "no bias": lambda: read_by_two("Conv"),
    "no bias, depthwise": lambda: read_by_two("Conv", group=4),
    "no bias, transposed": lambda: read_by_two("ConvTranspose"),
    "no bias, transposed, groups": lambda: read_by_two("ConvTranspose", group=2),
    "product without a bias": lambda: product_read_by_two("MatMul"),
    "Gemm without a bias": lambda: product_read_by_two("Gemm"),
    "largest of a plane": lambda: extreme("ReduceMax", 2, 3),
    "largest of the channels": lambda: extreme("ReduceMax", 1),
    "smallest of the channels": lambda: extreme("ReduceMin", 1),
    "GlobalMaxPool": lambda: extreme("GlobalMaxPool"),
    "signed Concat": lambda: signed_concat(quantized=False),
    "signed Concat of convolutions": lambda: signed_concat(quantized=True),
}


@pytest.mark.parametrize("name", WRONG_ELSEWHERE)
@needs_openvino
def test_openvino_gives_what_onnx_runtime_gives_of_its_file(name: str, tmp_path: Path) -> None:
    """It gave others (SQNR 0 to 16 dB) where a file was written as for ONNX Runtime."""
    openvino_model = pytest.importorskip("qbench.quant.artifacts.openvino_model")
    draft = WRONG_ELSEWHERE[name]()
    network = of(draft.model({"x": ["batch", 4, 8, 8]}, {"y": [None] * 4}))
    model = deployed(network)
    model.save(tmp_path / "int8.onnx")
    (expected,) = run(model, network.feed)
    result = openvino_model.run(openvino_model.compile_file(tmp_path / "int8.onnx"), tuple(network.feed.values()))
    noise = np.square(result - expected, dtype=np.float64).mean() / np.square(expected, dtype=np.float64).mean()
    assert -10 * np.log10(noise) > 30


@pytest.mark.parametrize(("activation", "kind"), [("Elu", "int8"), ("Relu", "uint8")])
@needs_openvino
def test_a_product_of_a_token_beside_signed_values_loads(activation: str, kind: str, tmp_path: Path) -> None:
    """OpenVINO does not load constant bytes with a zero point in front of a product: such a range is symmetric."""
    openvino_model = pytest.importorskip("qbench.quant.artifacts.openvino_model")
    draft = Draft()
    token = draft.constant("token", np.full((2, 1, 8), 0.3, np.float32))
    tokens = draft.add("Concat", [draft.add(activation, ["x"], "act"), token], "join", axis=1)
    draft.add("MatMul", [tokens, draft.weight("weight", 8, 8)], "product", outputs=["y"])
    network = of(draft.model({"x": [2, 8, 8]}, {"y": [2, 9, 8]}), batch=2)
    model = deployed(network)
    model.save(tmp_path / "int8.onnx")
    result = openvino_model.run(openvino_model.compile_file(tmp_path / "int8.onnx"), tuple(network.feed.values()))
    np.testing.assert_allclose(result, run(model, network.feed)[0], atol=1e-4)
    assert str(types(model)["join_out"]) == kind


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin"])
@pytest.mark.parametrize(("shape", "axes"), [((6,), [1]), ((3, 2), [1, 2]), ((3, 2), [-3, -2])])
@needs_openvino
def test_what_is_reduced_between_products_keeps_its_scales(
    shape: tuple[int, ...], axes: list[int], kind: str, opset: int, tmp_path: Path
) -> None:
    """Channels of unlike scales are reduced over tokens and quantized: OpenVINO gives what the simulation gives."""
    draft = Draft()
    spread = np.geomspace(0.1, 10, 16, dtype=np.float32)
    weight = draft.constant("one.weight", draft.rng.standard_normal((8, 16)).astype(np.float32) * spread)
    wide = draft.add("MatMul", ["x", weight], "one")
    if kind == "ReduceSum" or opset >= 18:
        reduced = draft.add(kind, [wide, draft.constant("axes", np.array(axes))], "reduced", keepdims=0)
    else:
        reduced = draft.add(kind, [wide], "reduced", axes=axes, keepdims=0)
    draft.add("MatMul", [reduced, draft.weight("two.weight", 16, 5)], "two", outputs=["y"])
    model = draft.model({"x": ["batch", *shape, 8]}, {"y": ["batch", 5]}, opset=opset)
    inputs = onnx_networks.random_inputs(model, 32)
    file = onnx_networks.save(model, tmp_path)
    scaled = static.choose_scales(file, Recipe(), inputs, lambda *_: None)  # a scale for each channel
    deploy_model.write(scaled.graph, scaled.sites, scaled.record, tmp_path / "int8.onnx", runtime="openvino")
    (expected,) = run(fake_quant(scaled.graph, scaled.sites, scaled.record), {"x": inputs[0]})
    outputs = openvino_model.run(openvino_model.compile_file(tmp_path / "int8.onnx"), inputs)
    assert outputs.shape == expected.shape
    assert 10 * np.log10((expected**2).sum() / ((outputs - expected) ** 2).sum()) > 20


def pooled(channels: int, activation: str, **attributes: Any) -> Quantized:
    """A convolution, a pool of what it gives, and a convolution of that."""
    draft = Draft()
    x = draft.add(activation, [draft.conv("x", "first", 4, channels, 3)], "act")
    x = draft.add("AveragePool", [x], "pool", **attributes)
    return of(
        draft.model({"x": ["batch", 4, 16, 16]}, {draft.conv(x, "last", channels, 4, 1): ["batch", 4, None, None]})
    )


@needs_openvino
@pytest.mark.parametrize("activation", ["LeakyRelu", "Relu"])
@pytest.mark.parametrize("counted", [0, 1])
def test_a_pool_that_counts_its_padding_counts_zeros(tmp_path: Path, activation: str, counted: int) -> None:
    """Where zero is not the byte 0 OpenVINO would pad with something else: the pool then takes floats. Its outputs are
    those of a simulation."""
    network = pooled(8, activation, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=counted)
    network = replace(network, record=narrow_steps(network.graph, network.sites, network.record))
    file = tmp_path / "model.onnx"
    deploy_model.write(network.graph, network.sites, network.record, file, runtime="openvino")
    executed = openvino_model.run(openvino_model.compile_file(file), tuple(network.feed.values()))
    simulated = run(fake_quant(network.graph, network.sites, network.record), network.feed)[0]
    assert measure_sqnr(simulated, executed) > 25
    model = Graph.load(file)
    (pool,) = (node for node in model.nodes if node.op_type == "AveragePool")
    reads_bytes = model.maker(pool.input[0]).op_type == "DequantizeLinear"
    assert reads_bytes == (not counted or activation == "Relu")


@needs_openvino
@pytest.mark.parametrize("activation", ["LeakyRelu", "Relu"])
@pytest.mark.parametrize(
    ("channels", "window", "reads_bytes"),
    [(3, 8, False), (15, 8, False), (3, 4, True), (15, 4, True), (16, 8, True), (16, 16, True)],
)
def test_a_pool_of_few_channels_and_a_large_window_takes_floats(
    tmp_path: Path, channels: int, window: int, reads_bytes: bool, activation: str
) -> None:
    """With AVX2 alone OpenVINO has no kernel for their bytes, or a wrong one for one example. Each example by itself
    gives what is simulated."""
    network = pooled(channels, activation, kernel_shape=[window] * 2, strides=[window] * 2)
    network = replace(network, record=narrow_steps(network.graph, network.sites, network.record))
    file = tmp_path / "model.onnx"
    deploy_model.write(network.graph, network.sites, network.record, file, runtime="openvino")
    compiled, (x,) = openvino_model.compile_file(file), network.feed.values()
    executed = np.concatenate([openvino_model.run(compiled, (x[i : i + 1],)) for i in range(len(x))])
    assert measure_sqnr(run(fake_quant(network.graph, network.sites, network.record), network.feed)[0], executed) > 25
    model = Graph.load(file)
    (pool,) = (node for node in model.nodes if node.op_type == "AveragePool")
    assert (model.maker(pool.input[0]).op_type == "DequantizeLinear") == reads_bytes


# --- how single nodes are written -------------------------------------------------------------------------------------


def changed(
    change: Any, *lines: str, inputs: str = "float[n,4,8] x", output: str = "float[n,a,b] y", **held: Any
) -> Graph:
    """A graph after one of the changes."""
    text = (
        f'<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\nnet ({inputs}) => ({output}) {{\n'
        + "\n".join(lines)
        + "\n}"
    )
    network = graph(text, held)
    change(network)
    return network


def kinds(network: Graph) -> list[str]:
    return [node.op_type for node in network.nodes]


@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin", "GlobalMaxPool"])
def test_an_extreme_is_read_twice(kind: str) -> None:
    """By a Max of it and itself, under the old name."""
    network = changed(deploy_openvino.read_extremes_twice, f"[e] e = {kind} (x)", "[r] y = Relu (e)")
    assert kinds(network) == [kind, "Max", "Relu"]
    first, twice, _ = network.nodes
    assert list(twice.input) == [first.output[0]] * 2
    assert twice.output[0] == "e"


@pytest.mark.parametrize("line", ["[e] e = ReduceMean (x)", "[e] e = own.ReduceMax (x)", "[e] e = MaxPool (x)"])
def test_other_reductions_are_read_as_they_are(line: str) -> None:
    """A mean is no value of its own, an operator of another domain is not known."""
    assert len(changed(deploy_openvino.read_extremes_twice, line, "[r] y = Relu (e)").nodes) == 2


@pytest.mark.parametrize(
    ("line", "index", "kind", "dimensions"),
    [
        ("[g] y = Gather (x, i)", np.int64(1), "Squeeze", [0]),
        ("[g] y = Gather <axis: int = 2> (x, i)", np.int64(1), "Squeeze", [2]),
        ("[g] y = Gather <axis: int = 1> (x, i)", np.int64([[0, 1]]), "Reshape", [0, 1, 2, 8]),
        ("[g] y = Gather (x, i)", np.int64([[0, 1]]), "Reshape", [1, 2, 4, 8]),
    ],
)
def test_places_are_gathered_as_a_list(line: str, index: Any, kind: str, dimensions: list[int]) -> None:
    """And take their form behind it; the output keeps its name."""
    network = changed(deploy_openvino.keep_rank, line, i=index)
    gather, behind = network.nodes
    assert network.constant(gather.input[1]).tolist() == index.reshape(-1).tolist()
    assert (behind.op_type, behind.output[0], behind.input[0]) == (kind, "y", gather.output[0])
    assert network.constant(behind.input[1]).tolist() == dimensions


@pytest.mark.parametrize(
    ("line", "index", "inputs"),
    [
        ("[g] y = Gather (x, i)", np.int64([1, 2]), "float[n,4,8] x"),
        ("[g] y = own.Gather (x, i)", np.int64(1), "float[n,4,8] x"),
        ("[g] y = GatherElements (x, i)", np.int64([[[0]]]), "float[n,4,8] x"),
        ("[g] y = Gather (x, k)", np.int64(1), "float[n,4,8] x, int64 k"),
        ("[g] y = Gather (x, i)", np.int64([[0, 1]]), "float[n,a,b] x"),
    ],
)
def test_other_places_are_gathered_as_they_are(line: str, index: Any, inputs: str) -> None:
    """A list, one that is computed, and where sizes behind it are open."""
    network = changed(deploy_openvino.keep_rank, line, "[k] z = Identity (i)", inputs=inputs, i=index)
    assert len(network.nodes) == 2


@pytest.mark.parametrize(
    ("line", "axes"),
    [
        ("[r] y = ReduceMean <axes: ints = [1], keepdims: int = 0> (x)", [1]),
        ("[r] y = ReduceMax <axes: ints = [-1, 0], keepdims: int = 0> (x)", [-1, 0]),
        ("[r] y = ReduceSum <keepdims: int = 0> (x, i)", [1, 2]),
    ],
)
def test_a_reduction_keeps_its_dimensions_before_they_go(line: str, axes: list[int]) -> None:
    """Wherever its axes stand."""
    network = changed(deploy_openvino.keep_reduced, line, i=np.int64([1, 2]))
    reduce, squeeze = network.nodes
    assert [attr.i for attr in reduce.attribute if attr.name == "keepdims"] == [1]
    assert (squeeze.op_type, squeeze.input[0], squeeze.output[0]) == ("Squeeze", reduce.output[0], "y")
    assert network.constant(squeeze.input[1]).tolist() == axes


@pytest.mark.parametrize(
    "line",
    [
        "[r] y = ReduceMean <axes: ints = [1]> (x)",
        "[r] y = ReduceMean <axes: ints = [1], keepdims: int = 1> (x)",
        "[r] y = ReduceMean <keepdims: int = 0> (x)",
        "[r] y = ReduceSum <keepdims: int = 0> (x, k)",
        "[r] y = ReduceSum <keepdims: int = 0> (x, i)",
        "[r] y = ReduceProd <axes: ints = [1], keepdims: int = 0> (x)",
        "[r] y = own.ReduceMean <axes: ints = [1], keepdims: int = 0> (x)",
    ],
)
def test_other_reductions_keep_their_form(line: str) -> None:
    """Those that keep dimensions, and those whose axes are computed or not named."""
    inputs = "float[n,4,8] x, int64[a] k"
    assert len(changed(deploy_openvino.keep_reduced, line, inputs=inputs, i=np.zeros(0, np.int64)).nodes) == 1


IMAGE = {"inputs": "float[n,4,8,8] x", "output": "float[n,a,b,c] y"}
SCALED = "[w] w = DequantizeLinear (q, s, z)"
BYTES = {"q": np.ones((6, 2, 1, 1), np.int8), "s": np.float32(0.5), "z": np.int8(0)}


def added(network: Graph, name: str = "y") -> Any:
    """What is added to make a tensor; None for nothing."""
    maker = network.maker(name)
    return network.constant(maker.input[1]) if maker is not None and maker.op_type == "Add" else None


@pytest.mark.parametrize("bias", [np.arange(6, dtype=np.float32), np.zeros(6, np.float32)])
def test_the_bias_of_a_convolution_is_added_behind_it(bias: Any) -> None:
    """For each channel; one of zeros is tiny."""
    network = changed(
        deploy_openvino.own_biases, "[c] y = Conv <group: int = 2> (x, w, b)", w=(6, 2, 1, 1), b=bias, **IMAGE
    )
    assert kinds(network) == ["Conv", "Add"]
    assert len(network.node("c").input) == 2
    assert added(network).shape == (1, 6, 1, 1)
    expected = bias if bias.any() else np.full(6, deploy_openvino.TINY, np.float32)
    np.testing.assert_array_equal(added(network).reshape(-1), expected)
    assert "b" not in network.constants


def test_the_steps_of_a_bias_are_added_as_floats() -> None:
    """By its scale."""
    network = changed(
        deploy_openvino.own_biases, SCALED, "[b] b = DequantizeLinear (p, t, u)",
        "[c] y = Conv <group: int = 2> (x, w, b)", p=np.int32([1, 2, 3, 4, 5, -6]), t=np.float32(0.25), u=np.int32(0),
        **BYTES, **IMAGE,
    )  # fmt: skip
    assert added(network).reshape(-1).tolist() == [0.25, 0.5, 0.75, 1.0, 1.25, -1.5]


@pytest.mark.parametrize(
    ("line", "channels"),
    [
        ("[c] t = Conv <group: int = 2> (x, w)", 6),
        ("[c] t = Conv <group: int = 2> (x, w, )", 6),
        ("[c] t = ConvTranspose <group: int = 3> (r, w)", 6),
    ],
)
@pytest.mark.parametrize("several", [True, False])
def test_sums_on_bytes_that_several_read_have_a_tiny_bias(line: str, channels: int, several: bool) -> None:
    """Of each output channel; the caller reads, too. What one node reads has none."""
    lines = ["[r] r = Concat <axis: int = 1> (x, h)", SCALED, line, "[y] y = Relu (t)"]
    held = {"h": (1, 2, 8, 8), **BYTES}
    output = "float[n,a,b,c] y, float[n,d,e,f] t" if several else "float[n,a,b,c] y"
    network = changed(deploy_openvino.own_biases, *lines, inputs=IMAGE["inputs"], output=output, **held)
    value = added(network, "t")
    assert (value is not None) == several
    if several:
        assert value.shape == (1, channels, 1, 1)
        assert set(value.reshape(-1).tolist()) == {float(np.float32(deploy_openvino.TINY))}


@pytest.mark.parametrize(
    ("line", "weight", "columns"),
    [
        ("[c] t = MatMul (x, w)", (8, 3), 3),
        ("[c] t = Gemm (x, w)", (8, 3), 3),
        ("[c] t = Gemm <transB: int = 1> (x, w)", (3, 8), 3),
        ("[c] t = MatMul (x, w)", (8,), None),
        ("[c] t = Gemm (x, w, h)", (8, 3), None),
        ("[c] t = own.MatMul (x, w)", (8, 3), None),
        ("[c] t = Mul (x, w)", (8, 3), None),
    ],
)
def test_products_on_bytes_that_several_read_have_a_tiny_bias(
    line: str, weight: tuple[int, ...], columns: int | None
) -> None:
    """Of each column; not those that have a bias, or no matrix."""
    held = {"q": np.ones(weight, np.int8), "s": np.float32(0.5), "z": np.int8(0), "h": (3,)}
    lines = [SCALED, line, "[y] y = Relu (t)", "[v] v = Sigmoid (t)"]
    network = changed(
        deploy_openvino.own_biases, *lines, inputs="float[n,8] x", output="float[n,a] y, float[n,b] v", **held
    )
    value = added(network, "t")
    assert (None if value is None else value.shape) == (None if columns is None else (columns,))
    once = changed(deploy_openvino.own_biases, *lines[:3], inputs="float[n,8] x", output="float[n,a] y", **held)
    assert added(once, "t") is None


def test_sums_of_floats_have_no_tiny_bias() -> None:
    """Nor of weights or a bias that is computed."""
    lines = ["[c] t = Conv (x, w)", "[y] y = Relu (t)", "[v] v = Sigmoid (t)"]
    output = "float[n,a,b,c] y, float[n,d,e,f] v"
    network = changed(deploy_openvino.own_biases, *lines, inputs=IMAGE["inputs"], output=output, w=(6, 4, 1, 1))
    assert added(network, "t") is None
    lines[0] = "[c] t = MatMul (x, w)"
    network = changed(deploy_openvino.own_biases, *lines, inputs=IMAGE["inputs"], output=output, w=(8, 4))
    assert added(network, "t") is None
    inputs = f"{IMAGE['inputs']}, float[6,4,1,1] w, float[6] b"
    for line in ("[c] t = Conv (x, w)", "[c] t = Conv (x, k, b)"):
        network = changed(deploy_openvino.own_biases, line, *lines[1:], inputs=inputs, output=output, k=(6, 4, 1, 1))
        assert added(network, "t") is None


@pytest.mark.parametrize(
    ("low", "high", "balanced"), [(-5.0, 10.0, True), (-4.9, 10.0, False), (-10.0, 5.0, True), (-10.0, 4.9, False)]
)
def test_a_range_is_symmetric_from_a_half_on(low: float, high: float, balanced: bool) -> None:
    """Of its longer side, which decides the step: 128 below zero, 127 above."""
    step = 0.1
    scales = Scales(scale_d=step, offset_d=-128 - round(low / step))
    reach = ((scales.offset_d + 128) * step, (127 - scales.offset_d) * step)
    actual = deploy_openvino._symmetric(scales)
    assert (actual != scales) == (min(reach) >= 0.5 * max(reach))
    wide = deploy_openvino._around_zero(scales)
    assert wide.scale_d == pytest.approx(max(reach[0] / 128, reach[1] / 127))
    assert wide.offset_d == 0
    for bare in (Scales(), Scales(scale_d=0.5), Scales(offset_d=3)):
        assert deploy_openvino._around_zero(bare) == bare
        assert deploy_openvino._sides(bare) == (0, 0)


@pytest.mark.parametrize(("keys", "step", "coarse"), [(128, 1 / 256, False), (129, 1 / 256, True), (512, None, False)])
def test_probabilities_need_two_steps_in_each_place(keys: int, step: float | None, coarse: bool) -> None:
    """Of an even row; where no step is known none is too coarse."""
    product = attention.Product(name="p", keys=keys, sources={})
    record = {} if step is None else {"p:0": Scales(scale_d=step, offset_d=-128)}
    assert deploy_openvino._is_coarse(product, record) == coarse


# --- whose ranges are symmetric, and who reads bytes ------------------------------------------------------------------


def placed(**tensors: list[tuple[str, int]]) -> Sites:
    """Sites of these tensors and who reads them; a key is the node's name, or it with the position."""
    return Sites(
        weights=(),
        activations=tuple(
            ActivationSite(
                tensor=tensor, params=ActivationParams(),
                keys={f"{node}:{position}" if position else node: (node, position) for node, position in places},
            )
            for tensor, places in tensors.items()
        ),
    )  # fmt: skip


ONE_SIDED, BOTH_SIDED = Scales(scale_d=0.1, offset_d=-128), Scales(scale_d=0.1, offset_d=-28)


@pytest.mark.parametrize(
    ("keys", "narrow", "sources", "expected"),
    [
        (0, False, {}, {"p": 1.55, "p:1": 1.55}),
        (9, False, {}, {"p:1": 1.55}),  # probabilities begin at 0
        (0, True, {}, {"p": 1.55, "p:1": 3.1}),
        (0, False, {0: ("split", 1.0), 1: ("split", -0.5)}, {"split": 0.8, "p": 0.8, "p:1": 0.4}),
        (0, True, {1: ("split", -0.5)}, {"split": 0.8, "p": 1.55, "p:1": 0.8}),
        (0, True, {0: ("split", 0.25)}, {"split": 0.8, "p": 0.2, "p:1": 3.1}),
    ],
)
def test_what_attention_reads_is_symmetric(
    keys: int, narrow: bool, sources: Any, expected: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the steps of what it comes from, times the number between; keys and values have half the levels where sums
    must fit 16 bits."""
    product = attention.Product(name="p", keys=keys, sources=sources)
    monkeypatch.setattr(attention, "find_products", lambda graph: (product,))
    sites = placed(q=[("p", 0)], k=[("p", 1)], whole=[("split", 0)])
    steps = {"p": 1.55, "p:1": 1.55, "split": 0.8, "other": 1.0}  # of a range of 155 above zero and 100 below
    record = {key: Scales(scale_d=127 / 155 * step, offset_d=-28) for key, step in steps.items()}
    actual = deploy_openvino.of_attention(None, sites, record, narrow=narrow)  # type: ignore[arg-type]
    assert {key: scales.scale_d for key, scales in actual.items()} == pytest.approx(expected)
    assert {scales.offset_d for scales in actual.values()} == {0}


def test_products_read_symmetric_ranges_that_do_not_begin_at_zero() -> None:
    """Those of matrices; of a Concat with a constant, too. Convolutions keep theirs."""
    network = changed(
        lambda graph: None, "[join] t = Concat <axis: int = 1> (x, h)", "[plain] u = Concat <axis: int = 1> (x, x)",
        "[m] a = MatMul (t, w)", "[g] b = Gemm (f, w)", "[c] c = Conv (t, v)", "[n] d = MatMul (u, w)",
        "[y] y = Relu (a)", inputs="float[n,4,8] x, float[n,8] f", h=(1, 1, 8), w=(8, 8), v=(2, 5, 1),
    )  # fmt: skip
    sites = placed(t=[("m", 0)], f=[("g", 0)], x=[("c", 0)], u=[("n", 0)])
    record = dict.fromkeys(("m", "g", "c", "n"), BOTH_SIDED)
    products = deploy_openvino.of_products(network, sites, record)
    assert set(products) == {"m", "g", "n"}
    assert products["m"] == Scales(scale_d=pytest.approx(15.5 / 127), offset_d=0)
    assert deploy_openvino.of_products(network, sites, dict.fromkeys(record, ONE_SIDED)) == {}
    beside = deploy_openvino.beside_constants(network, sites, record)
    assert set(beside) == {"m"}
    assert beside["m"].offset_d == 0
    assert deploy_openvino.beside_constants(network, sites, dict.fromkeys(record, ONE_SIDED)) == {}
    convolution = placed(t=[("c", 0)])
    assert deploy_openvino.beside_constants(network, convolution, record) == {}


@pytest.mark.parametrize(
    ("name", "quantized", "reads"),
    [
        ("conv", [], True),  # a layer with weights
        ("sum", [("sum", 0), ("sum", 1)], True),
        ("sum", [("sum", 0)], False),  # both of them, or none
        ("pool", [("pool", 0)], True),
        ("soft", [("soft", 0)], False),
        ("turn", [("turn", 0)], True),  # hands bytes on to the convolution
        ("turn2", [("turn2", 0)], False),  # to a float operator
        ("join", [("join", 0), ("join", 1), ("conv", 0)], True),
        ("join", [("join", 0), ("join", 1)], False),  # who reads it reads floats
    ],
)
def test_who_computes_on_bytes_or_hands_them_on(name: str, quantized: list[tuple[str, int]], reads: bool) -> None:
    """Layers, sums and pools; what only moves values where the next one does."""
    network = changed(
        lambda graph: None, "[join] j = Concat <axis: int = 1> (x, x)", "[conv] a = Conv (j, w)",
        "[sum] b = Add (a, a)", "[pool] c = MaxPool <kernel_shape: ints = [1]> (b)", "[soft] d = Softmax (c)",
        "[turn] e = Transpose <perm: ints = [0,1,2]> (x)", "[conv2] g = Conv (e, v)",
        "[turn2] h = Transpose <perm: ints = [0,1,2]> (x)", "[act] y = Sigmoid (h)",
        inputs="float[n,4,8] x", w=(4, 8, 1), v=(4, 4, 1),
    )  # fmt: skip
    places = {*quantized, ("conv2", 0)}
    assert deploy_openvino._reads_bytes(network, name, {"conv", "conv2"}, places) == reads


@pytest.mark.parametrize(
    ("channels", "window", "attributes", "reads"),
    [
        (16, [7, 7], {}, True),
        (15, [7, 7], {}, False),
        (15, [6, 8], {}, True),  # 48 places
        (15, [49], {}, False),
        ("c", [7, 7], {}, False),
        ("c", [2, 2], {}, True),
        (None, [7, 7], {}, False),  # no shape is known
        (16, [2], {"pads": [0, 1], "count_include_pad": 1}, False),
        (16, [2], {"pads": [0, 0], "count_include_pad": 1}, True),
        (16, [2], {"pads": [0, 1], "count_include_pad": 0}, True),
        (16, [2], {"pads": [0, 1]}, True),
        (16, [2], {"auto_pad": "SAME_LOWER", "count_include_pad": 1}, False),
        (16, [2], {"auto_pad": "VALID", "count_include_pad": 1}, True),
        (16, [2], {"count_include_pad": 1}, True),
    ],
)
def test_which_pools_take_bytes(channels: Any, window: list[int], attributes: dict[str, Any], reads: bool) -> None:
    """Those of many channels or a small window, and whose padding counts as nothing or as zeros that are the byte 0."""
    pool = onnx.helper.make_node("AveragePool", ["x"], ["y"], name="pool", kernel_shape=window, **attributes)
    shapes = (["n", channels, *[64] * len(window)] if channels else None, None)
    ends = [onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in zip("xy", shapes, strict=True)]
    network = Graph(onnx.helper.make_model(onnx.helper.make_graph([pool], "net", ends[:1], ends[1:])))
    assert deploy_openvino._pools_bytes(network, "pool", BOTH_SIDED) == reads
    assert deploy_openvino._pools_bytes(network, "pool", ONE_SIDED) == (reads or "count_include_pad" in attributes)
    sites = placed(x=[("pool", 0), ("other", 0)])
    network.model.graph.node.add(name="other", op_type="Relu", input=["x"], output=["z"])
    network.reindex()
    left = deploy_openvino.leave_pools_float(network, sites, {"pool": BOTH_SIDED, "other": BOTH_SIDED})
    assert [list(site.keys) for site in left.activations] == [["pool", "other"] if reads else ["other"]]
    alone = deploy_openvino.leave_pools_float(network, placed(x=[("pool", 0)]), {"pool": BOTH_SIDED})
    assert len(alone.activations) == reads


def test_some_of_what_a_tensor_is_read_for_stays_float() -> None:
    """A sum takes bytes of it, a Softmax floats; a tensor that none reads as bytes is no place."""
    network = changed(lambda graph: None, "[sum] s = Add (x, x)", "[soft] y = Softmax (x)")
    sites = placed(x=[("sum", 0), ("sum", 1), ("soft", 0)])
    kept = deploy_openvino.sites_of(network, sites)
    assert [list(site.keys) for site in kept.activations] == [["sum", "sum:1"]]
    assert deploy_openvino.sites_of(network, placed(x=[("soft", 0)])).activations == ()
