"""What the headers of an .npz file tell of a suite is told before anything runs."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from qbench.errors import SuiteError
from qbench.files import npz_file
from qbench.suite import read

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
    (folder / "s.yaml").write_text(SUITE.format(options=options, more=more))
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
    found = find_problems(tmp_path, **changes)  # type: ignore[arg-type]  # side is a number, the others are text
    assert said in found
    assert bool(found) == bool(said)


def test_shapes_come_from_headers_without_numpy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan imports no numpy, and reads no array; an entry that is no array is left out."""
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros((3, 2)), b=np.int64(1))
    monkeypatch.setitem(sys.modules, "numpy", ModuleType("no numpy here"))
    assert npz_file.shapes(tmp_path / "x.npz") == {"a": (3, 2), "b": ()}
