"""Answers that an artifact gives on an older CPU, computed on this one; where they saturate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from qbench.backends.base import Inputs, Runner
from qbench.errors import CaseSkipped

Array = NDArray[Any]
Sums = Mapping[str, tuple[int, int]]  # by layer: how many it made in 16 bits, and how many of them were saturated
BATCH = 8  # examples at a time: the tensors between the layers stay small


class OlderCpuRunner(Runner):
    """An ONNX file as ONNX Runtime answers it on AVX2. Raises ``CaseSkipped`` for one with layers that are not
    modelled."""

    def __init__(self, file: Path) -> None:
        from qbench.quant.saturation.onnxruntime_prediction import OnnxRuntimePredictor

        self._predictor = OnnxRuntimePredictor(file)
        self._taken = self._count()
        if self._predictor.unknown:
            name, why = next(iter(self._predictor.unknown.items()))
            more = len(self._predictor.unknown) - 1
            raise CaseSkipped(f"not predicted: {name}: {why}{f' (and {more} more)' if more else ''}")

    def prepare(self, inputs: Inputs) -> Inputs:
        """The inputs as they are."""
        return inputs

    def __call__(self, prepared: Inputs) -> tuple[Array, ...]:
        """All outputs."""
        return self._predictor.predict(prepared)

    def outputs(self, result: tuple[Array, ...]) -> Array:
        """The first of them."""
        return result[0]

    def all_outputs(self, result: tuple[Array, ...]) -> tuple[Array, ...]:
        """All of them."""
        return result

    def observed(self) -> dict[str, Any]:
        """It has one thread."""
        return {"threads": 1}

    def take_sums(self) -> Sums:
        """The sums of each layer since the last time."""
        before, self._taken = self._taken, self._count()
        return {
            name: (sums - before[name][0], saturated - before[name][1])
            for name, (sums, saturated) in self._taken.items()
        }

    def _count(self) -> dict[str, tuple[int, int]]:
        return {layer.name: (layer.sums, layer.saturated) for layer in self._predictor.layers}
