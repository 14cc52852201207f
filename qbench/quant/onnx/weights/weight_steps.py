"""The steps of calibration that change weights: balance, AdaRound, bias correction. Each rewrites
the calibration model whole; which are done stands in the model."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import BuildError
from qbench.quant.onnx import onnxruntime_session
from qbench.quant.onnx.calibration import complete_scales
from qbench.quant.onnx.calibration.batches import Batches, Feed, Feeds, infer
from qbench.quant.onnx.calibration.calibration_model import ADAROUND, BALANCE, BIAS, CalibrationModel
from qbench.quant.onnx.calibration.chunks import Chunk, Chunker, stream
from qbench.quant.onnx.calibration.parts import Model
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Record, Sites
from qbench.quant.onnx.weights import adaround, balance, balance_error, bias_correction
from qbench.quant.onnx.weights.input_samples import InputSamples

Array = NDArray[Any]
StepProgress = Callable[[str, int, int], None]  # the step, batches (AdaRound: layers) done, how many there are

# A layer is balanced where its error is at most this share of what it is without: a small gain on half of the data is
# none on other data (EfficientNet-Lite0's classifier: 0.94 there, and 0.6 dB worse on other photos).
GAIN = 0.5
# Outputs before and after balance, of the largest: other products round differently.
EQUAL = 1e-3


@dataclass(frozen=True, kw_only=True)
class CalibrationData:
    """The calibration data and how it is run through a model. ``separate``: no example of a batch depends on others,
    which is otherwise found out."""

    batches: Batches
    separate: bool
    threads: int
    progress: StepProgress

    def over(self, file: Path, names: Iterable[str], *, batch_num: int, step: str, chunker: Chunker) -> Iterator[Chunk]:
        """The named outputs of a model file, chunk by chunk."""
        model = Model(file, self.threads)
        feeds = Feeds(model.inputs, self.batches, batch_num)
        before = 0
        for chunk in stream(model, tuple(names), feeds, chunker):
            if chunk.batch != before:
                before = chunk.batch
                self.progress(step, chunk.batch, batch_num)
            yield chunk


def waiting(model: CalibrationModel) -> tuple[str, ...]:
    """The steps that the configuration asks for and that are not done yet."""
    ada = bool(adaround.sites(model.sites))
    requested = {BALANCE: bool(model.config.exponents), ADAROUND: ada, BIAS: model.config.bias_correction}
    return tuple(step for step, is_requested in requested.items() if is_requested and step not in model.done)


def samples(model: CalibrationModel) -> InputSamples:
    """What AdaRound wants to see of the activations, empty."""
    return InputSamples(model.graph(), adaround.sites(model.sites))


def rounded(model: CalibrationModel, record: Record, samples: InputSamples, data: CalibrationData) -> CalibrationModel:
    """The model with its weights rounded for the scales of a complete record, rewritten."""
    count = len(adaround.sites(model.sites))
    numbers = itertools.count(1)
    changed = adaround.rounded(
        model.graph(), model.sites, record, samples, progress=lambda *_: data.progress(ADAROUND, next(numbers), count)
    )
    return model.rewrite(changed, ADAROUND, record)


def balanced(model: CalibrationModel, own: Record, data: CalibrationData) -> tuple[CalibrationModel, Record, list[str]]:
    """The model with its weights balanced, rewritten, the record with their scales and the factors of each layer's
    input channels, and what is to be told. Raises ``BuildError`` where its outputs then differ by more than rounding.
    """
    graph = model.graph()
    every = balance.groups(graph, model.sites, model.config.exponents)
    candidates = tuple(group for group in every if not balance.needs_mul(graph, group))
    observed = _observe_halves(model, graph, candidates, data)
    factors = {}
    for group in candidates:
        f = balance.factors(graph, group, balance.expected(*observed.maxima[group]), group.exponent)
        if _helps(graph, model.sites, group, f, observed):
            factors[group] = f
    changed = balance.apply(graph, factors)
    _require_equal(model, changed, observed.example, data.threads)
    by_layer = {name: tuple(map(float, f)) for group, f in factors.items() for name in group.layers}
    record = complete_scales.with_weights(complete_scales.with_balance(own, by_layer), model, changed)
    return model.rewrite(changed, BALANCE, record), record, _describe_balance(every, candidates, tuple(factors))


@dataclass(frozen=True, kw_only=True)
class _Observed:
    """Of the data: max|X_c| of each group's activation in its first and in its second half, rows of the second half,
    and a chunk of it."""

    maxima: dict[balance.Group, tuple[Array, Array]]
    rows: InputSamples
    example: Feed


def _observe_halves(
    model: CalibrationModel, graph: Graph, candidates: tuple[balance.Group, ...], data: CalibrationData
) -> _Observed:
    maxima: dict[balance.Group, tuple[Array, Array]] = {}
    layers = {name for group in candidates for name in group.layers}
    rows = InputSamples(graph, tuple(site for site in model.sites.weights if site.layer in layers))
    example: Feed = {}
    names = dict.fromkeys(group.tensor for group in candidates if group.tensor not in model.inputs)
    count, chunker = model.config.batch_num, Chunker(separate=data.separate)
    for chunk in data.over(model.file, names or model.outputs[:1], batch_num=count, step=BALANCE, chunker=chunker):
        example = example or chunk.feed
        values = chunk.activations
        for group in (group for group in candidates if group.tensor in values):
            here = tuple(
                balance.largest(half, group.axis) for half in _halves(values[group.tensor], chunk.batch, count)
            )
            before = maxima.get(group, here)
            maxima[group] = (np.maximum(before[0], here[0]), np.maximum(before[1], here[1]))
        later = {tensor: _halves(array, chunk.batch, count)[1] for tensor, array in values.items()}
        rows.add({tensor: array for tensor, array in later.items() if len(array)})
    return _Observed(maxima=maxima, rows=rows, example=example)


def _helps(graph: Graph, sites: Sites, group: balance.Group, f: Array, observed: _Observed) -> bool:
    """Whether the layers of a group have much smaller errors when balanced; the range is that of the first half of the
    data, the errors are those on the second."""
    first, _ = observed.maxima[group]
    errors = [
        [balance_error.error(graph, site, observed.rows.rows(site.layer), by, first) for by in (f, np.ones_like(f))]
        for site in sites.weights
        if site.layer in group.layers
    ]
    return sum(balanced for balanced, _ in errors) <= GAIN * sum(plain for _, plain in errors)


def _describe_balance(
    every: Sequence[balance.Group], could: Sequence[balance.Group], balanced_groups: Sequence[balance.Group]
) -> list[str]:
    """What stays as it is, and why."""
    notes = []
    for why, groups in (
        ("only a Mul before a convolution would do it", [group for group in every if group not in could]),
        ("it would gain too little", [group for group in could if group not in balanced_groups]),
    ):
        names = [name for group in groups for name in group.layers]
        if names:
            more = f" and {len(names) - 1} more layers stay as they are" if names[1:] else " stays as it is"
            notes.append(f"balance: {names[0]}{more}: {why}")
    return notes


def _halves(values: Array, batch: int, count: int) -> tuple[Array, Array]:
    """What a batch's values are in the first and in the second half of ``count`` batches; of a single batch its
    examples are parted."""
    if count == 1:
        middle = len(values) // 2
        return (values[:middle], values[middle:]) if middle else (values, values)
    nothing = values[:0]
    return (values, nothing) if 2 * batch <= count else (nothing, values)


def _require_equal(model: CalibrationModel, changed: Graph, feed: Feed, threads: int) -> None:
    """Raises ``BuildError`` unless the balanced graph gives what the model gives for one chunk of the data."""
    with tempfile.TemporaryDirectory(dir=model.file.parent) as folder:
        file = Path(folder) / "balanced.onnx"
        changed.save(file)
        sessions = (onnxruntime_session.open_session(path, threads=threads) for path in (model.file, file))
        before, after = (infer(session, model.outputs, feed, 1) for session in sessions)
    for name in model.outputs:
        largest = float(np.abs(before[name]).max(initial=0.0))
        if before[name].dtype.kind == "f" and not np.allclose(before[name], after[name], rtol=0, atol=EQUAL * largest):
            worst = float(np.abs(before[name] - after[name]).max())
            raise BuildError(f"{model.file}: balance changed output {name} by up to {worst:g}; leave balance out")


def bias_corrected(
    model: CalibrationModel, record: Record, data: CalibrationData, chunker: Chunker
) -> CalibrationModel:
    """The model with its biases corrected for the scales of a complete record, rewritten;
    ``chunker``: how the pass over the activations cut the data."""
    graph = model.graph()
    errors, names = bias_correction.error_model(graph, model.sites, record)
    if not names:
        return model.rewrite(graph, BIAS, record)
    sums: dict[str, Array] = {}
    examples = 0
    with tempfile.TemporaryDirectory(dir=model.file.parent) as folder:
        file = Path(folder) / "errors.onnx"
        errors.save(file)
        for chunk in data.over(file, names.values(), batch_num=model.config.batch_num, step=BIAS, chunker=chunker):
            examples += 0 if chunk.part else chunk.examples
            for name, mean in chunk.values.items():
                sums[name] = sums.get(name, 0.0) + mean.astype(np.float64) * chunk.examples
    bias_correction.subtract(graph, {layer: sums[name] / examples for layer, name in names.items()})
    return model.rewrite(graph, BIAS, record)
