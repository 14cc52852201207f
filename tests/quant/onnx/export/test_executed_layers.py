"""What is written as int8 for ONNX Runtime is what ONNX Runtime runs in int8."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_networks
import pytest
from calibration_models import graph
from onnx_networks import Draft
from quantized_networks import Quantized, executed, of, quantized, run

from qbench.quant.onnx import onnxruntime_layers
from qbench.quant.onnx.export import deploy_model, keep_float, narrow_weights
from qbench.quant.onnx.export import executed_layers as ran
from qbench.quant.onnx.export.deploy_onnxruntime import deploy, form_for
from qbench.quant.onnx.export.executed_layers import Settled
from qbench.quant.onnx.export.fake_quant import fake_quant
from qbench.quant.onnx.export.narrow_weights import Fitted
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.settings import ActivationParams
from qbench.quant.onnx.sites import ActivationSite, Sites
from qbench.quant.onnx.weights.narrow_steps import narrow_steps


def settled(network: Quantized, choice: str | None = None) -> Settled:
    return ran.settled(
        network.graph, network.sites, narrow_weights.fitted(network.graph, network.sites, network.record, choice)
    )


def narrowed(network: Quantized) -> Quantized:
    """With steps of weights with which sums hold on every CPU: what the kernels give is then what is simulated."""
    return replace(network, record=narrow_steps(network.graph, network.sites, network.record))


def srcnn() -> Quantized:
    """Conv 9x9, Relu, Conv 1x1, Relu, Conv 5x5, which is the output."""
    draft = Draft()
    x = draft.add("Relu", [draft.conv("x", "one", 1, 16, 9)], "relu1")
    x = draft.add("Relu", [draft.conv(x, "two", 16, 8, 1)], "relu2")
    draft.conv(x, "three", 8, 8, 5)
    draft.nodes[-1].output[0] = "y"
    return of(draft.model({"x": ["batch", 1, 16, 16]}, {"y": ["batch", 8, 16, 16]}))


def test_a_convolution_at_the_end_runs_in_int8() -> None:
    """All three layers of an SRCNN have integer kernels, and no weight is dequantized as it runs."""
    settled_graph = settled(srcnn())
    kinds = [node.op_type for node in executed(settled_graph.graph)]
    assert kinds.count("QLinearConv") == 3
    assert kinds.count("DequantizeLinear") == 1, "that of the output"
    assert settled_graph.floats == {}


def test_no_copy_of_a_weight_is_made_that_the_file_has_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of the graph begin without the float weights in whose place integers come: a large model's would take as
    much memory again."""
    planned = srcnn()
    weights = {site.tensor for site in planned.sites.weights}
    copied: list[set[str]] = []
    original = Graph.copy

    def copy(graph: Graph, *, without: Collection[str] = ()) -> Graph:
        copied.append(weights & set(graph.constants) - set(without))
        return original(graph, without=without)

    monkeypatch.setattr(Graph, "copy", copy)
    settled(planned)
    assert copied
    assert not any(copied)


def test_an_output_that_is_not_quantized_leaves_its_layer_whole_in_float() -> None:
    """Without a scale behind it the last convolution is fp32, with its own weights, and is called so."""
    planned = srcnn()
    without = Quantized(
        graph=planned.graph,
        sites=ran.without_outputs(planned.graph, planned.sites),
        record=planned.record,
        feed=planned.feed,
    )
    settled_graph = settled(without)
    assert settled_graph.floats == {
        "three": "ONNX Runtime runs it in float: what graph_output_y reads of it is not quantized"
    }, "without keys of a configuration, which a suite does not have"
    assert settled_graph.sites.floats["three"] == settled_graph.floats["three"]
    (conv,) = (node for node in executed(settled_graph.graph) if node.op_type in ("Conv", "FusedConv"))
    assert conv.name == "y_nchwc" or conv.name.startswith("three"), "named after its output in blocked layout"
    np.testing.assert_array_equal(
        settled_graph.graph.constant(settled_graph.graph.node("three").input[1]), planned.graph.constant("three.weight")
    )
    assert [node.op_type for node in executed(settled_graph.graph)].count("QLinearConv") == 2


@pytest.mark.parametrize("behind", ["Relu", "Clip", ""])
@pytest.mark.parametrize("tail", ["joined", "added", "added to itself", "given to the caller"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_product_that_floats_read_runs_in_int8(bias: bool, tail: str, behind: str) -> None:
    """Whatever the runtime would join with it: a Relu, a Clip, the Add of a residual. Values are those of floats."""
    draft = Draft()
    if bias:
        x = draft.linear("x", "one", 16, 16)
    else:
        x = draft.add("MatMul", ["x", draft.weight("one.weight", 16, 16)], "one")
    if behind:
        ends = [draft.constant("low", np.float32(0)), draft.constant("high", np.float32(6))]
        x = draft.add(behind, [x, *(ends if behind == "Clip" else [])], "behind")
    outputs = {x: ["batch", 16]} if tail == "given to the caller" else {}
    if tail == "joined":
        x = draft.add("Concat", [x, "x"], "join", axis=1)
    elif tail == "added":
        x = draft.add("Add", [x, "x"], "add")
    elif tail == "added to itself":
        x = draft.add("Add", [draft.linear(x, "between", 16, 16), x], "add")
    x = draft.linear(x, "last", 32 if tail == "joined" else 16, 4)
    planned = narrowed(of(draft.model({"x": ["batch", 16]}, {**outputs, x: ["batch", 4]})))
    settled_graph = settled(planned)
    assert settled_graph.floats == {}
    kinds = {node.op_type for node in executed(settled_graph.graph)}
    assert not kinds & {"Gemm", "FusedGemm", "MatMul"}
    simulated = fake_quant(planned.graph, settled_graph.sites, planned.record)
    for expected, given in zip(run(simulated, planned.feed), run(settled_graph.graph, planned.feed), strict=True):
        assert np.abs(given - expected).max() <= 0.02 * np.abs(expected).max()


def test_a_transposed_convolution_is_float() -> None:
    """ONNX Runtime has no int8 kernel for it: float weights, and a reason."""
    settled_graph = settled(quantized("decoder"))
    transposed = {node.name for node in quantized("decoder").graph.nodes if node.op_type == "ConvTranspose"}
    assert transposed
    assert settled_graph.floats == dict.fromkeys(transposed, "ONNX Runtime has no int8 kernel for ConvTranspose")
    assert not {site.layer for site in settled_graph.sites.weights} & transposed


def upsampler(tail: str, *, bias: bool = True) -> Quantized:
    """A convolution, a transposed one whose windows of 2x3 lie side by side, and what is behind it."""
    draft = Draft()
    x = draft.add("Relu", [draft.conv("x", "one", 4, 6)], "relu")
    weights = [draft.weight("up.weight", 6, 5, 2, 3), *([draft.bias("up.bias", 5)] if bias else [])]
    up = draft.add("ConvTranspose", [x, *weights], "up", kernel_shape=[2, 3], strides=[2, 3])
    if tail == "relu":
        up = draft.add("Relu", [up], "relu2")
    draft.conv(up, "two", 5, 4)
    draft.nodes[-1].output[0] = "y"
    return of(draft.model({"x": ["batch", 4, 5, 7]}, {"y": ["batch", 4, 10, 21]}))


@pytest.mark.parametrize(("tail", "bias"), [("conv", True), ("relu", True), ("conv", False)])
def test_a_transposed_convolution_of_separate_windows_runs_in_int8(tail: str, bias: bool) -> None:
    """ONNX Runtime multiplies bytes for it, in the layout of the layers around it, and gives the simulated values."""
    planned = narrowed(upsampler(tail, bias=bias))
    settled_graph = settled(planned)
    assert settled_graph.floats == {}
    kinds = [node.op_type for node in executed(settled_graph.graph)]
    assert kinds.count("QLinearConv") == 3
    assert kinds.count("DequantizeLinear") == 1, "that of the output"
    assert kinds.count("Transpose") == 3, "of the input, of the output, and of the places of the windows"
    simulated = fake_quant(planned.graph, settled_graph.sites, planned.record)
    (expected,), (arguments,) = run(simulated, planned.feed), run(settled_graph.graph, planned.feed)
    assert arguments.shape == expected.shape
    assert np.abs(arguments - expected).max() <= 0.02 * np.abs(expected).max()


def test_a_layer_that_is_skipped_stays_float() -> None:
    """Between two int8 layers ONNX Runtime would quantize its weights by itself, with one scale for all channels."""
    draft = Draft()
    x = draft.add("Relu", [draft.conv("x", "one", 4, 4)], "relu")
    x = draft.conv(draft.conv(x, "two", 4, 4), "three", 4, 4)
    draft.nodes[-1].output[0] = "y"
    network = of(draft.model({"x": ["batch", 4, 6, 6]}, {"y": ["batch", 4, 6, 6]}), skip_layers=("two",))
    kinds = [node.op_type for node in executed(settled(network).graph)]
    assert (kinds.count("QLinearConv"), kinds.count("Conv")) == (2, 1)


@pytest.mark.parametrize("join", ["MaxPool", "Add"])
def test_what_a_skipped_layer_reads_of_a_pool_or_a_sum_is_not_rounded(join: str) -> None:
    """Both can give floats, unlike a convolution, so that the skipped layer costs no accuracy."""
    draft = Draft()
    x = draft.conv("x", "one", 4, 4)
    more = [draft.conv("x", "other", 4, 4)] if join == "Add" else []
    x = draft.add(join, [x, *more], "join", **({} if more else {"kernel_shape": [1, 1]}))
    draft.conv(x, "two", 4, 4)
    draft.nodes[-1].output[0] = "y"
    network = of(draft.model({"x": ["batch", 4, 6, 6]}, {"y": ["batch", 4, 6, 6]}), skip_layers=("two",))
    assert ("two", 0) not in {place for site in network.sites.activations for place in site.keys.values()}


@pytest.mark.parametrize("behind", ["", "Relu", "Clip"])
@pytest.mark.parametrize(("kind", "before"), [("Conv", ""), ("Conv", "MaxPool"), ("ConvTranspose", ""), ("Gemm", "")])
def test_float_weights_between_bytes_stay_as_they_are(kind: str, behind: str, before: str) -> None:
    """ONNX Runtime makes no bytes of them, which it would dequantize again at every inference or multiply."""
    draft = Draft()
    pair = [draft.constant("scale", np.float32(0.05)), draft.constant("zero", np.uint8(128))]
    x = draft.add("DequantizeLinear", [draft.add("QuantizeLinear", ["x", *pair], "q"), *pair], "dq")
    shape = ["batch", 4] if kind == "Gemm" else ["batch", 4, 6, 6]
    if before:
        x = draft.add("MaxPool", [x], "pool", kernel_shape=[1, 1])
    weight = draft.weight("weight", 4, 4, *([] if kind == "Gemm" else [1, 1]))
    x = draft.add(kind, [x, weight, draft.bias("bias", 4)], "layer")
    if behind:
        ends = [draft.constant("low", np.float32(0)), draft.constant("high", np.float32(6))]
        x = draft.add(behind, [x, *(ends if behind == "Clip" else [])], "behind")
    draft.add("DequantizeLinear", [draft.add("QuantizeLinear", [x, *pair], "q2"), *pair], "dq2", outputs=["y"])
    graph = Graph(draft.model({"x": shape}, {"y": shape}))
    keep_float.keep_float(graph)
    layers = executed(graph)
    assert [node.op_type.removeprefix("Fused") for node in layers].count(kind) == 1
    computed = {name for node in layers for name in node.output} | {"x"}
    assert not [node for node in layers if node.op_type == "DequantizeLinear" and node.input[0] not in computed]


def test_the_last_add_and_the_last_pool() -> None:
    """An Add at the end runs on bytes; an AveragePool does not, being slower so, and is called float, while the
    convolution before it stays int8."""
    draft = Draft()
    first = draft.conv("x", "first", 4, 4)
    draft.add("Add", [draft.conv(first, "second", 4, 4), first], "add", outputs=["sum"])
    draft.add(
        "AveragePool", [draft.conv(first, "third", 4, 4)], "pool", outputs=["y"], kernel_shape=[2, 2], strides=[2, 2]
    )
    settled_graph = settled(
        of(draft.model({"x": ["batch", 4, 8, 8]}, {"sum": ["batch", 4, 8, 8], "y": ["batch", 4, 4, 4]}))
    )
    kinds = [node.op_type for node in executed(settled_graph.graph)]
    assert kinds.count("QLinearConv") == 3
    assert "QLinearAdd" in kinds
    assert "AveragePool" in kinds
    assert settled_graph.floats == {"pool": "ONNX Runtime runs it in float: what the graph gives is not quantized"}


@pytest.mark.parametrize("name", sorted(onnx_networks.NETWORKS))
def test_what_is_listed_is_what_runs(name: str) -> None:
    """No layer of the sites has a float kernel, none that is called float an integer one, and the fake-quant model of
    the same sites gives the same."""
    network = quantized(name)
    settled_graph = settled(network)
    floats = [
        node for node in executed(settled_graph.graph) if node.op_type in ("Conv", "FusedConv", "Gemm", "FusedGemm")
    ]
    listed = {site.layer for site in settled_graph.sites.weights}
    names = listed | {network.graph.node(layer).output[0] for layer in listed}
    assert not [node.name for node in floats if node.name.removesuffix("_nchwc") in names]
    assert not listed & settled_graph.floats.keys()
    simulated = fake_quant(network.graph, settled_graph.sites, network.record)
    for first, other in zip(run(settled_graph.graph, network.feed), run(simulated, network.feed), strict=True):
        assert np.abs(first.astype(np.float64) - other).max() <= 0.05 * np.abs(other).max()


def test_a_form_of_another_cpu_is_written_as_planned() -> None:
    """What this machine would run in float says nothing of the machine that the file is for."""
    network = srcnn()
    other = "S8S8" if form_for() != "S8S8" else "U8S8"
    settled_graph = settled(network, other)
    assert settled_graph.floats == {}
    fitted = Fitted(choice=other, form=other, record=network.record)
    assert settled_graph.graph.model == deploy(network.graph, network.sites, fitted.record, form=fitted.form).model


def test_who_reads_the_shape_does_not_keep_a_convolution_float() -> None:
    """Group normalization reads the shape of a convolution's output, and its values through a Reshape."""
    draft = Draft()
    conv = draft.conv("x", "conv", 4, 8)
    shape = draft.add("Shape", [conv], "shape")
    flat = draft.add("Reshape", [conv, draft.constant("groups", np.int64([0, 2, -1]))], "flat")
    ones, zeros = draft.constant("ones", np.ones(2, np.float32)), draft.constant("zeros", np.zeros(2, np.float32))
    normal = draft.add("InstanceNormalization", [flat, ones, zeros], "norm")
    draft.add("Reshape", [normal, shape], "back", outputs=["y"])
    settled_graph = settled(of(draft.model({"x": ["batch", 4, 8, 8]}, {"y": ["batch", 8, 8, 8]})))
    assert [node.op_type for node in executed(settled_graph.graph)].count("QLinearConv") == 1
    assert settled_graph.floats == {}


def test_branches_that_run_in_another_order_are_all_counted(tmp_path: Path) -> None:
    """ONNX Runtime runs the side layers of a feature pyramid where their inputs are ready; each layer is found by its
    name, and all are int8."""
    draft = Draft()
    x, levels = "x", []
    for level, width in enumerate((8, 16, 16)):
        x = draft.add(
            "Relu", [draft.conv(x, f"down{level}", 4 if not level else 8 * min(level, 2), width)], f"relu{level}"
        )
        levels.append(draft.conv(x, f"side{level}", width, 8, 1))
    heads = [
        draft.conv(draft.add("Sigmoid", [entry], f"act{i}"), f"head{i}", 8, 4) for i, entry in enumerate(levels[::-1])
    ]
    draft.add("Concat", heads, "join", outputs=["y"], axis=1)
    model = draft.model({"x": ["batch", 4, 8, 8]}, {"y": ["batch", 12, 8, 8]})
    network = of(model)
    onnx.save(model, tmp_path / "fp32.onnx")
    settled(network).graph.save(tmp_path / "int8.onnx")
    example = (np.zeros((1, 4, 8, 8), np.float32),)
    reference = onnxruntime_layers.executed(tmp_path / "fp32.onnx", example, optimized=False)
    match = onnxruntime_layers.match(reference, onnxruntime_layers.executed(tmp_path / "int8.onnx", example))
    assert len(match) == 9
    assert [layer.name for layer in match if not layer.int8] == []


def test_sums_are_not_fused_into_slower_kernels() -> None:
    """The residual sum in front of a LayerNormalization and the bias in front of a Gelu keep kernels of their own,
    which are faster than the fused ones, and give the same values."""
    draft = Draft()
    up = draft.add("MatMul", ["x", draft.weight("up", 16, 32)], "mul1")
    up = draft.add("Gelu", [draft.add("Add", [up, draft.bias("b", 32)], "bias")], "gelu")
    down = draft.add("MatMul", [up, draft.weight("down", 32, 16)], "mul2")
    ones, zeros = draft.constant("ones", np.ones(16, np.float32)), draft.constant("zeros", np.zeros(16, np.float32))
    draft.add("LayerNormalization", [draft.add("Add", ["x", down], "residual"), ones, zeros], "norm", outputs=["y"])
    network = narrowed(of(draft.model({"x": ["batch", 8, 16]}, {"y": ["batch", 8, 16]}, opset=20, ir_version=9)))
    settled_graph = settled(network)
    kinds = {node.op_type for node in executed(settled_graph.graph)}
    assert {"LayerNormalization", "Gelu"} <= kinds
    assert not {"SkipLayerNormalization", "BiasGelu"} & kinds
    planned = deploy(network.graph, network.sites, network.record)
    for first, other in zip(run(settled_graph.graph, network.feed), run(planned, network.feed), strict=True):
        np.testing.assert_allclose(first, other, atol=1e-5)


def transposed_twice(*, clipped: bool) -> Quantized:
    """Two transposed convolutions of overlapping windows; ``clipped``: to 0 .. 0.5 between them."""
    draft = Draft()
    x = draft.add("ConvTranspose", ["x", draft.weight("one.weight", 4, 4, 3, 3)], "one")
    if clipped:
        x = draft.add(
            "Clip", [x, draft.constant("low", np.float32(0)), draft.constant("high", np.float32(0.5))], "clip"
        )
    draft.add("ConvTranspose", [x, draft.weight("two.weight", 4, 4, 3, 3)], "two", outputs=["y"])
    return of(draft.model({"x": ["batch", 4, 8, 8]}, {"y": ["batch", 4, 12, 12]}))


def test_a_trained_range_before_a_layer_that_runs_in_float_still_clips(tmp_path: Path) -> None:
    """In training a ReLU6 goes where the range behind it ends at 0 and 6; the runtime has no int8 kernel for the
    layers around it, so the range goes too: what they compute is what was trained."""
    result, file = transposed_twice(clipped=False), tmp_path / "model.onnx"
    half = {"two": replace(result.record["two"], scale_d=0.5 / 255, offset_d=-128)}
    written_files = deploy_model.write(
        result.graph, result.sites, {**result.record, **half}, file, runtime="onnxruntime", learned=True
    )
    (trained,) = run(Graph.load(file), result.feed)
    (expected,) = run(transposed_twice(clipped=True).graph, result.feed)
    (unclipped,) = run(result.graph, result.feed)
    assert set(written_files.floats) == {"one", "two"}
    assert np.abs(trained - expected).max() < 0.02 * np.abs(expected).max()
    assert np.abs(unclipped - expected).max() > np.abs(expected).max()


def test_a_weight_that_is_no_constant_of_bytes_says_nothing_of_its_layer() -> None:
    """Only what the runtime reads of bytes shows how a layer runs; where it has made other constants of them, or the
    weight comes from nowhere, the kind of its node decides."""
    draft = Draft()
    model = draft.model({"x": ["batch", 4, 8, 8]}, {draft.conv("x", "conv", 4, 8): ["batch", 8, 8, 8]})
    graph = Graph(model)
    (conv,) = (node for node in graph.nodes if node.op_type == "Conv")
    assert graph.maker(conv.input[1]) is None
    assert ran._weight_is_read(graph, graph, conv) is None


READ = """<ir_version: 8, opset_import: ["" : 17]>
net (float[n,4] x) => (float[n,4] y, float[n,4] z) {
  [one] a = Gemm (x, w)
  [relu] r = Relu (a)
  [d] d = Elu (r)
  [c] c = Elu (a)
  [b] b = Elu (r)
  [late] e = Elu (a)
  [clip] f = Clip (x, r)
  [two] t = Gemm (d, w)
  [graph_output_y] y = Identity (t)
  [graph_output_z] z = Identity (c)
  [up] g = ConvTranspose (x, w)
  [last] h = Gemm (b, w)
}"""


def reading() -> Graph:
    network = graph(READ, {"w": (4, 4)})
    network.model.graph.output.add(name="h").type.tensor_type.elem_type = 1
    network.reindex()
    return network


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("one", "ONNX Runtime runs it in float: what b, c, d reads of it is not quantized, or so"),
        ("two", "ONNX Runtime runs it in float: what graph_output_y reads of it is not quantized, or so"),
        ("up", "ONNX Runtime has no int8 kernel for ConvTranspose"),
        ("last", "ONNX Runtime runs it in float: what the graph gives is not quantized"),
    ],
)
def test_why_a_layer_runs_in_float(name: str, reason: str) -> None:
    """For want of a kernel, or of bytes for the first three by name that read it, also behind a Relu."""
    network = reading()
    assert ran._reason(network, network.node(name), ", or so") == reason


def sites_of(**tensors: list[tuple[str, int]]) -> Sites:
    """Sites of tensors and who reads them, a layer by its name alone."""
    keys = {
        tensor: {name if name in ("one", "two", "last") else f"{name}:{i}": (name, i) for name, i in places}
        for tensor, places in tensors.items()
    }
    activations = [ActivationSite(tensor=tensor, keys=each, params=ActivationParams()) for tensor, each in keys.items()]
    return Sites(weights=(), activations=tuple(activations))


@pytest.mark.parametrize(
    ("tensors", "words", "left"),
    [
        ({"t": [("graph_output_y", 0)]}, "output y", []),
        ({"t": [("graph_output_y", 0)], "c": [("graph_output_z", 0), ("late", 0)]}, "outputs y, z", [["late:0"]]),
        ({"d": [("two", 0)]}, "", [["two"]]),
    ],
)
def test_the_outputs_that_are_quantized(tensors: dict[str, list[tuple[str, int]]], words: str, left: list[Any]) -> None:
    """In words, and what is quantized without them."""
    network, sites = reading(), sites_of(**tensors)
    assert ran.outputs_quantized(network, sites) == words
    without = ran.without_outputs(network, sites)
    assert [list(site.keys) for site in without.activations] == left


@pytest.mark.parametrize(("kind", "is_on_bytes"), [
    ("QLinearConv", True), ("QLinearAdd", True), ("QGemm", True), ("MatMulIntegerToFloat", True),
    ("ConvInteger", True), ("Gemm", False), ("QuantizeLinear", False), ("FusedConv", False),
])  # fmt: skip
def test_operators_on_bytes_are_known_by_their_names(kind: str, is_on_bytes: bool) -> None:
    """They begin so, or say that they compute on integers."""
    assert ran._on_bytes(kind) == is_on_bytes


@pytest.mark.parametrize(("tensor", "quantized", "given"), [
    ("x", [], False),  # the caller's
    ("c", [], True),  # a convolution on bytes
    ("r", [], True),  # a Relu of one
    ("k", [], True),  # and a Clip
    ("e", [("elu", 0)], False),  # gives floats
    ("s", [("sum", 0), ("sum", 1)], True),
    ("s", [("sum", 0)], False),
    ("m", [("more", 0)], True),  # the other input is constant
    ("q", [], False),  # nothing of it is an activation
])  # fmt: skip
def test_who_gives_bytes(tensor: str, quantized: list[tuple[str, int]], given: bool) -> None:
    """A convolution on bytes, and an operator on bytes all of whose inputs are quantized."""
    network = graph("""<ir_version: 8, opset_import: ["" : 17]>
        net (float[n,4,8] x) => (float[n,4,8] y) {
          [conv] c = Conv (x, w)
          [relu] r = Relu (c)
          [clip] k = Clip (r)
          [elu] e = Elu (x)
          [sum] s = Add (r, e)
          [more] m = Add (e, b)
          [fixed] q = Add (b, b)
          [y] y = Add (s, m)
        }""", {"w": (4, 4, 1), "b": (4, 1)})  # fmt: skip
    assert ran._given_as_bytes(network, tensor, {"conv"}, set(quantized)) == given
    if tensor in "crk":
        assert not ran._given_as_bytes(network, tensor, set(), set(quantized))
