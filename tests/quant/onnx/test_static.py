"""A static recipe to scales: in memory, and in the file that builds of one network share."""

from __future__ import annotations

from pathlib import Path

import pytest
from calibration_models import cnn, images

from qbench.quant.onnx.formats import config_json, protobuf_text
from qbench.quant.onnx.static import Scaled, choose_scales
from qbench.quant.recipe import Recipe

RECIPE = Recipe(calibrator="minmax", per_channel=True, skip_layers=("point",))


def scaled(folder: Path, recipe: Recipe = RECIPE) -> Scaled:
    """The scales of the residual network."""
    cnn().save(folder / "fp32.onnx")
    return choose_scales(folder / "fp32.onnx", recipe, (images(20),), lambda text, share: None)


def test_no_suite_writes_or_reads_the_forms_of_amct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration and a record are texts at the edge of `qbench onnx` alone: scales are found, saved and loaded
    without either, and no model says anything in that form."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a suite went through a text of AMCT's form")

    for module, name in (
        (config_json, "dumps"),
        (config_json, "loads"),
        (protobuf_text, "text"),
        (protobuf_text, "empty"),
    ):
        monkeypatch.setattr(module, name, refuse)
    scaled(tmp_path).save(tmp_path / "scaled.onnx")
    graph = Scaled.load(tmp_path / "scaled.onnx").graph
    assert {entry.key for entry in graph.model.metadata_props} == {"qbench.scaled"}


def test_a_file_gives_back_the_scales_it_was_given(tmp_path: Path) -> None:
    """Sites, scales to the last bit, reasons and notes of a file are those that were found."""
    found = scaled(tmp_path)
    found.save(tmp_path / "scaled.onnx")
    loaded = Scaled.load(tmp_path / "scaled.onnx")
    assert (loaded.sites, loaded.record) == (found.sites, found.record)
    assert (loaded.float_reasons, loaded.notes) == (found.float_reasons, found.notes)
    assert list(found.float_reasons) == ["point"]
    assert loaded.graph.outputs == found.graph.outputs == ("y",)
