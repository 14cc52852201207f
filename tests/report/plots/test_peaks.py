"""Rules of qbench/report/plots/peaks.py: rates and peaks are those of one core."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from qbench.report.plots.cases import read_cases
from qbench.report.plots.peaks import find_peaks, list_drawings, rate_of, show_rate


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
    assert find_peaks([case("bf16", None, peak_per_second=100.0)]) == {"bf16": 100.0}


def test_a_rate_is_that_of_a_core() -> None:
    """None where it was not measured."""
    assert rate_of(case("static", 4, operations_per_second=80.0)) == 20.0
    assert rate_of(case("static", None, operations_per_second=80.0)) == 80.0
    assert rate_of(case("static", 4)) is None


@pytest.mark.parametrize(
    ("rate", "told"), [(9.99e10, "99.9 G/s"), (1e11, "100 G/s"), (4.284e11, "428 G/s"), (0.0, "0.0 G/s")]
)
def test_a_rate_has_three_digits(rate: float, told: str) -> None:
    """In billions a second."""
    assert show_rate(rate) == told


def frame(**columns: Any) -> pd.DataFrame:
    """An fp32 and two int8 variants with what is known of their rates."""
    plain = {
        "case.id": ["f", "a", "b"], "case.setting": "s", "case.mode": ["fp32", "static", "static"],
        "case.backend": ["torch", "x86", "onednn"], "case.variant": ["fp32", "a", "b"], "status": "ok",
        "over_best_fp32.value": [1.0, 0.5, 0.6], "case.threads": 1,
        "roofline.peak_fraction": [0.5, 0.3, 0.42], "roofline.peak_per_second": [1e11, 4e11, 4e11],
        "roofline.operations_per_second": [5e10, None, 1.68e11],
    }  # fmt: skip
    return pd.DataFrame(plain | columns)


def test_a_caption_names_who_reaches_most_of_each_peak() -> None:
    """And that the shares are too high where something else used the core meanwhile."""
    (drawing,) = list_drawings(frame(), read_cases(frame()))
    assert drawing.caption == (
        "Of the fp32 peak, fp32 on PyTorch reaches most: 50 %; of the int8 peak, static int8 on oneDNN (PyTorch) "
        "reaches most: 42 %. Measured on one core of this machine: fp32 peak 100 G/s and int8 peak 400 G/s; n = 3 "
        "cases."
    )
    assert [row[1:] for row in drawing.data.rows] == [
        ("0.0 G/s", "30 % of int8 peak"), ("168 G/s", "42 % of int8 peak"), ("50.0 G/s", "50 % of fp32 peak")
    ]  # fmt: skip
    shared = frame(**{"roofline.peak_shared": [None, True, False]})
    (drawing,) = list_drawings(shared, read_cases(shared))
    assert drawing.caption.endswith(
        " Something else used the core while the peak was measured: the shares are too high."
    )
    none = frame(**{"roofline.peak_fraction": None})
    assert list(list_drawings(none, read_cases(none))) == []
