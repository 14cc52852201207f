"""The suite's limits that both the decision and the gate hold a case against: what was measured, and how it lies; pure.

Each is evaluated here, once; ``decide/qualify`` and the gate's rules say it in their own words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qbench.compare.compare import like_for_like
from qbench.compare.speedup_doubt import find_doubt, room_to_promise
from qbench.record.schema import Record, Speedup
from qbench.stats import thresholds
from qbench.stats.interval_type import Interval
from qbench.stats.thresholds import Outcome


@dataclass(frozen=True, kw_only=True)
class LimitHeld:
    """A limit held against a case: ``measured`` with its interval, if it has one, and on which side of the limit that
    lies. ``doubt``: why what the interval says is not believed, so that the outcome is INCONCLUSIVE."""

    measured: Interval
    outcome: Outcome
    doubt: str | None = None


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Bytes of a case's artifact and of its fp32's."""

    artifact: int
    fp32: int

    @property
    def ratio(self) -> float:
        """Bytes over those of fp32."""
        return self.artifact / self.fp32


def read_sizes(record: Record, records: Sequence[Record]) -> Sizes | None:
    """The sizes of a case and of its like-for-like fp32 among the records; None where either is not known."""
    fp32 = like_for_like(record, records)
    if record.artifact is None or fp32 is None or fp32.artifact is None or not fp32.artifact.size_bytes:
        return None
    return Sizes(artifact=record.artifact.size_bytes, fp32=fp32.artifact.size_bytes)


def hold_size(sizes: Sizes, most: float) -> LimitHeld:
    """``gate.size.max_ratio``."""
    return LimitHeld(measured=Interval(value=sizes.ratio), outcome=thresholds.decide_number(sizes.ratio, most))


def hold_speedup(speedup: Speedup, promise: float) -> LimitHeld:
    """``gate.latency.min_speedup``, by the speed-up that the run measured side by side."""
    measured = Interval(value=speedup.value, low=speedup.low, high=speedup.high)
    outcome = thresholds.decide(measured, promise, wanted="above")
    if outcome == "INCONCLUSIVE":
        return LimitHeld(measured=measured, outcome=outcome)
    doubt = find_doubt(speedup, room_to_promise(speedup.value, promise), "half the distance to the promise")
    return LimitHeld(measured=measured, outcome=outcome if doubt is None else "INCONCLUSIVE", doubt=doubt)
