"""What the headers of an .npz file tell of a suite is told before anything runs."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench.errors import SuiteError
from qbench.files import npz_file
from qbench.suite import npz_checks, parse, read
from qbench.suite.npz_checks import lacks_labels

SUITE = """suite: s
models: [{{name: mine, source: {{onnx: m.onnx}}}}]
data: {{dataset: {{npz: x.npz{options}}}{more}}}
matrix: {{}}
"""


def find_problems(folder: Path, *, side: int = 8, options: str = "", more: str = "") -> str:
    """What is wrong with a suite of 20 training and 10 test images, (n, 1, 8, 8), and a network that takes ``side``."""
    arrays = {f"{split}_inputs": np.zeros((n, 1, 8, 8), np.float32) for split, n in (("train", 20), ("test", 10))}
    np.savez(folder / "x.npz", **arrays)
    shape = ["n", 1, side, "w"]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("image", "out")]
    graph = helper.make_graph([helper.make_node("Relu", ["image"], ["out"])], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph), folder / "m.onnx")
    return read_problems(folder, SUITE.format(options=options, more=more))


def read_problems(folder: Path, text: str) -> str:
    """What is wrong with that suite; empty where nothing is."""
    (folder / "s.yaml").write_text(text)
    try:
        read(folder / "s.yaml")
    except SuiteError as error:
        return str(error).replace(f"{folder}/", "")
    return ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"more": ", calibrate: {samples: 20}, evaluate: {samples: 10}"}, ""),
        ({}, ""),
        ({"more": ", calibrate: {samples: many}"}, "data.calibrate.samples: expected a whole number, got 'many'"),
        (
            {"more": ", calibrate: {samples: 21}"},
            "data.calibrate.samples: 21 samples of split 'train', which has 20; ask for at most that",
        ),
        (
            {"more": ", evaluate: {samples: 11}"},
            "data.evaluate.samples: 11 samples of split 'test', which has 10; ask for at most that",
        ),
        (
            {"more": ", evaluate: {split: val}"},
            "data.evaluate.split: no split 'val'; the file has: test, train",
        ),
        (
            {"options": ", stored_layout: hw"},
            "'hw' has 3 dimensions, train_inputs has the shape [20, 1, 8, 8]",
        ),
        (
            {"side": 9},
            "models[0].source.onnx: its input image is [n, 1, 9, ?], examples (test_inputs) are [n, 1, 8, 8]",
        ),
        ({"options": ", stored_layout: nhwc"}, "its input image is [n, 1, 8, ?], examples (test_inputs) are [n, 8, 1"),
    ],
)
def test_samples_splits_and_shapes_are_held_against_the_headers(
    tmp_path: Path, changes: dict[str, str], said: str
) -> None:
    """More samples than there are, a split or layout that the file has not, a shape that the network does not take."""
    messages = find_problems(tmp_path, **changes)  # type: ignore[arg-type]  # side is a number, the others are text
    assert said in messages
    assert bool(messages) == bool(said)


def write_network(folder: Path, *inputs: list[int | str], constant: bool = False) -> None:
    """A network with inputs of these shapes; ``constant``: its file lists a weight among them."""
    values = [helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, shape) for i, shape in enumerate(inputs)]
    weight = numpy_helper.from_array(np.ones(1, np.float32), "w")
    if constant:
        values.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [1]))
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Mul", ["x0", "w"], ["y"])], "g", values, [output], [weight])
    onnx.save(helper.make_model(graph), folder / "m.onnx")


@pytest.mark.parametrize(
    ("inputs", "constant", "shape", "options", "said"),
    [
        ((["n", 8],), True, (8,), "", ""),
        ((["n", 8], ["n", 8]), False, (8,), "", "the network takes 2 inputs (x0, x1), the data has 1: test_inputs"),
        ((["n", 8, 8],), False, (8,), "", "its input x0 is [n, 8, 8], examples (test_inputs) are [n, 8]"),
        ((["n"],), False, (8,), "", "its input x0 is [n], examples (test_inputs) are [n, 8]"),
        ((["n", 1, 8, 6],), False, (8, 6), ", stored_layout: hw", ""),
        ((["n", 2, 8, 6],), False, (8, 6), ", stored_layout: hw", "examples (test_inputs) are [n, 1, 8, 6]"),
        ((["n", 3, 8, 6],), False, (8, 6, 3), ", stored_layout: nhwc", ""),
        ((["n", 3, 6, 8],), False, (8, 6, 3), ", stored_layout: nhwc", "examples (test_inputs) are [n, 3, 8, 6]"),
        ((["n", 8],), False, (8,), ", stored_layout: hw", "'hw' has 3 dimensions, train_inputs has the shape [4, 8]"),
    ],
)
def test_a_network_takes_the_shape_that_the_layout_gives(
    tmp_path: Path, inputs: tuple[list[int | str], ...], constant: bool, shape: tuple[int, ...], options: str, said: str
) -> None:
    """Weights that a file lists among its inputs are none; where the model says how it is called, nothing is told."""
    np.savez(tmp_path / "x.npz", **{f"{split}_inputs": np.zeros((4, *shape)) for split in ("train", "test")})
    write_network(tmp_path, *inputs, constant=constant)
    messages = read_problems(tmp_path, SUITE.format(options=options, more=""))
    assert said in messages
    assert bool(messages) == bool(said)
    called = SUITE.replace("m.onnx}}", "m.onnx}}, inputs: {{x0: {{axis: 0}}}}").format(options=options, more="")
    assert ("its input" in read_problems(tmp_path, called)) is False


def test_a_large_file_is_not_read_for_a_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to a size it is."""
    assert "its input image" in find_problems(tmp_path, side=9)
    size = (tmp_path / "m.onnx").stat().st_size
    for largest, is_read in ((size, True), (size - 1, False)):
        monkeypatch.setattr("qbench.suite.npz_checks.LARGEST_ONNX", largest)
        assert bool(find_problems(tmp_path, side=9)) == is_read


def test_what_is_divided_when_it_is_read_has_no_splits_yet(tmp_path: Path) -> None:
    """How many examples each will have is not known from its headers."""
    np.savez(tmp_path / "x.npz", inputs=np.zeros((9, 8)))
    write_network(tmp_path, ["n", 8])
    assert read_problems(tmp_path, SUITE.format(options="", more=", calibrate: {samples: 8}")) == ""


@pytest.mark.parametrize(
    ("dataset", "keys", "lacks"),
    [
        ("{npz: x.npz}", ("train_inputs", "test_inputs", "test_labels"), False),
        ("{npz: x.npz}", ("train_inputs", "test_inputs", "train_labels"), True),
        ("{npz: x.npz}", ("inputs",), True),
        ("{npz: x.npz}", ("inputs", "labels"), False),
        ("{npz: x.npz}", ("other",), False),
        ("digits", ("inputs",), False),
        ("{idx: x.npz}", ("inputs",), False),
    ],
)
def test_labels_are_known_to_lack_where_the_split_has_none(
    tmp_path: Path, dataset: str, keys: tuple[str, ...], lacks: bool
) -> None:
    """Of the evaluation; what cannot be told is not said."""
    np.savez(tmp_path / "x.npz", **{key: np.zeros(4) for key in keys})
    data = parse(f"suite: s\nmodels: [digits-cnn]\ndata: {{dataset: {dataset}}}\nmatrix: {{}}\n").data
    assert lacks_labels(data, tmp_path) == lacks


def test_shapes_come_from_headers_without_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan imports no numpy, and reads no array; an entry that is no array is left out."""
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros((3, 2)), b=np.int64(1))
    monkeypatch.setitem(sys.modules, "numpy", ModuleType("no numpy here"))
    assert npz_file.shapes(tmp_path / "x.npz") == {"a": (3, 2), "b": ()}


def test_every_network_from_a_file_is_held_against_the_examples(tmp_path: Path) -> None:
    """Whatever stands before it: a built-in, one that is called in its own way."""
    np.savez(tmp_path / "x.npz", **{f"{split}_inputs": np.zeros((4, 8)) for split in ("train", "test")})
    write_network(tmp_path, ["n", 9])
    models = "digits-cnn, {name: a, source: {onnx: m.onnx}, inputs: {x0: {axis: 0}}}, {name: b, source: {onnx: m.onnx}}"
    text = f"suite: s\nmodels: [{models}]\ndata: {{dataset: {{npz: x.npz}}}}\nmatrix: {{}}\n"
    (said,) = read_problems(tmp_path, text).splitlines()
    assert "models[2].source.onnx: its input x0 is [n, 9], examples (test_inputs) are [n, 8]" in said


@pytest.mark.parametrize(("splits", "told"), [(("train", "val"), "train_inputs"), (("a", "b"), "a_inputs")])
def test_without_test_examples_those_that_there_are_tell_the_shape(
    splits: tuple[str, str], told: str, tmp_path: Path
) -> None:
    """Those to train on, else the first of the file."""
    np.savez(tmp_path / "x.npz", **{f"{split}_inputs": np.zeros((4, 8)) for split in splits})
    write_network(tmp_path, ["n", 9])
    more = f", calibrate: {{split: {splits[0]}}}, evaluate: {{split: {splits[1]}}}"
    assert f"examples ({told}) are [n, 8]" in read_problems(tmp_path, SUITE.format(options="", more=more))


def test_a_network_whose_file_tells_no_shape_takes_any(tmp_path: Path) -> None:
    """As one that some exporters write."""
    np.savez(tmp_path / "x.npz", **{f"{split}_inputs": np.zeros((4, 8)) for split in ("train", "test")})
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", values[:1], values[1:])
    onnx.save(helper.make_model(graph), tmp_path / "m.onnx")
    assert read_problems(tmp_path, SUITE.format(options="", more="")) == ""


def test_a_network_of_up_to_64_mebibytes_is_read_for_a_plan() -> None:
    """A larger one would take longer than a plan may."""
    assert npz_checks.LARGEST_ONNX == 67_108_864
