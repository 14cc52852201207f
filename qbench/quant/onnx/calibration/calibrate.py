"""Calibration model + data -> the record with every scale; one session, one batch after the other, bounded memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from qbench.quant.onnx import graph_process
from qbench.quant.onnx.calibration import scales
from qbench.quant.onnx.calibration.batches import Batches, doubtful, require_several_passes
from qbench.quant.onnx.calibration.calibration_model import ADAROUND, BALANCE, BIAS, CalibrationModel, calibration_model
from qbench.quant.onnx.calibration.chunks import CHUNK_BYTES, Chunker
from qbench.quant.onnx.calibration.collector import Collector
from qbench.quant.onnx.formats import scale_record as record_file
from qbench.quant.onnx.formats.scale_record import Record
from qbench.quant.onnx.weights import weight_steps
from qbench.quant.onnx.weights.input_samples import Samples
from qbench.quant.onnx.weights.weight_steps import Data, StepProgress
from qbench.quant.scale_rules import QParams

__all__ = ["Calibrated", "calibration_model", "run"]


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What calibration found. ``examples``: how many, along the first axis of the first input; ``warnings``: what
    looks wrong about the data or the ranges, one line each."""

    record: Record
    batches: int
    examples: int
    warnings: tuple[str, ...] = ()


def run(
    file: Path, batches: Batches, record: Path, *, threads: int = 0, progress: StepProgress = lambda *_: None
) -> Calibrated:
    """Feeds the first ``batch_num`` batches to the calibration model ``file`` and writes ``record`` whole.

    ``batches``: see ``feed.Batch``; a list, or a function that makes a generator, where balance or bias correction
    need several passes. These and AdaRound change weights and rewrite ``file``, whole or not at all; ``record`` is
    written last, so that a killed calibration is simply run again. ``threads``: of the inference and, beside it, of
    the calibrators; 0: as many as there are cores. ``progress`` is told the step, the batch and how many there are.
    Raises ``ModelError`` for a file that is no calibration model, ``DataError`` for data that does not fit it, and
    ``BuildError`` that names layer and batch for an activation with NaN or inf.
    """
    data = Data(batches=batches, threads=threads, progress=progress)
    model: CalibrationModel = graph_process.run(file, CalibrationModel.read, file)
    scales_so_far, todo, chunker = scales.known(record, model), weight_steps.waiting(model), Chunker()
    if {BALANCE, BIAS} & set(todo):
        require_several_passes(batches, todo)
    notes: list[str] = []
    if BALANCE in todo:
        model, scales_so_far, notes = weight_steps.balanced(model, scales_so_far, data)
    scales_so_far = scales.with_weights(scales_so_far, model)
    input_samples = weight_steps.samples(model) if ADAROUND in todo else None
    graph_process.release_memory(file)
    calibrated, params = observe(model, data, chunker, input_samples)
    completed = scales.complete(scales_so_far, params, model)
    if input_samples is not None:
        model = weight_steps.rounded(model, completed, input_samples, data)
    if BIAS in todo:
        weight_steps.bias_corrected(model, completed, data, chunker)
    record_file.write(completed, record)
    return replace(calibrated, record=completed, warnings=(*notes, *calibrated.warnings))


def _silent(layer: str, reach: float) -> str:
    if not reach:
        return f"{layer}: its input was zero in every batch"
    return (
        f"{layer}: its input reaches {reach:.2g} at most, and below 3e-5 all of it is quantized to zero: scale the "
        "values that the network computes with, or skip this layer"
    )


def observe(
    model: CalibrationModel, data: Data, chunker: Chunker, samples: Samples | None
) -> tuple[Calibrated, dict[str, QParams]]:
    """One pass: scale and offset of every activation by record key; ``samples`` are shown what they want to see."""
    names = tuple(tensor for tensor in model.tensors if tensor not in model.inputs) or model.outputs[:1]
    examples, warnings = 0, []
    with Collector(model.sites, threads=data.threads) as collector:
        for chunk in data.over(model.file, names, batch_num=model.config.batch_num, step="calibrate", chunker=chunker):
            if not examples:
                warnings += doubtful(chunk.feed)
            examples += chunk.examples
            if samples is not None:
                shown = chunk.feed | chunk.values
                samples.add({tensor: shown.pop(tensor) for tensor in samples.tensors})
            large = sum(values.nbytes for values in chunk.values.values()) > CHUNK_BYTES
            collector.add(chunk.batch, chunk.feed | chunk.values)
            chunk.values.clear()
            if large:  # that is, a single example: two under way at a time would be the most memory of all
                collector.wait()
        params = collector.qparams()
        warnings += [_silent(layer, reach) for layer, reach in collector.silent(params).items()]
    calibrated = Calibrated(record={}, batches=model.config.batch_num, examples=examples, warnings=tuple(warnings))
    return calibrated, params
