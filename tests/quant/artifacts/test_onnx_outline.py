"""An ONNX file read without the values of its weights."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx_networks import NETWORKS, save

from qbench.quant.artifacts import onnx_outline
from qbench.quant.artifacts.onnx_outline import SMALL, Content, read_outline, read_whole, write_weights_apart


def read_in_parts(file: Path) -> Any:
    """A file read whole, part by part."""
    with file.open("rb") as stream:
        return read_whole(Content(stream))


@pytest.mark.parametrize("part", [1, 200, 2**20])
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_what_is_read_by_parts_is_the_whole(
    name: str, part: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last byte, in the order of the file: field by field, several together, or all at once."""
    model = NETWORKS[name]()
    model.metadata_props.add(key="author", value="somebody")
    file = save(model, tmp_path)
    monkeypatch.setattr(onnx_outline, "_PART", part)
    assert read_in_parts(file).SerializeToString() == model.SerializeToString()


@pytest.mark.parametrize("window", [1, 7, 4096])
def test_bytes_are_read_from_any_place(window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, forth and back, or many at once; behind the end there are none."""
    monkeypatch.setattr(onnx_outline, "_WINDOW", window)
    (tmp_path / "m").write_bytes(bytes(range(20)))
    with (tmp_path / "m").open("rb") as stream:
        content = Content(stream)
        assert [content.byte(place) for place in (3, 4, 19, 0, 10, 9)] == [3, 4, 19, 0, 10, 9]
        assert (len(content), content.read(5, 9), content.read(20, 20)) == (20, bytes(range(5, 9)), b"")
        for place in (20, 25):
            with pytest.raises(IndexError):
                content.byte(place)


def test_a_file_that_is_cut_short_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    """It would end a process that maps it."""
    file = tmp_path / "m"
    file.write_bytes(bytes(100_000))
    with file.open("rb") as stream:
        content = Content(stream)
        assert content.byte(10) == 0
        os.truncate(file, 5_000)
        with pytest.raises(ValueError, match="cut short while it was read"):
            content.read(4_000, 90_000)
        with pytest.raises(ValueError, match="cut short while it was read"):
            content.byte(50_000)


def test_a_graph_without_anything_is_read_as_one(tmp_path: Path) -> None:
    """It is there, and has nothing in it."""
    model = onnx.ModelProto(ir_version=8)
    model.graph.SetInParent()
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert read_in_parts(tmp_path / "m.onnx").HasField("graph")


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_what_is_small_is_read_as_onnx_reads_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last byte, where no weight is large; all else where each is."""
    model = NETWORKS[name]()
    model.metadata_props.add(key="author", value="somebody")
    file = save(model, tmp_path)
    monkeypatch.setattr(onnx_outline, "SMALL", 2**31)
    assert read_outline(file).SerializeToString() == model.SerializeToString()
    monkeypatch.setattr(onnx_outline, "SMALL", -1)
    outline = read_outline(file)
    for tensor in model.graph.initializer:
        for field in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "raw_data"):
            tensor.ClearField(field)
    assert outline.SerializeToString() == model.SerializeToString()


def test_large_weights_keep_their_name_type_and_shape(tmp_path: Path) -> None:
    """Small ones their values, too; whichever of its fields a tensor has them in."""
    large, small = SMALL // 4 + 1, SMALL // 4
    arrays = {"large": np.arange(large, dtype=np.float32), "small": np.arange(small, dtype=np.float32)}
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    tensors.append(helper.make_tensor("listed", onnx.TensorProto.DOUBLE, [large], np.arange(large)))
    file = save(helper.make_model(helper.make_graph([], "g", [], [], tensors)), tmp_path)
    outline = {tensor.name: tensor for tensor in read_outline(file).graph.initializer}
    assert [list(tensor.dims) for tensor in outline.values()] == [[large], [small], [large]]
    assert [tensor.data_type for tensor in outline.values()] == [tensor.data_type for tensor in tensors]
    assert (len(outline["large"].raw_data), len(outline["listed"].double_data)) == (0, 0)
    assert np.array_equal(numpy_helper.to_array(outline["small"]), arrays["small"])


def test_weights_beside_the_file_are_told(tmp_path: Path) -> None:
    """Where they lie is small."""
    model = NETWORKS["old_style"]()
    onnx.save(model, str(tmp_path / "m.onnx"), save_as_external_data=True, location="weights", size_threshold=0)
    tensors = read_outline(tmp_path / "m.onnx").graph.initializer
    assert {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"} == {
        "weights"
    }


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_weights_set_apart_are_the_same_model(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read with them it is what the file holds; those of raw bytes lie apart, each where a page begins. Whole numbers
    of 64 bits, which may be shapes, stay."""
    model = NETWORKS[name]()
    raw = {
        tensor.name for tensor in model.graph.initializer if tensor.raw_data and tensor.data_type != TensorProto.INT64
    }
    monkeypatch.setattr(onnx_outline, "SMALL", 0)
    file, folder = save(model, tmp_path), tmp_path / "apart"
    folder.mkdir()
    apart = write_weights_apart(file, folder)
    assert (apart != file) == bool(raw)
    told = onnx.load(str(apart), load_external_data=False)
    places = {
        tensor.name: {entry.key: entry.value for entry in tensor.external_data}
        for tensor in told.graph.initializer
        if tensor.external_data
    }
    assert places.keys() == raw
    assert all(int(place["offset"]) % mmap.ALLOCATIONGRANULARITY == 0 for place in places.values())
    whole = onnx.load(str(apart))
    for tensor in whole.graph.initializer:
        tensor.ClearField("data_location")
        del tensor.external_data[:]
    assert whole.SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)


def test_only_large_weights_are_set_apart(tmp_path: Path) -> None:
    """A file without any is opened itself; of another the small ones stay in it."""
    folder = tmp_path / "apart"
    folder.mkdir()
    for size, names in (SMALL // 4, []), (SMALL // 4 + 1, ["weight"]):
        arrays = {"weight": np.arange(size, dtype=np.float32), "small": np.arange(2, dtype=np.float32)}
        tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
        file = save(helper.make_model(helper.make_graph([], "g", [], [], tensors)), tmp_path)
        apart = write_weights_apart(file, folder)
        kept = onnx.load(str(apart), load_external_data=False).graph.initializer
        assert [tensor.name for tensor in kept if not tensor.raw_data] == names
        assert (apart == file) == (not names)


def test_what_cannot_be_set_apart_is_opened_as_it_is(tmp_path: Path) -> None:
    """Weights beside it have their place already; a file that is no model is whoever opens it to tell of."""
    beside, empty, broken, folder = (tmp_path / name for name in ("m.onnx", "empty.onnx", "broken.onnx", "apart"))
    onnx.save(NETWORKS["old_style"](), str(beside), save_as_external_data=True, location="w", size_threshold=0)
    empty.touch()
    broken.write_bytes(beside.read_bytes()[:-3])
    folder.mkdir()
    for file in beside, empty, broken:
        assert write_weights_apart(file, folder) == file


@given(cut=st.integers(0, 10_000), place=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_what_is_broken_is_refused_or_read_as_onnx_does(
    cut: int, place: int, byte: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A file that ends early, or has another byte somewhere: never another error, never a hang."""
    content = bytearray(NETWORKS["old_style"]().SerializeToString())
    content[place % len(content)] = byte
    file = tmp_path_factory.mktemp("broken") / "m.onnx"
    file.write_bytes(content[: len(content) - cut % len(content)])
    with mock.patch.object(onnx_outline, "_PART", cut % 50):
        try:
            by_parts = read_in_parts(file)
        except (DecodeError, ValueError, IndexError):
            by_parts = None
    try:
        whole = onnx.load(str(file), load_external_data=False)
    except DecodeError:
        assert by_parts is None
        with pytest.raises(DecodeError):
            read_outline(file)
        return
    assert by_parts in (None, whole)
    outline = read_outline(file)
    assert [node.op_type for node in outline.graph.node] == [node.op_type for node in whole.graph.node]


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, b"{}", b"\x0b"])
def test_what_is_no_model_is_told_by_onnx(content: bytes, tmp_path: Path) -> None:
    """Nothing, a number without an end, another format, a kind of field that there is not."""
    file = tmp_path / "m.onnx"
    file.write_bytes(content)
    if not content:
        assert read_outline(file) == onnx.ModelProto()
        return
    with pytest.raises(DecodeError):
        read_outline(file)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """As by any that opens it."""
    with pytest.raises(FileNotFoundError):
        read_outline(tmp_path / "m.onnx")
