"""What a rule says of a number, an interval and a test on examples: outcomes at their edges, and what is raw."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_records import CASE, int8

from qbench.decide.limits import LimitCheck
from qbench.gating.verdict import GateRule, Verdict, advise_improved, format_level
from qbench.record.schema import Flips
from qbench.stats.interval_type import Interval
from qbench.stats.noninferiority import NonInferiority

RULE = GateRule(name="latency", case=CASE, place="s.yaml:9", kind="time", threshold=1.05, way="live")
CHECK = LimitCheck(record=int8(), limit="latency", threshold=1.05)


def test_a_verdict_says_whose_rule_it_is() -> None:
    """Its name, case, line, threshold and way; what has no default stands at its line, another at its key."""
    verdict = RULE.verdict("MISSING", "no baseline", "write one")
    assert (verdict.rule, verdict.case, verdict.place, verdict.kind, verdict.threshold, verdict.way) == (
        "latency", CASE, "s.yaml:9", "time", 1.05, "live",
    )  # fmt: skip
    assert (verdict.outcome, verdict.text, verdict.reason) == ("MISSING", "no baseline", "write one")
    assert verdict.source == "s.yaml:9"
    assert replace(verdict, default="gate.latency").source == "default of gate.latency"


def test_what_a_verdict_does_is_its_outcomes_unless_the_suite_settles_it() -> None:
    """A failure may be noted."""
    verdict = RULE.verdict("FAIL", "x", "slow")
    assert verdict.effect == "fail"
    assert replace(verdict, settled="note").effect == "note"


@pytest.mark.parametrize(
    ("value", "improved", "outcome", "reason"),
    [
        (1.05, None, "PASS", None),
        (1.0501, None, "FAIL", "grown"),
        (0.95, 0.95, "PASS", None),
        (0.9499, 0.95, "IMPROVED", None),
        (0.5, None, "PASS", None),
    ],
)
def test_a_number_may_be_as_large_as_its_threshold(value: float, improved: Any, outcome: str, reason: Any) -> None:
    """Better is what is below ``improved``, not what is at it."""
    verdict = RULE.say_number(CHECK.hold_number(value), "x", "grown", improved=improved)
    assert (verdict.outcome, verdict.reason, verdict.value) == (outcome, reason, value)


def say(value: float, low: Any, high: Any, *, improves: bool = False, level: float = 0.95, **options: Any) -> Verdict:
    """The verdict on an interval of a slowdown that may be 5 %."""
    check = CHECK.hold_interval(Interval(value=value, low=low, high=high), level, **options)
    return RULE.say_interval(check, "x", improves=improves)


@pytest.mark.parametrize(
    ("interval", "outcome", "reason"),
    [
        ((1.00, 0.98, 1.0499), "PASS", None),
        ((1.02, 0.99, 1.05), "INCONCLUSIVE", "the interval spans the threshold"),
        ((1.08, 1.05, 1.12), "INCONCLUSIVE", "the interval spans the threshold"),
        ((1.08, 1.0501, 1.12), "FAIL", "the whole interval is beyond the threshold"),
        ((1.00, None, None), "INCONCLUSIVE", "too few samples for an interval"),
    ],
)
def test_the_whole_interval_must_lie_on_one_side(interval: Any, outcome: str, reason: Any) -> None:
    """A limit on the threshold decides nothing."""
    verdict = say(*interval)
    assert (verdict.outcome, verdict.reason) == (outcome, reason)
    assert (verdict.value, verdict.low, verdict.high, verdict.level) == (*interval, 0.95)


def test_a_doubt_is_the_reason_whatever_the_interval_says() -> None:
    """It is not believed."""
    verdict = say(1.2, 1.1, 1.3, doubt="the control was off")
    assert (verdict.outcome, verdict.reason) == ("INCONCLUSIVE", "the control was off")


@pytest.mark.parametrize(
    ("interval", "outcome"),
    [
        ((0.95, 0.93, 0.97), "IMPROVED"),  # by more than the tolerance: 1 / 1.05 is 0.952
        ((0.953, 0.93, 0.97), "PASS"),
        ((0.95, 0.90, 1.0), "PASS"),  # not shown to be better at all
        ((0.95, 0.90, 0.9999), "IMPROVED"),
    ],
)
def test_better_by_more_than_the_tolerance_is_improved(interval: Any, outcome: str) -> None:
    """And shown to be better; without an earlier value nothing is."""
    assert say(*interval, improves=True).outcome == outcome
    assert say(*interval).outcome == "PASS"


def test_the_p_value_of_a_failure_is_that_of_a_five_percent_test() -> None:
    """0.05 where the limit that faces the threshold touches it, at any level; of harm that of any change for the worse,
    of one side."""
    for level in (0.95, 0.9875):
        assert say(1.08, 1.05, 1.11, level=level, improves=True).p_value == pytest.approx(0.05)
        assert say(1.03, 1.0, 1.06, level=level, improves=True).p_harm == pytest.approx((1 - level) / 2)
    assert say(1.08, 1.05, 1.11).p_harm == pytest.approx(0.025)  # without an earlier value beyond the threshold
    assert say(1.0, None, None, improves=True).p_harm is None
    wide = say(1.10, 1.05, 1.15, freedom=3).p_value
    assert wide == pytest.approx(0.05)
    further, normal = say(1.15, 1.05 + 1e-9, 1.25, freedom=3, improves=True), say(1.15, 1.05, 1.25, improves=True)
    assert further.p_harm is not None
    assert normal.p_harm is not None
    assert further.p_harm > 3 * normal.p_harm  # Student's t has longer tails


@pytest.mark.parametrize(("value", "spent"), [(1.0, 0.0), (1.025, 0.5), (1.05, 1.0), (0.95, -1.0)])
def test_how_much_of_the_tolerance_is_spent(value: float, spent: float) -> None:
    """From no change to the threshold; unknown without an earlier value, and where no change is allowed."""
    assert say(value, value - 0.01, value + 0.01, improves=True).spent == pytest.approx(spent)
    assert say(value, value - 0.01, value + 0.01).spent is None
    check = replace(CHECK, threshold=1.0).hold_interval(Interval(value=value, low=0.9, high=1.1), 0.95)
    assert RULE.say_interval(check, "x", improves=True).spent is None


def test_a_promise_is_kept_above_its_threshold() -> None:
    """The other side: a speed-up."""
    check = replace(CHECK, threshold=1.5, side="above")
    kept = RULE.say_interval(check.hold_interval(Interval(value=1.6, low=1.55, high=1.65), 0.95), "x")
    broken = RULE.say_interval(check.hold_interval(Interval(value=1.4, low=1.35, high=1.5 - 1e-9), 0.95), "x")
    assert (kept.outcome, broken.outcome) == ("PASS", "FAIL")
    assert broken.p_value is not None
    assert broken.p_value <= 0.05 + 1e-6
    assert kept.p_value is not None
    assert kept.p_value > 0.9


@pytest.mark.parametrize(
    ("p_harm", "spent", "cases", "points"),
    [
        (None, 2.0, 1, False),
        (0.049, 1.0, 20, True),
        (0.05, 1.0, 20, False),
        (0.049, None, 20, True),
        (0.049, 0.99, 1, True),
        (0.049, 0.99, 2, False),
        (0.024, 0.99, 2, True),
        (0.049, 0.99, 0, True),
    ],
)
def test_a_change_for_the_worse_must_be_shown_among_all_that_may_have_changed(
    p_harm: Any, spent: Any, cases: int, points: bool
) -> None:
    """Unless its estimate is beyond what is allowed."""
    assert replace(RULE.verdict("PASS", "x"), p_harm=p_harm, spent=spent).points_to_harm(cases) is points


METRIC = replace(RULE, name="top1", kind="metric", threshold=-0.01, way=None)


def make_test(value: float, low: Any, high: Any, outcome: Any = "PASS", **options: Any) -> NonInferiority:
    """The test of a change of accuracy; the margin is one point."""
    delta = Interval(value=value, low=low, high=high)
    return NonInferiority(outcome=outcome, delta=delta, level=0.9, p_worse=0.02, **options)


def say_test(test: NonInferiority, *, improves: bool = True, n: int = 1000, flips: Flips | None = None) -> Verdict:
    """The verdict of that test."""
    check = CHECK.hold_test(test)
    return METRIC.say_test(check, "x", failed="lost", n=n, flips=flips, improves=improves)


@pytest.mark.parametrize(
    ("delta", "improves", "outcome"),
    [
        ((0.011, 0.001, 0.02), True, "IMPROVED"),
        ((0.011, 0.0, 0.02), True, "PASS"),
        ((0.01, 0.001, 0.02), True, "PASS"),
        ((0.011, 0.001, 0.02), False, "PASS"),
        ((0.011, None, None), True, "PASS"),
    ],
)
def test_accuracy_is_improved_where_it_is_shown_and_by_more_than_the_margin(
    delta: Any, improves: bool, outcome: str
) -> None:
    """Against the baseline; against fp32 nothing is."""
    assert say_test(make_test(*delta), improves=improves).outcome == outcome


def test_the_reason_of_a_test_is_that_of_its_outcome() -> None:
    """A failure says what was lost; what is undecided, why, and how many examples would decide."""
    assert say_test(make_test(0.0, -0.005, 0.005)).reason is None
    assert say_test(make_test(-0.03, -0.04, -0.02, "FAIL")).reason == "lost"
    undecided = say_test(make_test(-0.005, -0.02, 0.01, "INCONCLUSIVE", examples=1782))
    assert undecided.reason == "the interval spans the margin; about 1,800 examples would decide, there are 1,000"
    assert (undecided.decides, undecided.examples) == ("about 1,800 examples", 1782)
    assert say_test(make_test(0.0, None, None, "INCONCLUSIVE")).reason == "the examples support no interval"
    own = say_test(make_test(0.0, -0.02, 0.01, "INCONCLUSIVE", reason="rare losses"))
    assert (own.reason, own.decides, own.examples) == ("rare losses", None, None)
    many = say_test(make_test(0.0, -0.02, 0.01, "INCONCLUSIVE", examples=10**9))
    assert many.decides == "many more examples"
    assert many.examples is None
    decided = say_test(make_test(0.0, -0.005, 0.005, examples=1782))
    assert decided.decides is None


def test_the_figures_of_a_test_are_raw() -> None:
    """Its limits and level; p of a loss beyond the margin as that of a 5 % test, of harm beside no change; how much of
    the margin is spent; McNemar's where answers flip."""
    verdict = say_test(make_test(-0.005, -0.01, 0.0, "INCONCLUSIVE"), flips=Flips(harmful=7, beneficial=2))
    assert (verdict.value, verdict.low, verdict.high, verdict.level) == (-0.005, -0.01, 0.0, 0.9)
    assert verdict.p_value == pytest.approx(0.02)  # of one side at 5 % already
    assert verdict.p_harm == pytest.approx(0.05)
    assert verdict.spent == pytest.approx(0.5)
    assert verdict.mcnemar_p is not None
    assert 0.05 < verdict.mcnemar_p < 0.2
    assert say_test(make_test(0.0, None, None)).p_harm is None
    assert say_test(make_test(0.0, -0.01, 0.01)).mcnemar_p is None
    assert say_test(replace(make_test(0.0, -0.01, 0.01), p_worse=None)).p_value is None


@given(st.floats(0.5, 2.0), st.floats(0.001, 0.3), st.floats(0.8, 0.99))
def test_a_failure_is_one_at_five_percent(value: float, half: float, level: float) -> None:
    """The interval and its p-value say the same."""
    verdict = say(value, value - half, value + half, level=level)
    assert verdict.p_value is not None
    assert (verdict.outcome == "FAIL") == (verdict.p_value < 0.05) or verdict.p_value == pytest.approx(0.05)


def test_levels_and_advice_in_words() -> None:
    """With why a level is what it is; what is better than a commit needs no baseline."""
    assert format_level(0.9875, "4 looks share 5 %") == "(98.75 %: 4 looks share 5 %)"
    assert format_level(0.95) == "(95 %)"
    assert advise_improved(None) == "keep it with `qbench baseline RUN`"
    assert advise_improved("main").startswith("nothing to write, main has it")
