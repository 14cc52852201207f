"""An ONNX model written weight by weight."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx_networks import NETWORKS

from qbench.quant.onnx.graph.model_writer import write_model

UNKNOWN = bytes([0xA2, 0x3F, 2, 7, 7])  # field 1012, two bytes


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_the_bytes_are_those_of_protobuf(name: str, tmp_path: Path) -> None:
    """Whatever is beside the weights: metadata, functions, texts, shapes."""
    model = NETWORKS[name]()
    model.metadata_props.add(key="author", value="somebody")
    model.doc_string, model.graph.doc_string, model.producer_name = "a model", "its graph", "tests"
    write_model(model, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == model.SerializeToString()


def test_weights_that_lie_beside_a_model_are_taken_in(tmp_path: Path) -> None:
    """The same file as was written apart; also beside fields that this onnx does not know. The model stays as it is."""
    apart = tmp_path / "apart.onnx"
    whole = onnx.ModelProto.FromString(NETWORKS["old_style"]().SerializeToString())
    onnx.save(NETWORKS["old_style"](), str(apart), save_as_external_data=True, location="weights", size_threshold=0)
    model = onnx.load(str(apart), load_external_data=False)
    assert any(tensor.external_data for tensor in model.graph.initializer)
    before = model.SerializeToString()
    write_model(model, tmp_path / "model.onnx", weights=tmp_path)
    assert (tmp_path / "model.onnx").read_bytes() == whole.SerializeToString()
    assert model.SerializeToString() == before
    model.MergeFromString(UNKNOWN)
    write_model(model, tmp_path / "newer.onnx", weights=tmp_path)
    newer = onnx.load(str(tmp_path / "newer.onnx"), load_external_data=False)
    assert UNKNOWN in newer.SerializeToString()
    for tensor, expected in zip(newer.graph.initializer, whole.graph.initializer, strict=True):
        assert np.array_equal(numpy_helper.to_array(tensor), numpy_helper.to_array(expected))


@pytest.mark.parametrize("size", [0, 1, 100, 127, 128, 16_000, 16_384, 3_000_000])
def test_lengths_of_any_size(size: int, tmp_path: Path) -> None:
    """A length takes one byte for each seven bits: one up to 127, two up to 16,383."""
    model = onnx.helper.make_model(onnx.helper.make_graph([], "", [], [], [
        numpy_helper.from_array(np.arange(count) % 100 * np.int8(1), f"weight{count}") for count in (size, 1)
    ]))  # fmt: skip
    write_model(model, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == model.SerializeToString()


def test_what_a_newer_onnx_has_written_is_kept(tmp_path: Path) -> None:
    """Fields that this onnx does not know: of the model and of its graph."""
    model = next(iter(NETWORKS.values()))()
    for of_graph in (False, True):
        changed = onnx.ModelProto.FromString(model.SerializeToString())
        (changed.graph if of_graph else changed).MergeFromString(UNKNOWN)
        assert UNKNOWN in changed.SerializeToString()
        write_model(changed, tmp_path / "model.onnx")
        assert (tmp_path / "model.onnx").read_bytes() == changed.SerializeToString()
