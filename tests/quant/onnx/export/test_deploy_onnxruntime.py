"""The deploy model for ONNX Runtime: integer kernels that compute what the fake-quant model simulates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from calibration_models import graph
from onnx.reference import ReferenceEvaluator
from onnx_networks import NETWORKS, Draft
from quantized_networks import Quantized, executed, of, quantized, run

from qbench.errors import BuildError
from qbench.machine import fingerprint
from qbench.quant.onnx.export import integer_weights
from qbench.quant.onnx.export.deploy_onnxruntime import FORMS, _ends, _keep_integers, deploy, form_for
from qbench.quant.onnx.export.fake_quant import fake_quant
from qbench.quant.onnx.graph.graph import Graph

ADDS_IN_16_BITS = form_for() == "U8U8" and "avx2" in fingerprint.isa()


def deployed(network: Quantized, form: Any = None) -> Graph:
    return deploy(network.graph, network.sites, network.record, form=form)


def simulated(network: Quantized) -> Graph:
    return fake_quant(network.graph, network.sites, network.record)


def agree(actual: list[Any], expected: list[Any]) -> None:
    """The values are the same, but for one that lies between two steps and is rounded to the other one, and what that
    leads to."""
    for first, other in zip(actual, expected, strict=True):
        difference = np.abs(first.astype(np.float64) - other)
        largest = float(np.abs(other).max())
        assert difference.max() <= 0.05 * largest
        assert difference.mean() <= 0.002 * largest


@pytest.mark.parametrize(
    ("isa", "form"),
    [
        (("avx2", "fma"), "U8U8"),
        (("avx2", "avx512f", "avx512bw"), "U8U8"),
        ((), "U8U8"),
        (("avx2", "avx_vnni"), "U8S8"),
        (("avx2", "avx512f", "avx512_vnni"), "U8S8"),
        (("asimd",), "S8S8"),
        (("asimd", "asimddp", "i8mm"), "S8S8"),
    ],
)
def test_the_form_follows_the_instruction_sets(isa: tuple[str, ...], form: str) -> None:
    """Signed weights where products are added in 32 bits, unsigned ones on other x86, signed activations on ARM."""
    assert form_for(isa) == form


@pytest.mark.parametrize("offset", [True, False])
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_it_agrees_with_the_fake_quant_model(name: str, offset: bool) -> None:
    """The integer kernels of this machine's form give what the float simulation gives."""
    network = quantized(name, offset=offset)
    agree(run(deployed(network), network.feed), run(simulated(network), network.feed))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["residual_cnn", "depthwise", "mlp", "pools", "volume", "old_style"])
def test_every_form_has_the_same_values(name: str, form: str) -> None:
    """By onnx's own evaluator, which adds in floats, all forms are the fake-quant model."""
    network = quantized(name)
    model = deployed(network, form)
    onnx.checker.check_model(model.model)
    for entry in model.model.opset_import:
        entry.version = 19  # the evaluator has no older DequantizeLinear; nothing else in these networks has changed
    agree(ReferenceEvaluator(model.model).run(None, dict(network.feed)), run(simulated(network), network.feed))


def pairs(count: int = 64) -> Quantized:
    """A Gemm that multiplies 211 by 71 and 171 by 107 again and again: each pair sums to 33278, over 32767."""
    draft = Draft()
    weight = draft.constant("w", np.tile(np.float32([[71], [107]]), (count, 4)))
    draft.add("Gemm", ["x", weight], "fc", outputs=["y"])
    network = of(draft.model({"x": ["batch", 2 * count]}, {"y": ["batch", 4]}))
    record = {"fc": replace(network.record["fc"], scale_d=1.0, offset_d=-128, scale_w=(1.0,))}
    return replace(network, record=record, feed={"x": np.tile(np.float32([211, 171]), (4, count))})


def test_the_chosen_form_does_not_saturate() -> None:
    """64 times 211 * 71 + 171 * 107 is 2129792 on every machine."""
    network = pairs()
    (actual,) = run(deployed(network), network.feed)
    np.testing.assert_array_equal(actual, np.full((4, 4), 64 * 33278))


def test_signed_weights_saturate_without_vnni() -> None:
    """The same in U8S8 stops at 32767 for each pair where products are added in 16 bits, and only there;
    ``session.x64quantprecision`` makes it exact on every CPU."""
    network = pairs()
    (actual,) = run(deployed(network, "U8S8"), network.feed)
    np.testing.assert_array_equal(actual, np.full((4, 4), 64 * (32767 if ADDS_IN_16_BITS else 33278)))
    (precise,) = run(deployed(network, "U8S8"), network.feed, session_x64quantprecision="1")
    np.testing.assert_array_equal(precise, np.full((4, 4), 64 * 33278))


@pytest.mark.parametrize("form", FORMS)
def test_the_types_are_those_of_the_form(form: str) -> None:
    """Activations and weights have the types in the form's name, biases int32, and the integers are the same in all."""
    network = quantized("residual_cnn")
    model = deployed(network, form)
    activation, weight = (np.dtype({"U": np.uint8, "S": np.int8}[kind]) for kind in (form[0], form[2]))
    values = set()
    for node in model.nodes:
        if node.op_type == "QuantizeLinear":
            assert model.constant(node.input[2]).dtype == activation
        elif node.op_type == "DequantizeLinear" and (constant := model.constant(node.input[0])) is not None:
            values.add(constant.dtype)
            zero = model.constant(node.input[2])
            assert set(zero.reshape(-1).tolist()) == {128 if constant.dtype == np.uint8 else 0}
    assert values == {weight, np.dtype(np.int32)}


def test_all_layers_run_on_integer_kernels() -> None:
    """Convolutions, the residual Add, both poolings and the classifier of a residual network have integer kernels."""
    kinds = [node.op_type for node in executed(deployed(quantized("residual_cnn")))]
    assert kinds.count("QLinearConv") == 3
    assert {"QLinearAdd", "QLinearGlobalAveragePool", "QGemm"} <= set(kinds)
    assert not {"Conv", "Gemm", "Add", "Relu", "GlobalAveragePool", "DequantizeLinear"} & set(kinds)


@pytest.mark.parametrize("between", ["Tanh", "Relu"])
def test_a_matrix_product_with_a_bias_runs_on_integers(between: str) -> None:
    """Of two dimensions, too, whether what it gives is quantized next (behind a Relu) or not, and as the last node."""
    draft = Draft()
    x = draft.add("Add", [draft.add("MatMul", ["x", draft.weight("v", 16, 32)], "one"), draft.bias("b", 32)], "bias")
    x = draft.add("MatMul", [draft.add(between, [x], "act"), draft.weight("w", 32, 4)], "two")
    draft.add("Add", [draft.bias("c", 4), x], "last", outputs=["y"])
    network = of(draft.model({"x": ["batch", 16]}, {"y": ["batch", 4]}))
    model = deployed(network)
    kinds = [node.op_type for node in executed(model)]
    assert not {"Gemm", "FusedGemm", "MatMul", "DequantizeLinear"} & set(kinds)
    assert len({"QGemm", "MatMulIntegerToFloat", "QLinearMatMul"} & set(kinds)) > 0
    agree(run(model, network.feed), run(simulated(network), network.feed))


@pytest.mark.parametrize("name", ["residual_cnn", "depthwise"])
def test_relu_and_clip_become_the_range(name: str) -> None:
    """With an offset of -128 nothing negative is left, with a scale of at most 6 / 255 nothing above 6: the Relu or
    Clip goes, and the values stay."""
    network = quantized(name)
    assert {"Relu", "Clip"} & {node.op_type for node in network.graph.nodes}
    assert not {"Relu", "Clip"} & {node.op_type for node in deployed(network).nodes}


def test_symmetric_ranges_clip_integers() -> None:
    """With an offset of 0, Relu and Clip act on the integers behind their layer, so that it still gives integers."""
    network = quantized("depthwise", offset=False)
    model = deployed(network)
    clips = [node for node in model.nodes if node.op_type == "Clip"]
    assert len(clips) == 3
    assert {model.maker(node.input[0]).op_type for node in clips} == {"QuantizeLinear"}
    assert [node.op_type for node in executed(model)].count("QLinearConv") == 4


@pytest.mark.parametrize(
    ("low", "high", "ends"),
    [
        (np.float32(-1), np.float32(6), (-1.0, 6.0)),
        (np.full(1, 2, np.float32), None, (2.0, float("inf"))),
        (None, np.float32(6), (float("-inf"), 6.0)),
        (None, None, (float("-inf"), float("inf"))),
        ("x", np.float32(6), None),
        (np.float32("nan"), np.float32(6), None),
        (np.zeros(2, np.float32), np.float32(6), None),
    ],
)
def test_the_ends_of_a_clip_are_numbers_that_stand_there(low: Any, high: Any, ends: Any) -> None:
    """One that is computed, several, or what is no number are none; one that is left out is no end."""
    draft = Draft()
    named = [
        "" if end is None else end if isinstance(end, str) else draft.constant(f"end{place}", end)
        for place, end in enumerate((low, high))
    ]
    draft.add("Clip", ["x", *named], "clip")
    draft.add("Relu", ["clip_out"], "relu")
    draft.add("Neg", ["relu_out"], "neg", outputs=["y"])
    graph = Graph(draft.model({"x": [1]}, {"y": [1]}))
    clip, relu, neg = (graph.maker(name) for name in ("clip_out", "relu_out", "y"))
    assert (_ends(graph, clip), _ends(graph, relu), _ends(graph, neg)) == (ends, (0.0, float("inf")), None)


def test_a_clip_inside_the_range_is_kept() -> None:
    """A Clip at 6 is not folded into a range that reaches to 12: 8 still gives 6."""
    network = two_gemms("Clip", scale_d=12 / 255)
    (actual,) = run(deployed(network), {"x": np.full((1, 4), 8, np.float32)})
    (expected,) = run(simulated(network), {"x": np.full((1, 4), 8, np.float32)})
    np.testing.assert_allclose(actual, expected, rtol=1e-5)
    assert actual[0, 0] == pytest.approx(6, abs=0.05)


def two_gemms(between: str, *, scale_d: float, outputs: tuple[str, ...] = ()) -> Quantized:
    """Two Gemms that give what they get, with an operator between; the second reads with ``scale_d``."""
    draft = Draft()
    ends = [draft.constant("low", np.float32(0)), draft.constant("high", np.float32(6))] if between == "Clip" else []
    x = draft.add("Gemm", ["x", draft.constant("w", np.eye(4, dtype=np.float32))], "one")
    x = draft.add(between, [x, *ends], "between")
    draft.add("Gemm", [x, draft.constant("v", np.eye(4, dtype=np.float32))], "two", outputs=["y"])
    shapes = {name: ["batch", 4] for name in ("y", *outputs)}
    network = of(draft.model({"x": ["batch", 4]}, shapes))
    record = {name: replace(entry, scale_d=scale_d, offset_d=-128) for name, entry in network.record.items()}
    return replace(network, record=record)


def test_a_relu_that_is_an_output_stays() -> None:
    """The caller gets the Relu's floats; the layer behind it still reads integers of it."""
    network = two_gemms("Relu", scale_d=0.05, outputs=("between_out",))
    model = deployed(network)
    assert model.maker("between_out").op_type == "Relu"
    agree(run(model, network.feed), run(simulated(network), network.feed))


@pytest.mark.parametrize("behind_relu", [False, True])
def test_a_view_that_others_read_stays_float(behind_relu: bool) -> None:
    """Where a Flatten is read quantized (itself, or behind a Relu) and as it is, others get fp32 values of it."""
    draft = Draft()
    flat = draft.add("Flatten", ["x"], "flat")
    draft.linear(draft.add("Relu", [flat], "relu") if behind_relu else flat, "fc", 4, 3)
    draft.nodes[-1].output[0] = "y"
    draft.add("Mul", [flat, draft.constant("one", np.float32(1))], "mul", outputs=["same"])
    network = of(draft.model({"x": ["batch", 2, 2]}, {"y": ["batch", 3], "same": ["batch", 4]}))
    actual, same = run(deployed(network), network.feed)
    np.testing.assert_array_equal(same, network.feed["x"].reshape(-1, 4))
    agree([actual], run(simulated(network), network.feed)[:1])


@pytest.mark.parametrize("kind", ["MaxPool", "Flatten"])
def test_nodes_that_keep_values_run_on_integers_between_two_scales(kind: str) -> None:
    """Where a record has one scale before a MaxPool or Flatten and another behind it, no value changes, and the pooling
    is that of bytes."""
    draft = Draft()
    x = draft.add("Relu", [draft.conv("x", "one", 1, 2)], "relu")
    if kind == "MaxPool":
        x = draft.add("MaxPool", [x], "keep", kernel_shape=[2, 2], strides=[2, 2])
        draft.conv(x, "two", 2, 2)
    else:
        x = draft.add("Flatten", [x], "keep")
        draft.linear(x, "two", 128, 4)
    draft.nodes[-1].output[0] = "y"
    network = of(
        draft.model({"x": ["batch", 1, 8, 8]}, {"y": ["batch", 2, 4, 4] if kind == "MaxPool" else ["batch", 4]})
    )
    assert "keep:0" in network.record
    content = network.record["two"]
    network = replace(network, record={**network.record, "two": replace(content, scale_d=content.scale_d * 1.3)})
    model = deployed(network)
    agree(run(model, network.feed), run(simulated(network), network.feed))
    if kind == "MaxPool":
        pools = [node for node in model.nodes if node.op_type == "MaxPool"]
        assert [model.maker(node.input[0]).op_type for node in pools] == ["QuantizeLinear"]


def joining(*, read_elsewhere: bool = False, **resize: str) -> Quantized:
    """A convolution of an enlarged picture beside another, both of an operator that gives floats."""
    draft = Draft()
    small = draft.add("Elu", [draft.add("AveragePool", ["x"], "pool", kernel_shape=[2, 2], strides=[2, 2])], "small")
    scales = [
        draft.constant("roi", np.float32([0, 0, 0, 0, 1, 1, 1, 1])),
        draft.constant("twice", np.float32([1, 1, 2, 2])),
    ]
    large = draft.add("Resize", [small, *scales], "large", **resize)
    joined = draft.add("Concat", [large, draft.add("Elu", ["x"], "side")], "join", axis=1)
    if read_elsewhere:
        draft.add("Identity", [joined], "same", outputs=["same"])
    draft.conv(joined, "last", 8, 4)
    draft.nodes[-1].output[0] = "y"
    outputs = {"y": [None] * 4} | ({"same": [None] * 4} if read_elsewhere else {})
    network = of(draft.model({"x": ["batch", 4, 8, 8]}, outputs))
    last = tuple(site for site in network.sites.activations if ("last", 0) in site.keys.values())
    return replace(network, sites=replace(network.sites, activations=last))


def quantized_tensors(model: Graph) -> set[str]:
    return {node.input[0] for node in model.nodes if node.op_type == "QuantizeLinear"}


def test_floats_are_joined_and_repeated_as_bytes() -> None:
    """What a convolution reads of a Concat is quantized before that, and before a Resize that repeats pixels: the same
    values, a quarter of the bytes."""
    network = joining()
    model = deployed(network)
    assert quantized_tensors(model) == {"small_out", "side_out", "large_out", "join_out"}
    agree(run(model, network.feed), run(simulated(network), network.feed))
    kinds = [node.op_type for node in executed(model)]
    assert "QLinearConcat" in kinds
    assert kinds.index("QuantizeLinear") < kinds.index("Resize")
    assert "Concat" not in kinds


def test_what_changes_values_or_is_read_elsewhere_is_joined_in_float() -> None:
    """A Resize that mixes pixels or adds others is quantized behind; floats that the caller gets are joined as floats,
    and OpenVINO's file has its own places."""
    for resize in ({"mode": "linear"}, {"coordinate_transformation_mode": "tf_crop_and_resize"}):
        assert quantized_tensors(deployed(joining(**resize))) == {"large_out", "side_out", "join_out"}
    network = joining(read_elsewhere=True)
    assert quantized_tensors(deployed(network)) == {"join_out"}
    signed = deploy(network.graph, network.sites, network.record, signed=True)
    assert quantized_tensors(signed) == {"join_out"}
    assert quantized_tensors(deploy(joining().graph, joining().sites, joining().record, signed=True)) == {"join_out"}


def test_weights_take_a_quarter_of_the_bytes() -> None:
    """The weights of a layer are bytes in the file, and their floats are gone."""
    draft = Draft()
    draft.linear("x", "fc", 256, 256)
    draft.nodes[-1].output[0] = "y"
    network = of(draft.model({"x": ["batch", 256]}, {"y": ["batch", 256]}))
    assert deployed(network).byte_size() < 0.3 * network.graph.byte_size()


@pytest.mark.parametrize(("again", "weights"), [("first_out", 1), ("image", 2)])
def test_a_module_that_is_called_again_is_in_the_file_once(again: str, weights: int) -> None:
    """On another input; two calls on one input would be one to a runtime."""
    draft = Draft()
    first = draft.conv("image", "first", 8, 8)
    draft.add("Conv", [again, "first.weight", "first.bias"], "second", kernel_shape=[3, 3], pads=[1] * 4)
    output = draft.add("Add", [first, "second_out"], "sum")
    network = of(draft.model({"image": ["n", 8, 8, 8]}, {output: ["n", 8, 8, 8]}))
    model = deployed(network)
    assert sum(tensor.dims[:] == [8, 8, 3, 3] for tensor in model.model.graph.initializer) == weights
    agree(run(model, network.feed), run(simulated(network), network.feed))
    assert [node.op_type for node in executed(model)].count("QLinearConv") == 2


def test_a_bias_out_of_int32_names_the_layer_and_the_way_out() -> None:
    """A bias of more than 2^31 steps is an error that says to skip the layer."""
    network = quantized("residual_cnn")
    record = {**network.record, "fc": replace(network.record["fc"], scale_d=1e-7, scale_w=(1e-7,))}
    with pytest.raises(BuildError, match="^fc: its bias .* int32 does not hold; skip this layer"):
        deployed(replace(network, record=record))


@pytest.mark.parametrize("name", ["residual_cnn", "decoder"])
def test_weights_that_are_next_to_nothing_beside_their_bias_get_a_wider_step(name: str) -> None:
    """Of a channel with a bias of more than 2^31 steps the step grows, so that int32 holds it; the fake-quant model and
    the deploy model stay equal, and all other channels keep their scales."""
    network = quantized(name)
    layer = "conv2" if name == "residual_cnn" else "up"
    graph = network.graph.copy()
    tensor, bias = graph.node(layer).input[1:3]
    axis = 0 if name == "residual_cnn" else 1
    weight, value = graph.constant(tensor).copy(), graph.constant(bias).copy()
    np.moveaxis(weight, axis, 0)[3], value[3] = 1e-5, 1e3
    graph.set_constant(tensor, weight)
    graph.set_constant(bias, value)
    before = network.record[layer]
    scales = tuple(1e-7 if channel == 3 else entry for channel, entry in enumerate(before.scale_w))
    wide = replace(network, graph=graph, record={**network.record, layer: replace(before, scale_w=scales)})
    holding = integer_weights.holding(graph, network.sites, wide.record)
    assert holding[layer].scale_w[3] == pytest.approx(1e3 / (before.scale_d * 2**31), rel=1e-4)
    assert [entry for i, entry in enumerate(holding[layer].scale_w) if i != 3] == [
        s for i, s in enumerate(scales) if i != 3
    ]
    assert {key: entry for key, entry in holding.items() if key != layer} == {
        key: entry for key, entry in wide.record.items() if key != layer
    }
    assert integer_weights.holding(graph, network.sites, holding) == holding
    (entry,) = [row for row in integer_weights.layers(graph, network.sites, wide.record) if row.name == layer]
    assert 0.9 * 2**31 < entry.bias[3] < 2**31
    assert float(entry.bias[3]) * float(entry.step[3]) == pytest.approx(1e3, rel=1e-6)
    agree(run(deployed(wide), network.feed), run(simulated(wide), network.feed))


def test_products_do_not_carry_a_bias_out_of_int32() -> None:
    """Beside a bias of nearly 2^31 steps there is room for the largest sum of products: a head whose bias is all that
    it gives, with inputs next to nothing (a detector's scores), came out at the other end of its range."""
    network = quantized("residual_cnn")
    graph = network.graph.copy()
    tensor, bias = graph.node("conv2").input[1:3]
    (site,) = [site for site in network.sites.weights if site.layer == "conv2"]
    weight = np.moveaxis(np.random.default_rng(0).normal(0, 0.01, graph.constant(tensor).shape), site.axis, 0)
    graph.set_constant(tensor, np.moveaxis(weight, 0, site.axis).astype(np.float32))
    graph.set_constant(bias, np.resize(np.float32([-4.6, 4.6]), graph.constant(bias).shape))
    scales = tuple((np.abs(weight).reshape(len(weight), -1).max(axis=1) / 127).tolist())
    content = replace(network.record["conv2"], scale_d=1e-6, scale_w=scales)
    tiny = replace(network, graph=graph, record={**network.record, "conv2": content})
    (entry,) = [row for row in integer_weights.layers(graph, network.sites, tiny.record) if row.name == "conv2"]
    integers = np.moveaxis(entry.weight, site.axis, 0).reshape(len(weight), -1).astype(np.int64)
    largest = np.abs(entry.bias.astype(np.int64)) + 255 * np.abs(integers).sum(axis=1)
    assert (largest < 2**31).all()
    assert (largest > 0.9 * 2**31).all()
    agree(run(deployed(tiny), network.feed), run(simulated(tiny), network.feed))


def test_the_prepared_graph_stays_as_it_was() -> None:
    """The graph that is given is not changed, and the same model is written each time, inputs and outputs as before."""
    network = quantized("residual_cnn")
    before = network.graph.model.SerializeToString(deterministic=True)
    model = deployed(network)
    assert network.graph.model.SerializeToString(deterministic=True) == before
    assert model.model.SerializeToString(deterministic=True) == deployed(network).model.SerializeToString(
        deterministic=True
    )
    assert (model.inputs, model.outputs) == (network.graph.inputs, network.graph.outputs)


@pytest.mark.parametrize(
    ("lines", "is_written"),
    [
        (("[p] t = MatMul (x, w)", "[a] y = Add (t, b)"), True),
        (("[p] t = MatMul (x, w)", "[a] y = Add (b, t)"), True),
        (("[p] t = MatMul (x, w)", "[a] y = Add (t, c)", "[i] c = Neg (d)"), False),  # no constant
        (("[p] t = MatMul (x, w)", "[a] y = Add (t, b)", "[r] z = Relu (t)"), False),
        (("[p] y = MatMul (x, w)", "[a] z = Add (y, b)"), False),  # the caller reads the product
        (("[other] t = MatMul (x, w)", "[a] y = Add (t, b)"), False),
        (("[p] t = Gemm (x, w)", "[a] y = Add (t, b)"), False),
        (("[p] t = MatMul (x, w)", "[a] y = Mul (t, b)"), False),
        (("[u] v = Unsqueeze (x, o)", "[p] t = MatMul (v, w)", "[a] y = Add (t, b)"), False),  # three dimensions
        (("[p] t = MatMul (x, w)", "[a] s = Add (t, b)", "[q] y = QuantizeLinear (s, f, n)"), False),
        (("[p] t = MatMul (x, w)", "[a] s = Add (t, b)", "[r] u = Relu (s)", "[q] y = QuantizeLinear (u, f, n)"),
         False),
        (("[p] t = MatMul (x, w)", "[a] s = Add (t, b)", "[r] u = Elu (s)", "[q] y = QuantizeLinear (u, f, n)"), True),
        (("[p] t = MatMul (x, w)", "[a] s = Add (t, b)", "[r] y = Relu (s)"), True),
        (("[p] t = MatMul (x, w)", "[a] s = Add (t, b)", "[q] y = QuantizeLinear (s, f, n)", "[r] z = Elu (s)"), True),
        (("[p] t = MatMul (x, w)", "[a] s = Add (t, b)", "[q] y = QuantizeLinear (s, f, n)", "[r] z = Relu (s)"), True),
    ],
)  # fmt: skip
def test_a_bias_behind_a_product_is_taken_off_negated(lines: tuple[str, ...], is_written: bool) -> None:
    """Where the runtime would make one float operator of both: a product of two dimensions and a constant that nothing
    else reads, unless bytes are made of the sum alone. The result is the same."""
    kind = "uint8" if any("QuantizeLinear" in line for line in lines) else "float"
    text = f'<ir_version: 8, opset_import: ["" : 17]>\nnet (float[n,3] x) => ({kind}[n,2] y) {{\n'
    ordered = sorted(lines, key=lambda line: "Neg" not in line)
    network = graph(text + "\n".join(ordered) + "\n}", {
        "w": (3, 2), "d": (1, 2), "b": np.float32([1, -2]), "o": np.int64([0]), "f": np.float32(0.1), "n": np.uint8(128)
    })  # fmt: skip
    feed = {"x": np.float32([[1, 2, 3]])}
    (before,) = run(network, feed)
    _keep_integers(network, {"p"})
    assert ("Sub" in {node.op_type for node in network.nodes}) == is_written
    if is_written:
        less = network.node("a")
        assert network.maker(less.input[0]).op_type == "MatMul"
        assert network.constant(less.input[1]).tolist() == [-1, 2]
    np.testing.assert_array_equal(run(network, feed)[0], before)
