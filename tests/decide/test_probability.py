"""Rules of decide/probability: draws of what is not known, to which the rule is applied."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_records import accuracy, fp32, int8, latency, speedup
from scipy import stats

from qbench.decide import probability
from qbench.decide.cases import settings
from qbench.decide.choose import choose
from qbench.decide.decision import make_contest
from qbench.decide.judged import Judged, SuiteRules, judge
from qbench.decide.probability import Probability, estimate_probability
from qbench.record.schema import ColdStart, Record
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval
from qbench.suite.gate import GateSpec
from qbench.suite.settings import DecideSpec

STATIC, X86, QAT = "net/static/onednn/t1/b1", "net/static/x86/t1/b1", "net/qat/onednn/t1/b1"


def estimate(*records: Record) -> Probability:
    """The probability of the pick of a run with these int8 cases."""
    judged = judge([fp32(), *records], MetricInfo(name="top1"), SuiteRules())
    assert len(settings(judged.records)) == 1
    contest = make_contest(judged, judged.records)
    return estimate_probability(choose(judged.records, judged.checks, contest), judged, contest)


def case(name: str, value: float, half: float = 0.01, harmful: int = 0) -> Record:
    """An int8 case so many times as fast as fp32, known to ``half``."""
    return int8(name, latency=latency(0.0025 / value), speedup=speedup(value, half), accuracy=accuracy(harmful=harmful))


def test_far_apart_is_certain_and_equal_is_as_good() -> None:
    """A tie that no preference breaks leaves both: the pick is as good as the best."""
    assert estimate(case(STATIC, 2.5), case(X86, 1.5)).pick > 0.99
    assert estimate(case(STATIC, 2.5, 0.002), case(X86, 2.5, 0.002)).pick > 0.95


def test_wide_limits_make_it_unsure() -> None:
    """The same estimates, known to 20 %: another one may be the best, and is named."""
    sure, unsure = (estimate(case(STATIC, 2.5, half), case(X86, 2.35, half)) for half in (0.002, 0.2))
    assert sure.pick > unsure.pick
    assert unsure.rival is not None
    assert unsure.rival.case.id == X86


def test_what_needs_training_is_best_only_where_it_is_faster_by_more_than_the_tie() -> None:
    """Preferences count in each draw."""
    chances = estimate(case(STATIC, 2.5, 0.003), case(QAT, 2.52, 0.003))
    assert chances.pick > 0.95


def test_an_accuracy_near_the_margin_counts() -> None:
    """A faster one that may be within the margin takes its share."""
    chances = estimate(case(STATIC, 2.5), case(X86, 4.0, harmful=8))
    assert 0.05 < chances.pick < 0.8
    assert chances.rival is not None
    assert chances.rival.case.id == X86


def judge_by(gate: dict[str, Any], record: Record) -> Judged:
    """A case held against these limits."""
    return judge([fp32(), record], MetricInfo(name="top1"), SuiteRules(gate=GateSpec.model_validate(gate)))


def chance_of(record: Record, gate: dict[str, Any]) -> float:
    """The share of draws in which a case holds every limit."""
    return float(probability._draw_limits(record, judge_by(gate, record), 40_000, np.random.default_rng(0)).mean())


@pytest.mark.parametrize(("harmful", "margin"), [(9, 1.0), (9, 0.5), (4, 1.0), (2, 0.5), (60, 1.0)])
def test_a_margin_holds_as_often_as_the_tested_limits_say(harmful: int, margin: float) -> None:
    """As a normal change whose limits at the test's level these are; with a limit that is open half as often, and
    never where one is not measured."""
    record, gate = int8(accuracy=accuracy(harmful=harmful, beneficial=1)), {"accuracy": {"margin": margin}}
    test = judge_by(gate, record).test_of(record)
    assert test is not None
    assert test.delta.low is not None
    assert test.delta.high is not None
    error = (test.delta.high - test.delta.low) / 2 / stats.norm.ppf(0.95)
    expected = stats.norm.cdf((test.delta.value + margin / 100) / error)
    assert chance_of(record, gate) == pytest.approx(expected, abs=0.01)
    open_ = {**gate, "latency": {"min_speedup": 2.5}}
    assert chance_of(record, open_) == pytest.approx(expected / 2, abs=0.01)
    assert chance_of(replace(record, speedup=None), open_) == 0.0


def test_a_change_without_limits_holds_no_margin() -> None:
    """Nothing is known of how far it may be off."""
    assert chance_of(int8(accuracy=replace(accuracy(), flips=None, delta=Interval(value=0.0))), {}) == 0.0


def test_times_are_drawn_about_their_estimate_by_students_t() -> None:
    """With the error and the freedom of the comparison; the leader is what the others are held against."""
    leader, other = case(STATIC, 2.5), int8(X86, latency=latency(0.00125), speedup=speedup(2.0, 0.1, processes=3))
    judged = judge([fp32(), leader, other], MetricInfo(name="top1"), SuiteRules())
    contest = make_contest(judged, judged.records)
    random = np.random.default_rng(0)
    drawn = probability._draw_log(other, leader, contest, 40_000, random)
    difference = contest.objective.compare(other, leader).difference
    assert difference.freedom == 2
    assert np.median(drawn) == pytest.approx(math.log(1.25), abs=0.002)
    quartile = stats.t.ppf(0.75, 2) * difference.error
    assert np.quantile(drawn, [0.25, 0.75]) - math.log(1.25) == pytest.approx([-quartile, quartile], abs=0.003)
    assert not probability._draw_log(leader, leader, contest, 3, random).any()


@pytest.mark.parametrize(("beyond", "leads"), [(3.99, True), (4.01, False), (-50.0, True)])
def test_what_is_far_beyond_the_tie_is_never_drawn(beyond: float, leads: bool) -> None:
    """Four standard errors of its own."""
    error, tie = 0.01, 0.03
    difference = SimpleNamespace(value=tie + beyond * error, error=error)
    contest: Any = SimpleNamespace(
        tie=tie, objective=SimpleNamespace(compare=lambda *_: SimpleNamespace(difference=difference))
    )
    assert probability._may_lead(case(X86, 2.0), case(STATIC, 2.0), contest) == leads


ARMS = (
    int8("net/dynamic/a/t1/b1", size_bytes=1000),
    int8("net/static/a/t1/b1", size_bytes=1100),
    int8("net/qat/a/t1/b1", size_bytes=1020),
)
ALL = (True, True, True)


@pytest.mark.parametrize(
    ("prefer", "logs", "allowed", "gains", "left"),
    [
        ([], (0.0, 0.02, 0.2), ALL, (0, 0, 0), (1, 1, 0)),
        ([], (-0.5, 0.02, 0.0), (False, True, True), (0, 0, 0), (0, 1, 1)),
        ([], (0.0, 0.0, 0.0), (False, False, False), (0, 0, 0), (0, 0, 0)),
        (["accuracy"], (0.0, 0.02, 0.01), ALL, (0.0, 0.004, 0.006), (0, 1, 1)),
        (["accuracy"], (0.0, 0.02, 0.2), ALL, (0.0, 0.004, 0.9), (1, 1, 0)),
        (["no_training"], (0.0, 0.0, 0.0), ALL, (0, 0, 0), (1, 1, 0)),
        (["no_training"], (0.5, 0.5, 0.0), ALL, (0, 0, 0), (0, 0, 1)),
        (["no_calibration"], (0.0, 0.0, 0.0), ALL, (0, 0, 0), (1, 0, 0)),
        (["no_calibration"], (0.5, 0.0, 0.0), ALL, (0, 0, 0), (0, 1, 1)),
        (["size"], (0.0, 0.0, 0.0), ALL, (0, 0, 0), (1, 0, 1)),
        (["size"], (0.5, 0.0, 0.0), ALL, (0, 0, 0), (0, 0, 1)),
        (["size", "no_training"], (0.5, 0.0, 0.0), ALL, (0, 0, 0), (0, 0, 1)),
        (["no_training", "size"], (0.5, 0.0, 0.0), ALL, (0, 0, 0), (0, 1, 0)),
        (["cold_start"], (0.0, 0.0, 0.0), ALL, (0, 0, 0), (1, 1, 1)),
    ],
)
def test_the_rule_is_applied_to_each_draw(
    prefer: list[str], logs: Any, allowed: Any, gains: Any, left: tuple[int, ...]
) -> None:
    """As to the truth: what holds the limits and ties with the best of these, then each preference among what is left;
    what was not measured is not dropped. Draws are columns, and none knows of another."""
    spec = DecideSpec.model_validate({"prefer": prefer, "tie": "3 %"})
    judged = judge(ARMS, MetricInfo(name="top1"), SuiteRules(decide=spec))
    contest = make_contest(judged, ARMS)
    columns = [np.stack([np.asarray(each)] * 2, axis=1) for each in (logs, allowed, gains)]
    columns[0][:, 1] = (0.0, 1.0, 1.0)
    columns[1][:, 1] = (True, False, True)
    applied = probability._apply_rule(ARMS, columns[0], columns[1], columns[2], contest)
    assert applied.astype(int).T.tolist() == [[*left], [1, 0, 0]]


@pytest.mark.parametrize(
    ("minimize", "prefer", "left"),
    [("size", "size", [1, 1, 1]), ("size", "cold_start", [1, 0, 1]), ("latency", "cold_start", [1, 0, 1])],
)
def test_what_is_minimized_is_no_preference_among_the_tied(minimize: str, prefer: str, left: list[int]) -> None:
    """Though it is named as one; a cold start that is known is."""
    start = ColdStart(load_seconds=0.01, first_call_seconds=0.01)
    arms = (replace(ARMS[0], cold_start=start), replace(ARMS[1], cold_start=replace(start, load_seconds=0.02)), ARMS[2])
    level, every = np.zeros((3, 1)), np.ones((3, 1), dtype=bool)
    spec = DecideSpec.model_validate({"minimize": minimize, "prefer": [prefer]})
    contest = make_contest(judge(arms, None, SuiteRules(decide=spec)), arms)
    assert probability._apply_rule(arms, level, every, level, contest)[:, 0].astype(int).tolist() == left


def test_what_is_never_best_is_no_rival() -> None:
    """Far behind the pick, or where there is no other."""
    far = estimate(case(STATIC, 2.5), case(X86, 1.5))
    assert (far.pick, far.rival) == (1.0, None)
    assert estimate(case(STATIC, 2.5)).rival is None


def test_draws_are_four_thousand_of_one_seed() -> None:
    """So that one run has one answer."""
    records = [fp32(), case(STATIC, 2.5, 0.2), case(X86, 2.35, 0.2)]
    judged = judge(records, MetricInfo(name="top1"), SuiteRules())
    contest = make_contest(judged, records)
    choice = choose(records, judged.checks, contest)
    plain = estimate_probability(choice, judged, contest)
    assert plain == estimate_probability(choice, judged, contest, draws=4000, seed=0)
    assert plain != estimate_probability(choice, judged, contest, seed=1)
    assert (plain.pick * 4000).is_integer()
