"""The gate on the size of an artifact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from judged_case import judge_case
from made_records import fp32, int8

FP32_BYTES = fp32().artifact.size_bytes  # type: ignore[union-attr]


@pytest.mark.parametrize(("share", "outcome"), [(0.35, "PASS"), (0.3501, "FAIL"), (0.1, "PASS")])
def test_an_artifact_may_take_as_much_as_its_share_of_fp32(share: float, outcome: str) -> None:
    """The bytes stand in the reason of a failure."""
    size, most = round(FP32_BYTES * share), round(FP32_BYTES * 0.35)
    verdict = judge_case(f"size: {{max_ratio: {most / FP32_BYTES!r}}}", int8(size_bytes=size))["size"]
    assert verdict.outcome == outcome
    assert verdict.reason == (f"{size} of {FP32_BYTES} bytes" if outcome == "FAIL" else None)
    assert verdict.value == pytest.approx(size / FP32_BYTES)


@pytest.mark.parametrize(
    ("before", "now", "outcome"),
    [(1000, 1100, "PASS"), (1000, 1101, "FAIL"), (1000, 910, "PASS"), (1000, 909, "IMPROVED"), (1000, 1000, "PASS")],
)
def test_an_artifact_may_grow_by_what_is_allowed(before: int, now: int, outcome: str) -> None:
    """And is improved where it has shrunk by more than that; the bytes are told with their sign."""
    verdict = judge_case("size: {max_growth: 10%}", int8(size_bytes=now), int8(size_bytes=before))["size growth"]
    assert verdict.outcome == outcome
    assert f"{now - before:+d} bytes  tolerance 10 %" in verdict.text
    reasons = {"FAIL": f"{now} bytes, {before} in the baseline", "IMPROVED": "better than the baseline by more"}
    assert str(verdict.reason).startswith(reasons.get(outcome, "None"))


def test_nothing_is_said_of_size_where_nothing_was_asked() -> None:
    """Nor of growth without a baseline."""
    assert "size" not in judge_case("size: {max_growth: 10%}", int8())
    assert "size growth" not in judge_case("size: {max_growth: 10%}", int8())
    assert "size growth" not in judge_case("size: {max_ratio: 0.5, max_growth: null}", int8(), int8())


def test_an_artifact_that_was_not_recorded_is_missing() -> None:
    """It is not within the budget."""
    record: Any = replace(int8(), artifact=None)
    assert judge_case("size: {max_ratio: 0.5}", record)["size"].outcome == "MISSING"
    assert "size growth" not in judge_case("size: {max_growth: 10%}", record, int8())
