"""A model in parts gives what it gives as a whole, each node is computed once, and little is held."""

from __future__ import annotations

import gc
import itertools
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from qbench.quant.onnx.calibration import parts
from qbench.quant.onnx.calibration.batches import infer
from qbench.quant.onnx.graph.graph import Graph

X = np.random.default_rng(1).normal(size=(2, 32)).astype(np.float32)
WEIGHTS = np.random.default_rng(0).normal(size=(32, 64)).astype(np.float32)
HEAD = '<ir_version: 8, opset_import: ["": 17]>'


def save(file: Path, text: str, *, beside: bool = False, **constants: Any) -> Path:
    """A model of onnx's text form with these initializers, in one file or with their values beside it."""
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    onnx.save(model, file, save_as_external_data=beside, location="values", size_threshold=0)
    return file


def run_whole(file: Path, names: Any, feed: Any) -> Any:
    """The named outputs of the model's own session."""
    return infer(parts.Model(file, 1).session, names, feed, 1)


def run_parts(file: Path, names: Any, feed: Any, *, most: int = 1) -> list[Any]:
    """The same, part by part."""
    sizes = {name: array.nbytes for name, array in run_whole(file, names, feed).items()}
    with parts.Model(file, 1).prepare(sizes, most) as run:
        return list(run(feed, 1))


@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize(
    ("body", "parted"),
    [
        ("a = MatMul(x, w)\n b = Relu(a)\n c = Add(b, a)", [["a"], ["b"], ["c"]]),
        ("b = Relu(x)\n a = MatMul(b, w)\n c = MatMul(x, w)", [["b"], ["a"], ["c"]]),
        ("a = MatMul(x, w)\n s = Shape(a)\n b = Relu(a)\n k = IsNaN(b)\n c = Where(k, a, b)\n d = Reshape(c, s)",
         [["a"], ["b"], ["c"]]),
        ("a = MatMul(x, w)\n b = Identity(x)\n unused = MatMul(b, w)\n c = Relu(a)", [["a"], ["b"], ["c"]]),
    ],
)  # fmt: skip
def test_what_lies_between_parts_is_handed_on(body: str, parted: Any, beside: bool, tmp_path: Path) -> None:
    """Floats, shapes and Booleans, asked for or not, and the inputs; weights may lie beside the file."""
    text = f"{HEAD} g (float[n,32] x) => (float[n,?] a, float[n,?] b, float[n,64] c) {{{body}}}"
    file = save(tmp_path / "m.onnx", text, beside=beside, w=WEIGHTS)
    expected = run_whole(file, ["a", "b", "c"], {"x": X})
    answers = run_parts(file, ["a", "b", "c"], {"x": X})
    assert [list(values) for values in answers] == parted
    for values in answers:
        for name, array in values.items():
            np.testing.assert_allclose(array, expected[name], rtol=1e-5, atol=1e-5)


def test_a_subgraph_reads_what_earlier_parts_compute(tmp_path: Path) -> None:
    """The branches of an If: of an earlier part, of the input, and a weight."""
    text = f"""{HEAD} g (float[n,32] x) => (float[n,32] a, float[n,64] b, float[n,64] c) {{
        a = Relu(x)
        b = MatMul(a, w)
        mean = ReduceMean <keepdims: int = 0> (b)
        more = Greater(mean, zero)
        c = If (more) <
            then_branch: graph = yes () => (float[n,64] t) {{ t = MatMul(a, w) }},
            else_branch: graph = no () => (float[n,64] e) {{ e = MatMul(x, w) }} >
    }}"""
    file = save(tmp_path / "m.onnx", text, w=WEIGHTS, zero=np.float32(0))
    for x in (X, -X):
        answers = run_parts(file, ["a", "b", "c"], {"x": x})
        assert [list(values) for values in answers] == [["a"], ["b"], ["c"]]
        np.testing.assert_allclose(answers[2]["c"], run_whole(file, ["c"], {"x": x})["c"], rtol=1e-5, atol=1e-5)


def test_no_part_begins_where_values_lie_across_that_numpy_does_not_hold(tmp_path: Path) -> None:
    """A sequence, bfloat16, or what the file does not say: who makes it is in the same part as its last reader."""
    for known, crossing in (
        ("", "s = SplitToSequence <axis: int = 1> (a)\n b = Relu(a)\n c = ConcatFromSequence <axis: int = 1> (s)"),
        ("", "s = Neg(a)\n b = Relu(a)\n c = Abs(s)"),
        ("<bfloat16[n,32] s>", "s = Cast <to: int = 16> (a)\n b = Relu(a)\n c = Cast <to: int = 1> (s)"),
    ):
        text = f"{HEAD} g (float[n,32] x) => (float[n,32] a, float[n,32] b, float[n,32] c, float[n,32] d) {known} {{"
        file = save(tmp_path / "m.onnx", f"{text} a = Abs(x)\n {crossing}\n d = Neg(c) }}")
        answers = run_parts(file, ["a", "b", "c", "d"], {"x": X})
        assert [sorted(values) for values in answers] == [["a"], ["b", "c"], ["d"]]
        expected = run_whole(file, ["a", "b", "c", "d"], {"x": X})
        for values in answers:
            for name, array in values.items():
                np.testing.assert_array_equal(array, expected[name])


def test_constants_that_are_computed_are_computed_in_each_part(tmp_path: Path) -> None:
    """Weights in half precision that are cast, and nodes that hold a value: no part is given them. Random numbers are
    no constants."""
    text = f"""{HEAD} g (float[n,32] x) => (float[n,64] a, float[n,64] b, float[n,64] c, float[32,64] w, float[2] r)
    <float[n,64] more> {{
        w = Cast <to: int = 1> (half)
        r = RandomNormal <shape: ints = [2]> ()
        two = Constant <value: tensor = float {{2}}> ()
        a = MatMul(x, w)
        b = Mul(a, two)
        more = MatMul(x, w)
        c = Sub(more, two)
    }}"""
    file = save(tmp_path / "m.onnx", text, half=WEIGHTS.astype(np.float16))
    graph = Graph(onnx.load(file))
    constants = parts.list_constants(graph)
    assert constants == {"half", "w", "two"}
    cut = parts.cut(graph, dict.fromkeys("abcwr", 1), 1, constants)
    assert [part.reads for part in cut] == [(), ("x",), ("a", "x"), ("more",)]
    assert [part.asked for part in cut] == [("w", "r"), ("a",), ("b",), ("c",)]
    first, *others = run_parts(file, ["c", "w", "a", "b"], {"x": X})
    assert [list(values) for values in (first, *others)] == [["w", "a"], ["b"], ["c"]]
    np.testing.assert_array_equal(first["w"], WEIGHTS.astype(np.float16).astype(np.float32))
    np.testing.assert_allclose(others[1]["c"], X @ first["w"] - 2, rtol=1e-4, atol=1e-4)


def test_a_sparse_weight_is_a_constant(tmp_path: Path) -> None:
    """Every part may read it."""
    model = onnx.parser.parse_model(f"{HEAD} g (float[n,8] x) => (float[n,8] a, float[n,8] b) {{"
                                    "a = Relu(x)\n b = Add(a, w) }")  # fmt: skip
    values, places = numpy_helper.from_array(np.float32([1, 2]), "w"), numpy_helper.from_array(np.array([1, 5]), "at")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [8]))
    onnx.save(model, tmp_path / "m.onnx")
    _, second = run_parts(tmp_path / "m.onnx", ["a", "b"], {"x": np.ones((1, 8), np.float32)})
    np.testing.assert_array_equal(second["b"], [[1, 2, 1, 1, 1, 3, 1, 1]])


def test_outputs_that_no_node_makes_come_with_the_first_part(tmp_path: Path) -> None:
    """A weight and an input; a weight that older files name as an input is none that is fed."""
    model = onnx.parser.parse_model(f"{HEAD} g (float[n,32] x, float[32,64] w) => (float[n,64] a, float[n,64] b) {{"
                                    "a = MatMul(x, w)\n b = Relu(a) }")  # fmt: skip
    model.ir_version = 3
    model.graph.initializer.append(numpy_helper.from_array(WEIGHTS, "w"))
    model.graph.output.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [32, 64]))
    model.graph.output.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 32]))
    onnx.save(model, tmp_path / "m.onnx")
    first, second = run_parts(tmp_path / "m.onnx", ["b", "w", "a", "x"], {"x": X})
    assert [sorted(first), sorted(second)] == [["a", "w", "x"], ["b"]]
    np.testing.assert_array_equal(first["w"], WEIGHTS)
    np.testing.assert_array_equal(first["x"], X)
    np.testing.assert_allclose(second["b"], np.maximum(X @ WEIGHTS, 0), rtol=1e-4, atol=1e-4)


def test_what_was_given_is_not_held(tmp_path: Path) -> None:
    """When a part's outputs are let go, they are gone, but for what later parts read; the model's own session, too."""
    text = f"{HEAD} g (float[n,32] x) => (float[n,32] a, float[n,32] b, float[n,32] c, float[n,32] d) {{"
    file = save(tmp_path / "m.onnx", f"{text} a = Abs(x)\n b = Neg(a)\n c = Add(a, b)\n d = Neg(c) }}")
    model = parts.Model(file, 1)
    own = weakref.ref(model.session)
    gc.disable()  # what is freed must not wait for the collector
    try:
        with model.prepare(dict.fromkeys("abcd", 100), 100) as run:
            assert own() is None
            given: dict[str, Any] = {}
            alive = []
            for values in run({"x": X}, 1):
                while values:
                    name, array = values.popitem()
                    given[name] = weakref.ref(array)
                del array
                alive.append([name for name, reference in given.items() if reference() is not None])
    finally:
        gc.enable()
    assert alive == [["a"], ["a", "b"], ["c"], []]


@given(sizes=st.lists(st.integers(0, 100), min_size=1, max_size=60), most=st.integers(1, 300), reach=st.integers(1, 5))
def test_parts_have_the_bytes_that_they_may_have_or_a_single_output(sizes: list[int], most: int, reach: int) -> None:
    """Every node is in one of them and what it reads is there; there are no more than 33, each with a session."""
    names = [f"t{i}" for i in range(len(sizes))]
    nodes = [
        helper.make_node(
            "Sum", list({f"t{max(i - 1, 0)}" if i else "x", f"t{i - reach}" if i >= reach else "x"}), [name]
        )
        for i, name in enumerate(names)
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", *names)]
    graph = Graph(helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:])))
    of_outputs = dict(zip(names, sizes, strict=True))
    cut = parts.cut(graph, of_outputs, most, set())
    assert [part.start for part in cut] == [0, *[part.end for part in cut[:-1]]]
    assert cut[-1].end == len(nodes)
    assert [name for part in cut for name in part.asked] == names
    there = {"x"}
    for part in cut:
        assert there.issuperset(part.reads)
        there = (there | part.makes) & part.later
        held = [of_outputs[name] for name in part.asked if of_outputs[name]]
        assert sum(held) <= most or len(held) == 1
    assert not there
    for before, after in itertools.pairwise(cut):
        assert sum(of_outputs[name] for name in (*before.asked, after.asked[0])) > most
    spared = parts.cut(graph, of_outputs, max(most, 2 * sum(sizes) // parts.MOST_PARTS), set())
    assert len(spared) <= parts.MOST_PARTS + 1
