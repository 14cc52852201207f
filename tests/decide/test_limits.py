"""Rules of decide/limits: what is held against a limit of the suite is held once, for the decision and for the gate."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_records import fp32, int8, speedup

from qbench.decide.limits import CaseRules, LimitCheck, Sizes, hold_promise, read_sizes
from qbench.record.schema import Record, Speedup
from qbench.stats.interval_type import Interval


@pytest.mark.parametrize(
    ("value", "most", "outcome"),
    [
        (136 / 100, 1 + 0.36, "PASS"),
        (35 / 100, 0.35, "PASS"),
        (3 / 100, 0.1 * 3 / 10, "PASS"),
        (36 / 100, 0.35, "FAIL"),
        (34 / 100, 0.35, "PASS"),
    ],
)
def test_exactly_what_is_allowed_is_allowed(value: float, most: float, outcome: str) -> None:
    """Whatever the last digit of the quotient; what is a byte above is not."""
    check = LimitCheck(record=int8(), limit="size", threshold=most).hold_number(value)
    assert (check.outcome, check.measured) == (outcome, Interval(value=value))


def test_sizes_are_those_of_the_case_and_of_its_fp32() -> None:
    """None where either is not known, which is no ratio of 0."""
    case, reference = int8(size_bytes=260), fp32(size_bytes=1000)
    sizes = read_sizes(case, [reference, case])
    assert sizes == Sizes(artifact=260, fp32=1000)
    assert sizes.ratio == pytest.approx(0.26)
    assert read_sizes(case, [case]) is None
    assert read_sizes(replace(case, artifact=None), [reference, case]) is None


def test_a_speed_up_lies_where_the_whole_of_its_interval_does() -> None:
    """And only where its control and its series bear that out."""

    def hold(measured: Speedup | None, promise: float) -> LimitCheck:
        record: Record = replace(int8(), speedup=measured)
        return hold_promise(record, CaseRules(), promise)

    assert hold(speedup(2.5, 0.01), 1.5).outcome == "PASS"
    assert hold(speedup(2.5, 0.01), 3.5).outcome == "FAIL"
    assert hold(None, 3.5).outcome is None
    spans = hold(speedup(2.5, 0.1), 2.5)
    assert (spans.outcome, spans.doubt) == ("INCONCLUSIVE", None)
    noisy = hold(speedup(2.5, 0.01, control=Interval(value=1.8, low=1.5, high=2.1)), 1.5)
    assert noisy.outcome == "INCONCLUSIVE"
    assert "too noisy" in str(noisy.doubt)
    assert noisy.measured is not None
    assert noisy.measured.value == 2.5
