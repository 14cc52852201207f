"""Rules of qbench/compare/compare.py."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NoReturn

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_records import CASE, FP32, accuracy, failed, fp32, int8, same_as_golden, skipped, speedup

from qbench.compare import compare
from qbench.compare.changes import find_changes
from qbench.machine.process_spread import RATIO_SPREAD
from qbench.progress.table import align
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo
from qbench.report.comparison import change_table
from qbench.stats import intervals, noninferiority
from qbench.stats.interval_type import Interval

TOP1 = MetricInfo(name="top1")


def only(base: list[Record], contender: list[Record], incomparable: str | None = None) -> compare.Delta:
    """The single delta of two lists of records."""
    (delta,) = compare.compare(base, contender, incomparable=incomparable)
    return delta


def test_every_case_of_either_side_has_one_delta() -> None:
    """Cases of the contender come first in their order, then those that are gone."""
    deltas = compare.compare([int8("m/a/x/t1/b1"), int8("m/b/x/t1/b1")], [int8("m/c/x/t1/b1"), int8("m/b/x/t1/b1")])
    assert [(d.case, d.change) for d in deltas] == [
        ("m/c/x/t1/b1", "new"),
        ("m/b/x/t1/b1", "compared"),
        ("m/a/x/t1/b1", "gone"),
    ]


@pytest.mark.parametrize(
    ("base", "contender", "change"),
    [
        (int8(), failed(), "now failed"),
        (int8(), skipped(), "now skipped"),
        (failed(), int8(), "now ok"),
        (failed(), skipped(), "not ok in either"),
    ],
)
def test_a_status_that_changed_is_named_and_nothing_else_compared(base: Record, contender: Record, change: str) -> None:
    """Figures of a case that is not ok on both sides are not compared."""
    delta = only([base], [contender])
    assert delta.change == change
    assert delta.slowdown is delta.size_ratio is delta.accuracy is None


@given(st.floats(0.2, 20), st.floats(0.2, 20), st.floats(0.001, 0.05), st.integers(1, 5), st.integers(1, 5))
def test_slowdown_is_the_ratio_of_speedups_and_mirrors(a: float, b: float, half: float, p: int, q: int) -> None:
    """R = base / contender; swapping the runs gives 1 / R with the limits swapped."""
    old, new = speedup(a, half, processes=p), speedup(b, half, processes=q)
    there, back = compare.slowdown(old, new), compare.slowdown(new, old)
    assert there.low is not None
    assert there.high is not None
    assert back.high is not None
    assert there.value == pytest.approx(a / b)
    assert there.low <= there.value <= there.high
    assert there.low == pytest.approx(1 / back.high)


def test_limits_of_one_process_are_widened_once() -> None:
    """Records from before the race hold what one process showed: each such side gets the spread between processes in
    quadrature, and the row says so. A race's limits hold it already, also those of a case that it screened out."""
    several = compare.slowdown(speedup(), speedup())
    slowdown = compare.slowdown(speedup(), speedup(processes=1))
    assert several.high is not None
    assert slowdown.high is not None
    extra = intervals.normal_quantile(0.95) * RATIO_SPREAD
    assert math.log(slowdown.high) == pytest.approx(math.hypot(math.log(several.high), extra))
    notes = only([int8(speedup=speedup(processes=1))], [int8(speedup=speedup(processes=1))]).notes
    assert any("2 %" in note and "2 of 2" in note for note in notes)
    for known in (speedup(processes=2), speedup(processes=1, stopped="screened", measured_seconds=0.4)):
        assert compare.slowdown(known, known) == several
        assert only([int8(speedup=known)], [int8(speedup=known)]).notes == ()


def test_without_limits_there_is_no_interval() -> None:
    """A speed-up without limits gives a slowdown without limits, not one of zero width."""
    for unknown in ({"low": None, "high": None}, {"low": None}, {"high": None}):
        assert compare.slowdown(speedup(**unknown), speedup()) == Interval(value=1.0)
        assert compare.slowdown(speedup(), speedup(**unknown)) == Interval(value=1.0)


def test_what_limits_a_comparison_is_noted() -> None:
    """A protocol without a control, and scores on unequal numbers of examples; else nothing is."""
    plain = speedup(protocol="sequential")
    few = replace(accuracy(), n=500)
    sequential = only([int8(speedup=plain)], [int8(speedup=plain)])
    assert [note.partition(":")[0] for note in sequential.notes] == ["protocol sequential has no control"]
    assert only([int8()], [int8(accuracy=few)]).notes == ("scored on 1000 and 500 examples",)
    assert only([int8()], [int8()]).notes == ()


def test_sizes_are_compared_where_both_have_an_artifact() -> None:
    """In bytes."""
    bare = replace(int8(), artifact=None)
    assert compare.size_ratio(int8(size_bytes=200), int8(size_bytes=300)) == 1.5
    for base, contender in ((None, int8()), (bare, int8()), (int8(), bare)):
        assert compare.size_ratio(base, contender) is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"protocol": "sequential"}, "protocol"),
        ({"baseline": "net/fp32/other/t1/b1"}, "baseline"),
        ({"level": 0.9}, "level"),
    ],
)
def test_incomparable_speedups_are_refused_by_name(change: dict[str, object], field: str) -> None:
    """Latency measured in another way is not compared; size and accuracy still are."""
    delta = only([int8(speedup=speedup(**change))], [int8()])
    assert delta.slowdown is None
    assert delta.invalid == field
    assert delta.size_ratio == 1.0
    assert delta.accuracy is not None


def test_another_machine_is_refused_by_the_field_that_differs() -> None:
    """What machine.comparable says is what the delta says."""
    delta = only([int8()], [int8()], incomparable="isa")
    assert delta.invalid == "isa"
    assert delta.notes == ("latency is not comparable: isa differs",)


def test_accuracy_of_two_runs_is_an_unpaired_difference() -> None:
    """Contender - base with limits from both scores; another metric is not compared."""
    base, contender = int8(accuracy=accuracy(harmful=0)), int8(accuracy=accuracy(harmful=20))
    change = only([base], [contender]).accuracy
    assert change is not None
    assert change.value == pytest.approx(-0.02)
    assert change.low is not None
    assert change.low < -0.02
    other = int8(accuracy=replace(accuracy(), metric="f1"))
    assert only([base], [other]).accuracy is None


def test_the_words_of_a_comparison_are_golden() -> None:
    """A slower, a larger, a lossier, a new, a gone, a failed and an incomparable case, as rows."""
    base = [
        int8(f"net/static/{name}/t1/b1") for name in ("slower", "larger", "lossier", "gone", "fails", "other", "one")
    ]
    contender = [
        int8("net/static/slower/t1/b1", speedup=speedup(2.0)),
        int8("net/static/larger/t1/b1", size_bytes=300_000),
        int8("net/static/lossier/t1/b1", accuracy=accuracy(harmful=25)),
        int8("net/static/new/t1/b1"),
        failed("net/static/fails/t1/b1"),
        int8("net/static/other/t1/b1", speedup=speedup(protocol="sequential")),
        int8("net/static/one/t1/b1", speedup=speedup(processes=1)),
    ]
    shown = align(change_table(find_changes(compare.compare(base, contender), TOP1), TOP1))
    assert same_as_golden("compare_rows.txt", shown + "\n")


def test_like_for_like_is_the_same_setting_on_the_same_runtime() -> None:
    """The fp32 that the speed-up names; else that of the own backend; else torch; never another setting's."""
    torch, ort = fp32(), fp32("net/fp32/onnxruntime/t1/b1")
    other = fp32("net/fp32/torch/t2/b1")
    records = [other, torch, ort]
    assert compare.like_for_like(int8(), records) is torch
    assert compare.like_for_like(int8("net/static/onnxruntime/t1/b1", speedup=None), records) is ort
    assert compare.like_for_like(int8(speedup=None), records) is torch
    assert compare.like_for_like(int8("net/static/onednn/t4/b1", speedup=None), records) is None
    assert compare.like_for_like(int8(), [ort]) is None
    assert compare.like_for_like(int8("net/static/onnxruntime/t1/b1"), records) is torch
    twin = replace(torch, case=replace(torch.case, recipe="twin"))
    assert twin.case.is_twin
    assert compare.like_for_like(int8(speedup=None), [torch, twin]) is torch
    assert compare.like_for_like(int8(), [twin]) is None
    assert torch.case.id == FP32


def unread() -> NoReturn:
    """Predictions that nobody must ask for."""
    raise AssertionError("read")


def test_the_accuracy_test_takes_the_strongest_evidence() -> None:
    """Flips that are the whole change decide like the examples themselves, which are not even read; else the examples;
    else the interval."""
    by_flips = compare.accuracy_test(int8(accuracy=accuracy(harmful=3, beneficial=1)), TOP1, 1.0, unread)
    examples = np.repeat([1.0, -1.0, 0.0], [1, 3, 996])
    assert by_flips == noninferiority.assess_examples(np.maximum(examples, 0), np.maximum(-examples, 0), 0.01)
    f1 = replace(
        accuracy(), metric="f1", value=0.9432101, flips=None, delta=Interval(value=-0.002, low=-0.009, high=0.005)
    )
    by_interval = compare.accuracy_test(int8(accuracy=f1), TOP1, 1.0)
    assert by_interval is not None
    assert by_interval.outcome == "PASS"
    assert by_interval.level == 0.95
    values = ([0.1, 0.2, 0.4, 0.3], [0.1, 0.3, 0.3, 0.3])
    by_values = compare.accuracy_test(int8(accuracy=f1), TOP1, 1.0, lambda: values)
    assert by_values is not None
    assert by_values.delta.value == pytest.approx(0.0)
    assert compare.accuracy_test(int8(accuracy=None), TOP1, 1.0) is None


BINARY = np.repeat([1.0, 0.0], [990, 10])


@pytest.mark.parametrize(
    ("metric", "new", "old", "alone"),
    [
        (MetricInfo(name="top1_agreement", against="fp32", perfect=1.0), BINARY, np.ones(1000), True),
        (MetricInfo(name="top1_agreement", against="fp32", perfect=1.0), BINARY * 0.5, np.ones(1000), False),
        (MetricInfo(name="top1_agreement", against="fp32", perfect=1.0), BINARY, np.roll(BINARY, 1), False),
        (MetricInfo(name="top1_agreement", against="fp32"), BINARY, np.ones(1000), False),
        (MetricInfo(name="top1", perfect=1.0), BINARY, np.ones(1000), False),
        (MetricInfo(name="mae", percent=False, higher_is_better=False), BINARY, BINARY * 0.9, False),
    ],
)
def test_a_share_is_tested_alone_where_fp32_has_all_of_it_by_definition(
    metric: MetricInfo, new: np.ndarray, old: np.ndarray, alone: bool
) -> None:
    """Else both are compared example by example, better being more."""
    share = noninferiority.assess_share(int(new.sum()), 1000, 0.02)
    both = noninferiority.assess_examples(metric.sign * new, metric.sign * old, 0.02, bounds=metric.bounds)
    assert share.delta != both.delta
    assert compare.judge_examples(new, old, metric, 0.02) == (share if alone else both)


@pytest.mark.parametrize(
    ("low", "high", "turned"), [(0.4, 0.6, (-0.6, -0.4)), (None, 0.6, (-0.6, None)), (None, None, (None, None))]
)
def test_limits_change_sides_with_the_sign(low: float | None, high: float | None, turned: tuple[float, float]) -> None:
    """What is not known is not known on the other side."""
    change = compare.oriented(Interval(value=0.5, low=low, high=high), -1.0)
    assert (change.value, change.low, change.high) == (-0.5, *turned)
    assert compare.oriented(change, 1.0) is change


def test_lower_is_better_turns_the_change_around() -> None:
    """An error that grew is a loss: with MAE, +0.5 is worse by 0.5."""
    mae = MetricInfo(name="mae", percent=False, higher_is_better=False)
    worse = replace(accuracy(), metric="mae", value=2.51, flips=None, delta=Interval(value=0.5, low=0.4, high=0.6))
    accuracy_test = compare.accuracy_test(int8(CASE, accuracy=worse), mae, 0.2)
    assert accuracy_test is not None
    assert accuracy_test.outcome == "FAIL"
    assert (accuracy_test.delta.low, accuracy_test.delta.high) == (-0.6, -0.4)


@pytest.mark.parametrize(
    ("old", "new", "freedom"), [(3, 3, 2), (3, 5, 2), (5, 2, 1), (3, 1, 2), (1, 4, 3), (1, 1, None), (0, 1, None)]
)
def test_processes_beyond_the_first_are_the_freedom_of_a_change(old: int, new: int, freedom: int | None) -> None:
    """Of the side that has fewer; a side of one process has none of its own, and its spread is known from elsewhere."""
    delta = only([int8(speedup=speedup(processes=old))], [int8(speedup=speedup(processes=new))])
    assert delta.freedom == freedom


def test_a_score_that_is_no_count_of_examples_has_no_flips_that_explain_it() -> None:
    """It is a share of a thousandth of an example more."""
    told = accuracy(harmful=5, beneficial=2)
    assert compare.whole_change(replace(told, value=told.value + 1e-6)) is None
    assert compare.whole_change(replace(told, value=told.value + 1e-12)) == told.flips


@pytest.mark.parametrize(("shift", "whole"), [(0.0, True), (1e-8, False), (0.5, False)])
def test_flips_are_the_change_only_where_they_add_up_to_it(shift: float, whole: bool) -> None:
    """A metric that moves by something else than right and wrong answers has no share that flips explain."""
    told = accuracy(harmful=5, beneficial=2)
    assert told.delta is not None
    moved = replace(told, delta=replace(told.delta, value=told.delta.value + shift))
    assert compare.whole_change(moved) == (told.flips if whole else None)


def test_all_that_limits_a_comparison_of_times_is_noted() -> None:
    """One process and a protocol without a control, then what limits the accuracy."""
    plain = speedup(protocol="sequential", processes=1)
    few = accuracy(n=500, right=485)
    notes = only([int8(speedup=plain)], [int8(speedup=plain, accuracy=few)]).notes
    assert [note[:12] for note in notes] == ["measured in ", "protocol seq", "scored on 10"]


def test_the_limits_of_a_slowdown_are_those_of_both_sides_together() -> None:
    """In quadrature on a logarithmic scale, each end from the ends that make it more extreme."""
    base, contender = speedup(4.0, low=3.8, high=4.4), speedup(2.0, low=1.9, high=2.3)
    ratio = compare.slowdown(base, contender)
    assert ratio.value == pytest.approx(2.0)
    assert ratio.low == pytest.approx(2 * math.exp(-math.hypot(math.log(4 / 3.8), math.log(2.3 / 2))))
    assert ratio.high == pytest.approx(2 * math.exp(math.hypot(math.log(4.4 / 4), math.log(2 / 1.9))))


def test_what_is_known_of_one_side_alone_is_not_compared() -> None:
    """Neither latency nor accuracy; the rest is."""
    bare = int8(speedup=None, accuracy=None)
    for base, contender in ((int8(), bare), (bare, int8()), (bare, bare)):
        delta = only([base], [contender])
        assert (delta.slowdown, delta.accuracy, delta.invalid, delta.notes) == (None, None, None, ())
        assert delta.size_ratio == 1.0
    (note,) = only([int8(speedup=speedup(processes=1))], [int8()]).notes
    assert note == "measured in one process only on 1 of 2 sides, so its interval is widened by 2 % for each"
