"""How two variants of one setting differ in accuracy: from the answers of both to the same examples, else from their
stored scores; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from qbench.compare import compare
from qbench.decide.judged import Judged
from qbench.errors import QbenchError
from qbench.record.schema import Record
from qbench.stats import intervals, mcnemar, noninferiority
from qbench.stats.noninferiority import Bounds

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST = 1e100  # a larger value has no square
ERROR = 0.05  # a difference with a smaller p-value is beyond chance


@dataclass(frozen=True, kw_only=True)
class AccuracyDifference:
    """A variant's metric minus another's, better positive, in the metric's own scale: the estimate, its standard
    ``error``, and whether it is ``beyond_chance``. ``lost`` and ``gained``: examples that only the other, or only this
    one, has right (null: the metric is not right or wrong, or no predictions are stored)."""

    value: float
    error: float
    beyond_chance: bool
    lost: int | None = None
    gained: int | None = None


@dataclass(kw_only=True)
class AccuracyDifferences:
    """The variants of a run held against each other; each file of predictions is read once. ``problems`` collects why
    predictions could not be read."""

    judged: Judged
    problems: dict[str, str] = field(default_factory=dict)
    _values: dict[str, NDArray[Any] | None] = field(default_factory=dict)
    _known: dict[tuple[str, str], AccuracyDifference | None] = field(default_factory=dict)

    def compare(self, record: Record, rival: Record) -> AccuracyDifference | None:
        """``record`` against ``other``; None where nothing is known of one of them."""
        key = (record.case.id, rival.case.id)
        if key not in self._known:
            self._known[key] = self._compare(record, rival)
        return self._known[key]

    def _compare(self, record: Record, rival: Record) -> AccuracyDifference | None:
        metric = self.judged.metric
        if metric is None:
            return None
        values, rival_values = self._read(record), self._read(rival)
        if values is not None and rival_values is not None and len(values) == len(rival_values) and len(values):
            return difference_of_values(metric.sign * values, metric.sign * rival_values, metric.bounds)
        return _difference_of_scores(record, rival, metric.sign)

    def _read(self, record: Record) -> NDArray[Any] | None:
        case = record.case.id
        if case not in self._values:
            try:
                fp32 = compare.like_for_like(record, self.judged.records)
                values = self.judged.values(record, fp32)
                usable = values is not None and values.ndim == 1 and (np.abs(values) < MOST).all()
                self._values[case] = np.asarray(values, dtype=np.float64) if usable else None
            except QbenchError as error:
                self._values[case], self.problems[case] = None, str(error)
        return self._values[case]


def difference_of_values(
    values: NDArray[Any], rival_values: NDArray[Any], bounds: Bounds = (None, None)
) -> AccuracyDifference:
    """From the metric of each example, better positive: McNemar's test where each is right or wrong, else the limits of
    the accuracy test, which allow for rare large losses; ``bounds`` of one example's value, None: not known."""
    change = values - rival_values
    value, n = float(change.mean()), len(change)
    if intervals.is_binary(np.concatenate([values, rival_values])):
        lost, gained = int((change < 0).sum()), int((change > 0).sum())
        # Half an example on either side: no flip among n is no proof that none ever flips.
        error = math.sqrt(lost + gained + 1) / n
        p_value = mcnemar.midp(lost, gained)
        return AccuracyDifference(value=value, error=error, beyond_chance=p_value < ERROR, lost=lost, gained=gained)
    limits = noninferiority.assess_examples(values, rival_values, 0.0, 1 - ERROR, bounds).delta
    if limits.low is None or limits.high is None:
        return AccuracyDifference(value=value, error=1e-12, beyond_chance=value != 0)
    error = (limits.high - limits.low) / 2 / intervals.normal_quantile(1 - ERROR)
    return AccuracyDifference(value=value, error=error, beyond_chance=limits.low > 0 or limits.high < 0)


def _difference_of_scores(record: Record, rival: Record, sign: float) -> AccuracyDifference | None:
    """From the change of each against its own fp32, as independent."""
    accuracy, rival_accuracy = record.accuracy, rival.accuracy
    if accuracy is None or rival_accuracy is None or accuracy.metric != rival_accuracy.metric:
        return None
    errors = [_error_of(record), _error_of(rival)]
    if errors[0] is None or errors[1] is None:
        return None
    value, error = sign * (accuracy.value - rival_accuracy.value), math.hypot(errors[0], errors[1])
    return AccuracyDifference(value=value, error=error, beyond_chance=abs(value) > 1.96 * error)


def _error_of(record: Record) -> float | None:
    delta = None if record.accuracy is None else record.accuracy.delta
    if delta is None or delta.low is None or delta.high is None:
        return None
    return (delta.high - delta.low) / 2 / intervals.normal_quantile(1 - ERROR)
