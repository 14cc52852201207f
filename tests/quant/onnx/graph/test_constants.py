"""Rules of qbench/quant/onnx/graph/constants.py and known_values.py: what is known of a graph without running it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from qbench.quant.onnx.graph import constants, known_values
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.tensor_sources import ancestors, sources

node = helper.make_node
W = np.arange(12, dtype=np.float32).reshape(3, 4)


def build(nodes: list[onnx.NodeProto], outputs: tuple[str, ...] = ("y",), shape: Any = ("n", 3), **held: Any) -> Graph:
    """A graph from x to the outputs."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items()]
    graph = helper.make_graph(nodes, "g", inputs, ends, initializers)
    return Graph(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8))


def folded(nodes: list[onnx.NodeProto], **more: Any) -> Graph:
    """A graph after its constants were folded; it gives what it gave."""
    graph = build(nodes, **more)
    x = np.random.default_rng(0).random((2, 3), dtype=np.float32)
    expected = ReferenceEvaluator(graph.model).run(None, {"x": x})
    constants.fold(graph)
    for actual, wanted in zip(ReferenceEvaluator(graph.model).run(None, {"x": x}), expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)
    return graph


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ([node("Transpose", ["v"], ["t"]), node("MatMul", ["x", "t"], ["y"])], ["MatMul"]),
        ([node("Transpose", ["v"], ["t"]), node("Neg", ["t"], ["u"]), node("MatMul", ["x", "u"], ["y"])], ["MatMul"]),
        ([node("Identity", ["x"], ["i"]), node("MatMul", ["i", "w"], ["y"])], ["MatMul"]),
        ([node("Identity", ["x"], ["i"]), node("Identity", ["i"], ["j"]), node("Abs", ["j"], ["y"])], ["Abs"]),
        ([node("Abs", ["x"], ["i"]), node("Identity", ["i"], ["y"])], ["Abs", "Identity"]),
        ([node("Cast", ["x"], ["i"], to=1), node("Abs", ["i"], ["y"])], ["Abs"]),
        ([node("Cast", ["x"], ["i"], to=11), node("Abs", ["i"], ["y"])], ["Cast", "Abs"]),
        ([node("Constant", [], ["c"], value_float=2.0), node("Mul", ["x", "c"], ["y"])], ["Mul"]),
        ([node("Constant", [], ["c"], value_floats=[2.0, 1.0, 3.0]), node("Mul", ["x", "c"], ["y"])], ["Mul"]),
        ([node("Constant", [], ["c"], value_ints=[3, -1]), node("Reshape", ["x", "c"], ["y"])], ["Reshape"]),
        ([node("Constant", [], ["c"], value_int=1), node("Gather", ["x", "c"], ["y"], axis=1)], ["Gather"]),
        ([node("Constant", [], ["y"], value_float=2.0)], ["Constant"]),
        ([node("Transpose", ["v"], ["y"])], ["Transpose"]),
        ([node("Expand", ["w", "big"], ["e"]), node("ReduceSum", ["e"], ["s"]), node("Add", ["x", "s"], ["y"])],
         ["Add"]),
        ([node("Expand", ["w", "big"], ["e"]), node("Abs", ["e"], ["a"]), node("Shape", ["x"], ["s"]),
          node("Expand", ["a", "s4"], ["f"]), node("Slice", ["f", "zero", "s", "zero"], ["y"])],
         ["Expand", "Abs", "Shape", "Expand", "Slice"]),
        ([node("Softmax", ["w"], ["p"]), node("MatMul", ["x", "p"], ["y"])], ["Softmax", "MatMul"]),
    ],
)  # fmt: skip
def test_what_only_constants_lead_to_is_computed(nodes: list[onnx.NodeProto], left: list[str]) -> None:
    """By operators without chance or state, where it is small or a weight, and no output of the graph; nodes that give
    what they read go, and so does what nothing reads any more."""
    held = {"w": W, "v": W.T.copy(), "big": [200, 200, 3, 4], "s4": [200, 200, 3, 4], "zero": [0]}
    assert [each.op_type for each in folded(nodes, **held).nodes] == left


def test_inputs_that_are_initializers_are_constants() -> None:
    """A caller may have overridden them."""
    graph = build([node("MatMul", ["x", "w"], ["y"])], w=W)
    graph.model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [3, 4]))
    constants.fold(graph)
    assert [value.name for value in graph.model.graph.input] == ["x"]


def test_what_a_subgraph_reads_keeps_its_name() -> None:
    """An Identity that it reads through stays."""
    branches = [
        helper.make_graph([node("Abs", ["i"], ["b"])], side, [], [helper.make_tensor_value_info("b", 1, None)])
        for side in ("then", "else")
    ]
    nodes = [
        node("Identity", ["x"], ["i"]),
        node("If", ["yes"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    assert [each.op_type for each in folded(nodes, yes=np.bool_(True)).nodes] == ["Identity", "If"]


@pytest.mark.parametrize(
    ("nodes", "outputs", "weights"),
    [
        ([node("MatMul", ["x", "w"], ["y"], name="a"), node("MatMul", ["x", "w"], ["z"], name="b")], ("y", "z"),
         ["w", "w_b"]),
        ([node("MatMul", ["x", "w"], ["y"], name="a"), node("Neg", ["w"], ["n"], name="n"),
          node("Mul", ["y", "n1"], ["z"], name="m")], ("y", "z"), ["w"]),
        ([node("MatMul", ["x", "w"], ["y"], name="a"), node("ReduceMax", ["w"], ["z"], name="r")], ("y", "z"), ["w_a"]),
        ([node("MatMul", ["x", "w"], ["y"], name="a")], ("y", "w"), ["w"]),
        ([node("MatMul", ["x", "w"], ["y"], name="a"), node("MatMul", ["x", "w"], ["z"], name="b")], ("y", "z", "w"),
         ["w_a", "w_b"]),
    ],
)  # fmt: skip
def test_each_layer_has_a_weight_of_its_own(
    nodes: list[onnx.NodeProto], outputs: tuple[str, ...], weights: list[str]
) -> None:
    """The first keeps the name, unless something that is no layer reads it, too, or it is an output."""
    graph = folded(nodes, outputs=outputs, w=W, n1=np.float32(2))
    assert [each.input[1] for each in graph.nodes if each.op_type == "MatMul"] == weights


def computed(each: onnx.NodeProto, *inputs: Any, most: int = 100) -> Any:
    """What a node gives for these inputs, None where it is not computed."""
    graph = build([node("Abs", ["x"], ["y"])])
    return constants.computed(graph, each, [np.asarray(value) for value in inputs], most).get(each.output[0])


@pytest.mark.parametrize(("most", "is_computed"), [(12, True), (11, False)])
def test_a_value_is_computed_up_to_a_size(most: int, is_computed: bool) -> None:
    """Of operators that can give more than they read, by what onnx infers; others may give what they read."""
    expand = node("Expand", ["a", "b"], ["c"])
    assert (computed(expand, np.float32(1), [3, 4], most=most) is not None) == is_computed
    assert computed(node("Transpose", ["a"], ["c"]), W, most=1).shape == (4, 3)
    assert computed(node("Tile", ["a", "b"], ["c"]), [1.0], [-1]) is None
    assert computed(node("Reshape", ["a", "b"], ["c"]), W, [5, 5]) is None


def test_elements_are_gathered_along_any_axis() -> None:
    """As onnx defines it, of any number of rows; the other axes may be shorter than those of the values."""
    for axis in (0, 1, -1):
        places = np.array([[0, 1], [2, 0]])
        gather = node("GatherElements", ["a", "b"], ["c"], axis=axis)
        rows, columns = np.indices(places.shape)
        expected = W[places, columns] if axis == 0 else W[rows, places]
        np.testing.assert_array_equal(computed(gather, W, places), expected)


def known(nodes: list[onnx.NodeProto], name: str, **more: Any) -> Any:
    """The numbers of a tensor, None where one is not known."""
    known_value = known_values.values(build(nodes, outputs=(name,), **more), [name]).get(name)
    return known_value and [
        value if is_known else None
        for value, is_known in zip(known_value.values.ravel().tolist(), known_value.mask.ravel(), strict=True)
    ]


SHAPE = node("Shape", ["x"], ["s"])


@pytest.mark.parametrize(
    ("nodes", "name", "expected"),
    [
        ([SHAPE], "s", [None, 3]),
        ([node("Shape", ["x"], ["s"], start=1)], "s", [3]),
        ([node("Shape", ["x"], ["s"], end=-1)], "s", [None]),
        ([node("Size", ["x"], ["s"])], "s", None),
        ([node("Size", ["w"], ["s"])], "s", [12]),
        ([SHAPE, node("Gather", ["s", "one"], ["g"])], "g", [3]),
        ([SHAPE, node("Concat", ["s", "one"], ["c"], axis=0)], "c", [None, 3, 1]),
        ([SHAPE, node("Concat", ["one", "s"], ["c"], axis=0)], "c", [1, None, 3]),
        ([SHAPE, node("Cast", ["s"], ["f"], to=1)], "f", [None, 3.0]),
        ([SHAPE, node("Slice", ["s", "one", "two"], ["p"])], "p", [3]),
        ([SHAPE, node("Gather", ["one", "s"], ["g"])], "g", None),
        ([SHAPE, node("Add", ["s", "one"], ["a"])], "a", None),
        ([node("Shape", ["w"], ["s"]), node("Add", ["s", "one"], ["a"])], "a", [4, 5]),
        ([node("Abs", ["x"], ["a"])], "a", None),
        ([node("Abs", ["w"], ["a"])], "a", W.ravel().tolist()),
        ([node("MatMul", ["x", "w"], ["m"]), node("Shape", ["m"], ["s"])], "s", [None, 4]),
        ([node("Softmax", ["w"], ["p"])], "p", None),
    ],
)
def test_numbers_follow_from_constants_and_sizes(nodes: list[onnx.NodeProto], name: str, expected: Any) -> None:
    """Where an operator only moves them, those that are known stay so beside those that are not."""
    assert known(nodes, name, w=W, one=[1], two=[2]) == expected


def test_a_large_constant_is_not_looked_into() -> None:
    """Up to ``SMALL`` elements it is."""
    sizes = (constants.SMALL, constants.SMALL + 1)
    told = [known_values.values(build([node("Abs", ["w"], ["a"])], w=np.zeros(size, np.int8)), ["w"]) for size in sizes]
    assert [sorted(each) for each in told] == [["w"], []]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [(("n", 3), ("the sizes of input x",)), ((2, 3), ())],
)
def test_the_inputs_that_a_tensor_follows_from_are_named(shape: Any, expected: tuple[str, ...]) -> None:
    """By their values, or by sizes that are not fixed."""
    nodes = [SHAPE, node("ConstantOfShape", ["s"], ["z"]), node("Abs", ["x"], ["a"])]
    graph = build(nodes, outputs=("z", "a"), shape=shape)
    assert sources(graph, "z") == expected
    assert sources(graph, "a") == ("input x",)
    assert ancestors(graph, ["z"]) == {"z", "s"}
    assert ancestors(graph, ["z"], behind_sizes=True) == {"z", "s", "x"}


SHARED = {
    "Conv": ("float[1,2,5,5] x", (2, 2, 1, 1), True),
    "ConvTranspose": ("float[1,2,5,5] x", (2, 2, 1, 1), True),
    "Gemm": ("float[1,2] x", (2, 2), True),
    "MatMul": ("float[1,2] x", (2, 2), False),
}


@pytest.mark.parametrize("kind", SHARED)
def test_each_layer_has_a_weight_and_a_bias_of_its_own(kind):
    """The first keeps what several read, unless others than layers read it; what one reads stays as it is."""
    declared, shape, has_bias = SHARED[kind]
    weights = "w, b" if has_bias else "w"
    rank = declared.count(",") * ",n"
    text = f"""<ir_version: 8, opset_import: ["" : 17]>
    g ({declared}) => (float[1{rank}] y, float[1{rank}] z, float[1{rank}] u, float[2] t, float[2] o) {{
      [first] y = {kind} (x, {weights})
      [second] z = {kind} (x, {weights})
      [third] u = {kind} (x, {weights.replace("b", "o")})
      [other] t = Neg (b)
    }}"""
    model = onnx.parser.parse_model(text)
    values = {"w": np.ones(shape, np.float32), "b": np.ones(2, np.float32), "o": np.ones(2, np.float32)}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    graph = Graph(model)
    constants._unshare(graph)
    held = [list(node.input[1:]) for node in graph.nodes]
    if has_bias:
        assert held == [["w", "b_first"], ["w_second", "b_second"], ["w_third", "o"], []]
    else:
        assert held == [["w"], ["w_second"], ["w_third"], []]
    assert all(np.array_equal(graph.constant(name), values[name[0]]) for names in held for name in names)


def test_a_lack_of_memory_ends_the_folding(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the evaluator cannot compute stays, and that is another thing."""
    graph = build([node("Neg", ["w"], ["n"]), node("MatMul", ["x", "n"], ["y"])], w=W)
    for error, raised in ((MemoryError(), True), (ValueError(), False)):

        def run(*_: Any, error: Exception = error) -> Any:
            raise error

        monkeypatch.setattr(ReferenceEvaluator, "run", run)
        if raised:
            with pytest.raises(MemoryError):
                constants.fold(graph)
        else:
            constants.fold(graph)
            assert [each.op_type for each in graph.nodes] == ["Neg", "MatMul"]


def test_equal_weights_of_float_layers_are_one_again():
    """Of layers alone: what a dequantize node reads stays apart, and so does what differs."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,2] x) => (float[1,2] y, float[1,2] z, float[1,2] u, float[1,2] v)
      <float[2,2] w = {1,2,3,4}, float[2,2] same = {1,2,3,4}, float[2,2] other = {1,2,3,5}, float s = {1},
       int8[2,2] q = {1,2,3,4}, int8[2,2] p = {1,2,3,4}> {
      [first] y = MatMul (x, w)
      [second] z = MatMul (x, same)
      [third] u = MatMul (x, other)
      a = DequantizeLinear (q, s)
      b = DequantizeLinear (p, s)
      c = MatMul (x, a)
      d = MatMul (x, b)
      v = Add (c, d)
    }"""
    graph = Graph(onnx.parser.parse_model(text))
    constants.share(graph)
    assert [graph.node(name).input[1] for name in ("first", "second", "third")] == ["w", "w", "other"]
    assert set(graph.constants) == {"w", "other", "s", "q", "p"}
