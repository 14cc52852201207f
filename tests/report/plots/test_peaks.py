"""Rules of qbench/report/plots/peaks.py: rates and peaks are those of one core."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from qbench.report.plots.peaks import find_peaks, rate_of


def case(mode: str, threads: int | None = 1, **roofline: float) -> Any:
    """A case with these figures of its roofline."""
    numbers = {"case.threads": threads, **{f"roofline.{name}": value for name, value in roofline.items()}}
    return SimpleNamespace(mode=mode, number=numbers.get)


def test_a_peak_is_that_of_a_core() -> None:
    """Cases of several threads tell the peak of as many cores; int8 and fp32 have one each, the median."""
    cases = [
        case("fp32", 1, peak_per_second=100.0),
        case("fp32", 4, peak_per_second=404.0),
        case("fp32", 2, peak_per_second=400.0),
        case("static", 2, peak_per_second=800.0),
        case("dynamic"),
    ]
    assert find_peaks(cases) == {"fp32": 101.0, "int8": 400.0}
    assert find_peaks([case("fp32"), case("static", 1, peak_per_second=math.inf)]) == {}


def test_a_rate_is_that_of_a_core() -> None:
    """None where it was not measured."""
    assert rate_of(case("static", 4, operations_per_second=80.0)) == 20.0
    assert rate_of(case("static", None, operations_per_second=80.0)) == 80.0
    assert rate_of(case("static", 4)) is None
