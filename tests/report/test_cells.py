"""Rules of qbench/report/cells.py: decimals, limits and tones of the figures in tables."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from made_records import fp32, int8, latency, speedup

from qbench.decide.judged import SuiteRules, judge
from qbench.record.stored_run import MetricInfo
from qbench.report.cells import (
    COARSE,
    Cell,
    _plain,
    accuracy_limit,
    count_change_digits,
    count_digits,
    interval_cell,
    latency_unit,
    list_rows,
    ratio_cell,
    time_of,
    typical_times,
    unit_of,
)
from qbench.stats.interval_type import Interval
from qbench.suite.gate import GateSpec

MAE = MetricInfo(name="mae", percent=False, higher_is_better=False, own_unit="px")


def changes(*intervals: Interval | None) -> list[Any]:
    """Changes of a score as they are shown."""
    return [None if each is None else SimpleNamespace(interval=each, bound=None) for each in intervals]


def test_a_score_has_two_decimals_or_as_many_as_its_limits_support() -> None:
    """In percent two, in a unit of its own by the narrowest limits; those of an interval without width tell nothing."""
    wide, narrow = Interval(value=1.0, low=0.5, high=1.5), Interval(value=1.0, low=0.999, high=1.001)
    exact = Interval(value=1.23456, low=1.23456, high=1.23456)
    assert count_change_digits(None, changes(narrow)) == 2
    assert count_change_digits(MetricInfo(name="top1"), changes(narrow)) == 2
    digits = [count_change_digits(MAE, changes(*each)) for each in ((wide,), (wide, narrow), (exact,), (wide, exact))]
    assert digits[1] > digits[0]
    assert digits[2:] == [2, digits[0]]
    assert count_change_digits(MAE, changes(exact, None), without_limits=1) == 1


@pytest.mark.parametrize(("seconds", "digits"), [(1.0, 2), (12.0, 1), (123.0, 0), (0.0123, 2)])
def test_times_have_three_digits_but_two_decimals_at_most(seconds: float, digits: int) -> None:
    """Of the shortest; without a time two."""
    records = [int8(latency=latency(seconds)), int8(latency=latency(500.0))]
    assert count_digits(judge([], None, SuiteRules()), records, 1.0).time == digits
    assert count_digits(judge([], None, SuiteRules()), [], 1.0).time == 2


def test_the_mean_stands_for_the_median_where_the_protocol_compares_means() -> None:
    """Of both; nothing where either is not known."""
    mean = replace(latency(0.001), mean_seconds=0.002)
    best = replace(fp32(), latency=replace(latency(0.004), mean_seconds=0.006))
    paired, plain = int8(latency=mean), int8(latency=mean, speedup=speedup(protocol="sequential", low=None, high=None))
    assert typical_times(paired, best) == (0.001, 0.004)
    assert typical_times(plain, best) == (0.002, 0.006)
    assert typical_times(paired, None) is None
    assert typical_times(paired, replace(best, latency=None)) is None
    assert typical_times(replace(paired, latency=None), best) is None


def test_limits_stand_where_both_are_known() -> None:
    """One alone is none; a dash for nothing."""
    assert interval_cell(None) == Cell()
    assert str(interval_cell(Interval(value=1.0, low=0.9, high=None))) == "1.00"
    assert str(interval_cell(Interval(value=1.0, low=None, high=1.1))) == "1.00"
    assert str(interval_cell(Interval(value=0.01, low=-0.02, high=0.03), 1, scale=100, signed=True)) == (
        "+1.0 [-2.0, +3.0]"
    )


@pytest.mark.parametrize(
    ("low", "high", "tone"), [(1.01, 1.1, "good"), (1.0, 1.1, ""), (0.9, 1.0, ""), (0.9, 0.99, "bad"), (None, None, "")]
)
def test_a_ratio_is_good_or_bad_where_its_limits_say_so(low: float | None, high: float | None, tone: str) -> None:
    """Once as fast is neither; without a tone none."""
    ratio = speedup(1.0, low=low, high=high)
    assert ratio_cell(int8(speedup=ratio), ratio, hint="hint").tone == tone
    assert ratio_cell(int8(speedup=ratio), ratio, hint="hint", toned=False).tone == ""


def test_a_ratio_of_the_screening_is_marked_and_says_why() -> None:
    """In its text and its hint."""
    ratio = speedup(1.5, stopped="screened")
    cell = ratio_cell(int8(speedup=ratio), ratio, hint="over x")
    assert cell.text == f"1.50{COARSE}"
    assert cell.hint.startswith("over x; ~: coarse")


def test_a_limit_has_a_decimal_and_no_more_than_it_was_given() -> None:
    """An error's is a gain; a least score stands in its place; without rules there is none."""
    for margin, metric, text in ((1, MetricInfo(name="top1"), " (limit -1.0)"), (0.25, MAE, " (limit +0.25)")):
        gate = GateSpec.model_validate({"accuracy": {"margin": margin}})
        assert accuracy_limit(judge([int8()], metric, SuiteRules(gate=gate)), [int8()]) == text
    assert accuracy_limit(judge([int8()], None, SuiteRules()), [int8()]) == ""
    assert accuracy_limit(judge([int8()], MAE, None), [int8()]) == ""


def test_one_unit_stands_for_a_column() -> None:
    """That of the smallest value; milliseconds where there is none."""
    records = [int8(latency=latency(0.5)), int8(latency=latency(0.0002)), replace(int8(), latency=None)]
    assert latency_unit(records)[0] == 1e-6
    assert latency_unit(records[-1:]) == (1e-3, "ms")
    assert unit_of("memory", [5e6, 3e3])[1] == unit_of("size", [5e6, 3e3])[1] == "kB"
    assert unit_of("latency", [0.5, 0.002])[1] == "ms"


def test_rows_are_the_measured_cases_with_fp32_first() -> None:
    """Then the fastest; what has no time stands last."""
    untimed = replace(int8("net/static/a/t1/b1"), latency=None)
    records = [untimed, int8("net/static/b/t1/b1", latency=latency(0.002)), int8("net/static/c/t1/b1"), fp32()]
    listed = list_rows(judge(records, MetricInfo(name="top1"), SuiteRules()), records, 1e-3)
    assert [row.record.case.backend for row in listed] == ["torch", "c", "b", "a"]
    assert {row.best.case.mode for row in listed if row.best} == {"fp32"}
    assert time_of(untimed) is None
    assert time_of(int8()).low == pytest.approx(0.00099)
    assert listed[1].scale == 100.0


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (("a", "b"), "a;b"),
        ([1, 2.5], "1;2.5"),
        ([{"b": 1}, "c"], '{"b": 1};c'),
        ((), ""),
        ({"a": "é"}, '{"a": "é"}'),
        ({}, None),
        ("text", "text"),
        (None, None),
    ],
)
def test_a_cell_of_a_file_has_one_plain_value(value: object, plain: object) -> None:
    """Lists are joined, mappings are JSON; an empty one is nothing."""
    assert _plain(value) == plain
