"""What is read of an ONNX file's inputs, and the batches that are made for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qbench.errors import BuildError
from qbench.quant.artifacts import onnx_file

Sizes = Sequence[int | str | None]


def save(file: Path, *inputs: tuple[str, Sizes], weights: Sequence[str] = ()) -> Path:
    """A file with these float32 inputs; ``weights`` are inputs and initializers."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name, sizes in inputs]
    tensors = [numpy_helper.from_array(np.ones(3, np.float32), name) for name in weights]
    values += [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in weights]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("second", "first")]
    onnx.save(helper.make_model(helper.make_graph([], "g", values, outputs, tensors)), file)
    return file


def save_external(folder: Path, place: str = "w.bin") -> Path:
    """A file whose only weight lies beside it."""
    file = save(folder / "m.onnx", ("x", ["n", 3]), weights=["w"])
    onnx.save(onnx.load(file), file, save_as_external_data=True, location=place, size_threshold=0)
    return file


def batches(file: Path, *inputs: np.ndarray, size: int = 1) -> list[list[object]]:
    """Each batch's first input."""
    reader = onnx_file.Batches(file, inputs, size)
    listed = [batch["x"].tolist() for batch in reader]
    assert len(listed) == len(reader)
    return listed


def test_initializers_are_no_inputs(tmp_path: Path) -> None:
    """Old files list them among them."""
    file = save(tmp_path / "m.onnx", ("b", ["n", 3]), ("a", [2]), weights=["w"])
    assert onnx_file.input_names(file) == ("b", "a")
    assert onnx_file.input_types(file) == {"b": "float32", "a": "float32"}
    assert onnx_file.output_names(file) == ("second", "first")


def test_sizes_that_are_free_have_their_name_or_none(tmp_path: Path) -> None:
    """As many as the file declares."""
    file = save(tmp_path / "m.onnx", ("x", ["n", 3, None, 0]), ("scalar", []))
    sizes = [declared.sizes for declared in onnx_file.list_inputs(onnx.load(file))]
    assert sizes == [("n", 3, None, None), ()]


def test_what_is_no_tensor_has_no_type() -> None:
    """A sequence, say."""
    value = helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None)
    (declared,) = onnx_file.list_inputs(helper.make_model(helper.make_graph([], "g", [value], [])))
    assert (declared.dtype, declared.sizes) == (None, ())


@pytest.mark.parametrize(
    ("inputs", "size"),
    [
        ([("x", ["n", 3])], None),
        ([("x", [])], None),
        ([("x", [-1, 3])], None),
        ([("x", [1, 3])], 1),
        ([("x", ["n", 3]), ("y", [4, 3]), ("z", [5])], 4),
        ([("x", []), ("y", [4])], 4),
        ([("x", ["n", 3]), ("state", [2, "n", 3])], None),
        ([("x", [1, 3]), ("state", [2, 1, 3])], 1),
    ],
)
def test_the_first_fixed_size_is_the_batch_that_is_demanded(
    tmp_path: Path, inputs: list[tuple[str, Sizes]], size: int | None
) -> None:
    """None where every input is free; an input without sizes says nothing."""
    file = save(tmp_path / "m.onnx", *inputs)
    assert onnx_file.fixed_batch(file) == size
    (tiled,) = onnx_file.tile_batch(file, (np.array([[1, 2]]),))
    assert tiled.tolist() == [[1, 2]] * (size or 1)


@pytest.mark.parametrize(
    ("inputs", "axes"),
    [
        ([["n", 3], ["n", 5]], (0, 0)),
        ([["n", "t"], [2, "n", 64], []], (0, 1, None)),
        ([["batch", "t"], ["other", "batch"]], (0, 0)),
        ([[None, None], [2, None, 64]], (0, 1)),
        ([[-1, 3], [2, 0, 64]], (0, 1)),
        ([[None, 3], [2, None, None]], (0, 0)),
        ([[1, 576], [2, 1, 128]], (0, 1)),
        ([[1, 576], [1, 1, 128]], (0, 0)),
        ([["n", 3], [1]], (0, 0)),
        ([[], [4, 3]], (None, 0)),
        ([], ()),
    ],
)
def test_examples_lie_along_the_axis_that_has_the_size_of_the_first_input(inputs: list[Sizes], axes: Sizes) -> None:
    """By name, without one, or as a number, where an input does not begin with it; where several could be meant, the
    first. A scalar has no examples."""
    declared = [onnx_file.DeclaredInput(name="x", dtype="float32", sizes=tuple(sizes)) for sizes in inputs]
    assert onnx_file.find_example_axes(declared) == axes


@pytest.mark.parametrize(
    ("sizes", "dtype", "axis", "assumed"),
    [
        (["n", 3, None, 320], "float32", 0, (1, 3, 224, 320)),
        (["n", "h", "w", 1], "float16", 0, (1, 224, 224, 1)),
        (["n", 4, None, None], "float32", 0, (1, 4, 128, 128)),
        (["n", 3, None, None], "int64", 0, (1, 3, 128, 128)),
        ([2, "n", -1], "float32", 1, (2, 1, 128)),
        ([], "int64", None, ()),
    ],
)
def test_free_sizes_are_those_of_usual_data(sizes: Sizes, dtype: str, axis: int | None, assumed: Sizes) -> None:
    """A picture has one or three channels, and is of floats."""
    declared = onnx_file.DeclaredInput(name="x", dtype=dtype, sizes=tuple(sizes))
    assert onnx_file.assume_sizes(declared, axis) == assumed


def test_batches_of_a_free_size_end_with_what_is_left(tmp_path: Path) -> None:
    """Of one example, where no size is asked for."""
    file, values = save(tmp_path / "m.onnx", ("x", ["n"])), np.arange(5)
    assert batches(file, values, size=2) == [[0, 1], [2, 3], [4]]
    assert batches(file, values, size=5) == [[0, 1, 2, 3, 4]]
    assert batches(file, values) == [[0], [1], [2], [3], [4]]


def test_batches_of_a_fixed_size_are_filled_up_from_the_first_examples(tmp_path: Path) -> None:
    """As often as it takes; another size is not heard."""
    assert batches(save(tmp_path / "m.onnx", ("x", [3])), np.arange(5), size=2) == [[0, 1, 2], [3, 4, 0]]
    assert batches(save(tmp_path / "m.onnx", ("x", [5])), np.arange(2)) == [[0, 1, 0, 1, 0]]


def test_batches_can_be_read_again_and_need_every_input(tmp_path: Path) -> None:
    """Calibrators read them more than once."""
    file = save(tmp_path / "m.onnx", ("x", ["n"]), ("y", ["n"]))
    reader = onnx_file.Batches(file, (np.arange(2), np.arange(2) + 5), 2)
    assert [{name: array.tolist() for name, array in batch.items()} for _ in range(2) for batch in reader] == [
        {"x": [0, 1], "y": [5, 6]}
    ] * 2
    with pytest.raises(ValueError, match="shorter"):
        batches(file, np.arange(2))


def test_weights_beside_a_file_are_its_own_and_a_copy_takes_them_in(tmp_path: Path) -> None:
    """The copy stands alone; a file without them is copied as it is."""
    file = save_external(tmp_path)
    assert onnx_file.list_external(file) == {tmp_path.resolve() / "w.bin"}
    onnx_file.copy(file, tmp_path / "copy.onnx")
    assert onnx_file.list_external(tmp_path / "copy.onnx") == set()
    plain = save(tmp_path / "plain.onnx", ("x", [1]), weights=["w"])
    assert onnx_file.list_external(plain) == set()
    plain.write_bytes(plain.read_bytes() + b"\x3a\x00")  # an empty graph more, which changes nothing but the bytes
    onnx_file.copy(plain, tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == plain.read_bytes()


def test_files_outside_the_folder_or_gone_are_not_its_weights(tmp_path: Path) -> None:
    """Nor has a file that cannot be read any."""
    folder = tmp_path / "inner"
    folder.mkdir()
    file = save_external(folder)
    model = onnx.load(file, load_external_data=False)
    (folder / "w.bin").rename(tmp_path / "w.bin")
    assert onnx_file.list_external(file) == set()
    model.graph.initializer[0].external_data[0].value = "../w.bin"
    onnx.save(model, file)
    assert onnx_file.list_external(file) == set()
    file.write_bytes(b"\xff")
    assert onnx_file.list_external(file) == set()
    assert onnx_file.list_external(tmp_path / "none.onnx") == set()


def test_outputs_that_change_from_call_to_call_or_opening_are_refused(tmp_path: Path) -> None:
    """NaN is the same as NaN."""
    constant = np.array([np.nan, 1])
    onnx_file.require_repeatable(lambda _: lambda _: constant.copy(), tmp_path, (), "R")
    counts, openings = iter(range(9)), iter(range(9))
    with pytest.raises(BuildError, match=r"^the outputs of R for the ONNX model differ from call to call"):
        onnx_file.require_repeatable(lambda _: lambda _: np.array(next(counts)), tmp_path, (), "R")

    def open_file(_: Path) -> object:
        number = next(openings)
        return lambda _: np.array(number)

    with pytest.raises(BuildError, match="differ"):
        onnx_file.require_repeatable(open_file, tmp_path, (), "R")  # type: ignore[arg-type]
