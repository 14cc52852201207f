"""The gate on the memory of a measuring process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from judged_case import judge_case
from made_records import info, int8

from qbench.record.schema import Memory, Record

GROWTH = "memory: {max_regression: 10%}"


def record(peak: int | None) -> Record:
    """The int8 case with that peak, None: not known."""
    return replace(int8(), memory=None if peak is None else Memory(loaded_rss_bytes=1, peak_rss_bytes=peak))


@pytest.mark.parametrize(("peak", "outcome"), [(2**20, "PASS"), (2**20 + 1, "FAIL"), (None, "MISSING")])
def test_a_peak_may_be_as_large_as_is_allowed(peak: int | None, outcome: str) -> None:
    """One that is not known is not within the limit."""
    verdict = judge_case("memory: {max_bytes: 1 MiB}", record(peak))["memory"]
    assert verdict.outcome == outcome
    if outcome == "FAIL":
        assert verdict.reason == f"{2**20 + 1} bytes, {2**20} are allowed"


@pytest.mark.parametrize(
    ("before", "now", "outcome"),
    [(1000, 1100, "PASS"), (1000, 1101, "FAIL"), (1000, 910, "PASS"), (1000, 909, "IMPROVED")],
)
def test_a_peak_may_grow_by_what_is_allowed(before: int, now: int, outcome: str) -> None:
    """And is improved where it is smaller by more than that."""
    verdict = judge_case(GROWTH, record(now), record(before))["memory growth"]
    assert (verdict.outcome, verdict.value) == (outcome, pytest.approx(now / before))
    assert "tolerance 10 %" in verdict.text
    reasons = {"FAIL": f"{now} bytes, {before} in the baseline", "IMPROVED": "better than the baseline by more"}
    assert str(verdict.reason).startswith(reasons.get(outcome, "None"))


@pytest.mark.parametrize(
    ("before", "now", "where"), [(1000, None, "this run"), (None, 1000, "the baseline"), (0, 1000, "the baseline")]
)
def test_a_peak_that_one_side_does_not_know_is_missing(before: int | None, now: int | None, where: str) -> None:
    """The reason says which."""
    verdict = judge_case(GROWTH, record(now), record(before))["memory growth"]
    assert verdict.outcome == "MISSING"
    assert str(verdict.reason).endswith(f"is not known in {where}")


def test_peaks_of_two_machines_are_not_compared() -> None:
    """The field that differs is named; one artifact has one peak, whatever was read."""
    held = replace(info(), environment={**info().environment, "cpu": "another"})
    verdict = judge_case(GROWTH, record(5000), record(1000), held=held)["memory growth"]
    assert (verdict.outcome, str(verdict.reason).partition(" ")[0]) == ("INVALID", "cpu")
    same = judge_case(GROWTH, record(5000), record(1000), same=True)["memory growth"]
    assert (same.outcome, same.identical) == ("PASS", True)


def test_nothing_is_said_of_memory_where_nothing_was_asked() -> None:
    """Nor of growth without a baseline."""
    asked: Any = judge_case(GROWTH, record(1000))
    assert not {"memory", "memory growth"} & set(asked)
    assert "memory growth" not in judge_case("memory: {max_bytes: 1 MiB}", record(1000), record(10))
