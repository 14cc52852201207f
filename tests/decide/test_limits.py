"""Rules of decide/limits: what is held against a limit of the suite is held once, for the decision and for the gate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_records import accuracy, fp32, int8, speedup

from qbench.decide.limit_text import as_data, describe
from qbench.decide.limits import (
    AccuracyFloor,
    AccuracyMargin,
    CaseRules,
    LimitCheck,
    check_accuracy,
    check_cold_start,
    check_coverage,
    check_peak_memory,
    check_size,
    find_accuracy_limit,
    hold_promise,
)
from qbench.record.schema import ColdStart, Memory, Record, Speedup
from qbench.record.stored_run import MetricInfo
from qbench.stats.interval_type import Interval
from qbench.suite.gate import GateSpec
from qbench.suite.settings import DecideSpec


def test_a_latency_without_limits_is_told_alone() -> None:
    """With limits, up to where it may be; the bound has as many digits as it takes to tell them apart."""
    check = LimitCheck(record=int8(), limit="latency", threshold=0.002, measured=Interval(value=0.00123))
    assert describe(check) == "1.23 ms a call, at most 2.00 ms"
    limits = replace(check, measured=Interval(value=0.00123, low=0.0012, high=0.0013))
    assert describe(limits) == "1.23 ms a call, up to 1.30 ms by its limits, at most 2.00 ms"
    assert describe(replace(check, measured=None)) == "has no latency"


def test_a_speed_up_has_the_digits_that_its_limits_support() -> None:
    """None behind the point of one that is known to 25 %."""
    measured = Interval(value=12, low=9, high=15)
    check = LimitCheck(record=int8(), limit="speed-up", threshold=20, measured=measured)
    assert describe(check) == "12 [9, 15] times as fast as its fp32, promised 20"


@pytest.mark.parametrize(
    ("value", "most", "outcome"),
    [
        (136 / 100, 1 + 0.36, "PASS"),
        (35 / 100, 0.35, "PASS"),
        (3 / 100, 0.1 * 3 / 10, "PASS"),
        (36 / 100, 0.35, "FAIL"),
        (34 / 100, 0.35, "PASS"),
    ],
)
def test_exactly_what_is_allowed_is_allowed(value: float, most: float, outcome: str) -> None:
    """Whatever the last digit of the quotient; what is a byte above is not."""
    check = LimitCheck(record=int8(), limit="size", threshold=most).hold_number(value)
    assert (check.outcome, check.measured) == (outcome, Interval(value=value))


def test_sizes_are_those_of_the_case_and_of_its_fp32() -> None:
    """No outcome where either is not known, which is no ratio of 0."""
    case, reference = int8(size_bytes=260), fp32(size_bytes=1000)
    rules = CaseRules(gate=GateSpec.model_validate({"size": {"max_ratio": 0.3}}))

    def hold(record: Record, *records: Record) -> tuple[str | None, Interval | None]:
        check = check_size(record, records, rules)
        assert check is not None
        return check.outcome, check.measured

    assert hold(case, reference, case) == ("PASS", Interval(value=0.26))
    assert hold(case, case) == (None, None)
    assert hold(replace(case, artifact=None), reference, case) == (None, None)


def test_a_speed_up_lies_where_the_whole_of_its_interval_does() -> None:
    """And only where its control and its series bear that out."""

    def hold(measured: Speedup | None, promise: float) -> LimitCheck:
        record: Record = replace(int8(), speedup=measured)
        return hold_promise(record, CaseRules(), promise)

    assert hold(speedup(2.5, 0.01), 1.5).outcome == "PASS"
    assert hold(speedup(2.5, 0.01), 3.5).outcome == "FAIL"
    assert hold(None, 3.5).outcome is None
    spans = hold(speedup(2.5, 0.1), 2.5)
    assert (spans.outcome, spans.doubt) == ("INCONCLUSIVE", None)
    noisy = hold(speedup(2.5, 0.01, control=Interval(value=1.8, low=1.5, high=2.1)), 1.5)
    assert noisy.outcome == "INCONCLUSIVE"
    assert "too noisy" in str(noisy.doubt)
    assert noisy.measured is not None
    assert noisy.measured.value == 2.5


SQNR = MetricInfo(name="sqnr", percent=False, against="fp32", own_unit="dB", perfect=100.0)
FLOOR = GateSpec.model_validate({"accuracy": {"metric": "sqnr", "at_least": 10}})


def decibels(value: float) -> Record:
    """An int8 case that has so many dB of fp32's 100."""
    change = Interval(value=value - 100, low=value - 100.5, high=value - 99.5)
    return int8(accuracy=replace(accuracy(), metric="sqnr", value=value, flips=None, delta=change))


@pytest.mark.parametrize(("value", "outcome"), [(38.0, "PASS"), (10.2, "INCONCLUSIVE"), (9.0, "FAIL")])
def test_a_least_score_is_no_margin(value: float, outcome: str) -> None:
    """It is named by its own key, and what is held against it is the score, in the suite's unit."""
    record = decibels(value)
    check = check_accuracy(record, None, CaseRules.of(record, FLOOR, DecideSpec()), SQNR)
    data = as_data(check)
    assert (check.outcome, data["key"], data["value"], data["unit"]) == (outcome, "gate.accuracy.at_least", 10, "dB")
    assert data["measured"] == pytest.approx({"value": value, "low": value - 0.5, "high": value + 0.5})
    assert describe(check).startswith(f"sqnr {value:.1f} [")
    assert "dB, at least 10 dB" in describe(check)
    assert "margin" not in describe(check)


def test_an_override_gives_a_case_a_margin_in_place_of_the_least_score() -> None:
    """Then that one holds, with its own key."""
    override = {"mode": "static", "accuracy": {"margin": 30}}
    gate = GateSpec.model_validate({"accuracy": {"metric": "sqnr", "at_least": 10}, "overrides": [override]})
    record = decibels(38)
    check = check_accuracy(record, None, CaseRules.of(record, gate, DecideSpec()), SQNR)
    assert (check.bound, check.outcome) == (AccuracyMargin(loss=30), "FAIL")
    assert check.key == "gate.overrides[0].accuracy.margin"


def test_scores_that_are_held_to_a_least_one_have_a_tie_of_their_own() -> None:
    """Half of what lies between the least score and fp32's would let a variant tie that is 45 dB worse."""
    floor = find_accuracy_limit(FLOOR.accuracy)
    assert floor == AccuracyFloor(value=10, perfect=100)
    assert floor.tie(SQNR) == 1.0
    share = AccuracyFloor(value=99, perfect=100)
    assert share.tie(MetricInfo(name="top1_agreement", against="fp32")) == pytest.approx(0.5)
    assert AccuracyMargin(loss=1).tie(MetricInfo(name="top1")) == 0.5


def test_a_score_that_a_change_leaves_is_in_the_metrics_own_scale() -> None:
    """fp32's own score is 100 in per cent and 1 as a share; a limit that is not known stays unknown."""
    share = AccuracyFloor(value=99, perfect=100)
    change = Interval(value=-0.01, low=-0.02, high=None)
    score = share.find_score(change, MetricInfo(name="top1_agreement", against="fp32"))
    assert (score.value, score.low, score.high) == (pytest.approx(0.99), pytest.approx(0.98), None)
    assert AccuracyFloor(value=10, perfect=100).find_score(Interval(value=-62.0), SQNR).value == 38.0


def rules(**gate: Any) -> CaseRules:
    """What a gate says."""
    return CaseRules(gate=GateSpec.model_validate(gate))


@pytest.mark.parametrize(("processes", "freedom"), [(1, None), (2, 1), (3, 2)])
def test_limits_of_several_processes_have_degrees_of_freedom(processes: int, freedom: int | None) -> None:
    """One less than there are; those of a single one are what is known of processes in general."""
    record = replace(int8(), speedup=speedup(2.5, 0.01, processes=processes))
    assert hold_promise(record, CaseRules(), 1.5).freedom == freedom


@pytest.mark.parametrize(
    ("memory", "outcome"),
    [
        (Memory(loaded_rss_bytes=1, peak_rss_bytes=1000), "PASS"),
        (Memory(loaded_rss_bytes=1, peak_rss_bytes=1001), "FAIL"),
        (Memory(loaded_rss_bytes=2000, peak_rss_bytes=None), None),
        (None, None),
    ],
)
def test_the_peak_of_memory_is_held_as_it_was_seen(memory: Memory | None, outcome: str | None) -> None:
    """What is loaded is no peak; without the limit, or a suite, there is no check."""
    check = check_peak_memory(int8(memory=memory), rules(memory={"max_bytes": "1 kB"}))
    assert check is not None
    assert (check.outcome, check.key, check.threshold) == (outcome, "gate.memory.max_bytes", 1000.0)
    assert (
        check_peak_memory(int8(memory=memory), rules()) is check_peak_memory(int8(memory=memory), CaseRules()) is None
    )


@pytest.mark.parametrize(
    ("start", "limits", "outcome"),
    [
        ({}, (None, None), "INCONCLUSIVE"),
        (
            {"load_low": 0.05, "first_call_low": 0.04, "load_high": 0.07, "first_call_high": 0.06},
            (0.09, 0.13),
            "INCONCLUSIVE",
        ),
        ({"load_low": 0.05, "first_call_low": 0.0, "load_high": 0.055, "first_call_high": 0.045}, (0.05, 0.1), "PASS"),
        ({"load_low": 0.05, "load_high": 0.07, "first_call_high": 0.06}, (None, 0.13), "INCONCLUSIVE"),
        (None, None, None),
    ],
)
def test_a_cold_start_is_its_load_and_its_first_call(start: Any, limits: Any, outcome: str | None) -> None:
    """By the limits of both together, where both have them."""
    plain = {"load_seconds": 0.05, "first_call_seconds": 0.04}
    record = int8(cold_start=None if start is None else ColdStart(**plain | start))
    check = check_cold_start(record, rules(cold_start={"max_seconds": "0.12 s"}))
    assert check is not None
    assert check.threshold == 0.12
    assert check_cold_start(record, rules()) is check_cold_start(record, CaseRules()) is None
    if limits is None:
        assert (check.outcome, check.measured) == (None, None)
        return
    measured = check.measured
    assert measured is not None
    assert (measured.low, measured.high) == tuple(end if end is None else pytest.approx(end) for end in limits)
    assert check.outcome == outcome


@pytest.mark.parametrize(("share", "outcome"), [(0.9, "PASS"), (0.89, "FAIL")])
def test_coverage_is_held_as_the_share_that_does_not_run_in_int8(share: float, outcome: str) -> None:
    """Nothing where it is not known."""
    check = check_coverage(int8(coverage=share), rules(coverage={"min_share": "90%"}))
    assert check is not None
    assert (check.outcome, check.threshold) == (outcome, pytest.approx(0.1))
    unknown = check_coverage(int8(artifact=None), rules(coverage={"min_share": "90%"}))
    assert unknown is not None
    assert unknown.outcome is None
    assert check_coverage(int8(), rules()) is check_coverage(int8(), CaseRules()) is None
