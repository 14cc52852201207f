"""An ONNX model written weight by weight."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx_networks import NETWORKS

from qbench.quant.onnx.graph.model_writer import write_model


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_the_bytes_are_those_of_protobuf(name: str, tmp_path: Path) -> None:
    """Whatever is beside the weights: metadata, functions, texts, shapes."""
    model = NETWORKS[name]()
    model.metadata_props.add(key="author", value="somebody")
    model.doc_string, model.graph.doc_string, model.producer_name = "a model", "its graph", "tests"
    write_model(model, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == model.SerializeToString()


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
    unknown = bytes([0xA2, 0x3F, 2, 7, 7])  # field 1012, two bytes
    model = next(iter(NETWORKS.values()))()
    for of_graph in (False, True):
        changed = onnx.ModelProto.FromString(model.SerializeToString())
        (changed.graph if of_graph else changed).MergeFromString(unknown)
        assert unknown in changed.SerializeToString()
        write_model(changed, tmp_path / "model.onnx")
        assert (tmp_path / "model.onnx").read_bytes() == changed.SerializeToString()
