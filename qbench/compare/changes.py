"""Which cases changed from one run to another, by tests that share one error; pure.

All tests of a comparison, on latency and on accuracy, share 5 % by Holm's correction: where nothing changed, at most
one comparison in twenty names any case. Size is exact: no test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from qbench.compare.compare import Delta
from qbench.compare.paired_accuracy import LEVEL, two_sided
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval
from qbench.stats.multiple_testing import FAMILY_ERROR, adjust_by_holm

# Writing the same network twice moves its file by some bytes: names, dates, the order of entries.
SIZE_TOLERANCE = 0.001

Word = Literal["slower", "faster", "less accurate", "more accurate", "larger", "smaller"]
WORSE: tuple[Word, ...] = ("slower", "less accurate", "larger")


@dataclass(frozen=True, kw_only=True)
class CaseChange:
    """A delta and what is shown to have changed; empty ``words`` where nothing is, ``why`` where one test alone would
    show it."""

    delta: Delta
    words: tuple[Word, ...] = ()
    why: str | None = None

    @property
    def changed(self) -> bool:
        """Whether anything is shown to have changed, the case's status included."""
        return bool(self.words) or self.delta.change not in ("compared", "not ok in either")

    @property
    def verdict(self) -> str:
        """``slower, smaller``; ``now failed``; what cannot be told is said, too."""
        if self.delta.change != "compared":
            return self.delta.change
        if self.words:
            return ", ".join(self.words)
        if self.delta.invalid:
            return "latency not comparable"
        return f"no change shown: {self.why}" if self.why else "no change shown"


def find_changes(deltas: Sequence[Delta], metric: MetricInfo | None) -> tuple[CaseChange, ...]:
    """One change for each delta, in their order; what is shown at one error for all tests together (Holm)."""
    latencies = [_test_latency(delta) for delta in deltas]
    accuracies = [_test_accuracy(delta) for delta in deltas]
    alone = list(zip(latencies, accuracies, strict=True))
    tested = [p for p in (*latencies, *accuracies) if p is not None]
    adjusted = iter(adjust_by_holm(tested))
    latencies = [None if p is None else next(adjusted) for p in latencies]
    accuracies = [None if p is None else next(adjusted) for p in accuracies]
    sign = 1.0 if metric is None else metric.sign
    return tuple(
        CaseChange(
            delta=delta,
            words=_find_words(delta, latency, accuracy, sign),
            why=_explain_unshown(p_values, (latency, accuracy), len(tested)),
        )
        for delta, latency, accuracy, p_values in zip(deltas, latencies, accuracies, alone, strict=True)
    )


def _explain_unshown(
    alone: tuple[float | None, float | None], adjusted: tuple[float | None, float | None], tests: int
) -> str | None:
    """Why limits that leave out "no change" show none: they are of one test, and several share the error."""
    for p_alone, p_adjusted in zip(alone, adjusted, strict=True):
        if p_alone is not None and p_adjusted is not None and p_alone <= FAMILY_ERROR < p_adjusted:
            return f"one of {tests} tests, so it may be chance"
    return None


def _test_latency(delta: Delta) -> float | None:
    slow = delta.slowdown
    if slow is None:
        return None
    low, high = (None if limit is None else math.log(limit) for limit in (slow.low, slow.high))
    return two_sided(Interval(value=math.log(slow.value), low=low, high=high), 0.0, delta.level, delta.freedom)


def _test_accuracy(delta: Delta) -> float | None:
    if delta.accuracy is None:
        return None
    return delta.accuracy_p if delta.accuracy_p is not None else two_sided(delta.accuracy, 0.0, LEVEL)


def _find_words(delta: Delta, latency: float | None, accuracy: float | None, sign: float) -> tuple[Word, ...]:
    words: list[Word] = []
    if latency is not None and latency <= FAMILY_ERROR and delta.slowdown is not None:
        words.append("slower" if delta.slowdown.value > 1 else "faster")
    if accuracy is not None and accuracy <= FAMILY_ERROR and delta.accuracy is not None:
        words.append("more accurate" if sign * delta.accuracy.value > 0 else "less accurate")
    if delta.size_ratio is not None and abs(delta.size_ratio - 1) > SIZE_TOLERANCE:
        words.append("larger" if delta.size_ratio > 1 else "smaller")
    return tuple(words)
