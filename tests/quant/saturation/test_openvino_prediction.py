"""What OpenVINO answers on AVX2: predicted, held against it in a process that hides newer instructions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from qbench.quant.saturation.openvino_prediction import OpenVinoPredictor, put_beside_readers
from tests.fixtures import openvino_int8_layers
from tests.fixtures.openvino_int8_layers import EXACT, LAYERS, inputs

pytest.importorskip("openvino")
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of files, and of what OpenVINO gives for them with the instructions of AVX2."""
    folder = tmp_path_factory.mktemp("openvino")
    command = [sys.executable, "-m", "tests.fixtures.openvino_int8_layers", str(folder)]
    environment = {**os.environ, **openvino_int8_layers.SWITCHES}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("signed", ["", ", signed"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_what_is_predicted(limited: Path, name: str, signed: str) -> None:
    """Bit for bit, but for one byte in a thousand that is rounded the other way; where it is exact, as predicted."""
    x, file = inputs(name, signed=bool(signed)), limited / f"{name}{signed}.onnx"
    predictor = OpenVinoPredictor(file, (x[:1],))
    outputs, actual = np.concatenate([predictor((x[:1],)), predictor((x[1:],))]), np.load(file.with_suffix(".npy"))
    assert predictor.unknown == {}
    assert np.count_nonzero(outputs != actual) <= actual.size / 1000
    assert predictor.saturated == (set() if name in EXACT else {1, 2})
    assert [layer.name for layer in predictor.layers] == ([] if name in EXACT else ["layer"])
    assert all(layer.saturated and not layer.rounded for layer in predictor.layers)


def test_a_layer_reads_what_the_one_before_it_will_give(limited: Path, tmp_path: Path) -> None:
    """Two layers in a row answer as one after the other, and what both lose is counted."""
    first = limited / "3x3 of odd channels.onnx"
    x, both = inputs("3x3 of odd channels"), onnx.load(str(first))
    between = OpenVinoPredictor(first, (x,))((x,))
    second = onnx.load(str(limited / "dilated.onnx"))
    onnx.compose.add_prefix(second, "second_", inplace=True)
    for name, value in (("starts", 0), ("ends", 7), ("axes", 1)):
        both.graph.initializer.append(onnx.numpy_helper.from_array(np.array([value], np.int64), name))
    both.graph.node.append(helper.make_node("Slice", ["y", "starts", "ends", "axes"], ["second_x"]))
    both.graph.node.extend(second.graph.node)
    both.graph.initializer.extend(second.graph.initializer)
    both.graph.output[0].CopyFrom(second.graph.output[0])
    onnx.save(both, str(tmp_path / "both.onnx"))
    predictor, alone = (
        OpenVinoPredictor(tmp_path / "both.onnx", (x,)),
        OpenVinoPredictor(limited / "dilated.onnx", (inputs("dilated"),)),
    )
    assert np.array_equal(predictor((x,)), alone((between[:, :7],)))
    assert [layer.name for layer in predictor.layers] == ["layer", "second_layer"]
    assert all(layer.saturated for layer in predictor.layers)


def test_weights_stand_beside_what_reads_them(limited: Path) -> None:
    """The bytes of a weight belong to the section of its layer, wherever the file makes floats of them."""
    model = onnx.load(str(limited / "1x1.onnx"))
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend([nodes[2], *nodes[:2], *nodes[3:]])
    put_beside_readers(model)
    assert [node.op_type for node in model.graph.node][:4] == [
        "QuantizeLinear", "DequantizeLinear", "DequantizeLinear", "Conv",
    ]  # fmt: skip
