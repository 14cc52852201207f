"""A graph cut behind some nodes gives what the whole gives, and what is changed between them is read behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench.quant.saturation import sections

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def model(tmp_path: Path) -> onnx.ModelProto:
    """a = x + 1, b = a * a, y = b - a, z = Abs(b): a is read twice, b is a result, too."""
    nodes = [
        helper.make_node("Add", ["x", "one"], ["a"]),
        helper.make_node("Mul", ["a", "a"], ["b"]),
        helper.make_node("Sub", ["b", "a"], ["y"]),
        helper.make_node("Abs", ["b"], ["z"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in ("x", "y", "b", "z")]
    unit = numpy_helper.from_array(np.float32(1), "one")
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [unit])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(parts: tuple[sections.ModelSection, ...], change: dict[int, str] | None = None) -> dict[str, np.ndarray]:
    """The tensors that are left; ``change``: behind which section which tensor becomes zeros."""
    tensors = {"x": X}
    for i, part in enumerate(parts):
        part.run(tensors)
        if change and i in change:
            tensors[change[i]] = np.zeros_like(X)
        for name in part.finished:
            del tensors[name]
    return tensors


@pytest.mark.parametrize("behind", [(), (0,), (1,), (0, 1), (0, 1, 2), (0, 1, 2, 3), (3,)])
def test_sections_give_the_results_and_keep_nothing_else(model: onnx.ModelProto, behind: tuple[int, ...]) -> None:
    """Wherever it is cut, also behind its last node, the results are those of the whole."""
    parts = sections.cut(model, behind, [() for _ in behind], sections.open_as_written)
    a = X + 1
    tensors = run(parts)
    assert {name: value.tolist() for name, value in tensors.items()} == {
        "y": (a * a - a).tolist(), "b": (a * a).tolist(), "z": (a * a).tolist()
    }  # fmt: skip


def test_a_changed_tensor_is_read_behind_the_cut_only(model: onnx.ModelProto) -> None:
    """What is put in the place of a is what Sub reads; Mul had read it before."""
    tensors = run(sections.cut(model, [1], [("a", "b")], sections.open_as_written), {0: "a"})
    a = X + 1
    assert tensors["y"].tolist() == (a * a).tolist()


def test_kept_tensors_are_there_where_they_are_wanted(model: onnx.ModelProto) -> None:
    """A tensor that no later node reads is still given for who changes another by it."""
    parts = sections.cut(model, [2], [("a", "y")], sections.open_as_written)
    tensors = {"x": X}
    parts[0].run(tensors)
    assert tensors["a"].tolist() == (X + 1).tolist()
    assert "a" in parts[0].finished


def test_a_tensor_that_is_wanted_behind_a_later_section_is_kept_until_then(model: onnx.ModelProto) -> None:
    """Though nothing between them reads it."""
    first, second = sections.cut(model, [2, 3], [(), ("a",)], sections.open_as_written)
    assert "a" in first.outputs
    assert "a" not in first.finished
    assert second.inputs == ("b",)


def test_what_runs_is_what_the_runtime_has_optimized(model: onnx.ModelProto, tmp_path: Path) -> None:
    """A node without effect is gone; constants are read by name."""
    model.graph.node[0].output[0] = "before"
    model.graph.node.insert(1, helper.make_node("Identity", ["before"], ["a"]))
    onnx.save(model, str(tmp_path / "model.onnx"))
    optimized = sections.optimize(tmp_path / "model.onnx")
    assert "Identity" not in [node.op_type for node in optimized.graph.node]
    assert sections.read_constants(optimized)["one"] == 1


def test_constants_are_initializers_and_tensors_of_constant_nodes(model: onnx.ModelProto) -> None:
    """A constant that is written another way, as a number, is none that is read."""
    two = numpy_helper.from_array(np.float32(2))
    model.graph.node.insert(0, helper.make_node("Constant", [], ["two"], value=two))
    model.graph.node.insert(1, helper.make_node("Constant", [], ["three"], value_float=3.0))
    assert sections.read_constants(model) == {"one": 1, "two": 2}


def test_a_layer_is_named_after_the_module_of_its_weight() -> None:
    """Also of one that is dequantized on its way; a node whose weight has no such name keeps its own."""
    dequantize = helper.make_node("DequantizeLinear", ["body.0.weight_quantized", "s"], ["w"])
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="node_conv")
    assert sections.name_layer(node, {"w": dequantize}) == "body.0"
    assert sections.name_layer(node, {}) == "node_conv"
    assert sections.name_layer(helper.make_node("Conv", ["x", "w"], ["y"]), {}) == "y"
