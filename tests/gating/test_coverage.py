"""The gate on the share of multiply-accumulates in int8."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from judged_case import judge_case
from made_records import int8

from qbench.record.schema import Coverage, Record

DROP = "coverage: {max_drop: 10%}"


def record(share: float | None, *floats: str) -> Record:
    """The int8 case with that share, None: not known, and these layers in floating point."""
    base = int8()
    assert base.artifact is not None
    coverage = None if share is None else Coverage(macs_int8=share, layers_int8=9, layers_total=10, float_layers=floats)
    return replace(base, artifact=replace(base.artifact, coverage=coverage))


@pytest.mark.parametrize(("share", "outcome"), [(0.9, "PASS"), (0.8999, "FAIL"), (1.0, "PASS"), (None, "MISSING")])
def test_a_share_may_be_as_small_as_is_asked_for(share: float | None, outcome: str) -> None:
    """One that cannot be counted is not enough."""
    assert judge_case("coverage: {min_share: 90%}", record(share))["coverage"].outcome == outcome


@pytest.mark.parametrize(
    ("before", "now", "outcome"),
    [(0.9, 0.8, "PASS"), (0.9, 0.7999, "FAIL"), (0.8, 0.9, "PASS"), (0.8, 0.9001, "IMPROVED"), (0.9, None, "MISSING")],
)
def test_a_share_may_drop_by_what_is_allowed(before: float, now: float | None, outcome: str) -> None:
    """In points, but for the last digits of a sum; improved where it has grown by more."""
    assert judge_case(DROP, record(now), record(before))["coverage drop"].outcome == outcome


@pytest.mark.parametrize(
    ("now", "outcome"), [(0.9, "PASS"), (0.9 - 1e-12, "PASS"), (0.8999, "FAIL"), (0.91, "IMPROVED")]
)
def test_where_no_drop_is_allowed_any_is_one(now: float, outcome: str) -> None:
    """And any growth is an improvement; the last digits are neither."""
    verdicts = judge_case("coverage: {max_drop: 0%}", record(now), record(0.9))
    assert verdicts["coverage drop"].outcome == outcome


def test_the_layers_in_floating_point_are_the_reason() -> None:
    """The first eight of them."""
    names = [f"layer{number}" for number in range(9)]
    verdict = judge_case("coverage: {min_share: 90%}", record(0.5, *names))["coverage"]
    assert verdict.reason == f"in floating point: {', '.join(names[:8])}"
    assert judge_case("coverage: {min_share: 90%}", record(0.5))["coverage"].reason == "less of it runs in int8"


def test_nothing_is_said_of_a_drop_without_a_share_to_drop_from() -> None:
    """Nor of what was not asked for."""
    asked: Any = judge_case(DROP, record(0.5), record(None))
    assert "coverage drop" not in asked
    assert "coverage drop" not in judge_case(DROP, record(0.5))
    assert "coverage" not in judge_case(DROP, record(0.5), record(0.5))
    assert "coverage drop" not in judge_case("coverage: {min_share: 10%, max_drop: null}", record(0.5), record(0.9))
