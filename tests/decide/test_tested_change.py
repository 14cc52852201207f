"""Rules of decide/tested_change: what stands beside a verdict is what was tested."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_records import CASE, accuracy, fp32, int8

from qbench.compare import compare
from qbench.decide.judged import Judged, SuiteRules, judge
from qbench.decide.tested_change import change_of, describe_levels, shown_of, write_shown
from qbench.record.schema import Accuracy, Record
from qbench.record.stored_run import MetricInfo
from qbench.report.cells import CaseRow, count_digits
from qbench.report.columns import draw_cells
from qbench.stats.interval_type import Interval
from qbench.suite.gate import GateSpec

TOP1 = MetricInfo(name="top1")
MAE = MetricInfo(name="mae", percent=False, higher_is_better=False, own_unit="px")
SQNR = MetricInfo(name="sqnr", percent=False, against="fp32", own_unit="dB")


def judged(record: Record, metric: MetricInfo, margin: float, pairs: compare.Pairs | None = None) -> Judged:
    """One int8 case beside its fp32."""
    gate = GateSpec.model_validate({"accuracy": {"metric": "top1", "margin": margin}})
    return judge([fp32(), record], metric, SuiteRules(gate=gate), pairs or (lambda record, fp32: None))


def scored(metric: MetricInfo, value: float, change: Interval, n: int = 400) -> Record:
    """A case with a score and its change, without flips."""
    score = Accuracy(metric=metric.name, value=value, low=value - 1, high=value + 1, n=n, delta=change)
    return int8(accuracy=score)


def assert_agrees(run: Judged, record: Record) -> None:
    """OK where, and only where, the whole interval lies on the good side of the margin; in figures and as written."""
    shown, metric, test = shown_of(run, record), run.metric, run.test_of(record)
    assert shown is not None
    assert metric is not None
    assert shown.bound is not None
    ends = [end for end in (shown.interval.low, shown.interval.high) if end is not None]
    if not ends:
        assert test.outcome == "INCONCLUSIVE"
        return
    worst, best = (end * metric.sign for end in (ends if metric.sign > 0 else ends[::-1]))
    bound = shown.bound * metric.sign
    assert (worst > bound) == (test.outcome == "PASS" or test.reason is not None)
    assert (best < bound) == (test.outcome == "FAIL")
    for text in (write_shown(run, record), _cell(run, record)):
        low, high = (float(end) for end in re.findall(r"[-+\d.]+", text.partition("[")[2]))
        for read, end in zip((low, high), ends, strict=True):
            if abs(end - shown.bound) * metric.scale > 1e-6:  # six decimals at most
                assert (read > shown.bound * metric.scale) == (end > shown.bound)


def _cell(run: Judged, record: Record) -> str:
    digits = count_digits(run, [record], 1e-3)
    row = CaseRow(judged=run, record=record, best=None, unit=1e-3, digits=digits)
    return str(draw_cells(row)["accuracy" if run.metric and run.metric.against == "fp32" else "delta"])


@given(harmful=st.integers(0, 30), beneficial=st.integers(0, 30), margin=st.sampled_from([0.0, 0.5, 1.0, 2.5]))
def test_flips_and_their_limits_agree_with_the_verdict(harmful: int, beneficial: int, margin: float) -> None:
    """The score test of right or wrong: 90 % limits, whatever 95 % ones are stored."""
    record = int8(accuracy=accuracy(harmful=harmful, beneficial=beneficial))
    run = judged(record, TOP1, margin)
    shown = change_of(run, record)
    assert shown is not None
    assert (shown.level, shown.tested) == (0.9, True)
    assert_agrees(run, record)


@given(
    seed=st.integers(0, 10_000), n=st.sampled_from([40, 350]), worse=st.floats(-0.2, 1.2), metric=st.sampled_from(
        [MAE, replace(MAE, higher_is_better=True), SQNR]
    )
)  # fmt: skip
def test_values_and_their_limits_agree_with_the_verdict(seed: int, n: int, worse: float, metric: MetricInfo) -> None:
    """An error, a score in its own unit and a score against fp32, by the test of the mean of values."""
    random = np.random.default_rng(seed)
    old = random.gamma(2.0, size=n)
    new = old - metric.sign * (worse + 0.3 * random.standard_normal(n))
    value = float(new.mean())
    record = scored(metric, value, Interval(value=value - float(old.mean()), low=-9.0, high=9.0), n)
    assert_agrees(judged(record, metric, 0.5, lambda record, fp32: (new, old)), record)


@given(value=st.floats(-3, 1), half=st.floats(0.01, 2), metric=st.sampled_from([MAE, SQNR]))
def test_a_stored_interval_is_shown_where_it_is_what_was_tested(value: float, half: float, metric: MetricInfo) -> None:
    """Without predictions the 95 % limits of the record are tested, and so shown."""
    record = scored(metric, 40 + value, Interval(value=value, low=value - half, high=value + half))
    run = judged(record, metric, 1.0)
    shown = shown_of(run, record)
    assert shown is not None
    assert shown.level == 0.95
    assert_agrees(run, record)


def test_what_is_not_tested_has_its_stored_limits() -> None:
    """Without a readable suite there is no margin, so no test; without accuracy there is nothing."""
    run = judge([fp32(), int8()], TOP1, None)
    shown = change_of(run, int8())
    assert shown is not None
    assert (shown.tested, shown.level, shown.bound) == (False, 0.95, None)
    assert shown.interval == accuracy(harmful=1, beneficial=1).delta
    assert change_of(run, fp32()) is None
    assert run.outcome(int8()) is None
    assert judge([fp32(), int8()], TOP1, SuiteRules()).outcome(int8()) == "PASS"
    assert write_shown(run, int8(accuracy=None)) == "—"


@pytest.mark.parametrize(
    ("records", "rules", "said"),
    [
        ([int8()], SuiteRules(), "90 % limits, those of the test"),
        ([int8()], None, "95 % limits"),
        ([int8(accuracy=None)], SuiteRules(), "95 % limits"),
        (
            [int8(), scored(TOP1, 0.97, Interval(value=0, low=-0.001, high=0.001))],
            SuiteRules(),
            "90 % limits, those of the test (95 % without predictions to test)",
        ),
    ],
)
def test_a_legend_says_which_limits_stand_there(records: list[Record], rules: SuiteRules | None, said: str) -> None:
    """One level for all where there is one."""
    named = [replace(record, case=replace(record.case, id=f"{place}{CASE}")) for place, record in enumerate(records)]
    assert describe_levels(judge([fp32(), *named], TOP1, rules), named) == said


@pytest.mark.parametrize("stored", [True, False])
def test_how_limits_come_about_is_said(stored: bool) -> None:
    """By the test where the values of examples are there, else as the record has it."""
    record = scored(MAE, 40, Interval(value=0.0, low=-0.1, high=0.1))
    assert record.accuracy is not None
    record = replace(record, accuracy=replace(record.accuracy, interval="bootstrap"))
    values = np.linspace(0, 1, 400)
    shown = change_of(judged(record, MAE, 1.0, (lambda record, fp32: (values, values**2)) if stored else None), record)
    assert shown is not None
    assert (shown.method == "bootstrap") == (not stored)
    assert shown.method


def test_an_override_gives_its_own_bound() -> None:
    """The margin that an override gives for a case is the one that its limits are held against."""
    rules: dict[str, Any] = {"overrides": [{"mode": "static", "accuracy": {"margin": 2.5}}]}
    run = judge([fp32(), int8()], TOP1, SuiteRules(gate=GateSpec.model_validate(rules)))
    shown = change_of(run, int8())
    assert shown is not None
    assert shown.bound == pytest.approx(-0.025)


@pytest.mark.parametrize("stored", [True, False])
def test_no_share_beside_a_verdict_is_above_all(stored: bool) -> None:
    """76 of 76 examples agree with fp32: up to 100.0 %, with predictions and without."""
    agreement = MetricInfo(name="top1_agreement", against="fp32", perfect=1.0)
    change = Interval(value=0.0, low=-0.048, high=0.049)  # as of a reference that is itself another variant
    score = Accuracy(metric="top1_agreement", value=1.0, low=0.952, high=1.0, n=76, delta=change)
    record = int8(accuracy=score)
    pairs = (lambda record, fp32: (np.ones(76), np.ones(76))) if stored else None
    shown = shown_of(judged(record, agreement, 1.0, pairs), record)
    assert shown is not None
    assert shown.interval.high == 1.0
    if stored:
        assert shown.interval.low == pytest.approx(0.05 ** (1 / 76))
