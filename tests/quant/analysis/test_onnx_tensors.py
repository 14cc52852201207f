"""Rules of qbench/quant/analysis/onnx_tensors.py: layers of two files, and a file that gives one more tensor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from people_files import node, pair, write

from qbench.quant.analysis.onnx_tensors import LayerTensor, shared_layers, with_first_output

ROWS = (("x", ["n", 4]),)
SCALES = {"s": np.float32(0.1), "z": np.uint8(0)}
WEIGHTS = {"block.lin.weight": np.eye(4, dtype=np.float32), "w": np.eye(4, dtype=np.float32)}


def save_floats(path: Path) -> Path:
    """``x -> a -> b -> c -> y``; ``a`` has the weights of a torch module, ``c`` no name."""
    nodes = [
        node("MatMul", ["x", "block.lin.weight"], "a"),
        node("Relu", ["a"], "b"),
        onnx.helper.make_node("MatMul", ["b", "w"], ["c"]),
        node("Identity", ["c"], "y"),
    ]
    return write(path, nodes, WEIGHTS, inputs=ROWS)


def save_int8(path: Path) -> Path:
    """The same with Q and DQ behind ``b``, and without ``c``."""
    nodes = [
        node("MatMul", ["x", "block.lin.weight"], "a"),
        node("Relu", ["a"], "b"),
        *pair("b", "s", "z"),
        node("MatMul", ["b_d", "w"], "other"),
        node("Identity", ["other"], "y"),
    ]
    return write(path, nodes, {**WEIGHTS, **SCALES}, inputs=ROWS)


def test_layers_are_shared_by_the_names_of_what_they_give(tmp_path: Path) -> None:
    """In the order of the first file, by the names that a person knows; marks of quantization are none."""
    floats, int8 = save_floats(tmp_path / "float.onnx"), save_int8(tmp_path / "int8.onnx")
    assert shared_layers(floats, int8) == [
        LayerTensor(name="block.lin", tensor="a"),
        LayerTensor(name="b", tensor="b"),
    ]
    assert [layer.name for layer in shared_layers(floats, floats)] == ["block.lin", "b", "c"]


def test_what_is_read_in_place_of_a_tensor_is_taken_first(tmp_path: Path) -> None:
    """Where both files have it; bytes between Q and DQ are no tensor of floats."""
    int8 = save_int8(tmp_path / "int8.onnx")
    assert [(layer.name, layer.tensor) for layer in shared_layers(int8, int8)] == [
        ("block.lin", "a"),
        ("b", "b_d"),
        ("other", "other"),
    ]


def test_a_file_gives_a_tensor_before_its_own_outputs(tmp_path: Path) -> None:
    """Once, where it is one of them."""
    floats = save_floats(tmp_path / "float.onnx")
    more = onnx.load(str(with_first_output(floats, "b", tmp_path / "more.onnx")))
    assert [value.name for value in more.graph.output] == ["b", "y"]
    same = onnx.load(str(with_first_output(floats, "y", tmp_path / "same.onnx")))
    assert [value.name for value in same.graph.output] == ["y"]
    assert [value.name for value in onnx.load(str(floats)).graph.output] == ["y"]
