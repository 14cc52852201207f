"""Stage 4: artifact + data set -> predictions of every example, in a file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from qbench import registry
from qbench.backends.base import Backend, Inputs
from qbench.build import Artifact, outputs_digest
from qbench.errors import EvaluateError
from qbench.inputs import Data
from qbench.process import Limits, call
from qbench.quant import input_fit
from qbench.record import InputFit

Array = NDArray[Any]
Progress = Callable[[str, float], None]
BATCH = 64
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
