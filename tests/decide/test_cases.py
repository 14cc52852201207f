"""Rules of decide/cases: what of a record counts as its time."""

from __future__ import annotations

from dataclasses import replace

from made_records import failed, int8, latency

from qbench.decide import cases


def test_the_typical_call_is_the_median_and_the_mean_where_there_is_none() -> None:
    """A run of protocol sequential may know a mean alone; what was not timed has no time."""
    both = replace(latency(0.002), mean_seconds=0.003)
    assert cases.p50(int8(latency=both)) == 0.002
    assert cases.p50(int8(latency=replace(both, p50_seconds=None))) == 0.003
    assert cases.p50(int8(latency=None)) is None
    assert cases.p50(failed()) is None
