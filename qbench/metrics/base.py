"""The contract of a metric: a score from the model's outputs and the labels, per example where it can."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


class Metric(ABC):
    """A score of outputs (first axis n) against labels (length n).

    ``percent`` says whether the value is a share between 0 and 1 that is shown in percent and compared in
    percentage points. ``higher_is_better`` orients deltas.
    """

    name: str
    percent: bool = True
    higher_is_better: bool = True

    @abstractmethod
    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why these outputs and labels do not fit the metric, with what to do; None if they fit."""

    @abstractmethod
    def value(self, outputs: Array, labels: Array) -> float:
        """The score over all examples."""

    def per_example(self, outputs: Array, labels: Array) -> Array | None:
        """One float per example whose mean is ``value``, or None where the metric is not a mean."""
        return None
