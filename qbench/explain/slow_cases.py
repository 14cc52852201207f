"""Which int8 cases of a run are slower than they should be, by its records; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from qbench.explain.open_case import why_not_explained
from qbench.record.schema import Record

LEAST_SPEEDUP = 2.0  # over fp32: what int8 is expected to gain where a suite does not promise a speed-up


@dataclass(frozen=True, kw_only=True)
class SlowCase:
    """A case with its ``speedup`` over its like-for-like fp32, and the seconds for one example that it takes beyond
    what the expected speed-up leaves."""

    case: str
    speedup: float
    seconds: float


def list_slow_cases(records: Iterable[Record], least: float, known: Sequence[str] = ()) -> list[SlowCase]:
    """The int8 cases that can be explained, are not ``known``, and are not ``least`` times as fast as fp32; those that
    lose most time first. A case without a speed-up or a latency is none of them."""
    slow = []
    for record in records:
        latency, speedup = record.latency, record.speedup
        typical = None if latency is None else latency.p50_seconds or latency.mean_seconds
        if why_not_explained(record) is not None or record.case.id in known or typical is None or speedup is None:
            continue
        if speedup.value is not None and speedup.value < least:
            lost = typical / record.case.batch_size * (1 - speedup.value / least)
            slow.append(SlowCase(case=record.case.id, speedup=speedup.value, seconds=lost))
    return sorted(slow, key=lambda each: -each.seconds)
