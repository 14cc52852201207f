"""The calibration model between the steps of ``qbench onnx``: a file that holds its configuration, and the scales of
weights that a step has changed, in AMCT's form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from qbench import registry
from qbench.errors import ModelError, UsageError
from qbench.quant.onnx import graph_process
from qbench.quant.onnx.calibration import calibrate, complete_scales
from qbench.quant.onnx.calibration.batches import Batches
from qbench.quant.onnx.calibration.calibration_model import BALANCE, CalibrationModel, keep_outputs
from qbench.quant.onnx.formats import config as config_file
from qbench.quant.onnx.formats import scale_record as record_file
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.settings import Config
from qbench.quant.onnx.sites import Record, find
from qbench.quant.onnx.weights.weight_steps import StepProgress

# Entries of metadata_props. OUTPUTS: how many outputs are the model's own; they come first. DONE: the steps that have
# changed its weights, separated by commas. SCALES: the scales of those weights, which a record file may not have yet
# when a calibration is killed.
CONFIG, OUTPUTS, DONE, SCALES = "qbench.config", "qbench.outputs", "qbench.done", "qbench.weight_scales"


def write(graph: Graph, config: Config, file: Path, *, done: tuple[str, ...] = ()) -> CalibrationModel:
    """The calibration model of a prepared graph, in a file that says what it is; ``done`` names steps that have changed
    its weights."""
    return CalibrationModel.write(graph, config, file, done=done, describe=_describe)


def read(file: Path) -> CalibrationModel:
    """Raises ``ModelError`` for a file that is not whole, or that ``quantize`` did not write."""
    graph = Graph.load(file)
    properties = {entry.key: entry.value for entry in graph.model.metadata_props}
    if CONFIG not in properties or not properties.get(OUTPUTS, "").isdecimal():
        raise ModelError(f"{file}: not a calibration model (no {CONFIG} in it); make one with qbench onnx quantize")
    config = config_file.loads(properties[CONFIG], name=f"{file}: its configuration")
    keep_outputs(graph, int(properties[OUTPUTS]))
    return CalibrationModel(
        file=file,
        config=config,
        sites=find(graph, config, f"{file}: its configuration"),
        inputs=graph.inputs,
        outputs=graph.outputs,
        done=tuple(filter(None, properties.get(DONE, "").split(","))),
        record=record_file.loads(properties[SCALES], name=str(file)) if properties.get(SCALES) else {},
        describe=_describe,
    )


def _describe(model: CalibrationModel) -> dict[str, str]:
    properties = {
        CONFIG: config_file.dumps(model.config),
        OUTPUTS: str(len(model.outputs)),
        DONE: ",".join(model.done),
        SCALES: record_file.dumps(model.record) if model.record else "",
    }
    return {key: text for key, text in properties.items() if text or key != SCALES}


def run(
    file: Path, batches: Batches, record: Path, *, threads: int = 0, progress: StepProgress = lambda *_: None
) -> calibrate.Calibrated:
    """Feeds the first ``batch_num`` batches to the calibration model ``file`` and writes ``record`` whole.

    ``batches``: see ``batches.Batch``; a list, or a function that makes a generator, where balance or bias correction
    need several passes. These and AdaRound change weights and rewrite ``file``, whole or not at all; ``record`` is
    written last, so that a killed calibration is simply run again. ``threads``: of the inference and, beside it, of
    the calibrators; 0: as many as there are cores. ``progress`` is told the step, the batch and how many there are.
    Raises ``ModelError`` for a file that is no calibration model, ``DataError`` for data that does not fit it, and
    ``BuildError`` that names layer and batch for an activation with NaN or inf.
    """
    model: CalibrationModel = graph_process.run(file, read, file)
    _, calibrated = calibrate.calibrate(
        model, batches, scales_so_far=read_scales(record, model), threads=threads, progress=progress
    )
    record_file.write(calibrated.record, record)
    warnings = calibrate.warn_of_small(calibrated.small, model.sites)
    return replace(calibrated, warnings=(*calibrated.warnings, *warnings))


def read_scales(file: Path, model: CalibrationModel) -> Record:
    """The record as it is, empty where there is none yet; what the model itself knows of its weights goes before.
    Raises ``UsageError`` where the record belongs to another model."""
    record = dict(record_file.read(file, empty=True)) if file.exists() else {}  # nothing of it may have weights
    expected = complete_scales.keys(model.sites)
    if strangers := [key for key in record if key not in expected]:
        meant = registry.suggest(strangers[0], expected)
        advice = meant or "; is it the record of another model? delete it, or"
        raise UsageError(
            f"{file}: {strangers[0]!r} is nothing that {model.file} quantizes{advice} quantize the model again"
        )
    require_same_balance(record, model, file)
    for layer, weight_scales in model.record.items():
        record[layer] = (
            replace(weight_scales, scale_d=record[layer].scale_d, offset_d=record[layer].offset_d)
            if layer in record
            else weight_scales
        )
    return record


def require_same_balance(record: Record, model: CalibrationModel, file: Path) -> None:
    """Raises ``UsageError`` where a record (``file``) has balance factors and the model's weights are not balanced: its
    scales are those of other weights."""
    balanced = [key for key, layer_scales in record.items() if layer_scales.balance]
    if balanced and BALANCE not in model.done:
        raise UsageError(
            f"{file}: {balanced[0]!r} has a tensor_balance_factor, but the weights of {model.file} are not balanced; "
            "quantize the model again for a record of its own, with balance in the configuration if it is wanted"
        )
