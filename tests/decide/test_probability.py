"""Rules of decide/probability: draws of what is not known, to which the rule is applied."""

from __future__ import annotations

from made_records import accuracy, fp32, int8, latency, speedup

from qbench.decide.cases import settings
from qbench.decide.choose import choose
from qbench.decide.decision import make_contest
from qbench.decide.judged import SuiteRules, judge
from qbench.decide.probability import Probability, estimate_probability
from qbench.record.schema import Record
from qbench.record.stored_run import MetricInfo

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
    found = estimate(case(STATIC, 2.5, 0.003), case(QAT, 2.52, 0.003))
    assert found.pick > 0.95


def test_an_accuracy_near_the_margin_counts() -> None:
    """A faster one that may be within the margin takes its share."""
    found = estimate(case(STATIC, 2.5), case(X86, 4.0, harmful=8))
    assert 0.05 < found.pick < 0.8
    assert found.rival is not None
    assert found.rival.case.id == X86
