"""The gate on latency: what is said of times that were run again, and of those that are stored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from judged_case import judge_case
from made_records import CASE, int8, speedup

from qbench.gating import latency
from qbench.gating.sequential_test import ANALYSES, NotRun, ProcessPair, Rerun
from qbench.record.schema import Roofline
from qbench.stats.interval_type import Interval

REGRESSION = "latency: {max_regression: 5%}"


def pair(*seconds: float) -> ProcessPair:
    """One process pair whose calls took so long."""
    return ProcessPair(ratio=0.0, control=0.0, drift=0.0, seconds=seconds)


def test_times_are_medians_over_the_pairs() -> None:
    """Of each artifact; pairs that tell no times are counted all the same."""
    pairs = (pair(1.0, 2.0, 9.0), pair(3.0, 5.0, 7.0), pair(1.0, 4.0, 8.0), pair())
    told = latency.list_times(Rerun(pairs=pairs, analysis=None, spent=12.0))
    assert (told.baseline, told.contender, told.fp32, told.pairs, told.spent) == (1.0, 4.0, 8.0, 4, 12.0)
    two = latency.list_times(Rerun(pairs=(pair(1.0, 2.0),), analysis=None))
    assert (two.baseline, two.contender, two.fp32) == (1.0, 2.0, None)
    none = latency.list_times(Rerun(pairs=(), analysis=None))
    assert (none.baseline, none.contender, none.fp32, none.pairs, none.spent) == (None, None, None, 0, 0.0)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (Interval(value=1.012, low=0.997, high=1.027), "+1.2 % [-0.3, +2.7]"),
        (Interval(value=0.95, low=0.94, high=0.96), "-5.0 % [-6.0, -4.0]"),
        (Interval(value=1.1), "+10.0 %"),
    ],
)
def test_a_ratio_of_times_is_told_as_a_change(ratio: Interval, text: str) -> None:
    """Signed, in percent, with its limits where there are any."""
    assert latency.format_change(ratio) == text


def test_the_share_of_the_peak_is_that_of_the_live_time() -> None:
    """Twice as fast as stored is twice the share; where either is not known, it stays."""
    record = int8(roofline=Roofline(macs=100, peak_fraction=0.4))
    assert record.latency is not None
    stored = record.latency.p50_seconds
    assert stored is not None
    live: Any = latency._at_live_speed(record, stored / 2)
    assert live.roofline.peak_fraction == pytest.approx(0.8)
    assert latency._at_live_speed(record, None) is record
    for unknown in (
        replace(record, roofline=None),
        replace(record, roofline=Roofline(macs=100)),
        replace(record, latency=None),
        replace(record, latency=replace(record.latency, p50_seconds=None)),
    ):
        assert latency._at_live_speed(unknown, stored / 2) is unknown


def test_times_that_are_not_known_are_not_told() -> None:
    """Half of a change says nothing."""
    assert latency._format_times(0.001, 0.002) == "1.00 ms -> 2.00 ms"
    assert latency._format_times(None, 0.001) == ""
    assert latency._format_times(0.001, None) == ""


def test_latency_is_asked_for_by_a_baseline_or_by_the_suite() -> None:
    """A suite that writes the rule misses its baseline; the default concerns nobody without one."""
    asked = judge_case(REGRESSION, int8())["latency"]
    assert (asked.outcome, asked.text) == ("MISSING", "no baseline")
    assert "latency" not in judge_case("size: {max_ratio: 0.9}", int8())
    assert "latency" in judge_case("size: {max_ratio: 0.9}", int8(), int8())
    assert "latency" not in judge_case("latency: {max_regression: null}, size: {max_ratio: 0.9}", int8(), int8())


@pytest.mark.parametrize(("now", "before", "where"), [(None, 2.5, "this run"), (2.5, None, "the baseline")])
def test_a_speedup_that_one_side_does_not_have_is_missing(now: Any, before: Any, where: str) -> None:
    """The reason says which; with why nothing was run again."""
    record, base = (int8(speedup=None if value is None else speedup(value)) for value in (now, before))
    verdict = judge_case(REGRESSION, record, base, reruns={CASE: NotRun(reason="no artifact")})["latency"]
    assert (verdict.outcome, verdict.way) == ("MISSING", "stored")
    assert verdict.reason == f"latency was not measured in {where}"
    assert verdict.text == "no speed-up  not run again: no artifact"


def test_what_is_faster_than_the_core_can_be_is_invalid() -> None:
    """Its artifact skips work, or is miscounted; whichever rule on time looks at it."""
    record = int8(roofline=Roofline(macs=100, peak_fraction=9.0))
    verdicts = judge_case("latency: {max_regression: 5%, min_speedup: 1.5}", record, int8())
    for name in ("latency", "speed-up"):
        assert (verdicts[name].outcome, verdicts[name].text) == ("INVALID", "faster than possible")
        assert str(verdicts[name].reason).startswith("900 % of the int8 peak of this core")


def test_a_rerun_that_a_process_ended_says_in_which_pair() -> None:
    """The one behind those that are whole."""
    rerun = Rerun(pairs=(pair(1.0, 1.0),) * 2, analysis=None, reason="SIGKILL")
    verdict = judge_case("latency: {max_regression: 5%, min_speedup: 1.5}", int8(), int8(), reruns={CASE: rerun})
    for name in ("latency", "speed-up"):
        assert (verdict[name].outcome, verdict[name].text, verdict[name].reason) == (
            "INVALID",
            "live  ended in process pair 3",
            "SIGKILL",
        )


def test_time_that_was_over_before_the_first_look_decides_nothing() -> None:
    """It says how many pairs there were, of how many, and what a larger budget would take."""
    rerun = Rerun(pairs=(pair(1.0, 1.0),), analysis=None, cut=True, spent=2.0)
    verdict = judge_case(REGRESSION, int8(), int8(), reruns={CASE: rerun})["latency"]
    assert (verdict.outcome, verdict.text) == ("INCONCLUSIVE", f"live  1 of {ANALYSES[0]} process pairs")
    assert str(verdict.decides) == f"a larger --max-minutes (a look takes {ANALYSES[0] * 2} s)"
    assert verdict.times is not None
    assert verdict.times.contender == 1.0


def test_a_promise_without_a_speedup_is_missing() -> None:
    """Latency was not measured."""
    verdict = judge_case("latency: {min_speedup: 1.5}", int8(speedup=None))["speed-up"]
    assert (verdict.outcome, verdict.reason, verdict.way) == ("MISSING", "latency was not measured", "stored")
