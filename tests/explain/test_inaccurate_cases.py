"""Which cases of a run are not shown to be accurate enough."""

from __future__ import annotations

from made_records import accuracy, failed, fp32, int8

from qbench.decide.judged import Rules, judge
from qbench.explain.inaccurate_cases import list_inaccurate_cases
from qbench.record.stored_run import MetricInfo

FP32 = "net/fp32/torch/t1/b1"
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
    judged = judge(RECORDS, MetricInfo(name="top1"), Rules())
    assert list_inaccurate_cases(judged) == [WORST, WORSE, OPEN]


def test_cases_that_are_explained_are_left_out():
    """So the same command goes on where it stopped."""
    judged = judge(RECORDS, MetricInfo(name="top1"), Rules())
    assert list_inaccurate_cases(judged, [WORST]) == [WORSE, OPEN]


def test_without_rules_no_case_is_known_to_be_wrong():
    """A suite that cannot be read has no margin."""
    assert list_inaccurate_cases(judge(RECORDS, MetricInfo(name="top1"), None)) == []
