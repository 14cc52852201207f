"""Rules of qbench/compare/changes.py: what is said to have changed from one run to another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_records import accuracy, answers, failed, int8, speedup

from qbench.compare import compare
from qbench.compare.changes import CaseChange, find_changes
from qbench.compare.paired_accuracy import pair_accuracy
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo
from qbench.stats import intervals
from qbench.stats.interval_type import Interval
from qbench.stats.multiple_testing import FAMILY_ERROR

TOP1 = MetricInfo(name="top1")


def change(base: Record, contender: Record, metric: MetricInfo = TOP1, *, paired: bool = True) -> CaseChange:
    """The change of one case, its accuracy paired on the answers that ``made_records`` makes of a record."""
    deltas = compare.compare([base], [contender])
    read = answers if paired else lambda record: None
    return find_changes(pair_accuracy(deltas, read, read), metric)[0]


@pytest.mark.parametrize(
    ("contender", "verdict"),
    [
        (int8(), "no change shown"),
        (int8(speedup=speedup(2.0)), "slower"),
        (int8(speedup=speedup(3.0)), "faster"),
        (int8(speedup=speedup(2.51)), "no change shown"),
        (int8(size_bytes=300_000), "larger"),
        (int8(size_bytes=200_000), "smaller"),
        (int8(size_bytes=260_100), "no change shown"),
        (int8(accuracy=accuracy(harmful=20)), "less accurate"),
        (int8(accuracy=accuracy(beneficial=20)), "more accurate"),
        (int8(speedup=speedup(2.0), size_bytes=200_000), "slower, smaller"),
        (int8(speedup=speedup(protocol="sequential")), "latency not comparable"),
        (failed(), "now failed"),
    ],
)
def test_a_change_is_what_its_test_shows(contender: Record, verdict: str) -> None:
    """Latency and accuracy by their tests, size exactly but for some bytes, a status as it is."""
    told = change(int8(), contender)
    assert told.verdict == verdict
    assert told.changed == (verdict not in ("no change shown", "latency not comparable"))


def test_paired_examples_show_what_two_scores_do_not() -> None:
    """12 answers of 1,000 that turn wrong are a change on the same examples, and none among 1,000 others."""
    base, contender = int8(accuracy=accuracy()), int8(accuracy=accuracy(harmful=12))
    assert change(base, contender).verdict == "less accurate"
    assert change(base, contender, paired=False).verdict == "no change shown"


def test_a_lower_score_is_better_where_the_metric_says_so() -> None:
    """An error that grew is less accurate."""
    error = MetricInfo(name="error", higher_is_better=False)
    assert change(int8(accuracy=accuracy(harmful=20)), int8(), error).verdict == "less accurate"


def test_without_a_metric_a_higher_score_is_better() -> None:
    """As most are; and a file that grew or shrank by 1 in 1,000 is the same network."""
    deltas = compare.compare([int8()], [int8(accuracy=accuracy(harmful=80))])
    assert find_changes(deltas, None)[0].words == ("less accurate",)
    for ratio, words in ((1.0009, ()), (1.0011, ("larger",)), (0.9991, ()), (0.9989, ("smaller",))):
        assert find_changes([replace(deltas[0], accuracy=None, size_ratio=ratio)], None)[0].words == words


def measured(rng: np.random.Generator) -> Record:
    """A case of which three processes were measured, whose limits are those of Student's t over them."""
    ratio = intervals.exp(intervals.t_interval(rng.normal(0.0, 0.01, 3), 0.95))
    return int8(accuracy=None, speedup=speedup(ratio.value, low=ratio.low, high=ratio.high))


def test_all_tests_share_one_error() -> None:
    """Of 60 comparisons of 30 cases, in which nothing changed, at most one of twenty names any case; each test alone
    would name one in a quarter of them."""
    rng = np.random.default_rng(0)
    together = alone = 0
    for _ in range(60):
        deltas = [compare.compare([measured(rng)], [measured(rng)])[0] for _ in range(30)]
        changes = find_changes(deltas, TOP1)
        together += any(told.changed for told in changes)
        slowdowns = [delta.slowdown for delta in deltas if delta.slowdown is not None]
        alone += any(ratio.low > 1 or ratio.high < 1 for ratio in slowdowns)  # type: ignore[operator]
    assert together <= 3
    assert alone > 10


def test_sizes_and_statuses_take_no_share_of_the_error() -> None:
    """A case without latency and accuracy is not tested, and the others are not held to more for it."""
    rows = [replace(int8(f"net/static/bare{number}/t1/b1"), speedup=None, accuracy=None) for number in range(10)]
    slower = int8(accuracy=None, speedup=speedup(2.45))
    alone, *_ = find_changes(compare.compare([int8(accuracy=None)], [slower]), TOP1)
    among, *others = find_changes(compare.compare([int8(accuracy=None), *rows], [slower, *rows]), TOP1)
    assert (alone.verdict, among.verdict) == ("slower", "slower")
    assert not any(change.changed for change in others)
    tested = [int8(f"net/static/tested{number}/t1/b1", accuracy=None) for number in range(10)]
    assert not find_changes(compare.compare([int8(accuracy=None), *tested], [slower, *tested]), TOP1)[0].changed


def test_what_is_shown_at_exactly_the_error_is_not_called_chance() -> None:
    """A p-value of 5 % shows a change; it has no reason to be none, whatever stands beside it."""
    (delta,) = compare.compare([int8(speedup=None)], [int8(speedup=None, accuracy=accuracy(harmful=20))])
    (told,) = find_changes([replace(delta, accuracy_p=FAMILY_ERROR)], TOP1)
    assert (told.words, told.why) == (("less accurate",), None)


def test_a_change_of_time_is_tested_with_the_freedom_of_its_processes() -> None:
    """Student's t of three processes shows less than that of many, with the same limits; without limits nothing is
    shown."""
    (delta,) = compare.compare([int8(accuracy=None)], [int8(accuracy=None, speedup=speedup(2.45))])
    ratio = Interval(value=1.1, low=1.02, high=1.19)
    told = [
        find_changes([replace(delta, slowdown=ratio, freedom=freedom), *[replace(delta, slowdown=ratio)] * 2], TOP1)[0]
        for freedom in (2, 10_000)
    ]
    assert [each.verdict for each in told] == ["no change shown: one of 3 tests, so it may be chance", "slower"]
    assert find_changes([replace(delta, slowdown=Interval(value=1.5))], TOP1)[0].verdict == "no change shown"


def test_limits_that_leave_out_no_change_and_show_none_are_explained() -> None:
    """They are of one test; several share the error, so that one of many may be by chance."""
    names = [f"net/static/onednn/t{threads}/b1" for threads in range(1, 21)]
    base = [int8(name, speedup=speedup(2.5, 0.03)) for name in names]
    slower = int8(names[0], speedup=speedup(2.35, 0.03))
    (alone,) = find_changes(compare.compare(base[:1], [slower]), TOP1)
    assert alone.words == ("slower",)
    first, *rest = find_changes(compare.compare(base, [slower, *base[1:]]), TOP1)
    assert first.verdict == "no change shown: one of 40 tests, so it may be chance"
    assert {change.verdict for change in rest} == {"no change shown"}


def test_the_error_itself_is_shown_and_shared() -> None:
    """A p-value of 5 % among two tests is one that chance may explain; half of it still shows the change."""
    (delta,) = compare.compare([int8(speedup=None)], [int8(speedup=None, accuracy=accuracy(harmful=20))])
    of_two = find_changes([replace(delta, accuracy_p=FAMILY_ERROR), replace(delta, accuracy_p=1.0)], TOP1)[0]
    assert of_two.verdict == "no change shown: one of 2 tests, so it may be chance"
    shown = find_changes([replace(delta, accuracy_p=FAMILY_ERROR / 2), replace(delta, accuracy_p=1.0)], TOP1)[0]
    assert (shown.words, shown.why) == (("less accurate",), None)
