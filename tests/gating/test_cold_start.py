"""The gate on the cold start: a longest time, and growth where both were started again."""

from __future__ import annotations

import math
from typing import Any

import pytest
from judged_case import judge_case
from made_records import CASE, info, int8

from qbench.gating.sequential_test import ANALYSES, NotRun, ProcessPair, Rerun, analyze_start
from qbench.record.schema import ColdStart, Record

LIMIT, GROWTH = "cold_start: {max_seconds: 30 ms}", "cold_start: {max_regression: 50%}"


def record(half: float | None = 0.001, load: float = 0.015, first: float = 0.010) -> Record:
    """The int8 case with a cold start whose two parts are known to so many seconds."""
    limits: dict[str, Any] = {}
    if half is not None:
        for name, value in (("load", load), ("first_call", first)):
            limits |= {f"{name}_low": value - half, f"{name}_high": value + half}
    return int8(cold_start=ColdStart(load_seconds=load, first_call_seconds=first, processes=6, **limits))


@pytest.mark.parametrize(
    ("half", "load", "outcome"),
    [(0.002, 0.015, "PASS"), (0.003, 0.015, "INCONCLUSIVE"), (0.001, 0.023, "FAIL"), (None, 0.015, "INCONCLUSIVE")],
)
def test_load_and_first_call_together_stay_below_the_longest_time(half: Any, load: float, outcome: str) -> None:
    """With the limits of both; few processes have none."""
    verdict = judge_case(LIMIT, record(half, load))["cold start"]
    assert (verdict.outcome, verdict.value) == (outcome, pytest.approx(load + 0.010))
    assert "at most 30.0 ms  6 processes" in verdict.text
    assert (verdict.decides is not None) is (outcome == "INCONCLUSIVE")


def test_a_start_that_was_not_measured_is_missing() -> None:
    """It is not within the limit."""
    assert judge_case(LIMIT, int8(cold_start=None))["cold start"].outcome == "MISSING"


def start_again(times: float, count: int = 6, **changes: Any) -> dict[str, Any]:
    """Process pairs in which the start takes so many times as long, and varies by 2 %."""
    pairs = tuple(
        ProcessPair(ratio=0.0, control=0.0, drift=0.0, start=math.log(times) + 0.02 * (number % 3 - 1))
        for number in range(count)
    )
    values = {
        "analysis": None,
        "start": analyze_start(pairs, 0.5) if count in ANALYSES else None,
        "spent": 10.0,
        **changes,
    }
    return {CASE: Rerun(pairs=pairs, **values)}


@pytest.mark.parametrize(("times", "outcome"), [(1.0, "PASS"), (1.4, "PASS"), (1.7, "FAIL"), (0.5, "IMPROVED")])
def test_a_start_may_grow_by_what_is_allowed(times: float, outcome: str) -> None:
    """As started here and now on both sides; better by more than that is improved."""
    verdict = judge_case(GROWTH, record(), record(), reruns=start_again(times))["cold start growth"]
    assert (verdict.outcome, verdict.way, verdict.value) == (outcome, "live", pytest.approx(times, rel=0.02))
    assert "tolerance 50 %" in verdict.text
    assert "6 process pairs" in verdict.text


def test_stored_starts_decide_nothing() -> None:
    """Not run again at all: that would decide; tried in vain, the reason says why."""
    plain = judge_case(GROWTH, record(), record())["cold start growth"]
    assert (plain.outcome, plain.way, plain.text) == ("INCONCLUSIVE", "stored", "not run again")
    assert plain.decides is not None
    gone = judge_case(GROWTH, record(), record(), reruns={CASE: NotRun(reason="no\nartifact")})["cold start growth"]
    assert (gone.outcome, gone.decides) == ("INCONCLUSIVE", None)
    assert str(gone.reason).endswith("the artifacts were not run again: no artifact")


def test_a_start_that_ended_or_was_not_reached_is_told() -> None:
    """Invalid with the process that ended it, undecided where time was over."""
    died = judge_case(GROWTH, record(), record(), reruns=start_again(1.0, 2, reason="SIGKILL", start=None))
    assert (died["cold start growth"].outcome, died["cold start growth"].text) == (
        "INVALID",
        "live  ended in process pair 3",
    )
    late = judge_case(GROWTH, record(), record(), reruns=start_again(1.0, 1, start=None, cut=True))
    assert late["cold start growth"].outcome == "INCONCLUSIVE"


def test_one_artifact_starts_as_it_did() -> None:
    """Under the same versions nothing is to be measured."""
    verdict = judge_case(GROWTH, record(), record(), same=True, reruns=start_again(3.0))["cold start growth"]
    assert (verdict.outcome, verdict.identical) == ("PASS", True)


def test_one_artifact_under_another_version_starts_as_each_side_does() -> None:
    """Where both were started under their own it is judged by that; else nobody knows."""
    held = info(versions={"torch": "2.12"})
    judged = judge_case(GROWTH, record(), record(), same=True, held=held, reruns=start_again(3.0, own_versions=True))
    verdict = judged["cold start growth"]
    assert (verdict.outcome, verdict.way) == ("FAIL", "live")
    assert verdict.text.endswith("  torch 2.12 -> None")
    verdict = judge_case(GROWTH, record(), record(), same=True, held=held)["cold start growth"]
    assert (verdict.outcome, verdict.way, verdict.text) == (
        "INCONCLUSIVE",
        "stored",
        "not run again  torch 2.12 -> None",
    )


def test_nothing_is_said_of_a_start_where_nothing_was_asked() -> None:
    """Nor of growth without a baseline."""
    assert "cold start growth" not in judge_case(GROWTH, record())
    assert not {"cold start", "cold start growth"} & set(judge_case("size: {max_ratio: 0.9}", record(), record()))
