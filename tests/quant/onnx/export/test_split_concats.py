"""A convolution of what a Concat joins, in two: what reaches below zero apart from what begins there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_networks import Draft
from optional_packages import needs_openvino
from quantized_networks import Quantized, of, run

from qbench.quant.onnx.export import deploy_openvino, narrow_weights, split_concats
from qbench.quant.onnx.export.fake_quant import fake_quant
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.prepare import infer_shapes
from qbench.quant.onnx.sites import Scales
from qbench.quant.onnx.weights.narrow_steps import narrow_steps
from qbench.quant.sqnr import measure_sqnr

SIZE = ["batch", 4, 8, 8]


def joined(
    *kinds: str, axis: int = 1, group: int = 1, opened: bool = False, more: Callable[[Draft], object] = id
) -> Draft:
    """A convolution of what such operators give of convolutions ("Conv": their sums as they are), side by side."""
    draft = Draft()
    tensors = []
    for i, kind in enumerate(kinds):
        tensor = draft.conv("x", f"side{i}", 4, 4)
        if kind == "Clip":
            low = draft.constant(f"low{i}", np.array(0, np.float32))
            tensor = draft.add("Clip", [tensor, low], f"act{i}")
        elif kind == "MaxPool":
            tensor = draft.add("Relu", [tensor], f"act{i}")
            tensor = draft.add("MaxPool", [tensor], f"pool{i}", kernel_shape=[3, 3], pads=[1] * 4)
        elif kind != "Conv":
            tensor = draft.add(kind, [tensor], f"act{i}")
        tensors.append(tensor)
    channels = 4 * len(kinds) if axis in (1, -3) else 4
    draft.conv(draft.add("Concat", tensors, "join", axis=axis), "last", channels, 4, group=group)
    draft.nodes[-1].output[0] = "y"
    more(draft)
    return draft


def graph_of(draft: Draft, size: Sequence[object] = SIZE, **outputs: Sequence[object]) -> Graph:
    graph = Graph(draft.model({"x": list(size)}, {"y": [None] * 4, **outputs}))
    infer_shapes(graph)
    return graph


def kinds_of(graph: Graph) -> list[str]:
    """The operators in the order of their names, convolutions of the sides left out."""
    return sorted(node.op_type for node in graph.nodes if not node.name.startswith("side"))


def examples(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 4, 8, 8), np.float32)


@pytest.mark.parametrize(
    ("kinds", "left"),
    [
        (("Conv", "Relu"), ["Add", "Conv", "Conv", "Relu"]),
        (("Sigmoid", "Conv"), ["Add", "Conv", "Conv", "Sigmoid"]),
        (("Conv", "MaxPool"), ["Add", "Conv", "Conv", "MaxPool", "Relu"]),
        (("Relu", "Conv", "Relu"), ["Add", "Concat", "Conv", "Conv", "Relu", "Relu"]),
        (("Conv", "Relu", "Tanh", "Relu"), ["Add", "Concat", "Concat", "Conv", "Conv", "Relu", "Relu", "Tanh"]),
    ],
    ids=lambda kinds: "-".join(kinds) if isinstance(kinds, tuple) else "",
)
def test_a_float_graph_answers_the_same_in_two(kinds: tuple[str, ...], left: list[str]) -> None:
    """Each channel meets its own weights, wherever it stood, and the bias is added once."""
    graph = graph_of(joined(*kinds))
    feed = {"x": examples(3)}
    (expected,) = run(graph, feed)
    assert split_concats.split_floats(graph)
    assert kinds_of(graph) == left
    (answer,) = run(graph, feed)
    assert np.allclose(answer, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert {graph.node("last/signed").op_type, graph.node("last").op_type} == {"Conv"}
    assert not split_concats.split_floats(graph)


def read_again(draft: Draft) -> None:
    draft.add("Relu", ["join_out"], "other", outputs=["z"])


def hidden_weight(draft: Draft) -> None:
    weight = draft.add("Abs", ["last.weight"], "computed")
    draft.nodes.insert(0, draft.nodes.pop())
    next(node for node in draft.nodes if node.name == "last").input[1] = weight


@pytest.mark.parametrize(
    "draft",
    [
        joined("Relu", "Sigmoid"),
        joined("Conv", "Tanh"),
        joined("Conv", "LeakyRelu"),
        joined("Conv", "Relu", group=2),
        joined("Conv", "Relu", axis=2),
        joined("Conv", "Relu", more=hidden_weight),
    ],
    ids=["all from zero", "none from zero", "leaky", "groups", "rows", "computed weight"],
)
def test_what_gains_nothing_or_cannot_be_told_apart_stays(draft: Draft) -> None:
    """As it is, to the last node."""
    graph = graph_of(draft)
    before = graph.model.SerializeToString(deterministic=True)
    assert not split_concats.split_floats(graph)
    assert graph.model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("read", ["by another node", "by the caller"])
def test_what_is_joined_for_others_too_stays(read: str) -> None:
    """It would be joined all the same."""
    by_caller = read == "by the caller"
    draft = joined("Conv", "Relu", more=(lambda _: None) if by_caller else read_again)
    graph = graph_of(draft, **({"join_out": [None] * 4} if by_caller else {"z": [None] * 4}))
    assert not split_concats.split_floats(graph)


def test_channels_that_are_not_known_are_not_split() -> None:
    """Of the first input the file tells no size."""
    draft = Draft()
    sides = [draft.add("Abs", ["x"], "any"), draft.add("Relu", [draft.conv("x", "one", 4, 4)], "relu")]
    draft.conv(draft.add("Concat", sides, "join", axis=1), "last", 8, 4)
    draft.nodes[-1].output[0] = "y"
    assert not split_concats.split_floats(graph_of(draft, ["batch", "channels", 8, 8]))
    assert split_concats.split_floats(graph_of(draft))


def without(name: str, node: str) -> Callable[[Draft], object]:
    """Takes an attribute from a node."""

    def take(draft: Draft) -> None:
        (entry,) = (entry for entry in draft.nodes if entry.name == node)
        (attribute,) = (each for each in entry.attribute if each.name == name)
        entry.attribute.remove(attribute)

    return take


def foreign(node: str) -> Callable[[Graph], None]:
    """Puts a node into another domain."""

    def change(graph: Graph) -> None:
        graph.node(node).domain = "own"

    return change


def no_change(graph: Graph) -> None:
    pass


@pytest.mark.parametrize(
    ("draft", "change", "is_split"),
    [
        (joined("Conv", "Relu", axis=-3), no_change, True),
        (joined("Conv", "Relu", axis=-2), no_change, False),
        (joined("Conv", "Relu", more=without("group", "last")), no_change, True),
        (joined("Conv", "Softplus"), no_change, True),
        (joined("Conv", "Relu"), foreign("join"), False),
        (joined("Conv", "Relu"), foreign("last"), False),
        (joined("Conv", "Relu"), foreign("act1"), False),
    ],
    ids=["channels from behind", "rows from behind", "one group unsaid", "softplus", "join", "convolution", "relu"],
)
def test_what_is_split_is_said_by_standard_operators(
    draft: Draft, change: Callable[[Graph], None], is_split: bool
) -> None:
    """Axes may be counted from behind, and an attribute may be left out."""
    graph = graph_of(draft)
    change(graph)
    assert split_concats.split_floats(graph) == is_split


@pytest.mark.parametrize(("rank", "is_split"), [(2, False), (3, True), (5, True)])
def test_a_join_of_channels_has_places_behind_them(rank: int, is_split: bool) -> None:
    """One axis of them at least."""
    sizes, draft = [8] * (rank - 2), Draft()
    sides = [draft.add(kind, ["x"], kind) for kind in ("Abs", "Relu")]
    join = draft.add("Concat", sides, "join", axis=1)
    if is_split:
        draft.conv(join, "last", 8, 4, dims=rank - 2)
    else:
        draft.add("Conv", [join, draft.weight("w", 4, 8)], "last")
    draft.nodes[-1].output[0] = "y"
    nodes = [*draft.nodes]
    ends = [onnx.helper.make_tensor_value_info(name, 1, ["n", 4, *sizes]) for name in "xy"]
    body = onnx.helper.make_graph(nodes, "net", ends[:1], ends[1:], draft.initializers)
    values = [onnx.helper.make_tensor_value_info(side, 1, ["n", 4, *sizes]) for side in sides]
    body.value_info.extend(values)
    graph = Graph(onnx.helper.make_model(body, opset_imports=[onnx.helper.make_opsetid("", 17)]))
    assert split_concats.split_floats(graph) == is_split


def quantized(*kinds: str) -> Quantized:
    """With steps of weights with which sums hold on every CPU: what OpenVINO gives is then what is simulated."""
    network = of(joined(*kinds).model({"x": SIZE}, {"y": SIZE}))
    return replace(network, record=narrow_steps(network.graph, network.sites, network.record))


def deployed(network: Quantized, calibration: Sequence[np.ndarray], *, learned: bool = False) -> Graph:
    fitted = narrow_weights.fitted(network.graph, network.sites, network.record)
    return deploy_openvino.deploy(network.graph, network.sites, fitted, learned=learned, calibration=calibration)


def zero_points(graph: Graph) -> dict[str, int]:
    """What is quantized -> the byte that stands for zero."""
    quantize = [node for node in graph.nodes if node.op_type == "QuantizeLinear"]
    return {node.input[0]: int(graph.constant(node.input[2])) for node in quantize}


def test_in_two_no_bytes_have_a_zero_point() -> None:
    """Joined, all that is read with it has one; apart, values around zero are signed bytes and others unsigned ones."""
    network = quantized("Conv", "Relu")
    whole, halves = zero_points(deployed(network, ())), zero_points(deployed(network, (examples(4),)))
    assert whole["side0_out"] == whole["act1_out"] != 0
    assert halves == dict.fromkeys(("x", "side0_out", "side1_out", "y_inner_signed"), 0)


@pytest.mark.parametrize("kinds", [("Conv", "Relu"), ("Relu", "Conv", "Tanh", "Sigmoid")], ids="-".join)
def test_its_values_are_those_of_a_simulation(kinds: tuple[str, ...]) -> None:
    """The sites and scales of both halves say what the file does. The first sums are rounded once more, which shows
    where nothing else is between them and the output."""
    network, calibration = quantized(*kinds), (examples(16),)
    sites = deploy_openvino.sites_of(network.graph, network.sites)
    graph, own, record = split_concats.split(network.graph, sites, network.record, calibration)
    simulated = fake_quant(graph, own, deploy_openvino.record_of(graph, own, record))
    (executed,), (expected,) = run(deployed(network, calibration), network.feed), run(network.graph, network.feed)
    assert measure_sqnr(run(simulated, network.feed)[0], executed) > 40
    (whole,) = run(deployed(network, ()), network.feed)
    assert measure_sqnr(expected, executed) > measure_sqnr(expected, whole) - 2


def test_steps_of_weights_stay_and_ranges_are_those_of_what_is_read() -> None:
    """The second half keeps the name. Of inputs that stay joined the range is the widest."""
    network = quantized("Relu", "Conv", "Relu")
    sites = deploy_openvino.sites_of(network.graph, network.sites)
    graph, own, record = split_concats.split(network.graph, sites, network.record, (examples(2),))
    whole, first, second = network.record["last"], record["last/signed"], record["last"]
    assert whole.scale_w == first.scale_w == second.scale_w
    assert (first.scale_d, first.offset_d) == (network.record["join:1"].scale_d, network.record["join:1"].offset_d)
    assert second.scale_d == pytest.approx(max(network.record[f"join:{i}"].scale_d or 0 for i in (0, 2)))
    assert second.offset_d == -128
    weights = {site.layer: graph.constant(site.tensor) for site in own.weights}
    original = network.graph.constant("last.weight")
    assert np.array_equal(weights["last/signed"], original[:, 4:8])
    assert np.array_equal(weights["last"], original[:, [0, 1, 2, 3, 8, 9, 10, 11]])
    assert not {"join:0", "join:1", "join:2"} & {key for site in own.activations for key in site.keys}


def test_the_range_of_the_first_sums_is_that_of_all_examples() -> None:
    """The last alone is large; below zero counts as above."""
    network = quantized("Conv", "Relu")
    sites = deploy_openvino.sites_of(network.graph, network.sites)
    calibration = examples(5)
    calibration[-1] *= 50
    graph, _, record = split_concats.split(network.graph, sites, network.record, (calibration,))
    graph.model.graph.output.add(name="y_inner_signed").type.tensor_type.elem_type = 1
    (sums,) = run(graph, {"x": calibration}, names=["y_inner_signed"])
    assert record["last/sum:1"] == Scales(scale_d=pytest.approx(np.abs(sums).max() / 127, rel=1e-5), offset_d=0)


def test_nothing_changes_without_examples_or_where_scales_were_learned() -> None:
    """Scales that were trained fit the graph that was."""
    network = quantized("Conv", "Relu")
    sites = deploy_openvino.sites_of(network.graph, network.sites)
    for none in ((), (examples(0),)):
        assert split_concats.split(network.graph, sites, network.record, none) == (network.graph, sites, network.record)
    learned = deployed(network, (examples(2),), learned=True)
    assert [node.name for node in learned.nodes if node.op_type == "Concat"] == ["join"]


def test_a_convolution_that_is_not_quantized_as_it_is_stays_whole() -> None:
    """One that stays float, one of whose inputs does, or whose inputs are balanced against its weights."""
    network = quantized("Conv", "Relu")
    sites, calibration = deploy_openvino.sites_of(network.graph, network.sites), (examples(2),)
    no_weight = replace(sites, weights=tuple(site for site in sites.weights if site.layer != "last"))
    left = [replace(site, keys={k: p for k, p in site.keys.items() if k != "join:0"}) for site in sites.activations]
    no_input = replace(sites, activations=tuple(site for site in left if site.keys))
    balanced = {**network.record, "last": replace(network.record["last"], balance=(2.0,) * 8)}
    for changed, record in ((no_weight, network.record), (no_input, network.record), (sites, balanced)):
        assert split_concats.split(network.graph, changed, record, calibration) == (network.graph, changed, record)


@needs_openvino
def test_openvino_adds_the_first_sums_as_the_second_convolution_runs(tmp_path: Path) -> None:
    """Both multiply bytes, nothing is joined, no step of its own adds; the answers are those of ONNX Runtime."""
    from qbench.quant.artifacts import openvino_model
    from qbench.quant.onnx import openvino_layers

    network, file = quantized("Conv", "Relu"), tmp_path / "int8.onnx"
    model = deployed(network, (examples(16),))
    model.save(file)
    inputs = (network.feed["x"],)
    (expected,) = run(model, network.feed)
    answer = openvino_model.run(openvino_model.compile_file(file, inputs), inputs)
    assert measure_sqnr(expected, answer) > 35
    layers = [call for call in openvino_layers.executed(file, inputs) if "last" in call.names]
    assert [call.layer.precision for call in layers] == ["int8", "int8"]
    operators = [
        node.operator.split()[0] for node in openvino_layers.time_nodes(file, inputs, threads=1, calls=1).nodes
    ]
    assert not {"Concat", "Eltwise"} & set(operators)
    assert operators.count("Convolution") == 4
