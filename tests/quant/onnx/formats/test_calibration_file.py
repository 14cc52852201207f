"""Rules of qbench/quant/onnx/formats/calibration_file.py: what such a file says of itself, and which record is its."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from calibration_models import cnn, config, written

from qbench.errors import ModelError, UsageError
from qbench.quant.onnx.calibration.calibration_model import BALANCE
from qbench.quant.onnx.formats import calibration_file, scale_record
from qbench.quant.onnx.sites import Scales


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The calibration model of the residual network."""
    network = cnn()
    return written(tmp_path / "c.onnx", network, config(network, tensors=[("sum", 0)]))


def properties(file: Path) -> dict[str, str]:
    """What a file says of itself."""
    return {entry.key: entry.value for entry in onnx.load(file).metadata_props}


def change(file: Path, **changes: str | None) -> None:
    """Writes other properties, or none of a name."""
    model = onnx.load(file)
    told = {**properties(file), **{f"qbench.{name}": text for name, text in changes.items()}}
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, {name: text for name, text in told.items() if text is not None})
    onnx.save(model, file)


def test_a_file_says_its_configuration_its_outputs_and_its_steps(file: Path) -> None:
    """The scales of its weights only once a step has changed them; what is written is read back."""
    assert set(properties(file)) == {calibration_file.CONFIG, calibration_file.OUTPUTS, calibration_file.DONE}
    model = calibration_file.read(file)
    assert (model.done, model.record) == ((), {})
    key = model.sites.weights[0].layer
    change(
        file, done="balance,adaround", weight_scales=scale_record.dumps({key: Scales(scale_w=(0.5,), offset_w=(0,))})
    )
    again = calibration_file.read(file)
    assert again.done == ("balance", "adaround")
    assert again.record[key].scale_w == (0.5,)
    assert calibration_file._describe(again) == properties(file)


@pytest.mark.parametrize("changes", [{"config": None}, {"outputs": None}, {"outputs": "two"}, {"outputs": ""}])
def test_another_file_is_no_calibration_model(file: Path, changes: dict[str, str | None]) -> None:
    """Where either is missing, or is no number."""
    change(file, **changes)
    with pytest.raises(ModelError, match="not a calibration model .*make one with qbench onnx quantize"):
        calibration_file.read(file)


def test_a_record_keeps_its_activations_beside_what_the_model_knows_of_its_weights(file: Path, tmp_path: Path) -> None:
    """Without a record the model's own scales are all there is."""
    model, record = calibration_file.read(file), tmp_path / "record.txt"
    first, second = (site.layer for site in model.sites.weights[:2])
    held = replace(model, record={first: Scales(scale_w=(0.5,), offset_w=(0,))})
    assert calibration_file.read_scales(record, held) == held.record
    known = Scales(scale_d=0.25, offset_d=3, scale_w=(9.0,), offset_w=(0,))
    scale_record.write({first: known, second: known}, record)
    scales = calibration_file.read_scales(record, held)
    assert scales == {first: replace(known, scale_w=(0.5,)), second: known}


@pytest.mark.parametrize(
    ("key", "advice"),
    [("{}x", "did you mean '{}'?"), ("zzzzzz", "is it the record of another model? delete it, or")],
)
def test_a_record_of_another_model_is_refused(file: Path, tmp_path: Path, key: str, advice: str) -> None:
    """With the name that was meant, if there is one like it."""
    model = calibration_file.read(file)
    layer = model.sites.weights[0].layer
    key, advice = (text.format(layer) for text in (key, advice))
    scale_record.write({key: Scales(scale_d=1.0, offset_d=0)}, tmp_path / "record.txt")
    with pytest.raises(UsageError) as refused:
        calibration_file.read_scales(tmp_path / "record.txt", model)
    assert str(refused.value) == (
        f"{tmp_path / 'record.txt'}: {key!r} is nothing that {file} quantizes; {advice} quantize the model again"
    )


def test_balance_factors_are_those_of_balanced_weights(file: Path) -> None:
    """A model that is not balanced refuses them; one that is takes a record with and without."""
    model = calibration_file.read(file)
    layer = model.sites.weights[0].layer
    balanced, plain = ({layer: Scales(scale_d=1.0, offset_d=0, balance=factors)} for factors in ((1.0, 2.0), ()))
    with pytest.raises(UsageError, match=f"{layer!r} has a tensor_balance_factor, but the weights of .* not balanced"):
        calibration_file.require_same_balance(balanced, model, Path("record.txt"))
    calibration_file.require_same_balance(plain, model, Path("record.txt"))
    for record in (balanced, plain):
        calibration_file.require_same_balance(record, replace(model, done=(BALANCE,)), Path("record.txt"))
