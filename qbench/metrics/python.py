"""A score of the user's own: ``metric: {python: file.py:fn}``, where ``fn(outputs, reference)`` returns one number for
all examples, or an array of one number for each.

What a suite says of it travels between processes as text (``own.reference``); the user's file is imported only
where it is called.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qbench import python_file
from qbench.errors import EvaluateError
from qbench.metrics.base import Against, Array, Metric
from qbench.metrics.check import numbers_problem, outputs_problem


@dataclass(frozen=True, kw_only=True)
class Described:
    """What a suite says of a score of the user's own; ``name`` is what records call it."""

    name: str
    file: str
    attribute: str
    percent: bool
    higher_is_better: bool
    against: Against
    unit: str


class OwnMetric(Metric):
    """The user's function as a metric. Its file is imported at the first call."""

    def __init__(self, described: Described) -> None:
        self.name = described.name
        self.file = Path(described.file)
        self.attribute = described.attribute
        self.percent = described.percent
        self.higher_is_better = described.higher_is_better
        self.against = described.against
        self.unit = described.unit

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why the outputs are not finite numbers, or labels are missing; the rest is for the function to say."""
        if self.against == "fp32":
            return outputs_problem(outputs)
        if labels is None:
            return f"the data set has no labels, which {self.name} is given; write `against: fp32` beside python"
        return numbers_problem(outputs, labels)

    def value(self, outputs: Array, reference: Array) -> float:
        """What the function says of all examples, the mean where it says something of each."""
        return float(self._called(outputs, reference).mean())

    def per_example(self, outputs: Array, reference: Array) -> Array | None:
        """What the function says of each example; None where it returns one number."""
        found = self._called(outputs, reference)
        return found if found.ndim == 1 else None

    def _called(self, outputs: Array, reference: Array) -> Array:
        function = python_file.attribute(self.file, self.attribute, error=EvaluateError)
        if not callable(function):
            raise EvaluateError(f"{self.file}: '{self.attribute}' is {type(function).__name__}, not a function")
        # Copies, so that a function that writes into its arguments changes nothing for the next one.
        given = (outputs.copy(), reference.copy())
        return self._checked(python_file.call(function, *given, path=self.file, error=EvaluateError), len(outputs))

    def _checked(self, found: Any, n: int) -> Array:
        try:
            numbers = np.asarray(found, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise EvaluateError(f"{self._at} returned {type(found).__name__}; expected {_EXPECTED}") from error
        if numbers.shape not in ((), (n,)):
            raise EvaluateError(f"{self._at} returned the shape {numbers.shape} for {n} examples; expected {_EXPECTED}")
        bad = np.flatnonzero(~np.isfinite(np.atleast_1d(numbers)))
        if bad.size:
            where = f" for example {bad[0]}" if numbers.ndim else ""
            raise EvaluateError(f"{self._at} returned NaN or infinity{where}; a score must be a finite number")
        return numbers

    @property
    def _at(self) -> str:
        return f"{self.file}: {self.attribute}()"


_EXPECTED = "one number, or one for each example"


def own(text: str) -> OwnMetric:
    """The metric that ``reference`` describes."""
    return OwnMetric(Described(**json.loads(text)))


def reference(described: Described) -> str:
    """The description as text that ``registry.load("metric", ...)`` takes."""
    return f"python:{json.dumps(asdict(described))}"
