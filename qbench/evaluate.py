"""Stage 4: artifact + data set -> predictions of every example -> scores with intervals."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from qbench import registry, stats
from qbench.backends.base import Backend, Inputs
from qbench.build import Artifact, outputs_digest
from qbench.errors import EvaluateError
from qbench.inputs import Data
from qbench.metrics.base import Metric
from qbench.process import Limits, call
from qbench.quant import input_fit
from qbench.record import Accuracy, Flips, InputFit, Interval

Array = NDArray[Any]
Progress = Callable[[str, float], None]
BATCH = 64
LEVEL = 0.95
RANGED = ("static", "qat")  # modes whose activations have a range that was fixed before
_FIT = "inputs"
_FITS: TypeAdapter[tuple[InputFit | None, ...]] = TypeAdapter(tuple[InputFit | None, ...])


def predict(artifact: Artifact, data: Data, batch_size: int, file: Path, *, limits: Limits, progress: Progress) -> None:
    """Writes the outputs of every evaluation example to ``file`` (.npz: outputs, labels, ids, and of a static or QAT
    artifact as JSON how the inputs fit it), from a fresh process.

    Dynamic models choose activation scales per batch, so they are evaluated at the batch size of the case;
    others in batches of 64, since their outputs do not depend on it.
    """
    size = artifact.fixed_batch or (batch_size if artifact.mode == "dynamic" else BATCH)
    call(predict_here, artifact, data, size, file, limits=limits, progress=progress)


def predict_here(artifact: Artifact, data: Data, size: int, file: Path, *, progress: Progress) -> None:
    """``predict`` in this process, after proving that the artifact gives here what it gave where it was built."""
    backend: Backend = registry.load("backend", artifact.backend)
    if outputs_digest(backend, artifact.file, data, artifact.fixed_batch or 1) != artifact.expected:
        raise EvaluateError(
            "reloaded in a fresh process, the artifact gives other outputs than where it was built; "
            "`qbench clean` and run again, and report it if it stays"
        )
    runner = backend.load(artifact.file, threads=1)
    rows: list[Array] = []
    count = data.evaluation_count
    watch = _InputWatch(artifact, data) if artifact.mode in RANGED else None
    with runner.context():
        for start in range(0, count, size):
            # A model of one fixed batch size takes whole batches only: the last one is filled from its own end.
            first = max(0, min(start, count - size)) if artifact.fixed_batch else start
            inputs = data.evaluation(first, first + size)
            outputs = runner.outputs(runner(runner.prepare(inputs)))
            rows.append(np.asarray(outputs[start - first :], dtype=np.float32))
            if watch is not None:
                watch.see(tuple(array[start - first :] for array in inputs))
            progress("evaluate", (start + len(rows[-1])) / count)
    labels = data.evaluation_labels()
    arrays: dict[str, Any] = {"outputs": np.concatenate(rows), "ids": np.asarray(data.evaluation_ids())}
    if labels is not None:
        arrays["labels"] = labels
    if watch is not None:
        arrays[_FIT] = np.asarray(watch.as_json())
    with file.open("wb") as stream:
        np.savez_compressed(stream, **arrays)


class _InputWatch:
    """Sums up the inputs of an evaluation as they pass, beside those of the calibration."""

    def __init__(self, artifact: Artifact, data: Data) -> None:
        self._data, self._ranges = data, artifact.input_ranges
        axis = data.preprocessing.channel_axis
        calibration = data.calibration()
        self._calibrated = input_fit.watches(calibration, axis)
        self._evaluated = input_fit.watches(calibration, axis, self._ranges)
        for start in range(0, len(calibration[0]), BATCH):
            _see(self._calibrated, tuple(array[start : start + BATCH] for array in calibration))

    def see(self, inputs: Inputs) -> None:
        """Takes in one batch of evaluation examples."""
        _see(self._evaluated, inputs)

    def as_json(self) -> str:
        """How each input fits, as ``record.InputFit`` has it."""
        found = input_fit.fits(self._evaluated, self._calibrated, self._ranges)
        return json.dumps([None if one is None else asdict(one) for one in found])


def _see(watches: tuple[input_fit.Watch | None, ...], inputs: Inputs) -> None:
    for watch, array in zip(watches, inputs, strict=True):
        if watch is not None:
            watch.see(array)


def input_fits(predictions: dict[str, Array]) -> tuple[InputFit | None, ...] | None:
    """How each input of what ``predict`` wrote fits its artifact; None where that has no fixed ranges."""
    return _FITS.validate_json(str(predictions[_FIT])) if _FIT in predictions else None


def load_predictions(file: Path) -> dict[str, Array]:
    """What ``predict`` wrote."""
    with np.load(file, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def score(
    metric: str, file: Path, baseline: Path | None, classes: int | None, *, limits: Limits, progress: Progress
) -> Accuracy:
    """``scored`` of two files of predictions, in a process of its own: a bootstrap takes seconds."""
    found: Accuracy = call(_score_files, metric, file, baseline, classes, limits=limits, progress=progress)
    return found


def _score_files(
    metric: str, file: Path, baseline: Path | None, classes: int | None, *, progress: Progress
) -> Accuracy:
    progress("score", 0.9)
    base, own = None if baseline is None else load_predictions(baseline), load_predictions(file)
    return replace(scored(registry.load("metric", metric), own, base, classes), inputs=input_fits(own))


def scored(metric: Metric, own: dict[str, Array], baseline: dict[str, Array] | None, classes: int | None) -> Accuracy:
    """The score with its interval, and against the baseline's predictions the paired delta, agreement and flips.

    Raises ``EvaluateError`` where the outputs do not fit the metric (NaN, another shape, no labels).
    """
    outputs, labels = own["outputs"], own.get("labels")
    problem = metric.problem(outputs, labels, classes)
    if problem or labels is None:
        raise EvaluateError(problem or f"{metric.name} needs labels")
    values = metric.per_example(outputs, labels)
    interval = _interval(metric, outputs, labels, values)
    accuracy = Accuracy(metric=metric.name, value=interval.value, low=interval.low, high=interval.high, n=len(labels))
    if baseline is None:
        return accuracy
    return Accuracy(
        metric=metric.name,
        value=interval.value,
        low=interval.low,
        high=interval.high,
        n=len(labels),
        delta=_delta(metric, outputs, baseline["outputs"], labels, values),
        agreement=_agreement(outputs, baseline["outputs"]),
        flips=_flips(outputs, baseline["outputs"], labels),
    )


def _interval(metric: Metric, outputs: Array, labels: Array, values: Array | None) -> Interval:
    if values is not None:
        return stats.mean(values, LEVEL)
    return stats.paired_bootstrap(lambda index: metric.value(outputs[index], labels[index]), len(labels), level=LEVEL)


def _delta(metric: Metric, outputs: Array, baseline: Array, labels: Array, values: Array | None) -> Interval:
    if values is not None:
        theirs = metric.per_example(baseline, labels)
        if theirs is not None:
            return stats.paired_delta(values, theirs, LEVEL)
    return stats.paired_bootstrap(
        lambda index: metric.value(outputs[index], labels[index]) - metric.value(baseline[index], labels[index]),
        len(labels),
        level=LEVEL,
    )


def _agreement(outputs: Array, baseline: Array) -> float | None:
    """The share of examples with the same top-1 class; None where outputs are not scores of classes."""
    if outputs.ndim != 2 or outputs.shape[1] < 2:
        return None
    return float(np.mean(outputs.argmax(axis=1) == baseline.argmax(axis=1)))


def _flips(outputs: Array, baseline: Array, labels: Array) -> Flips | None:
    if outputs.ndim != 2 or outputs.shape[1] < 2 or labels.ndim != 1 or labels.dtype.kind not in "iu":
        return None
    ours, theirs = outputs.argmax(axis=1) == labels, baseline.argmax(axis=1) == labels
    return Flips(harmful=int(np.sum(theirs & ~ours)), beneficial=int(np.sum(ours & ~theirs)))
