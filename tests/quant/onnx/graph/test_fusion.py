"""Scaling behind a layer goes into it: what is fused, what stays, and that the result computes the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx_networks import NETWORKS, Draft, decoder, random_inputs, residual_cnn

from qbench.quant.onnx.graph import equivalence, fusion, pads
from qbench.quant.onnx.graph.fusion import Fused
from qbench.quant.onnx.graph.graph import Graph, attribute


def fuse(model, skip=()):
    """The fused graph and what was fused, after its outputs proved equal on random inputs."""
    graph = Graph(model)
    names = graph.inputs
    inputs = dict(zip(names, random_inputs(model, 2), strict=True))
    expected = equivalence.run(graph, inputs)
    fusions = fusion.fuse(graph, skip)
    for ours, theirs in zip(expected, equivalence.run(graph, inputs), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)
    return graph, fusions


def behind_conv(*steps, group=1, kernel=3, rank=4, transpose=False):
    """A Conv or ConvTranspose without bias of 4 channels, and (operator, constant or None for BatchNorm) behind it."""
    draft = Draft(1)
    if transpose:
        weight = draft.weight("conv.weight", 4, 4 // group, *[kernel] * (rank - 2))
        x = draft.add("ConvTranspose", ["x", weight], "conv", group=group)
    else:
        x = draft.conv("x", "conv", 4, 4, kernel, group=group, bias=False, dims=rank - 2)
    for i, (operator, value) in enumerate(steps):
        if value is None:
            x = draft.batch_norm(x, f"step{i}", 4)
        else:
            constant = draft.constant(f"value{i}", np.asarray(value, np.float32))
            x = draft.add(operator, [x, constant], f"step{i}")
    shape = [1, 4, *[6] * (rank - 2)]
    return draft.model({"x": shape}, {x: [None] * rank})


def per_channel(seed=0):
    return np.random.default_rng(seed).uniform(0.5, 2, (1, 4, 1, 1))


def test_batch_norm_goes_into_the_layers_before_it():
    """All three of a residual network, with and without a bias of their own."""
    graph, actual = fuse(residual_cnn())
    assert actual == tuple(Fused(layer=f"conv{i}", nodes=(f"bn{i}",)) for i in (1, 2, 3))
    assert "BatchNormalization" not in {node.op_type for node in graph.nodes}
    assert [name for name in graph.constants if name.startswith("bn")] == []


@pytest.mark.parametrize("group", [1, 2, 4])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("rank", [3, 4, 5])
def test_groups_keep_their_channels(group, transpose, rank):
    """Grouped and depthwise layers of any rank; ConvTranspose counts its output channels by group."""
    _, actual = fuse(behind_conv(("BatchNormalization", None), group=group, transpose=transpose, rank=rank))
    assert len(actual) == 1


@settings(max_examples=25)
@given(
    steps=st.lists(st.sampled_from(["Mul", "Add", "Sub", "Div", "BatchNormalization"]), min_size=1, max_size=4),
    seed=st.integers(0, 100),
)
def test_any_chain_of_scaling_is_taken_in(steps, seed):
    """Mul, Add, Sub, Div and BatchNorm in any order become one layer."""
    values = [None if step == "BatchNormalization" else per_channel(seed + i) for i, step in enumerate(steps)]
    graph, _ = fuse(behind_conv(*zip(steps, values, strict=True)))
    assert [node.op_type for node in graph.nodes] == ["Conv"]


@pytest.mark.parametrize("value", [2.0, [2.0], np.ones((4, 1, 1)) * 3, per_channel()])
def test_constants_that_broadcast_over_a_channel(value):
    """A scalar, one value, (C, 1, 1) and (1, C, 1, 1)."""
    graph, _ = fuse(behind_conv(("Mul", value), ("Add", value)))
    assert [node.op_type for node in graph.nodes] == ["Conv"]


@pytest.mark.parametrize(
    "value", [np.arange(1.0, 7), np.ones((4, 6, 6)), np.ones((1, 1, 1, 1, 1)), np.ones((2, 4, 1, 1))]
)
def test_constants_that_do_not_stay(value):
    """One value a column, one a pixel, one more dimension, one an example: no scaling per channel."""
    graph, actual = fuse(behind_conv(("Mul", value)))
    assert actual == ()
    assert len(graph.nodes) == 2


def test_a_division_by_zero_stays():
    """inf must not get into a weight."""
    assert fusion.fuse(Graph(behind_conv(("Div", [[[1.0]], [[0.0]], [[1.0]], [[1.0]]])))) == ()


def test_constant_minus_output_stays():
    """c - y is not y - c."""
    model = behind_conv(("Sub", per_channel()))
    node = model.graph.node[-1]
    node.input[0], node.input[1] = node.input[1], node.input[0]
    assert fuse(model)[1] == ()


def test_an_output_that_others_read_is_not_scaled():
    """A second reader, an output of the graph, a subgraph: each keeps the BatchNorm."""
    second = residual_cnn()
    second.graph.node.append(helper.make_node("Relu", ["conv2_out"], ["also"], name="also"))
    second.graph.output.append(helper.make_empty_tensor_value_info("also"))
    assert [entry.layer for entry in fuse(second)[1]] == ["conv1", "conv3"]
    given_out = residual_cnn()
    given_out.graph.output.append(helper.make_empty_tensor_value_info("conv2_out"))
    assert [entry.layer for entry in fuse(given_out)[1]] == ["conv1", "conv3"]


def test_a_subgraph_that_reads_a_layer_keeps_it():
    """What a branch reads is not changed under it."""
    model = NETWORKS["branches"]()
    assert fuse(model)[1] == ()


def test_layers_can_be_left_out():
    """By the name of the layer or of the node behind it."""
    assert [entry.layer for entry in fuse(residual_cnn(), ["conv2", "bn3"])[1]] == ["conv1"]


def test_gemm_takes_a_batch_norm():
    """(batch, features), with transB and without a bias."""
    draft = Draft()
    weight = draft.weight("w", 4, 8)
    x = draft.add("Gemm", ["x", weight], "fc", transB=1)
    draft.batch_norm(x, "bn", 4)
    graph, actual = fuse(draft.model({"x": ["batch", 8]}, {"bn_out": ["batch", 4]}))
    assert actual == (Fused(layer="fc", nodes=("bn",)),)
    assert len(graph.nodes) == 1


def test_a_decoder_is_fused():
    """ConvTranspose with groups and a bias."""
    for group in (1, 2):
        assert fuse(decoder(group=group))[1] == (Fused(layer="up", nodes=("bn",)),)


def test_a_batch_norm_in_training_mode_stays():
    """It computes its statistics from the batch."""
    model = residual_cnn()
    next(node for node in model.graph.node if node.name == "bn2").attribute.append(
        helper.make_attribute("training_mode", 1)
    )
    assert [entry.layer for entry in fusion.fuse(Graph(model))] == ["conv1", "conv3"]


@pytest.mark.parametrize(
    ("kind", "shape", "bias", "attributes"),
    [
        *(("Conv", shape, None, {}) for shape in [(), (4,), (4, 4)]),
        *(("ConvTranspose", shape, None, {}) for shape in [(4,), (4, 4)]),
        *(("Gemm", shape, None, {}) for shape in [(), (4,), (4, 4, 1)]),
        *(("Conv", (4, 4, 1, 1), bias, {}) for bias in [(), (1,), (3,), (4, 2)]),
        *(("Gemm", (4, 4), bias, {}) for bias in [(3,), (4, 3), (1, 1, 4)]),
        ("Conv", (4, 4, 1, 1), None, {"dilations": [1]}),
        *(("ConvTranspose", (4, 4, 1, 1), None, {"group": group}) for group in (0, 3)),
    ],
)
def test_constants_of_other_dimensions_than_their_layer_has_stay(kind, shape, bias, attributes):
    """Whatever a file says: nothing is computed with them here, and who runs the file says what is wrong."""
    values = {"w": np.ones(shape, np.float32)} | ({} if bias is None else {"b": np.ones(bias, np.float32)})
    nodes = [
        helper.make_node(kind, ["x", *values], ["y"], name="layer", **attributes),
        helper.make_node("Mul", ["y", "factor"], ["z"], name="mul"),
    ]
    assert stays(nodes, {**values, "factor": np.float32(2.0)})


@pytest.mark.parametrize("other", ["scale", "shift", "mean", "variance"])
@pytest.mark.parametrize(("kind", "shape"), [("Conv", (4, 4, 1, 1)), ("Gemm", (4, 4))])
def test_a_normalization_of_other_channels_stays(kind, shape, other):
    """A single one of its four arrays is enough."""
    arrays = {name: np.ones(3 if name == other else 4, np.float32) for name in ("scale", "shift", "mean", "variance")}
    nodes = [
        helper.make_node(kind, ["x", "w"], ["y"], name="layer"),
        helper.make_node("BatchNormalization", ["y", *arrays], ["z"], name="norm"),
    ]
    assert stays(nodes, {"w": np.ones(shape, np.float32), **arrays})


def stays(nodes, constants):
    """Whether two nodes, from x to z, are what they were."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xz"]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = Graph(helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)))
    return fusion.fuse(graph) == () and [node.name for node in graph.nodes] == [node.name for node in nodes]


def test_what_would_not_compute_the_same_stays(monkeypatch):
    """A wrong weight is found by running it; the layer then keeps its BatchNorm."""
    along = fusion._along

    def wrong(node, weight, a):
        return along(node, weight, a) * (1.01 if node.name == "conv2" else 1)

    monkeypatch.setattr(fusion, "_along", wrong)
    graph = Graph(residual_cnn())
    before = graph.constant("conv2.weight").copy()
    assert [entry.layer for entry in fusion.fuse(graph)] == ["conv1", "conv3"]
    np.testing.assert_array_equal(graph.constant("conv2.weight"), before)


def test_a_shared_weight_is_not_scaled_for_its_other_reader():
    """Each layer gets a weight of its own."""
    model = NETWORKS["shared_weight"]()
    scale = helper.make_node("Mul", ["one_out", "factor"], ["scaled"], name="mul")
    nodes = list(model.graph.node)
    nodes[1].input[0] = "scaled"
    del model.graph.node[:]
    model.graph.node.extend([nodes[0], scale, *nodes[1:]])
    model.graph.initializer.append(helper.make_tensor("factor", 1, [], [3.0]))
    graph, actual = fuse(model)
    assert [entry.layer for entry in actual] == ["one"]
    assert graph.node("one").input[1] != graph.node("two").input[1]


def padded(pads, *, value=None, axes=None, mode="constant", opset=17, **attributes):
    """Pad, then a Conv 3x3."""
    draft = Draft(2)
    inputs = ["x", draft.constant("pads", np.array(pads))]
    inputs.append("" if value is None else draft.constant("value", np.float32(value)))
    inputs += [] if axes is None else [draft.constant("axes", np.array(axes))]
    x = draft.add("Pad", inputs if axes or value is not None else inputs[:2], "pad", mode=mode)
    weight = draft.weight("w", 4, 2, 3, 3)
    y = draft.add("Conv", [x, weight], "conv", **attributes)
    return draft.model({"x": [1, 2, 6, 6]}, {y: [None] * 4}, opset=opset)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"pads": [0, 0, 1, 1, 0, 0, 1, 1]}, [1, 1, 1, 1]),
        ({"pads": [0, 0, 0, 0, 0, 0, 1, 2], "value": 0.0}, [0, 0, 1, 2]),
        ({"pads": [0, 0, 0, 0, 0, 0, 1, 2], "value": 0.0, "pads_of_conv": [1, 2, 3, 4]}, [1, 2, 4, 6]),
        ({"pads": [1, 2, 3, 4], "axes": [2, -1], "opset": 18}, [1, 2, 3, 4]),
        ({"pads": [1, 3], "axes": [3], "opset": 18}, [0, 1, 0, 3]),
    ],
)
def test_zero_padding_goes_into_the_convolution(options, expected):
    """Beside the pads that the Conv has, in front and behind, also where only some axes are named."""
    own = options.pop("pads_of_conv", None)
    model = padded(**options)
    if own:
        model.graph.node[1].attribute.append(helper.make_attribute("pads", own))
    graph, actual = taken_in(model)
    assert actual == (("conv", "pad"),)
    assert [node.op_type for node in graph.nodes] == ["Conv"]
    assert attribute(graph.nodes[0], "pads") == expected


@pytest.mark.parametrize(
    "options",
    [
        {"pads": [0, 0, 1, 1, 0, 0, 1, 1], "value": 1.0},
        {"pads": [0, 0, 1, 1, 0, 0, 1, 1], "mode": "reflect"},
        {"pads": [0, 0, -1, 1, 0, 0, 1, 1]},
        {"pads": [1, 0, 1, 1, 0, 0, 1, 1]},
        {"pads": [0, 0, 1, 1, 0, 0, 1, 1], "auto_pad": "SAME_UPPER"},
    ],
)
def test_other_padding_stays(options):
    """Ones, reflected values, cropping, padded examples, and a Conv that works out its own pads."""
    graph, actual = taken_in(padded(**options))
    assert actual == ()
    assert len(graph.nodes) == 2


def test_padding_with_another_reader_stays_for_it():
    """The Conv reads what the Pad reads; the Pad is still there for the other reader."""
    model = padded([0, 0, 1, 1, 0, 0, 1, 1])
    model.graph.node.append(helper.make_node("Relu", ["pad_out"], ["also"], name="relu"))
    model.graph.output.append(helper.make_empty_tensor_value_info("also"))
    graph, actual = taken_in(model)
    assert actual == (("conv", "pad"),)
    assert sorted(node.name for node in graph.nodes) == ["conv", "pad", "relu"]
    assert taken_in(padded([0, 0, 1, 1, 0, 0, 1, 1]), ["pad"])[1] == ()


def taken_in(model, skip=()):
    graph = Graph(model)
    inputs = {"x": random_inputs(model)[0]}
    expected = equivalence.run(graph, inputs)
    actual = pads.take_in(graph, skip)
    for ours, theirs in zip(expected, equivalence.run(graph, inputs), strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)
    return graph, actual


@pytest.mark.parametrize(
    ("kind", "shape", "attributes", "channels"),
    [
        ("Conv", (2, 3, 1, 1), {}, 2),
        ("ConvTranspose", (4, 3, 1, 1), {"group": 2}, 6),
        ("Gemm", (2, 3), {}, 3),
        ("Gemm", (2, 3), {"transB": 1}, 2),
    ],
)
def test_a_layer_has_as_many_outputs_as_its_weight_says(kind, shape, attributes, channels):
    """Where they lie in it differs from operator to operator."""
    layer = helper.make_node(kind, ["x", "w"], ["y"], **attributes)
    assert fusion._channels(layer, np.zeros(shape)) == channels


@pytest.mark.parametrize(
    ("kind", "shape", "attributes", "expected"),
    [
        ("Gemm", (5, 3), {}, (4, 5)),
        ("Gemm", (3, 5), {"transB": 1}, (4, 5)),
        ("Gemm", (5, 3), {"transA": 1}, (5, 4)),
        ("Conv", (6, 2, 3, 1), {}, (1, 2, 4, 2)),
        ("Conv", (6, 2, 3, 1), {"group": 3}, (1, 6, 4, 2)),
        ("Conv", (6, 2, 3), {"dilations": [4]}, (1, 2, 10)),
        ("ConvTranspose", (6, 2, 3), {"group": 3}, (1, 6, 4)),
    ],
)
def test_a_fusion_is_tried_on_the_smallest_input(kind, shape, attributes, expected):
    """One place more than the window covers."""
    assert fusion._input_shape(helper.make_node(kind, ["x", "w"], ["y"], **attributes), np.zeros(shape)) == expected


@pytest.mark.parametrize(("least", "fused"), [(4 * 4 * 4, 1), (4 * 4 * 4 - 1, 0)])
def test_a_fusion_on_a_large_input_is_not_tried(least, fused, monkeypatch):
    """Dilations may ask for any number of places."""
    monkeypatch.setattr(fusion, "LARGEST", least)
    assert len(fuse(behind_conv(("Mul", 2.0)))[1]) == fused


def normalization(*outputs, variance=(3.0, 8.0), constants=True, **attributes):
    """A BatchNormalization of two channels as a graph."""
    names = ["scale", "shift", "mean", "variance"]
    node = helper.make_node("BatchNormalization", ["x", *names], ["y", *outputs], **attributes)
    values = ([2.0, 4.0], [1.0, 2.0], [0.5, -1.0], variance)
    held = [helper.make_tensor(name, 1, [2], value) for name, value in zip(names, values, strict=True)]
    ends = [helper.make_tensor_value_info(name, 1, None) for name in "xy"]
    inputs = ends[:1] if constants else [ends[0], helper.make_tensor_value_info("mean", 1, [2])]
    kept = [tensor for tensor in held if constants or tensor.name != "mean"]
    return Graph(helper.make_model(helper.make_graph([node], "net", inputs, ends[1:], kept)))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"epsilon": 1.0}, ([1, 4 / 3], [0.5, 2 + 4 / 3])),
        ({}, ([2 / 3.00001**0.5, 4 / 8.00001**0.5], [1 - 1 / 3.00001**0.5, 2 + 4 / 8.00001**0.5])),
        ({"epsilon": 1.0, "training_mode": 0}, ([1, 4 / 3], [0.5, 2 + 4 / 3])),
        ({"training_mode": 1}, None),
        ({"variance": (3.0, -1.0)}, None),  # no number
        ({"variance": (3.0, 0.0), "epsilon": 0.0}, None),  # infinite
        ({"constants": False}, None),
    ],
)
def test_what_a_normalization_multiplies_with_and_adds(options, expected):
    """Of constants, as finite numbers, in inference."""
    graph = normalization(**options)
    scaling = fusion._batch_norm(graph, graph.nodes[0], 2)
    if expected is None:
        assert scaling is None
    else:
        np.testing.assert_allclose(scaling, expected, rtol=1e-9)


def test_a_normalization_that_gives_its_statistics_stays():
    """Outputs without a name are none."""
    for outputs, stays in ((["", ""], False), (["", "m"], True)):
        graph = normalization(*outputs)
        assert (fusion._batch_norm(graph, graph.nodes[0], 2) is None) == stays


@pytest.mark.parametrize(
    ("operator", "trans_a", "trans_b"), [("Mul", 0, 0), ("Add", 0, 1), ("Sub", 1, 0), ("Div", 0, 0)]
)
def test_a_gemm_takes_what_is_behind_it_in_every_form(operator, trans_a, trans_b):
    """The constant may stand first, but for a difference and a quotient."""
    for first in (False, True):
        draft = Draft()
        weight = draft.weight("w", *((4, 8) if trans_b else (8, 4)))
        x = draft.add("Gemm", ["x", weight], "fc", transA=trans_a, transB=trans_b)
        value = draft.constant("value", np.float32([1, 2, 3, 4]))
        draft.add(operator, [value, x] if first else [x, value], "step", outputs=["y"])
        model = draft.model({"x": [8, 2] if trans_a else [2, 8]}, {"y": [2, 4]})
        assert len(fuse(model)[1]) == (not first or operator in ("Mul", "Add"))


@pytest.mark.parametrize("kind", ["double scale", "computed bias", "computed weight", "double weight"])
def test_a_layer_whose_numbers_are_no_float_constants_stays(kind):
    """Nothing of it is changed."""
    draft, real = Draft(), np.float64 if kind == "double weight" else np.float32
    weight = draft.constant("w", np.ones((4, 8), real))
    bias = draft.constant("b", np.ones(4, real))
    if kind.startswith("computed"):
        weight, bias = (
            draft.add("Abs", [name], f"abs_{name}") if kind.endswith(word) else name
            for name, word in ((weight, "weight"), (bias, "bias"))
        )
    x = draft.add("Gemm", ["x", weight, bias], "fc", transB=1)
    scale = draft.constant("value", np.float64(2) if kind.startswith("double") else np.float32(2))
    draft.add("Mul", [x, scale], "step", outputs=["y"])
    number = 11 if kind == "double weight" else 1
    body = helper.make_graph(
        draft.nodes, "net", [helper.make_tensor_value_info("x", number, [2, 8])],
        [helper.make_tensor_value_info("y", number, [2, 4])], draft.initializers,
    )  # fmt: skip
    graph = Graph(helper.make_model(body))
    before = graph.model.SerializeToString(deterministic=True)
    assert fusion.fuse(graph) == ()
    assert graph.model.SerializeToString(deterministic=True) == before
