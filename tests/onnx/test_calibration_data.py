"""Rules of onnx/calibration_data: what becomes of the data that ``--data`` names, by what the model takes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from qbench.datasets.preprocessing import Preprocessing
from qbench.errors import DataError, ModelError
from qbench.onnx import calibration_data
from qbench.onnx.calibration_data import Input
from qbench.quant.onnx.graph.graph import Graph


def declared(*shape: int | None, dtype: type = np.float32) -> Input:
    """An input of the model."""
    return Input(name="x", shape=shape, dtype=np.dtype(dtype))


@pytest.mark.parametrize(
    ("shape", "options", "layout", "size", "channels"),
    [
        ((None, 3, 32, 40), {}, "nchw", (32, 40), 3),
        ((None, 32, 40, 3), {}, "nhwc", (32, 40), 3),
        ((None, 1, 28, 28), {}, "nchw", (28, 28), 1),
        ((None, 28, 28, 1), {}, "nhwc", (28, 28), 1),
        ((None, 3, 32, 3), {}, "nchw", (32, 3), 3),
        ((None, 3, 32, 3), {"layout": "nhwc"}, "nhwc", (3, 32), 3),
        ((None, 4, 32, 32), {}, "nchw", (32, 32), 3),
        ((None, None, 32, 32), {"channels": 1}, "nchw", (32, 32), 1),
        ((None, 3, None, None), {"size": 224}, "nchw", (224, 224), 3),
        ((None, 3, None, 64), {"size": [32, 64]}, "nchw", (32, 64), 3),
    ],
)
def test_images_become_what_the_input_declares(
    shape: Any, options: dict[str, Any], layout: str, size: tuple[int, int], channels: int
) -> None:
    """Its layout is told by where one or three channels lie; what an option says goes over it."""
    keys = calibration_data._read_images(options, declared(*shape), Path("photos"))
    assert keys.size is not None
    assert (keys.layout, tuple(keys.size), keys.channels) == (layout, size, channels)


@pytest.mark.parametrize("shape", [(None, 3, None, 64), (None, 3, 64, None), (None, None, 64, 3)])
def test_images_of_any_size_need_one(shape: Any) -> None:
    """Nothing tells which the model was made for."""
    with pytest.raises(DataError, match=r"--data photos: input x of the model takes any size; say which: --set size="):
        calibration_data._read_images({}, declared(*shape), Path("photos"))


@pytest.mark.parametrize(
    ("batches", "count"),
    [
        ([np.zeros((100, 2)), np.zeros((27, 2)), np.zeros((1, 2)), np.zeros((9, 2))], 3),
        ([np.zeros((128, 2)), np.zeros((128, 2))], 1),
        ([np.zeros((10, 2))] * 3, 3),
        ([{"a": np.zeros((64, 2)), "b": np.zeros(1)}] * 5, 2),
        ([(np.zeros((64, 2)), np.zeros(1))] * 5, 2),
        ([[np.zeros((64, 2)), np.zeros(1)]] * 5, 2),
        ([np.float32(1)] * 200, 128),
        ([], 1),
    ],
)
def test_a_functions_batches_are_counted_up_to_128_examples(batches: list[Any], count: int) -> None:
    """By the first input of each, whatever form it has; one without an axis is one example."""
    assert calibration_data._counted(batches) == count


@pytest.mark.parametrize(
    ("splits", "asked", "chosen"),
    [(("test", "train"), None, "train"), (("a", "b"), None, "a"), (("train", "test"), "test", "test")],
)
def test_the_split_is_that_of_training_unless_another_is_asked_for(
    splits: tuple[str, ...], asked: str | None, chosen: str
) -> None:
    """Or the first where there is none; one that is not there is refused."""
    data: Any = SimpleNamespace(name="d", splits=splits)
    assert calibration_data._split(data, asked) == chosen
    with pytest.raises(DataError, match=f"d: no split 'dev'; there are {', '.join(splits)}"):
        calibration_data._split(data, "dev")


def test_an_input_is_as_the_graph_declares_it() -> None:
    """With any size where it names none; what is no tensor cannot be calibrated."""
    value = onnx.helper.make_tensor_value_info
    ends = [value("x", onnx.TensorProto.UINT8, ["n", 3, 0]), value("y", onnx.TensorProto.FLOAT, ["n"])]
    nodes = [onnx.helper.make_node("Identity", ["y"], ["z"], name="same")]
    graph = onnx.helper.make_graph(nodes, "net", ends, [value("z", onnx.TensorProto.FLOAT, ["n"])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    assert calibration_data.inputs(Graph(model)) == (
        Input(name="x", shape=(None, 3, None), dtype=np.dtype(np.uint8)),
        Input(name="y", shape=(None,), dtype=np.dtype(np.float32)),
    )
    model.graph.input[0].CopyFrom(onnx.helper.make_tensor_sequence_value_info("x", onnx.TensorProto.FLOAT, ["n"]))
    with pytest.raises(ModelError, match="input x is no tensor, and only tensors can be calibrated"):
        calibration_data.inputs(Graph(model))


@pytest.mark.parametrize(
    ("stored", "wanted", "given"),
    [
        (np.uint8, np.float32, np.float32(1.0)),
        (np.uint8, np.uint8, np.uint8(255)),
        (np.float64, np.float32, np.float32(255.0)),
        (np.int64, np.int32, np.int32(255)),
        (np.float32, np.int64, np.float32(255.0)),
    ],
)
def test_examples_are_scaled_where_the_model_takes_floats_of_them(stored: type, wanted: type, given: Any) -> None:
    """Whole numbers come as they are, in the width that is declared; floats are never cut to whole numbers."""
    preprocessing = Preprocessing(scale=1 / 255) if stored is np.uint8 else Preprocessing()
    (array,) = calibration_data._preprocess(
        (np.full((2, 3), 255, stored),), (declared(None, 3, dtype=wanted),), preprocessing
    )
    assert array.dtype == given.dtype
    assert (array == given).all()
    assert array.flags.c_contiguous


def test_other_arrays_than_the_model_takes_are_left_to_who_says_so() -> None:
    """The message on a batch names what it takes."""
    arrays = (np.zeros((2, 3)), np.zeros((2, 1)))
    assert calibration_data._preprocess(arrays, (declared(None, 3),), Preprocessing()) is arrays
