"""Ifs whose condition is constant give way to the branch that runs; the others stay, and say why."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_networks import NETWORKS, Draft, save

from qbench.errors import UsageError
from qbench.models import adapt
from qbench.models.base import InputForm, ModelReference, Network
from qbench.quant.onnx import static
from qbench.quant.onnx.formats import config
from qbench.quant.onnx.formats.rules import Rules
from qbench.quant.onnx.graph import branches, equivalence
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.layers import layers
from qbench.quant.onnx.graph.prepare import prepare


def branch(name, nodes, *outputs):
    """The outputs of a branch need no types."""
    return helper.make_graph(nodes, name, [], [onnx.ValueInfoProto(name=output) for output in outputs])


def squeezing(data):
    """As torch exports squeeze(-1) of an open size, within a branch that the input ``rate`` chooses. Both branches call
    their tensors by the same names; ``data``: a further If whose branches have these names, too, and which follows
    from the values of x."""
    draft = Draft(3)
    for name in ("fast", "slow"):
        draft.weight(f"{name}.weight", 4, 3, 3)
    for name, value in {"one": 1, "last": [2], "rate_16k": 16000}.items():
        draft.constant(name, np.asarray(value, np.int64))
    fast = draft.add("Equal", ["rate", "rate_16k"], "is_fast")
    arms = {}
    for name in ("fast", "slow"):
        squeeze = helper.make_node("Squeeze", ["h", "last"], ["squeezed"], name="squeeze")
        keep = helper.make_node("Identity", ["h"], ["kept"], name="keep")
        nodes = [
            helper.make_node("Conv", ["x", f"{name}.weight"], ["h"], name=f"{name}_conv", pads=[0, 0]),
            helper.make_node("Shape", ["h"], ["shape"], name="shape"),
            helper.make_node("Gather", ["shape", "last"], ["length"], name="length"),
            helper.make_node("Equal", ["length", "one"], ["is_one"], name="is_one"),
            helper.make_node("If", ["is_one"], ["y0"], name="by_size", then_branch=branch("t", [squeeze], "squeezed"),
                             else_branch=branch("e", [keep], "kept")),
        ]  # fmt: skip
        arms[name] = branch(name, nodes, "y0")
    y = draft.add("If", [fast], "by_rate", then_branch=arms["fast"], else_branch=arms["slow"])
    if data:
        half = draft.constant("half", np.float32(0.5))
        positive = draft.add("Greater", [draft.add("ReduceSum", ["x"], "sum", keepdims=0), half], "positive")
        more = {
            kind: branch(kind, [helper.make_node(kind, [y], ["h"], name=f"data_{kind}")], "h")
            for kind in ("Abs", "Neg")
        }
        y = draft.add("If", [positive], "by_data", then_branch=more["Abs"], else_branch=more["Neg"])
    draft.add("Flatten", [y], "end", outputs=["y"])
    return draft.model({"x": ["batch", 3, "length"], "rate": (TensorProto.INT64, [])}, {"y": ["batch", "size"]})


def fixed(model, rate=16000, **sizes):
    """With ``rate`` as an initializer, and the input's length where one is given."""
    graph = Graph(model)
    body = graph.model.graph
    body.input.remove(next(value for value in body.input if value.name == "rate"))
    body.initializer.append(numpy_helper.from_array(np.int64(rate), "rate"))
    if sizes:
        body.input[0].type.tensor_type.shape.dim[2].dim_value = sizes["length"]
    graph.reindex()
    return graph


def operators(graph):
    return [node.op_type for node in graph.nodes]


def x(length, batch=2):
    return {"x": np.random.default_rng(1).standard_normal((batch, 3, length)).astype(np.float32)}


@pytest.mark.parametrize("rate", [16000, 8000])
@pytest.mark.parametrize(("length", "shape"), [(3, (2, 4)), (5, (2, 12))])
def test_branches_that_constants_and_sizes_choose_are_taken(rate, length, shape):
    """Also an If within the branch of another; the same outputs, bit by bit, and layers under their own names."""
    before, graph = fixed(squeezing(data=False), rate), fixed(squeezing(data=False), rate, length=length)
    assert branches.take(graph) == 2
    assert "If" not in operators(graph)
    onnx.checker.check_model(graph.model, full_check=True)
    (expected,), (actual,) = equivalence.run(before, x(length)), equivalence.run(graph, x(length))
    assert actual.shape == shape
    np.testing.assert_array_equal(actual, expected)
    assert [node.name for node in graph.nodes if node.op_type == "Conv"] == [
        "fast_conv" if rate == 16000 else "slow_conv"
    ]


@pytest.mark.parametrize("length", [3, 5])
def test_an_open_size_or_a_value_of_the_input_decides_nothing(length):
    """These Ifs stay; names that a branch had and another If has as well are told apart."""
    before, graph = fixed(squeezing(data=True)), fixed(squeezing(data=True))
    assert branches.take(graph) == 1
    assert operators(graph).count("If") == 2
    onnx.checker.check_model(graph.model)
    for feed in (x(length), {"x": -np.abs(x(length)["x"])}):
        np.testing.assert_array_equal(equivalence.run(graph, feed)[0], equivalence.run(before, feed)[0])
    reasons = {layer.name: layer.reason for layer in layers(graph)}
    content = "inside a subgraph of by_{} (If), which stays float: which branch runs follows from {}"
    assert reasons["by_size/then_branch/squeeze"] == content.format("size", "the sizes of input x")
    assert reasons["by_data/then_branch/data_Abs"] == content.format("data", "input x")


def test_what_a_file_tells_of_inner_tensors_is_not_believed():
    """A noted shape may be wrong; that of an input is held to by the runtime."""
    model = squeezing(data=False)
    for arm in next(node for node in model.graph.node if node.op_type == "If").attribute:
        arm.g.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, ["batch", 4, 1]))
    graph = fixed(model)
    graph.model.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, ["batch", 4, 1]))
    graph.reindex()
    assert branches.take(graph) == 1
    np.testing.assert_array_equal(
        equivalence.run(graph, x(5))[0], equivalence.run(fixed(squeezing(data=False)), x(5))[0]
    )


def test_a_prepared_graph_has_the_layers_of_the_branch_that_runs(tmp_path):
    """``prepare`` takes branches, too: their layers can be quantized, under their own names."""
    graph = prepare(save(fixed(squeezing(data=True)).model, tmp_path), example=[x(5)["x"]])
    assert {layer.name: layer.reason for layer in layers(graph) if layer.operator == "Conv"} == {"fast_conv": None}


def test_nothing_to_quantize_tells_of_the_branches(tmp_path):
    """Which input decides, and what to do; not that an Equal stays float."""
    graph = prepare(save(squeezing(data=False), tmp_path), example=[x(5)["x"], np.asarray(16000)])
    with pytest.raises(UsageError, match=r"inside a subgraph of by_rate .* follows from input rate; .*constant: VALUE"):
        config.default(graph, Rules())


def adapted(file, folder, example, **changes):
    """The file that takes the place of an ONNX file in a suite, and the note on it."""
    form = {"rate": InputForm(constant=16000)}
    reference = ModelReference(name="mine", source="onnx", path=file, inputs=form, **changes)
    write = adapt.file_of(Network(kind="onnx", path=file), reference, example)
    assert write is not None
    return folder / "adapted.onnx", write(folder / "adapted.onnx")


def opened(file):
    return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])


def test_a_suite_takes_the_branches_of_its_constants_and_of_its_data(tmp_path):
    """The network of a suite has no If left where the sizes of the data decide; any batch size goes, no other length
    does, and the note says so."""
    file, note = adapted(save(squeezing(data=False), tmp_path), tmp_path, [x(5, batch=1)["x"]])
    assert note == "mine: it branches by the sizes of its inputs, so they are fixed at those of the data: x [3, 5]"
    assert "If" not in operators(Graph.load(file))
    (actual,) = opened(file).run(None, x(5))
    np.testing.assert_allclose(actual, equivalence.run(fixed(squeezing(data=False)), x(5))[0], rtol=1e-6)
    with pytest.raises(Exception, match="Got: 3 Expected: 5"):
        opened(file).run(None, x(3))


def test_a_suite_keeps_sizes_open_that_decide_nothing(tmp_path):
    """Sizes are fixed for the sake of an If only."""
    file, note = adapted(save(squeezing(data=True), tmp_path), tmp_path, [])
    assert note is None
    assert opened(file).get_inputs()[0].shape == ["batch", 3, "length"]


def test_an_example_that_does_not_fit_changes_nothing(tmp_path):
    """What is wrong with it is told where the network is tried."""
    file, note = adapted(save(squeezing(data=False), tmp_path), tmp_path, [np.zeros((1, 7, 5), np.float32)])
    assert note is None
    assert operators(Graph.load(file)).count("If") == 1


@pytest.mark.parametrize(
    ("name", "label", "words"),
    [("branches", "then", "follows from input image"), ("loop", "step", "inside a subgraph of loop")],
)
def test_layers_within_subgraphs_have_a_reason_under_the_name_that_coverage_gives_them(name, label, words, tmp_path):
    """As the runtime's profile calls them."""
    assert words in static.explain_floats(save(NETWORKS[name](), tmp_path))[label]


def test_an_axis_of_no_elements_is_known():
    """0 is a size, too; what has a name, or nothing, is declared, but for axis 0."""
    value = helper.make_tensor_value_info
    inputs = [
        value(name, TensorProto.FLOAT, shape)
        for name, shape in (("a", ["n", 0]), ("b", ["n", "m"]), ("c", ["n", None]))
    ]
    nodes = [helper.make_node("Identity", ["a"], ["y"])]
    graph = Graph(helper.make_model(helper.make_graph(nodes, "g", inputs, [value("y", TensorProto.FLOAT, None)])))
    assert branches.declare_sizes(graph, {"a": (1, 5), "b": (1, 3), "c": (1, 4)}) == {"b": (3,), "c": (4,)}
    assert [graph.shape(name)[1] for name in ("a", "b", "c")] == [0, 3, 4]
