"""Rules of qbench/gating/sequential_test.py: when the gate stops, what it says, and how often it errs."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import t

from qbench.gating.sequential_test import (
    ANALYSES,
    CONTROL_LEVEL,
    LEVEL,
    InterimAnalysis,
    ProcessPair,
    analyze,
    analyze_promise,
    count_freedom,
    estimate_pairs,
    process_pair,
)
from qbench.stats.interval_type import Interval
from qbench.stats.intervals import clopper_pearson

TOLERANCE = 0.05
GATES = int(os.environ.get("QBENCH_GATES", "20000"))
SPREAD = 0.015  # standard deviation of one copy's log ratio from one process pair to the next, measured


def pairs(ratios: Any, controls: Any = None, drift: float = 0.0) -> list[ProcessPair]:
    """Process pairs with those log ratios, and a control that reads 0.1 % to either side of 1."""
    quiet = [0.001 if n % 2 else -0.001 for n in range(len(ratios))]
    return [
        ProcessPair(ratio=float(ratio), control=float(control), drift=drift)
        for ratio, control in zip(ratios, quiet if controls is None else controls, strict=True)
    ]


def around(change: float, count: int, spread: float = 0.01) -> list[float]:
    """Log ratios that spread evenly around a change (0.1: 10 % slower)."""
    return [math.log1p(change) + spread * (1 if n % 2 else -1) for n in range(count)]


# --- one analysis -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("change", "outcome"), [(0.0, "PASS"), (-0.2, "PASS"), (0.10, "FAIL"), (0.05, "INCONCLUSIVE")])
def test_the_side_of_the_tolerance_decides(change: float, outcome: str) -> None:
    """PASS below the tolerance, FAIL above it, and more pairs where the interval spans it."""
    analysis = analyze(pairs(around(change, 6)), TOLERANCE)
    assert (analysis.outcome, analysis.number, analysis.pairs) == (outcome, 2, 6)
    assert analysis.decided is (outcome != "INCONCLUSIVE")
    assert analysis.slowdown.value == pytest.approx(1 + change, rel=1e-3)


def test_the_last_analysis_ends_the_gate() -> None:
    """After 12 pairs an interval across the tolerance is INCONCLUSIVE, and no more is measured."""
    analysis = analyze(pairs(around(TOLERANCE, 12)), TOLERANCE)
    assert (analysis.outcome, analysis.decided, analysis.number) == ("INCONCLUSIVE", True, 4)


def test_there_is_an_analysis_after_the_planned_numbers_of_pairs_only() -> None:
    """One analysis more would spend error that was not set aside."""
    with pytest.raises(ValueError, match="not after 7"):
        analyze(pairs(around(0, 7)), TOLERANCE)
    assert pytest.approx(0.05) == (1 - LEVEL) * len(ANALYSES)


@pytest.mark.parametrize("change", [0.0, 0.2])
def test_a_control_that_is_off_withholds_pass_and_fail(change: float) -> None:
    """A control beyond half the tolerance makes either verdict INCONCLUSIVE, asks for more pairs, and is named."""
    off = [0.03 + (0.002 if n % 2 else -0.002) for n in range(12)]
    first = analyze(pairs(around(change, 6), off[:6]), TOLERANCE)
    assert (first.outcome, first.decided) == ("INCONCLUSIVE", False)
    last = analyze(pairs(around(change, 12), off), TOLERANCE)
    assert (last.outcome, last.decided) == ("INCONCLUSIVE", True)
    assert last.doubt is not None
    assert "within 2.5 %, half of what is to be told apart" in last.doubt
    assert last.control.low is not None
    assert last.control.high is not None
    low, high = (limit * 100 - 100 for limit in (last.control.low, last.control.high))
    assert f"(a second copy of the baseline) reads {low:+.1f} to {high:+.1f} %, at 90%," in last.doubt


@pytest.mark.parametrize("drift", [0.04, -0.04])
def test_a_series_that_drifts_is_not_trusted(drift: float) -> None:
    """A ratio that moves by more than half the tolerance within a process is no steady ratio."""
    analysis = analyze(pairs(around(0.2, 12), drift=drift), TOLERANCE)
    assert analysis.outcome == "INCONCLUSIVE"
    assert "not steady" in str(analysis.doubt)
    moved = "+4.1" if drift > 0 else "-3.9"
    assert f"moved by {moved} % from the first to the last third of a process, more than 2.5 %" in str(analysis.doubt)
    room = math.copysign(math.log1p(TOLERANCE / 2), drift)
    assert analyze(pairs(around(0.2, 12), drift=room * (1 - 1e-12)), TOLERANCE).doubt is None
    assert analyze(pairs(around(0.2, 12), drift=drift / 2), TOLERANCE).outcome == "FAIL"


def test_a_control_without_spread_is_no_control() -> None:
    """Equal readings come from a clock that is too coarse, not from quiet."""
    analysis = analyze(pairs(around(0.0, 6), [0.0] * 6), TOLERANCE)
    assert analysis.outcome == "INCONCLUSIVE"
    assert "no spread" in str(analysis.doubt)


def test_a_failure_that_other_rules_would_overrule_takes_more_pairs() -> None:
    """With 40 rules sharing the error, what fails alone asks for more pairs while there may be more."""
    ratios = around(0.075, 6, spread=0.0135)
    alone, among = (analyze(pairs(ratios), TOLERANCE, rules=rules) for rules in (1, 40))
    assert alone.outcome == among.outcome == "FAIL"
    assert (alone.decided, among.decided) == (True, False)
    assert among.p_value * 40 > 0.05 >= among.p_value


def test_both_copies_of_the_baseline_are_the_reference() -> None:
    """Where the first copy alone was slow, ratio and control share its deviation, and the half of it is taken back."""
    assert ProcessPair(ratio=-0.02, control=-0.02, drift=0.0).change == pytest.approx(-0.01)


@pytest.mark.parametrize(("speedup", "outcome"), [(2.0, "PASS"), (1.3, "FAIL"), (1.5, "INCONCLUSIVE")])
def test_a_promise_is_judged_by_the_fp32_that_ran_along(speedup: float, outcome: str) -> None:
    """Above the promise of 1.5 it is kept, whatever became of the baseline."""
    logs = [math.log(speedup) + offset for offset in (-0.01, 0.0, 0.01)]
    along = [
        replace(pair, speedup=log) for pair, log in zip(pairs(around(0.3, 3), [0.01, -0.01, 0.0]), logs, strict=True)
    ]
    assert analyze_promise(along, 1.5).outcome == outcome


def test_how_many_pairs_would_decide_grows_with_the_nearness_to_the_tolerance() -> None:
    """At 4 % fewer than at 4.7 %; on the tolerance itself no number does."""
    near, nearer, at = (
        estimate_pairs(analyze(pairs(around(change, 12, 0.03)), TOLERANCE), 1.05) for change in (0.04, 0.047, 0.05)
    )
    assert near is not None
    assert nearer is not None
    assert 12 < near < nearer
    assert at is None


@pytest.mark.parametrize(
    ("reach", "needed"),
    [(0.5, 4), (1.0, 4), (1.4, 6), (1.99, 12), (19.9, 1189), (20.1, None)],
)
def test_so_many_pairs_as_the_square_of_the_distance_in_limits(reach: float, needed: int | None) -> None:
    """The limits of three reach so many times as far as the threshold is away; from 20 times on it lies on it."""
    ratio = Interval(value=1.0, low=math.exp(-0.01 * reach), high=math.exp(0.01 * reach))
    analysis = InterimAnalysis(
        outcome="INCONCLUSIVE", number=1, slowdown=ratio, control=ratio, p_value=1.0, doubt=None, decided=False
    )
    assert estimate_pairs(analysis, math.exp(0.01)) == needed
    assert estimate_pairs(analysis, math.exp(-0.01)) == needed
    for bare in (Interval(value=1.0), Interval(value=1.0, high=1.1), Interval(value=1.0, low=0.9)):
        assert estimate_pairs(replace(analysis, slowdown=bare), math.exp(0.01)) is None


def find_reach(control: Interval) -> float:
    """How far from 1 the control's limits lie, in logs."""
    assert control.low is not None
    assert control.high is not None
    return max(-math.log(control.low), math.log(control.high))


@pytest.mark.parametrize(("share", "believed"), [(1.001, True), (0.999, False)])
def test_the_control_may_be_off_by_half_of_what_is_to_be_told_apart(share: float, believed: bool) -> None:
    """The tolerance, unless another change is to be told from none; of a promise the distance to it."""
    series = [replace(pair, speedup=math.log(2.0)) for pair in pairs(around(0.0, 3), [0.01, -0.01, 0.0])]
    told_apart = 2 * math.expm1(find_reach(analyze(series, TOLERANCE).control) * share)
    assert (analyze(series, told_apart).doubt is None) is believed
    assert (analyze(series, TOLERANCE, told_apart=told_apart).doubt is None) is believed
    distance = 2 * find_reach(analyze_promise(series, 1.0).control) * share
    for promise in (2.0 * math.exp(distance), 2.0 * math.exp(-distance)):
        assert (analyze_promise(series, promise).doubt is None) is believed


def test_what_no_number_of_pairs_shows_widens_the_limits_of_a_speed_up() -> None:
    """As a second error beside that of the mean, the largest of any pair; Student's t stretches both."""
    series = [replace(pair, speedup=0.7 + pair.control) for pair in pairs(around(0.0, 3), [0.01, -0.01, 0.0])]
    shown = analyze_promise(series, 1.2).slowdown
    hidden = analyze_promise(
        [replace(series[0], unseen=0.01), replace(series[1], unseen=0.03), series[2]], 1.2
    ).slowdown
    assert None not in (shown.low, shown.high, hidden.low, hidden.high)
    stretched = float(t.ppf((1 + LEVEL) / 2, count_freedom(3))) * 0.03
    for plain, wide in ((shown.low, hidden.low), (shown.high, hidden.high)):
        half = [math.log(limit / shown.value) for limit in (plain, wide)]  # type: ignore[operator]
        assert half[1] ** 2 == pytest.approx(half[0] ** 2 + stretched**2)


def test_a_noisy_contender_is_not_taken_for_as_quiet_as_the_copies_of_the_baseline() -> None:
    """Its own spread counts where it is larger than what the control tells."""
    quiet, noisy = (analyze(pairs(around(0.0, 6, spread)), TOLERANCE).slowdown for spread in (0.001, 0.03))
    assert quiet.high is not None
    assert noisy.high is not None
    assert noisy.high > 1.03 > quiet.high


# --- one process pair --------------------------------------------------------------------------------------------


def test_a_process_pair_is_the_medians_of_its_blocks() -> None:
    """One block that met a noisy moment moves nothing; the drift is last third against first."""
    analysis = process_pair([0.1, 0.1, 0.2, 0.2, 9.0, 0.2], [0.0, 0.01, 0.02])
    assert analysis is not None
    assert (analysis.ratio, analysis.control, analysis.drift) == pytest.approx((0.2, 0.01, 4.5))
    third = process_pair([0.1, 0.2, 0.4], [0.0])
    assert third is not None
    assert third.drift == pytest.approx(0.3)
    assert process_pair([0.1], [0.0]) == ProcessPair(ratio=0.1, control=0.0, drift=0.0)


@pytest.mark.parametrize(("mine", "control"), [([], [0.0]), ([0.0], [])])
def test_a_series_that_is_missing_is_no_pair(mine: list[float], control: list[float]) -> None:
    """Without blocks of the contender or of the control there is nothing to analyze."""
    assert process_pair(mine, control) is None


@given(
    st.lists(st.floats(-0.3, 0.3), min_size=6, max_size=6),
    st.lists(st.floats(-0.1, 0.1), min_size=6, max_size=6),
    st.floats(-0.1, 0.1),
)
@settings(max_examples=50)
def test_faster_is_never_judged_worse(ratios: list[float], controls: list[float], shift: float) -> None:
    """Making the contender faster by the same share in every pair never turns PASS into anything else."""
    changes = [ratio - control / 2 for ratio, control in zip(ratios, controls, strict=True)]
    assume(max(changes) - min(changes) > 1e-9)  # a spread that vanishes in the shift's rounding is none
    before = analyze(pairs(ratios, controls), TOLERANCE)
    after = analyze(pairs([ratio - abs(shift) for ratio in ratios], controls), TOLERANCE)
    if before.outcome == "PASS":
        assert after.outcome == "PASS"
    if after.outcome == "FAIL":
        assert before.outcome == "FAIL"


# --- error rates -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rates:
    """Shares of simulated gates, and the process pairs that they took on average."""

    failed: float
    passed: float
    pairs: float

    @property
    def undecided(self) -> float:
        """The share that ended INCONCLUSIVE."""
        return 1 - self.failed - self.passed


def drawn(change: float, spread: float, gates: int, seed: int = 1) -> tuple[Any, Any]:
    """Ratios and controls of ``gates`` x 12 process pairs. Each of the three processes has a deviation of its own, so a
    ratio of two of them spreads by ``spread``."""
    rng = np.random.default_rng(seed)
    base, contender, control = rng.normal(0.0, spread / math.sqrt(2), (3, gates, ANALYSES[-1]))
    return contender - base + math.log1p(change), control - base


def simulated(change: float, spread: float, gates: int = GATES) -> Rates:
    """The gate of all analyses for many gates at once: ``analyze`` in arrays."""
    outcome, used = ends(*drawn(change, spread, gates))
    return Rates(failed=float(np.mean(outcome == 1)), passed=float(np.mean(outcome == -1)), pairs=float(used.mean()))


def ends(ratios: Any, controls: Any) -> tuple[Any, Any]:
    """Per gate: 1 FAIL, -1 PASS, 0 INCONCLUSIVE; and the process pairs that it took."""
    outcome, used = np.zeros(len(ratios), dtype=int), np.full(len(ratios), ANALYSES[-1])
    for count in ANALYSES:
        changes, control = (ratios - controls / 2)[:, :count], controls[:, :count]
        own, of_control = changes.var(axis=1, ddof=1), control.var(axis=1, ddof=1)
        shared = (own + 0.75 * of_control) / 2
        low, high = limits(changes, np.maximum(own, shared), LEVEL)
        control_low, control_high = limits(control, np.maximum(of_control, shared / 0.75), CONTROL_LEVEL)
        trusted = np.maximum(-control_low, control_high) <= math.log1p(TOLERANCE / 2)
        edge = math.log1p(TOLERANCE)
        now = np.where(trusted, (low > edge).astype(int) - (high < edge), 0)
        first = (outcome == 0) & (now != 0)
        outcome[first], used[first] = now[first], count
    return outcome, used


def limits(values: Any, variance: Any, level: float) -> tuple[Any, Any]:
    """Student's t limits of each row's mean, of a variance that twice as many values tell."""
    count = values.shape[1]
    half = t.ppf((1 + level) / 2, 2 * (count - 1)) * np.sqrt(variance / count)
    return values.mean(axis=1) - half, values.mean(axis=1) + half


def one_by_one(ratios: Any, controls: Any) -> InterimAnalysis:
    """One gate as it runs."""
    for count in ANALYSES:
        analysis = analyze(pairs(ratios[:count], controls[:count]), TOLERANCE)
        if analysis.decided:
            return analysis
    raise AssertionError("the last analysis decides")


@pytest.mark.parametrize("change", [0.0, 0.05, 0.075])
@pytest.mark.parametrize("spread", [0.015, 0.03])
def test_the_simulation_is_the_gate(change: float, spread: float) -> None:
    """What is simulated in arrays is what ``analyze`` does, gate by gate."""
    ratios, controls = drawn(change, spread, 40, seed=2)
    outcome, used = ends(ratios, controls)
    words = {1: "FAIL", -1: "PASS", 0: "INCONCLUSIVE"}
    for number in range(len(ratios)):
        analysis = one_by_one(ratios[number], controls[number])
        assert (analysis.outcome, analysis.pairs) == (words[int(outcome[number])], int(used[number]))


def test_a_gate_on_two_equal_artifacts_passes() -> None:
    """A/A at the measured spread: false FAIL <= 0.1 %, INCONCLUSIVE <= 1 %, and a quarter fewer pairs than the 6.2
    that it took when the first look came after 6."""
    analysis = simulated(0.0, SPREAD)
    assert analysis.failed <= 0.001
    assert analysis.undecided <= 0.01
    assert analysis.pairs < 5


def test_a_regression_of_10_percent_is_caught() -> None:
    """Missed, that is anything but FAIL: <= 0.1 %."""
    assert 1 - simulated(0.10, SPREAD).failed <= 0.001


def test_a_regression_of_7_5_percent_is_caught() -> None:
    """Missed, that is anything but FAIL: <= 1 %."""
    assert 1 - simulated(0.075, SPREAD).failed <= 0.01


def test_at_the_tolerance_neither_error_exceeds_its_share() -> None:
    """A change of exactly the tolerance is called FAIL or PASS in at most 2.5 % each, over all analyses."""
    analysis = simulated(TOLERANCE, SPREAD)
    assert analysis.failed <= 0.025
    assert analysis.passed <= 0.025


def test_a_larger_spread_costs_verdicts_and_not_honesty() -> None:
    """At 2.5 % spread more is left open, and still no A/A fails and no 7.5 % passes."""
    assert simulated(0.0, 0.025).failed <= 0.001
    assert simulated(0.075, 0.025).passed <= 0.001


def test_the_published_table() -> None:
    """The rates of the module's docstring come from here: run with QBENCH_GATES=200000 and -s to see them."""
    for spread in (0.015, 0.025):
        for change in (0.0, 0.05, 0.075, 0.10):
            analysis = simulated(change, spread)
            shares = [100 * share for share in (analysis.failed, analysis.passed, analysis.undecided)]
            high = clopper_pearson(round(analysis.failed * GATES), GATES).high
            assert high is not None
            print(
                f"{spread:.1%} {change:+7.1%}  FAIL {shares[0]:6.2f} (up to {100 * high:.3f})  PASS {shares[1]:6.2f}"
                f"  INCONCLUSIVE {shares[2]:6.2f}  pairs {analysis.pairs:4.1f}"
            )
            assert math.isclose(sum(shares), 100)


@pytest.mark.parametrize(("pairs", "freedom"), [(2, 2), (3, 4), (6, 10), (12, 22)])
def test_the_control_tells_of_the_spread_as_the_change_does(pairs: int, freedom: int) -> None:
    """Two spreads of as many pairs, each with one degree less than it has pairs, are pooled."""
    assert count_freedom(pairs) == freedom
