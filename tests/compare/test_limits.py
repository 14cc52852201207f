"""Rules of compare/limits: what is held against a limit of the suite lies on the same side for decision and gate."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_records import fp32, int8, speedup

from qbench.compare.limits import Sizes, hold_size, hold_speedup, read_sizes
from qbench.stats.interval_type import Interval


@pytest.mark.parametrize(
    ("artifact", "most", "outcome"),
    [(136, 1 + 0.36, "PASS"), (35, 0.35, "PASS"), (3, 0.1 * 3 / 10, "PASS"), (36, 0.35, "FAIL"), (34, 0.35, "PASS")],
)
def test_exactly_what_is_allowed_is_allowed(artifact: int, most: float, outcome: str) -> None:
    """Whatever the last digit of the quotient; what is a byte above is not."""
    assert hold_size(Sizes(artifact=artifact, fp32=100), most).outcome == outcome


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
    assert hold_speedup(speedup(2.5, 0.01), 1.5).outcome == "PASS"
    assert hold_speedup(speedup(2.5, 0.01), 3.5).outcome == "FAIL"
    spans = hold_speedup(speedup(2.5, 0.1), 2.5)
    assert (spans.outcome, spans.doubt) == ("INCONCLUSIVE", None)
    noisy = hold_speedup(speedup(2.5, 0.01, control=Interval(value=1.8, low=1.5, high=2.1)), 1.5)
    assert noisy.outcome == "INCONCLUSIVE"
    assert "too noisy" in str(noisy.doubt)
    assert noisy.measured.value == 2.5
