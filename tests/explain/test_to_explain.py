"""Which cases of a run are slow, and which are not shown to be accurate enough."""

from __future__ import annotations

from dataclasses import replace

from made_records import accuracy, failed, fp32, int8

from qbench.decide.judged import SuiteRules, judge
from qbench.explain.to_explain import LEAST_SPEEDUP, list_inaccurate_cases, list_slow_cases
from qbench.record.stored_run import MetricInfo

FP32 = "net/fp32/torch/t1/b1"


def record(case, speedup, seconds):
    """An int8 case that is so many times as fast as fp32."""
    plain = int8(case)
    return replace(
        plain,
        speedup=replace(plain.speedup, value=speedup, low=speedup, high=speedup),
        latency=replace(plain.latency, p50_seconds=seconds, p50_low=seconds, p50_high=seconds),
    )


def test_cases_below_the_expected_speedup_are_slow_and_those_that_lose_most_come_first():
    """A slow case of a few microseconds loses less than a better one of milliseconds; fp32 and failures are none."""
    records = [
        fp32(FP32), failed("net/static/x86/t1/b1"),
        record("net/static/onednn/t1/b1", 2.5, 1e-3),
        record("net/static/fbgemm/t1/b1", 0.5, 1e-5),
        record("net/dynamic/fbgemm/t1/b1", 1.5, 1e-3),
    ]  # fmt: skip
    assert list_slow_cases(records, 2.0) == ["net/dynamic/fbgemm/t1/b1", "net/static/fbgemm/t1/b1"]


def test_slow_cases_that_are_explained_are_left_out():
    """So the same command goes on where it stopped; an example of a batch counts, not the batch."""
    single, eight = record("net/static/onednn/t1/b1", 1.0, 1e-3), record("net/static/onednn/t1/b8", 1.0, 4e-3)
    assert list_slow_cases([single, eight], 2.0, explained=[single.case.id]) == [eight.case.id]
    assert list_slow_cases([single, eight], 2.0) == [single.case.id, eight.case.id]


def test_a_case_as_fast_as_promised_is_not_slow():
    """Below by the least it is; what such a speed-up leaves of an example decides the order."""
    least, below, slowest = (
        record(f"net/static/{name}/t1/b{size}", speedup, seconds)
        for name, size, speedup, seconds in (("a", 1, 2.0, 1.0), ("b", 1, 1.999, 1.0), ("c", 4, 1.998, 4.0))
    )
    assert list_slow_cases([least, below, slowest], 2.0) == [slowest.case.id, below.case.id]
    unknown = [replace(slowest, speedup=None), replace(slowest, latency=None)]
    unknown.append(replace(slowest, speedup=replace(slowest.speedup, value=None)))
    assert list_slow_cases(unknown, 2.0) == []


FINE, OPEN = "net/static/fine/t1/b1", "net/static/open/t1/b1"
WORSE, WORST = "net/static/worse/t1/b1", "net/static/worst/t1/b1"
RECORDS = [
    fp32(FP32),
    failed("net/static/broken/t1/b1"),
    int8(FINE, accuracy=accuracy()),
    int8(OPEN, accuracy=accuracy(harmful=10)),
    int8(WORSE, accuracy=accuracy(harmful=50)),
    int8(WORST, accuracy=accuracy(harmful=90)),
]


def test_what_fails_comes_before_what_is_open_and_what_passes_is_none():
    """With a margin of one point; of each kind those that lose most first."""
    judged = judge(RECORDS, MetricInfo(name="top1"), SuiteRules())
    assert list_inaccurate_cases(judged) == [WORST, WORSE, OPEN]


def test_what_fails_comes_first_however_little_it_loses():
    """Of few examples more may be lost without that being shown."""
    fails = int8(WORSE, accuracy=accuracy(harmful=25))
    is_open = int8(OPEN, accuracy=accuracy(harmful=3, n=100, right=97))
    judged = judge([fp32(FP32), is_open, fails], MetricInfo(name="top1"), SuiteRules())
    assert [judged.outcome(record) for record in (is_open, fails)] == ["INCONCLUSIVE", "FAIL"]
    assert list_inaccurate_cases(judged) == [WORSE, OPEN]


def test_int8_is_expected_to_be_twice_as_fast():
    """Where a suite promises nothing."""
    assert LEAST_SPEEDUP == 2.0


def test_inaccurate_cases_that_are_explained_are_left_out():
    """So the same command goes on where it stopped."""
    judged = judge(RECORDS, MetricInfo(name="top1"), SuiteRules())
    assert list_inaccurate_cases(judged, [WORST]) == [WORSE, OPEN]


def test_without_rules_no_case_is_known_to_be_wrong():
    """A suite that cannot be read has no margin."""
    assert list_inaccurate_cases(judge(RECORDS, MetricInfo(name="top1"), None)) == []


def test_a_short_case_that_loses_much_comes_before_a_long_one_that_loses_little():
    """What a speed-up as promised would save decides, not what a call takes."""
    little, much = record("net/static/a/t1/b1", 1.9, 1e-3), record("net/static/b/t1/b1", 1.0, 5e-4)
    assert list_slow_cases([little, much], 2.0) == [much.case.id, little.case.id]
