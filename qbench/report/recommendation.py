"""What the report's tables ask of ``decide``, under one name."""

from __future__ import annotations

from qbench.decide.cases import (
    Setting,
    fastest_fp32,
    is_int8,
    of_setting,
    p50,
    runs_in_int8,
    settings,
    variant,
)
from qbench.decide.judged import Judged, judge
from qbench.record.schema import Record
from qbench.stats.interval_type import Interval

__all__ = [
    "Judged",
    "Setting",
    "fastest_fp32",
    "is_int8",
    "judge",
    "of_setting",
    "p50",
    "runs_in_int8",
    "settings",
    "speedup_interval",
    "variant",
]


def speedup_interval(record: Record) -> Interval | None:
    """The speed-up as a plain interval."""
    speedup = record.speedup
    return None if speedup is None else Interval(value=speedup.value, low=speedup.low, high=speedup.high)
