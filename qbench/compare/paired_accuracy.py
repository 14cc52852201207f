"""The accuracy of two runs compared on the examples that both have; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from qbench.compare.compare import Delta
from qbench.record.example_scores import ExampleScores, Paired, pair_scores
from qbench.record.schema import Record
from qbench.stats import intervals, jackknife, mcnemar
from qbench.stats.interval_type import Interval
from qbench.stats.jackknife import FactScore
from qbench.stats.thresholds import p_value_beyond

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

Examples = Callable[[Record], ExampleScores | None]
LEVEL = 0.95


def pair_accuracy(
    deltas: Iterable[Delta],
    of_base: Examples,
    of_contender: Examples,
    score_of_facts: FactScore | None = None,
) -> tuple[Delta, ...]:
    """The deltas, their accuracy compared example by example where both sides keep some that the other has, too.

    ``score_of_facts``: the metric as a function of examples' facts, for one that no example has alone.
    """
    return tuple(_pair(delta, of_base, of_contender, score_of_facts) for delta in deltas)


def _pair(delta: Delta, of_base: Examples, of_contender: Examples, score_of_facts: FactScore | None) -> Delta:
    if delta.accuracy is None:
        return delta
    assert delta.base is not None
    assert delta.contender is not None
    old, new = of_base(delta.base), of_contender(delta.contender)
    shared = pair_scores(new, old, has_score=score_of_facts is not None)
    if shared is None or shared.n == 0:
        return delta
    change, p = _compare_facts(shared, score_of_facts) if shared.facts else _compare_values(shared)
    notes = delta.notes
    if not shared.whole:
        notes += (f"accuracy on {shared.n:,} shared examples (this run {shared.of_new:,}, other {shared.of_old:,})",)
    return replace(delta, accuracy=change, paired=shared.n, accuracy_p=p, notes=notes)


def _compare_values(shared: Paired) -> tuple[Interval, float]:
    """Right or wrong by Tango's interval and McNemar's mid-p value, other numbers by limits on their mean."""
    new, old = shared.new.astype(float), shared.old.astype(float)
    change = intervals.paired_delta(new, old, LEVEL)
    if intervals.is_binary(new) and intervals.is_binary(old):
        return change, mcnemar.midp(int((new < old).sum()), int((new > old).sum()))
    return change, two_sided(change, 0.0, LEVEL, shared.n - 1)


def _compare_facts(shared: Paired, score: FactScore | None) -> tuple[Interval, float]:
    """A metric that no example has alone: both runs scored without each of the same examples."""
    assert score is not None
    change = jackknife.limit_change(score, shared.new, shared.old, LEVEL)
    return change, two_sided(change, 0.0, LEVEL)


def two_sided(interval: Interval, value: float, level: float, freedom: int | None = None) -> float:
    """The two-sided p-value of "it is ``value``", read off an interval; 1 without limits."""
    side = "above" if interval.value >= value else "below"
    p = p_value_beyond(interval, value, side=side, level=level, degrees_of_freedom=freedom)  # type: ignore[arg-type]
    return min(1.0, 2 * p)
