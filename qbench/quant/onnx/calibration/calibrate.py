"""Calibration model + data -> the record with every scale; one session, one batch after the other, bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from numpy.typing import NDArray

from qbench.quant.onnx import graph_process
from qbench.quant.onnx.calibration import complete_scales
from qbench.quant.onnx.calibration.batches import Batches, doubtful, require_several_passes
from qbench.quant.onnx.calibration.calibration_model import ADAROUND, BALANCE, BIAS, CalibrationModel
from qbench.quant.onnx.calibration.chunks import CHUNK_BYTES, Chunker
from qbench.quant.onnx.calibration.collector import Collector
from qbench.quant.onnx.sites import Record, Sites
from qbench.quant.onnx.weights import weight_steps
from qbench.quant.onnx.weights.input_samples import InputSamples
from qbench.quant.onnx.weights.mean_inputs import MeanInputs
from qbench.quant.onnx.weights.narrow_steps import narrow_steps
from qbench.quant.onnx.weights.weight_steps import CalibrationData, StepProgress
from qbench.quant.scale_rules import QParams

Array = NDArray[Any]
CALIBRATE = "calibrate"  # the step that shows the activations to their calibrators


@dataclass(frozen=True, kw_only=True)
class Calibrated:
    """What calibration found. ``examples``: how many, along the first axis of the first input; ``warnings``: what
    looks wrong about the data or the ranges, one line each; ``small``: tensors that a scale would round to zeros, with
    the largest absolute value seen; ``original``: the scales of weights before any was made wider, empty where none was
    to be; ``mean_inputs``: as ``MeanInputs.means`` gives them, where they were asked for."""

    record: Record
    batches: int
    examples: int
    warnings: tuple[str, ...] = ()
    small: Mapping[str, float] = field(default_factory=dict)
    original: Record = field(default_factory=dict)
    mean_inputs: Mapping[str, Array] = field(default_factory=dict)


def calibrate(
    model: CalibrationModel,
    batches: Batches,
    *,
    scales_so_far: Record | None = None,
    narrow: bool = False,
    mean_inputs: bool = False,
    separate: bool = False,
    threads: int = 0,
    progress: StepProgress = lambda *_: None,
) -> tuple[CalibrationModel, Calibrated]:
    """Feeds the first ``batch_num`` batches to a calibration model: the model as the steps that its configuration asks
    for have left it, and every scale. ``scales_so_far``: of its weights, where there are any. ``narrow``: weights leave
    room for sums of 16 bits, before AdaRound and bias correction, which are made for the steps that there are: a step
    that grows afterwards rounds the chosen weights anew. ``mean_inputs``: what layers are given on average is kept,
    too. ``separate`` as of ``CalibrationData``. The rest is as in ``calibration_file.run``."""
    data = CalibrationData(batches=batches, separate=separate, threads=threads, progress=progress)
    record, todo, chunker = scales_so_far or {}, weight_steps.waiting(model), Chunker(separate=separate)
    if {BALANCE, BIAS} & set(todo):
        require_several_passes(batches, todo)
    notes: list[str] = []
    if BALANCE in todo:
        model, record, notes = weight_steps.balanced(model, record, data)
    record = original = complete_scales.with_weights(record, model)
    if narrow:
        record = narrow_steps(model.graph(), model.sites, record, unrounded=ADAROUND in todo)
    input_samples = weight_steps.samples(model) if ADAROUND in todo else None
    inputs = MeanInputs(model.graph(), model.sites) if mean_inputs else None
    graph_process.release_memory(model.file)
    calibrated, params = observe(model, data, chunker, input_samples, inputs)
    completed = complete_scales.complete(record, params, model)
    if input_samples is not None:
        model = weight_steps.rounded(model, completed, input_samples, data)
    if BIAS in todo:
        model = weight_steps.bias_corrected(model, completed, data, chunker)
    warnings = (*notes, *calibrated.warnings)
    return model, replace(calibrated, record=completed, warnings=warnings, original=original if narrow else {})


def list_steps(model: CalibrationModel) -> tuple[str, ...]:
    """The steps that calibration will tell of, in order."""
    steps = weight_steps.waiting(model)
    return (*(step for step in steps if step == BALANCE), CALIBRATE, *(step for step in steps if step != BALANCE))


def warn_of_small(small: Mapping[str, float], sites: Sites) -> tuple[str, ...]:
    """What to know where small tensors are quantized all the same, by the first reader of each."""
    return tuple(
        f"{next(iter(site.keys))}: its input reaches {small[site.tensor]:.2g} at most, and below 3e-5 all of it is "
        "quantized to zero: scale the values that the network computes with, or skip this layer"
        for site in sites.activations
        if site.tensor in small
    )


def observe(
    model: CalibrationModel,
    data: CalibrationData,
    chunker: Chunker,
    samples: InputSamples | None,
    mean_inputs: MeanInputs | None = None,
) -> tuple[Calibrated, dict[str, QParams]]:
    """Scale and offset of every activation by record key; ``samples`` and ``mean_inputs`` are shown what they
    want to see."""
    names = tuple(tensor for tensor in model.tensors if tensor not in model.inputs) or model.outputs[:1]
    examples, warnings = 0, list[str]()
    with Collector(model.sites, threads=data.threads) as collector:
        for chunk in data.over(model.file, names, batch_num=model.config.batch_num, step=CALIBRATE, chunker=chunker):
            if not examples:
                warnings = doubtful(chunk.feed)
            examples += 0 if chunk.part else chunk.examples
            for observer in (samples, mean_inputs):
                if observer is not None:
                    observer.add(chunk.activations)
            large = sum(values.nbytes for values in chunk.values.values()) > CHUNK_BYTES
            collector.add(chunk.batch, dict(chunk.activations))
            chunk.values.clear()
            if large:  # that is, a single example: two under way at a time would be the most memory of all
                collector.wait()
        params = collector.qparams()
        silent = collector.silent(params)
    tensors = {next(iter(site.keys)): site.tensor for site in model.sites.activations}
    warnings += [f"{layer}: its input was zero in every batch" for layer, reach in silent.items() if not reach]
    calibrated = Calibrated(
        record={},
        batches=model.config.batch_num,
        examples=examples,
        warnings=tuple(warnings),
        small={tensors[layer]: reach for layer, reach in silent.items() if reach},
        mean_inputs=mean_inputs.means() if mean_inputs is not None else {},
    )
    return calibrated, params
