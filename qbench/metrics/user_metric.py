"""A score of the user's own: ``metric: {python: file.py:fn}``, where ``fn(outputs, reference)`` returns one number for
all examples, or an array of one number for each. Where a network returns several outputs and the suite names none,
``outputs`` (and ``reference``, against fp32) is a dict of them by name.

The user's file is imported only where the function is called.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from qbench import user_code
from qbench.errors import EvaluateError
from qbench.metrics.base import Against, Array, Metric
from qbench.metrics.validation import find_no_score, numbers_problem, outputs_problem


@dataclass(frozen=True, kw_only=True)
class UserFunction:
    """What a suite says of a score of the user's own: the function ``attribute`` of ``file``, and how it is shown."""

    file: Path
    attribute: str
    percent: bool
    higher_is_better: bool
    against: Against
    unit: str


class UserMetric(Metric):
    """The user's function as a metric. Its file is imported at the first call."""

    def __init__(self, name: str, function: UserFunction) -> None:
        self.name = name
        self.file = function.file
        self.attribute = function.attribute
        self.percent = function.percent
        self.higher_is_better = function.higher_is_better
        self.against = function.against
        self.unit = function.unit
        self._function = function
        self._layout: Mapping[str, tuple[int, ...]] | None = None

    def of_outputs(self, layout: Mapping[str, tuple[int, ...]]) -> UserMetric:
        """The metric of outputs that stand beside each other in one row: by name the shape of each one's part."""
        metric = UserMetric(self.name, self._function)
        metric._layout = layout
        return metric

    def _take_apart(self, rows: Array) -> Array | dict[str, Array]:
        """What the function is given: copies, so that what it writes into them changes nothing for the next one."""
        if self._layout is None:
            return rows.copy()
        parts, start = dict[str, Array](), 0
        for name, shape in self._layout.items():
            stop = start + math.prod(shape)
            parts[name] = rows[:, start:stop].reshape(len(rows), *shape).copy()
            start = stop
        return parts

    def problem(self, outputs: Array, labels: Array | None, classes: int | None) -> str | None:
        """Why the outputs are not finite numbers, or labels are missing; the rest is for the function to say."""
        if self.against == "fp32":
            return outputs_problem(outputs)
        if labels is None:
            return f"the data set has no labels, which {self.name} is given; write `against: fp32` beside python"
        return numbers_problem(outputs, labels)

    def value(self, outputs: Array, reference: Array) -> float:
        """What the function says of all examples, the mean where it says something of each."""
        return float(self._call(outputs, reference).mean())

    def per_example(self, outputs: Array, reference: Array) -> Array | None:
        """What the function says of each example; None where it returns one number."""
        values = self._call(outputs, reference)
        return values if values.ndim == 1 else None

    def _call(self, outputs: Array, reference: Array) -> Array:
        function = user_code.attribute(self.file, self.attribute, error=EvaluateError)
        if not callable(function):
            raise EvaluateError(f"{self.file}: '{self.attribute}' is {type(function).__name__}, not a function")
        held = self._take_apart(reference) if self.against == "fp32" else reference.copy()
        arguments = (self._take_apart(outputs), held)

        def read_result() -> Array:  # what the function returns may be an object of the user's, which can raise as well
            return self._read(function(*arguments))

        return self._check(user_code.call(read_result, path=self.file, error=EvaluateError), len(outputs))

    def _read(self, result: Any) -> Array:
        """The numbers in what the function returned; masked ones are NaN."""
        array = result if isinstance(result, np.ma.MaskedArray) else _as_array(result)
        if array is None or (array.dtype.kind not in _NUMERIC and not _is_of_numbers(array)):
            told = type(result).__name__ if array is None or array.ndim == 0 else f"an array of {array.dtype}"
            raise EvaluateError(f"{self._place} returned {told}; expected {_EXPECTED}")
        with np.errstate(over="ignore"):  # a long double may be infinite as a float, which is told
            numbers: Array = np.ma.filled(array.astype(np.float64), np.nan)
        return numbers

    def _check(self, numbers: Array, n: int) -> Array:
        if numbers.shape not in ((), (n,)):
            raise EvaluateError(
                f"{self._place} returned the shape {numbers.shape} for {n} examples; expected {_EXPECTED}"
            )
        problem = find_no_score(numbers)
        if problem:
            raise EvaluateError(f"{self._place} returned {problem}")
        return numbers

    @property
    def _place(self) -> str:
        return f"{self.file}: {self.attribute}()"


_EXPECTED = "one number, or one for each example"
_NUMERIC = "biuf"


def _as_array(result: Any) -> Array | None:
    """The result as numpy has it; None for rows of different lengths."""
    try:
        return np.asarray(result)
    except ValueError:
        return None


def _is_of_numbers(array: Array) -> bool:
    """Whether an array of objects holds numbers alone: whole ones beyond 64 bits, fractions, decimals."""
    return array.dtype.kind == "O" and all(isinstance(value, Real | Decimal) for value in array.ravel())
