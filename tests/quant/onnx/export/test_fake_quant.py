"""The fake-quant model computes, in standard float operators, what the integers stand for."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator
from onnx_networks import NETWORKS, Draft
from quantized_networks import Quantized, executed, of, quantized, run, values

from qbench.errors import BuildError, UsageError
from qbench.quant.affine import fake_quantize
from qbench.quant.onnx.export.fake_quant import fake_quant
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Scales
from qbench.quant.onnx.weights.weight_scales import spread

# onnx's evaluator does not run these: a ConvTranspose, LSTM's hidden outputs, a Loop with outer values.
NOT_EVALUATED = ("decoder", "tokens", "loop", "branches")
STEPS = ["Div", "Round", "Add", "Clip", "Sub", "Mul"]


def simulated(network: Quantized) -> Graph:
    return fake_quant(network.graph, network.sites, network.record)


def by_hand(network: Quantized, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The network layer by layer: each tensor that is read quantized is quantized by ``qparams`` in numpy, its readers
    are run one by one with the weights and biases of the integers."""
    graph, content = network.graph.copy(), network.record
    for site in network.sites.weights:
        weight, scales = graph.constant(site.tensor), content[site.layer]
        scale = spread(scales.scale_w, site.axis, weight.ndim)
        graph.set_constant(site.tensor, fake_quantize(weight, scale))
        node = graph.node(site.layer)
        if len(node.input) > 2:
            step = np.float32(scales.scale_d) * np.float32(scales.scale_w)
            bias = graph.constant(node.input[2])
            graph.set_constant(node.input[2], (np.rint(bias / step.astype(np.float64)) * step).astype(np.float32))
    places = {place: key for site in network.sites.activations for key, place in site.keys.items()}
    known = dict(feed) | {name: graph.constant(name) for name in graph.constants}
    for node in graph.nodes:
        arguments = []
        for position, name in enumerate(node.input):
            value = known[name] if name else None
            if (node.name, position) in places:
                scales = content[places[node.name, position]]
                value = fake_quantize(value, scales.scale_d, scales.offset_d)
            arguments.append(value)
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [f"i{position}" if name else "" for position, name in enumerate(node.input)]
        known |= dict(zip(node.output, _run_node(copy, arguments, graph), strict=True))
    return [known[name] for name in graph.outputs]


def _run_node(node: onnx.NodeProto, given: list, graph: Graph) -> list[np.ndarray]:
    inputs = {f"i{position}": np.asarray(value) for position, value in enumerate(given) if value is not None}
    described = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in inputs.items()
    ]
    body = onnx.helper.make_graph([node], "one", described, [onnx.ValueInfoProto(name=entry) for entry in node.output])
    model = onnx.helper.make_model(body, opset_imports=graph.model.opset_import, ir_version=8)
    return run(Graph(model), inputs, optimized=False)


@pytest.mark.parametrize("offset", [True, False])
@pytest.mark.parametrize("name", ["residual_cnn", "depthwise", "decoder", "mlp", "volume", "pools", "shared_weight"])
def test_it_computes_the_formulas(name: str, offset: bool) -> None:
    """Its outputs are those of the formulas of ``qparams`` applied between the layers."""
    network = quantized(name, offset=offset)
    for actual, expected in zip(
        run(simulated(network), network.feed), by_hand(network, dict(network.feed)), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in NOT_EVALUATED])
def test_the_reference_evaluator_agrees(name: str) -> None:
    """onnx's own evaluator, which shares no code with ONNX Runtime, gives the same outputs."""
    network = quantized(name)
    model = simulated(network)
    onnx.checker.check_model(model.model, full_check=True)
    expected = ReferenceEvaluator(model.model).run(None, dict(network.feed))
    for actual, other in zip(run(model, network.feed), expected, strict=True):
        np.testing.assert_allclose(actual, other, rtol=0, atol=2e-3 if name == "half" else 1e-5)


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_quantization_costs_little_and_something(name: str) -> None:
    """Its outputs are near those of the fp32 model and not the same."""
    network = quantized(name)
    differences = []
    for actual, expected in zip(run(simulated(network), network.feed), run(network.graph, network.feed), strict=True):
        largest = float(np.abs(expected).max())
        differences.append(float(np.abs(actual.astype(np.float64) - expected).max()) / largest)
    assert 0 < max(differences) < 0.3  # of the outputs, which are quantized too, a step lies between two


@settings(max_examples=15, deadline=None)
@given(
    x=st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=24),
    scale=st.floats(2**-10, 64, width=32),
    offset=st.integers(-128, 127),
)
def test_an_activation_passes_through_the_formula(x: list[float], scale: float, offset: int) -> None:
    """x' = (clip(round(x / s) + offset, -128, 127) - offset) s, bit for bit, by both evaluators."""
    network = one_layer(scale_d=scale, offset_d=offset)
    model = simulated(network)
    ends = [node.output[0] for node in model.nodes if node.op_type == "Mul"]
    values_in = np.array(x, np.float32).reshape(-1, 1)
    expected = fake_quantize(values_in, scale, offset)
    (actual,) = values(model, {"x": values_in}, *ends)
    np.testing.assert_array_equal(actual, expected)
    model.model.graph.output[0].name = ends[0]
    (verdict,) = ReferenceEvaluator(model.model).run(None, {"x": values_in})
    np.testing.assert_array_equal(verdict, expected)


def one_layer(bias: float = 1.0, **scales: Any) -> Quantized:
    """A Gemm of one number, with these scales."""
    network = _one_layer(bias)
    return replace(network, record={"fc": replace(network.record["fc"], **scales)})


@functools.cache
def _one_layer(bias: float) -> Quantized:
    draft = Draft()
    inputs = [draft.constant("w", np.full((1, 1), 0.5, np.float32)), draft.constant("b", np.float32([bias]))]
    draft.add("Gemm", ["x", *inputs], "fc", outputs=["y"])
    return of(draft.model({"x": ["batch", 1]}, {"y": ["batch", 1]}))


def test_only_standard_float_operators_and_no_integer_kernels() -> None:
    """It holds Div, Round, Add, Clip, Sub and Mul in this order, and ONNX Runtime makes no integer kernels of them."""
    network = quantized("residual_cnn")
    model = simulated(network)
    new = [node.op_type for node in model.nodes if node.name not in {operator.name for operator in network.graph.nodes}]
    assert new == STEPS * (len(new) // len(STEPS))
    assert len(new) == len(STEPS) * len(network.sites.activations)
    kinds = {node.op_type for node in executed(model)}
    assert not {kind for kind in kinds if "Quant" in kind or "Integer" in kind or kind.startswith("QLinear")}


def test_weights_have_the_values_of_their_integers() -> None:
    """A weight is whole multiples of its channel's scale, within half a step of fp32, at most 256 of them."""
    network = quantized("residual_cnn")
    model = simulated(network)
    for site in network.sites.weights:
        weight = model.constant(model.node(site.layer).input[1])
        scale = spread(network.record[site.layer].scale_w, site.axis, weight.ndim)
        steps = weight / scale
        np.testing.assert_allclose(steps, np.rint(steps), atol=1e-4)
        assert np.abs(steps).max() <= 128
        assert np.abs(weight - network.graph.constant(site.tensor)).max() <= scale.max() / 2 * 1.001


def test_biases_are_steps_of_the_accumulator() -> None:
    """A bias is round(b / (s_d s_w)) s_d s_w: 1.0 with steps of 0.3 becomes 0.9."""
    network = one_layer(scale_d=0.75, scale_w=(0.4,), bias=1.0)
    model = simulated(network)
    assert model.constant(model.node("fc").input[2]) == pytest.approx(0.9)


@pytest.mark.parametrize("bias", [1e9, -1e9])
def test_a_bias_out_of_int32_names_the_layer_and_the_way_out(bias: float) -> None:
    """A bias of more than 2^31 steps is an error that says to skip the layer."""
    network = one_layer(scale_d=1e-4, scale_w=(1e-4,), bias=bias)
    with pytest.raises(BuildError, match=r"^fc: its bias .* int32 does not hold; skip this layer \(skip_layers"):
        simulated(network)


def test_the_largest_bias_of_int32_is_taken() -> None:
    """-2^31 steps fit; one more does not."""
    network = one_layer(scale_d=1.0, scale_w=(1.0,), bias=-(2.0**31))
    model = simulated(network)
    assert model.constant(model.node("fc").input[2]) == -(2.0**31)
    with pytest.raises(BuildError):
        simulated(one_layer(scale_d=1.0, scale_w=(1.0,), bias=2.0**31))


def test_an_incomplete_record_is_refused() -> None:
    """A missing scale_d or a wrong number of scale_w names the layer."""
    network = one_layer()
    with pytest.raises(UsageError, match="^fc: no scale_d in the record; run qbench onnx calibrate"):
        simulated(replace(network, record={"fc": Scales(scale_w=(1.0,))}))
    with pytest.raises(UsageError, match="^fc: 2 scale_w in the record where its weight needs 1"):
        simulated(one_layer(scale_w=(1.0, 2.0)))


def test_readers_with_scales_of_their_own_get_their_own_steps() -> None:
    """Where a record (AMCT's, say) gives two readers of a tensor different scales, each reads with its own."""
    network = quantized("residual_cnn")
    site = next(site for site in network.sites.activations if len(site.keys) > 1)
    first, second, *_ = site.keys
    content = network.record[second]
    record = {**network.record, second: replace(content, scale_d=content.scale_d * 2)}
    model = simulated(replace(network, record=record))
    before, behind = (model.node(site.keys[key][0]).input[site.keys[key][1]] for key in (first, second))
    assert before != behind
    assert len(model.nodes) == len(simulated(network).nodes) + len(STEPS)


def test_the_prepared_graph_stays_as_it_was() -> None:
    """The graph that is given is not changed, and the result holds none of qbench's notes."""
    network = quantized("residual_cnn")
    graph = network.graph.copy()
    graph.model.metadata_props.add(key="qbench.config", value="{}")
    graph.model.metadata_props.add(key="author", value="me")
    before = graph.model.SerializeToString(deterministic=True)
    model = fake_quant(graph, network.sites, network.record)
    assert graph.model.SerializeToString(deterministic=True) == before
    assert [prop.key for prop in model.model.metadata_props] == ["author"]
    again = fake_quant(graph, network.sites, network.record)
    assert model.model.SerializeToString(deterministic=True) == again.model.SerializeToString(deterministic=True)


def test_outputs_that_are_read_quantized_stay_float() -> None:
    """A tensor that is an output of the graph and read by a quantized layer is given to the caller as it is."""
    draft = Draft()
    x = draft.linear("x", "one", 6, 6)
    draft.linear(x, "two", 6, 3)
    draft.nodes[-1].output[0] = "y"
    network = of(draft.model({"x": ["batch", 6]}, {x: ["batch", 6], "y": ["batch", 3]}))
    model = simulated(network)
    assert model.maker(x).op_type == "Gemm"
    assert model.outputs == (x, "y")
