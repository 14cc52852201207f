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
        ((None, 1, 28, 3), {}, "nchw", (28, 3), 1),
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
    ("options", "told"),
    [({"sizes": 3}, "no option 'sizes'; did you mean 'size'"), ({"resize": 256}, "takes any size; say which")],
)
def test_a_mistaken_option_is_told_before_the_size_that_is_missing(options: dict[str, Any], told: str) -> None:
    """One that needs a size waits for it."""
    with pytest.raises(DataError, match=told):
        calibration_data._read_images(options, declared(None, 3, None, None), Path("photos"))


def write_images(folder: Path, *names: str) -> None:
    """Small grey images of these names."""
    from PIL import Image

    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4)).save(folder / name, format="png")


TAKES_IMAGES = (declared(None, 3, 4, 4),)


def test_images_are_all_files_below_the_folder_that_end_so(tmp_path: Path) -> None:
    """Where there is no folder train; other files and hidden ones are none."""
    write_images(tmp_path, "a.png", "cats/b.PNG", "cats/.hidden.png", "cats/c.txt")
    source = calibration_data.open_source(str(tmp_path), TAKES_IMAGES, {})
    assert (source.name, source.examples) == (f"--data {tmp_path}", 2)
    assert len(source.read(np.array([0, 1]))[0]) == 2
    with pytest.raises(DataError, match="no folder dev in it; leave --split out to take every image"):
        calibration_data.open_source(str(tmp_path), TAKES_IMAGES, {}, "dev")


def test_images_are_for_one_input(tmp_path: Path) -> None:
    """Also where each of several could take them."""
    write_images(tmp_path, "a.png")
    with pytest.raises(DataError, match="images are for a model with one input of 4 dimensions"):
        calibration_data.open_source(str(tmp_path), (*TAKES_IMAGES, declared(None, 1, 4, 4)), {})


@pytest.mark.parametrize("where", ["npz", "python", "image-folder", "idx", "digits:train", "C:photos"])
def test_what_is_found_by_its_path_has_no_name(where: str) -> None:
    """Nor has a function of another file than one of Python."""
    with pytest.raises(DataError, match=f"--data {where}: no such folder; give .* data set .*digits"):
        calibration_data.open_source(where, TAKES_IMAGES, {})


def test_a_data_set_goes_by_its_name() -> None:
    """With the examples of its own split."""
    source = calibration_data.open_source("digits", (declared(None, 1, 8, 8),), {})
    assert source.name == "--data digits"
    assert source.examples is not None
    fewer = calibration_data.open_source("digits", (declared(None, 1, 8, 8),), {}, "test")
    assert fewer.examples is not None
    assert 0 < fewer.examples < source.examples


def test_arrays_of_exactly_the_inputs_are_enough(tmp_path: Path) -> None:
    """Nothing else has to stand beside them."""
    file = tmp_path / "d.npz"
    np.savez(file, x=np.arange(6, dtype=np.float32).reshape(3, 2))
    source = calibration_data.open_source(str(file), (declared(None, 2),), {})
    assert (source.name, source.examples) == (f"--data {file}", 3)
    assert source.read(np.array([2]))["x"].tolist() == [[4, 5]]


@pytest.mark.parametrize(("y", "length"), [(np.zeros((4, 2)), 4), (np.float32(0), 0)])
def test_arrays_of_other_lengths_are_refused(tmp_path: Path, y: Any, length: int) -> None:
    """A number alone has no example."""
    file = tmp_path / "d.npz"
    np.savez(file, x=np.zeros((3, 2)), y=y)
    inputs = (declared(None, 2), Input(name="y", shape=(None, 2), dtype=np.dtype(np.float32)))
    with pytest.raises(DataError) as raised:
        calibration_data.open_source(str(file), inputs, {})
    lengths = {"x": 3, "y": length}
    assert str(raised.value) == (
        f"--data {file}: arrays of different lengths: {lengths}; the first axis counts the examples"
    )


def test_a_file_that_holds_no_arrays_is_told(tmp_path: Path) -> None:
    """By the array, where it is one that cannot be read."""
    file = tmp_path / "d.npz"
    file.write_text("no archive")
    told = "not an .npz file of arrays of numbers"
    with pytest.raises(DataError, match=rf"--data {file}: {told}"):
        calibration_data.open_source(str(file), (declared(None, 2),), {})
    np.savez(file, x=np.array([{}], dtype=object))
    with pytest.raises(DataError, match=rf"--data {file}: x: {told}"):
        calibration_data.open_source(str(file), (declared(None, 2),), {})


FUNCTIONS = """\
VALUE = 3
def batches(count=2, *further, **named):
    return [[1.0]] * count
"""


def test_a_function_that_needs_nothing_makes_the_batches(tmp_path: Path) -> None:
    """Whatever it could be given; it takes no options of a data set."""
    (tmp_path / "d.py").write_text(FUNCTIONS)
    where = f"{tmp_path}/d.py:batches"
    source = calibration_data.open_source(where, TAKES_IMAGES, {})
    assert (source.name, source.examples) == (f"--data {where}", None)
    assert calibration_data.shaped(source, None, None, None) == (2, 1)
    assert calibration_data.shaped(source, 5, None, None) == (5, 1)
    with pytest.raises(DataError, match="a function that makes the batches takes no --set scale"):
        calibration_data.open_source(where, TAKES_IMAGES, {"scale": 1})
    with pytest.raises(DataError, match="VALUE is int, not a function"):
        calibration_data.open_source(f"{tmp_path}/d.py:VALUE", TAKES_IMAGES, {})


def test_of_no_examples_there_is_no_batch() -> None:
    """Not even of one."""
    source = calibration_data.Source(name="x", examples=0, read=lambda index: ())
    with pytest.raises(DataError, match="x: 0 examples, a batch has 1; give more data"):
        source.batches(1, 1)


def test_examples_are_drawn_alike_where_no_seed_is_given() -> None:
    """By seed 0."""
    source = calibration_data.Source(name="x", examples=50, read=lambda index: (index,))
    drawn = [list(source.batches(2, 8, **options)()) for options in ({}, {"seed": 0}, {"seed": 1})]
    first, again, other = [np.concatenate([batch[0] for batch in batches]).tolist() for batches in drawn]
    assert first == again != other
    assert len(set(first)) == 16


def test_a_batch_that_the_model_demands_and_the_data_has_is_left_to_it() -> None:
    """As many examples as there are is not too many."""
    assert calibration_data._remedy(8, 8) == "the model takes 8 at once: leave --batch-size out"


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
