"""The deploy model for Ascend, and the interpreter that computes its operators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_networks import NETWORKS, Draft, decoder
from quantized_networks import Quantized, of, quantized, run

from qbench.errors import BuildError
from qbench.quant.onnx.export import ascend_ops
from qbench.quant.onnx.export.deploy_ascend import deploy, packed
from qbench.quant.onnx.export.fake_quant import fake_quant
from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.sites import Sites

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def deployed(network: Quantized) -> Graph:
    return deploy(network.graph, network.sites, network.record)


@pytest.mark.parametrize("offset", [True, False])
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_it_computes_what_the_fake_quant_model_computes(name: str, offset: bool) -> None:
    """The interpreted model equals the float simulation; a value between two steps may go to the other one."""
    network = quantized(name, offset=offset)
    expected = run(fake_quant(network.graph, network.sites, network.record), network.feed)
    for actual, other in zip(ascend_ops.run(deployed(network), network.feed), expected, strict=True):
        difference, largest = np.abs(actual.astype(np.float64) - other), float(np.abs(other).max())
        assert difference.max() <= 0.05 * largest
        assert difference.mean() <= 0.002 * largest


@pytest.mark.parametrize("name", ["residual_cnn", "depthwise", "decoder", "mlp"])
def test_a_layer_reads_int8_and_gives_int32(name: str) -> None:
    """Quantized layers stand between AscendQuant (scale 1 / scale_d, float offset) and AscendDequant (the bits of
    s_d s_w in the low half of a uint64), with an int8 weight and an int32 bias; the output keeps its name."""
    network = quantized(name)
    model = deployed(network)
    for site in network.sites.weights:
        node, content = model.node(site.layer), network.record[site.layer]
        before, (behind,) = model.maker(node.input[0]), [entry for entry, _ in model.readers(node.output[0])]
        assert (before.op_type, behind.op_type) == ("AscendQuant", "AscendDequant")
        assert attribute(before, "scale") == np.float32(1 / np.float32(content.scale_d))
        assert attribute(before, "offset") == content.offset_d
        assert model.constant(node.input[1]).dtype == np.int8
        assert len(node.input) < 3 or model.constant(node.input[2]).dtype == np.int32
        deq = model.constant(behind.input[1])
        assert deq.dtype == np.uint64
        step = np.float32(content.scale_d) * np.float32(content.scale_w)
        np.testing.assert_array_equal(deq.view(np.float32)[::2], step)
        assert not (deq >> np.uint64(32)).any()
        assert behind.output[0] == network.graph.node(site.layer).output[0]


def test_other_operators_read_floats_again() -> None:
    """MaxPool and Add read what passed AscendQuant and AscendAntiQuant (offset with the other sign)."""
    network = quantized("residual_cnn")
    model = deployed(network)
    for name, position in (("add", 0), ("add", 1), ("maxpool", 0)):
        anti = model.maker(model.node(name).input[position])
        quant = model.maker(anti.input[0])
        assert (quant.op_type, anti.op_type) == ("AscendQuant", "AscendAntiQuant")
        content = network.record[f"{name}:{position}"]
        assert attribute(anti, "scale") == np.float32(content.scale_d)
        assert attribute(anti, "offset") == -content.offset_d == -attribute(quant, "offset")


def test_an_average_pool_is_a_layer() -> None:
    """An AveragePool reads int8 and is dequantized by the scale of its input alone."""
    network = quantized("depthwise")
    model = deployed(network)
    pool = next(node for node in model.nodes if node.op_type == "AveragePool")
    ((behind, _),) = model.readers(pool.output[0])
    (scale,) = model.constant(behind.input[1]).astype(np.uint32).view(np.float32)
    assert model.maker(pool.input[0]).op_type == "AscendQuant"
    assert scale == np.float32(network.record["avgpool"].scale_d)


def test_a_grouped_transposed_convolution_has_a_scale_for_each_output_channel() -> None:
    """Its weight holds the channels of one group: their scales are repeated for every group, and the values fit."""
    network = of(decoder(group=2))
    model = deployed(network)
    deq = model.constant(next(node.input[1] for node in model.nodes if node.name.startswith("up.dequant")))
    assert len(network.record["up"].scale_w) == 4
    assert deq.shape == (8,)
    (expected,) = run(fake_quant(network.graph, network.sites, network.record), network.feed)
    np.testing.assert_allclose(ascend_ops.run(model, network.feed)[0], expected, rtol=0, atol=0.02)


def test_a_weight_whose_input_stays_float_has_the_values_of_its_integers() -> None:
    """A layer with a quantized weight and no quantized input computes in floats, as the fake-quant model does."""
    network = quantized("mlp")
    sites = Sites(weights=network.sites.weights, activations=())
    model = deploy(network.graph, sites, network.record)
    assert not ascend_ops.is_ascend(model)
    (actual,), (expected,) = (
        run(model, network.feed),
        run(fake_quant(network.graph, sites, network.record), network.feed),
    )
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    assert not np.array_equal(actual, run(network.graph, network.feed)[0])


def test_a_bias_out_of_int32_names_the_layer_and_the_way_out() -> None:
    """A bias of more than 2^31 steps is an error that says to skip the layer."""
    network = quantized("residual_cnn")
    record = {**network.record, "fc": replace(network.record["fc"], scale_d=1e-7, scale_w=(1e-7,))}
    with pytest.raises(BuildError, match="^fc: its bias .* int32 does not hold; skip this layer"):
        deploy(network.graph, network.sites, record)


def test_the_prepared_graph_stays_as_it_was() -> None:
    """The graph that is given is not changed, and the same model is written each time."""
    network = quantized("residual_cnn")
    before = network.graph.model.SerializeToString(deterministic=True)
    model = deployed(network)
    assert network.graph.model.SerializeToString(deterministic=True) == before
    assert model.model.SerializeToString(deterministic=True) == deployed(network).model.SerializeToString(
        deterministic=True
    )
    assert (model.inputs, model.outputs) == (network.graph.inputs, network.graph.outputs)


def node(kind: str, inputs: int = 2, **attributes: Any) -> onnx.NodeProto:
    return onnx.helper.make_node(kind, [f"i{i}" for i in range(inputs)], ["y"], name="here", **attributes)


@given(
    x=st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=20),
    scale=st.floats(2**-8, 2**8, width=32),
    offset=st.integers(-128, 127),
)
def test_ascend_quant_and_anti_quant(x: list[float], scale: float, offset: int) -> None:
    """AscendQuant gives clip(round(x * scale + offset), -128, 127); AscendAntiQuant gives x back within half a step."""
    quant = node("AscendQuant", 1, scale=scale, offset=float(offset))
    anti = node("AscendAntiQuant", 1, scale=1 / scale, offset=float(-offset))
    array = np.array(x, np.float32)
    q = ascend_ops.quantized(quant, array)
    expected = np.clip(np.rint(array * np.float32(scale) + np.float32(offset)), -128, 127)
    np.testing.assert_array_equal(q, expected)
    inside = (expected > -128) & (expected < 127)
    back = ascend_ops.antiquantized(anti, q)
    assert (np.abs(back - array)[inside] <= 0.5 / scale * 1.001 + 1e-4).all()


def test_rounding_is_half_to_even() -> None:
    """0.5, 1.5, 2.5 and -0.5 with a scale of 1 become 0, 2, 2 and 0."""
    q = ascend_ops.quantized(node("AscendQuant", 1, scale=1.0), np.float32([0.5, 1.5, 2.5, -0.5]))
    assert q.tolist() == [0, 2, 2, 0]


@given(st.lists(st.floats(2**-40, 2**20, width=32), min_size=1, max_size=6))
def test_packed_scales_are_their_bits(scales: list[float]) -> None:
    """deq_scale is the bits of the float32 as a uint64, and AscendDequant multiplies each channel by it."""
    deq = packed(np.float32(scales))
    assert deq.dtype == np.uint64
    assert [int(scale) for scale in deq] == [int(np.float32(scale).view(np.uint32)) for scale in scales]
    accumulator = np.full((2, len(scales), 3), 7, np.int32)
    dequantized = ascend_ops.dequantized(node("AscendDequant"), accumulator, deq, 1)
    np.testing.assert_array_equal(dequantized[1, :, 2], np.float32(7) * np.float32(scales))


CASES = [
    ("Conv", (2, 4, 9, 8), (6, 4, 3, 3), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ("Conv", (1, 4, 9, 8), (6, 2, 3, 2), {"group": 2, "dilations": [2, 3]}),
    ("Conv", (1, 3, 9, 8), (3, 1, 3, 3), {"group": 3, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ("Conv", (1, 3, 9, 8), (2, 3, 2, 2), {"auto_pad": "SAME_LOWER"}),
    ("Conv", (1, 2, 4, 5, 6), (3, 2, 2, 3, 3), {"pads": [0, 1, 1, 1, 1, 0], "strides": [1, 2, 2]}),
    ("ConvTranspose", (2, 4, 5, 6), (4, 3, 3, 3), {"strides": [2, 3], "pads": [1, 0, 1, 2]}),
    ("ConvTranspose", (1, 4, 5, 6), (4, 2, 2, 2), {"group": 2, "strides": [2, 2], "output_padding": [1, 1]}),
    ("ConvTranspose", (1, 2, 5, 6), (2, 3, 3, 3), {"dilations": [2, 2], "pads": [2, 2, 2, 2]}),
    ("ConvTranspose", (1, 2, 5, 6), (2, 3, 4, 4), {"strides": [2, 2], "output_shape": [10, 12]}),
    ("Gemm", (3, 5), (4, 5), {"transB": 1}),
    ("MatMul", (2, 3, 5), (5, 4), {}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "shape", "weight", "attributes"), CASES)
def test_accumulators_are_those_of_the_float_operators(
    kind: str, shape: tuple[int, ...], weight: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    """An int8 layer gives, as int32, what ONNX Runtime's float operator gives for q - offset: padding is offset too."""
    rng = np.random.default_rng(0)
    q, w = rng.integers(-128, 128, shape).astype(np.int8), rng.integers(-128, 128, weight).astype(np.int8)
    operator = node(kind, **attributes)
    row = ascend_ops.layer(operator, q, -7.0, w)
    (expected,) = run(_graph(operator, shape, weight), {"i0": q.astype(np.float32) + 7, "i1": w.astype(np.float32)})
    assert row.dtype == np.int32
    np.testing.assert_array_equal(row, expected)


@pytest.mark.parametrize("included", [0, 1])
def test_the_mean_of_a_pool_is_that_of_the_float_operator(included: int) -> None:
    """AveragePool with padding, counted or not, is that of q - offset."""
    q = np.random.default_rng(0).integers(-128, 128, (2, 3, 7, 8)).astype(np.int8)
    operator = node(
        "AveragePool", 1, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 1, 1, 0], count_include_pad=included
    )
    (expected,) = run(_graph(operator, q.shape), {"i0": q.astype(np.float32) - 5})
    np.testing.assert_allclose(ascend_ops.layer(operator, q, 5.0), expected, rtol=1e-6)


def _graph(layer: onnx.NodeProto, *shapes: tuple[int, ...]) -> Graph:
    inputs = [
        onnx.helper.make_tensor_value_info(f"i{i}", onnx.TensorProto.FLOAT, shape) for i, shape in enumerate(shapes)
    ]
    body = onnx.helper.make_graph([layer], "one", inputs, [onnx.ValueInfoProto(name="y")])
    return Graph(onnx.helper.make_model(body, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8))


def test_an_accumulator_out_of_int32_is_an_error() -> None:
    """A sum over more products than int32 holds names the layer."""
    wide = 140_000
    q, w = np.full((1, wide), 127, np.int8), np.full((wide, 1), 127, np.int8)
    with pytest.raises(BuildError, match="^here: its accumulator leaves int32; skip this layer"):
        ascend_ops.layer(node("MatMul"), q, 0.0, w)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("AscendQuant", {"scale": 1.0, "sqrt_mode": 1}),
        ("AscendQuant", {"scale": 1.0, "round_mode": "Floor"}),
        ("AscendQuant", {"scale": 1.0, "dst_type": "INT4"}),
        ("AscendAntiQuant", {"scale": 1.0, "dtype": 1}),
    ],
)
def test_what_the_interpreter_does_not_know_is_refused(kind: str, attributes: dict[str, Any]) -> None:
    """An attribute with another meaning is an error, not a guess."""
    operator = node(kind, 1, **attributes)
    with pytest.raises(BuildError, match=r"^here: \w+ = .* is not known to the interpreter"):
        (ascend_ops.quantized if kind == "AscendQuant" else ascend_ops.antiquantized)(operator, np.zeros(3, np.int8))


def test_a_packed_shift_is_refused() -> None:
    """A deq_scale with anything in its high half is an error."""
    with pytest.raises(BuildError, match="^here: a deq_scale that is not the bits"):
        ascend_ops.dequantized(node("AscendDequant"), np.zeros((1, 1), np.int32), np.uint64([1 << 40]), 1)


def test_an_int8_reader_without_an_int8_weight_is_refused() -> None:
    """A float weight, or an operator that is no layer, on int8 is an error that names the node."""
    q = np.zeros((1, 2), np.int8)
    with pytest.raises(BuildError, match="^here: a MatMul that reads int8 without an int8 weight"):
        ascend_ops.layer(node("MatMul"), q, 0.0, np.zeros((2, 2), np.float32))
    with pytest.raises(BuildError, match="^here: a Relu that reads int8"):
        ascend_ops.layer(node("Relu", 1), q, 0.0)


@settings(max_examples=10, deadline=None)
@given(offset=st.integers(-128, 127), pad=st.integers(0, 2), seed=st.integers(0, 99))
def test_padding_is_zero_whatever_the_offset(offset: int, pad: int, seed: int) -> None:
    """Where the padding falls the layer sees the value 0: the accumulator of all offsets is the bias."""
    weight = np.random.default_rng(seed).integers(-128, 128, (2, 1, 3, 3)).astype(np.int8)
    q = np.full((1, 1, 4, 4), offset, np.int8)
    row = ascend_ops.layer(node("Conv", 3, pads=[pad] * 4), q, float(offset), weight, np.int32([5, -6]))
    assert set(row[0, 0].reshape(-1).tolist()) == {5}
    assert set(row[0, 1].reshape(-1).tolist()) == {-6}


def test_quantized_layers_of_drafts_keep_their_kind() -> None:
    """No layer is replaced by another operator: the nodes are those of the graph and the three of Ascend."""
    draft = Draft()
    draft.linear("x", "fc", 4, 3)
    draft.nodes[-1].output[0] = "y"
    model = deployed(of(draft.model({"x": ["batch", 4]}, {"y": ["batch", 3]})))
    assert [operator.op_type for operator in model.nodes] == ["AscendQuant", "Gemm", "AscendDequant"]


# --- operators in the forms that a file leaves open -------------------------------------------------------------------

FORMS = [
    ("Conv", (1, 2, 7, 9), (3, 2, 2, 4), {"strides": [3, 2], "auto_pad": "SAME_UPPER"}),
    ("Conv", (1, 2, 7, 9), (3, 2, 2, 4), {"strides": [3, 2], "auto_pad": "SAME_LOWER"}),
    ("Conv", (1, 2, 3), (3, 2, 1), {"strides": [2], "auto_pad": "SAME_UPPER"}),
    ("Conv", (1, 2, 7, 9), (3, 2, 3, 3), {"auto_pad": "VALID", "strides": [2, 2]}),
    ("Conv", (1, 2, 8), (3, 2, 3), {"pads": [2, 0]}),
    ("ConvTranspose", (1, 2, 5), (2, 3, 3), {"pads": [0, 1], "strides": [2]}),
    ("ConvTranspose", (1, 2, 5), (2, 3, 2), {"strides": [3]}),
    ("ConvTranspose", (1, 2, 5), (2, 3, 3), {"strides": [2], "output_padding": [1], "pads": [1, 0]}),
    ("ConvTranspose", (1, 2, 5), (2, 3, 3), {"strides": [2], "output_shape": [8]}),
    ("ConvTranspose", (1, 2, 5), (2, 3, 3), {"strides": [2], "output_shape": [10]}),
    ("ConvTranspose", (1, 2, 5), (2, 3, 3), {"auto_pad": "VALID"}),
    ("Gemm", (3, 5), (5, 4), {}),
    ("Gemm", (3, 5), (5, 4), {"alpha": 1.0, "beta": 1.0, "transA": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "shape", "weight", "attributes"), FORMS)
def test_accumulators_are_those_of_the_float_operators_in_every_form(
    kind: str, shape: tuple[int, ...], weight: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    """Whatever of strides, dilations and pads is left out, before and behind told apart."""
    test_accumulators_are_those_of_the_float_operators(kind, shape, weight, attributes)


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "dilation", "pads"),
    [(8, 3, 1, 2, (2, 2)), (8, 4, 1, 1, (1, 2)), (7, 2, 3, 1, (0, 1)), (9, 3, 3, 1, (0, 0)), (3, 1, 2, 1, (0, 0))],
)
def test_pads_that_keep_the_size(size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> None:
    """So many that there is an output for each stride begun; the odd one behind, or before for SAME_LOWER."""
    for mode, expected in (("SAME_UPPER", pads), ("SAME_LOWER", pads[::-1])):
        operator = node("Conv", auto_pad=mode)
        assert ascend_ops._auto_pads(operator, (size,), (kernel,), (stride,), (dilation,)) == (expected,)
    assert ascend_ops._auto_pads(node("Conv", auto_pad="VALID"), (size,), (kernel,), (stride,), (dilation,)) is None


@pytest.mark.parametrize("attributes", [{}, {"strides": [2]}, {"pads": [0, 1]}, {"pads": [1, 0], "strides": [3]}])
@pytest.mark.parametrize("included", [None, 0, 1])
def test_the_mean_of_a_signal_is_that_of_the_float_operator(attributes: dict[str, Any], included: int | None) -> None:
    """Padding is not counted unless the operator says so."""
    q = np.random.default_rng(0).integers(-128, 128, (2, 3, 7)).astype(np.int8)
    if included is not None:
        attributes = attributes | {"count_include_pad": included}
    operator = node("AveragePool", 1, kernel_shape=[2], ceil_mode=0, **attributes)
    (expected,) = run(_graph(operator, q.shape), {"i0": q.astype(np.float32) + 3})
    row = ascend_ops.layer(operator, q, -3.0)
    assert row.dtype == np.float32
    np.testing.assert_allclose(row, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("Gemm", {"transA": 1}),
        ("Gemm", {"alpha": 0.5}),
        ("Gemm", {"beta": 0.5}),
        ("ConvTranspose", {"auto_pad": "SAME_UPPER"}),
        ("AveragePool", {"ceil_mode": 1, "kernel_shape": [2]}),
    ],
)
def test_a_layer_in_a_form_that_is_not_known_is_refused(kind: str, attributes: dict[str, Any]) -> None:
    """Not computed in another one."""
    q = np.zeros((2, 2) if kind == "Gemm" else (1, 2, 2), np.int8)
    with pytest.raises(BuildError, match=r"^here: \w+ = .* is not known to the interpreter of ascend models$"):
        ascend_ops.layer(node(kind, **attributes), q, 0.0, np.zeros((2, 2) if kind == "Gemm" else (2, 1, 2), np.int8))


@pytest.mark.parametrize(("kind", "attributes"), [("AveragePool", {"kernel_shape": [4]}), ("Conv", {"dilations": [3]})])
def test_a_window_that_is_larger_than_its_input_is_refused(kind: str, attributes: dict[str, Any]) -> None:
    """A file from elsewhere may have one; padding counts as input."""
    q, weight = np.zeros((1, 2, 3), np.int8), np.zeros((2, 2, 2), np.int8)
    with pytest.raises(BuildError, match=r"^here: its window of \[4\] is larger than its input, \[3\]$"):
        ascend_ops.layer(node(kind, **attributes), q, 0.0, weight)
    assert ascend_ops.layer(node(kind, pads=[0, 1], **attributes), q, 0.0, weight).shape == (1, 2, 1)


@pytest.mark.parametrize("attributes", [{"sqrt_mode": 1}, {"relu_flag": 1}, {"dtype": 1}])
def test_a_dequantization_in_another_form_is_refused(attributes: dict[str, Any]) -> None:
    """As is a scale of another type."""
    with pytest.raises(BuildError, match=r"^here: \w+ = 1 is not known"):
        ascend_ops.dequantized(node("AscendDequant", **attributes), np.zeros((1, 1), np.int32), packed(1.0), 1)
    with pytest.raises(BuildError, match="^here: a deq_scale that is not the bits"):
        ascend_ops.dequantized(node("AscendDequant"), np.zeros((1, 1), np.int32), np.uint32([1]), 1)
    with pytest.raises(BuildError, match=r"^here: sqrt_mode = 1 is not known"):
        ascend_ops.antiquantized(node("AscendAntiQuant", 1, scale=1.0, sqrt_mode=1), np.zeros(1, np.int8))


def test_scales_of_channels_lie_along_the_axis_that_is_asked_for() -> None:
    """The last one of a matrix product; a missing offset is 0."""
    accumulator = np.arange(6, dtype=np.int32).reshape(1, 3, 2)
    scales = np.float32([0.5, 2.0])
    actual = ascend_ops.dequantized(node("AscendDequant"), accumulator, packed(scales), -1)
    np.testing.assert_array_equal(actual, accumulator * scales)
    assert actual.dtype == np.float32
    q = np.int8([-3, 5])
    assert ascend_ops.antiquantized(node("AscendAntiQuant", 1, scale=0.5), q).tolist() == [-1.5, 2.5]


@pytest.mark.parametrize(("sign", "fits"), [(1, False), (-1, True)])
def test_an_accumulator_may_be_each_end_of_int32(sign: int, fits: bool) -> None:
    """2^31 is one too many above, and the last one below; 2^31 - 1 fits."""
    q, w = np.int8([[1]]), np.int8([[sign]])
    end = np.array([sign * (2**31 - 1)], np.int64)
    for bias, held in ((end - sign, True), (end, fits)):
        if held:
            assert ascend_ops.layer(node("Gemm", 3), q, 0.0, w, bias).tolist() == [[int(bias[0]) + sign]]
        else:
            with pytest.raises(BuildError, match="^here: its accumulator leaves int32"):
                ascend_ops.layer(node("Gemm", 3), q, 0.0, w, bias)
    with pytest.raises(BuildError, match="^here: its accumulator leaves int32"):
        ascend_ops.layer(node("Gemm", 3), q, 0.0, w, end + sign)
    assert ascend_ops.layer(node("Gemm", 3), np.empty((0, 1), np.int8), 0.0, w, end).shape == (0, 1)


def test_what_no_layer_gives_is_not_dequantized() -> None:
    """The message names the node."""
    graph = _graph(node("AscendDequant"), (1, 1), (1,))
    with pytest.raises(BuildError, match="^here: dequantizes what no layer gives$"):
        ascend_ops.run(graph, {"i0": np.zeros((1, 1), np.int32), "i1": packed(1.0)})
