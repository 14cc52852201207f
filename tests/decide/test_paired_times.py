"""Rules of decide/paired_times: two cases are held against each other by the strongest evidence that is stored."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_records import FP32, fp32, int8, latency, speedup

from qbench.decide.paired_times import as_ratio, paired_times
from qbench.errors import UsageError
from qbench.record.schema import Fastest, Interval, Record

STATIC, QAT = "net/static/onednn/t1/b1", "net/qat/onednn/t1/b1"
Stored = dict[str, dict[str, Any]]


def blocks(seconds: float, processes: int = 3, rounds: int = 7) -> dict[str, Any]:
    """One call a block, all alike but for a beat that every case shares."""
    count = processes * rounds
    beat = 1 + 0.2 * (np.arange(count) % 2)
    return {
        "calls_ns": np.rint(seconds * 1e9 * beat).astype(np.int64),
        "block": np.arange(count),
        "process": np.repeat(np.arange(processes), rounds),
        "round": np.tile(np.arange(rounds), processes),
    }


def over_baseline(log: float, processes: int = 3) -> dict[str, Any]:
    """An older run: log ratios over the fp32 beside it, and no rounds."""
    count = 7 * processes
    return {
        "calls_ns": np.full(count, 1000),
        "block": np.arange(count),
        "process": np.repeat(np.arange(processes), 7),
        "log_ratios": log + 0.001 * (np.arange(count) % 3),
    }


def compare(own: Record, other: Record, stored: Stored) -> Any:
    """``own`` against ``other`` with what is stored of them."""
    records = [replace(record, samples=record.case.id) for record in (own, other)]
    return paired_times(records, lambda record: stored.get(record.case.id, {})).compare(own.case.id, other.case.id)


def test_rounds_come_first() -> None:
    """Blocks of the same round, whatever the records say; what both share cancels."""
    found = compare(int8(STATIC), int8(QAT), {STATIC: blocks(0.002), QAT: blocks(0.001)})
    assert found.evidence == "rounds"
    assert found.value == pytest.approx(math.log(2), abs=1e-6)


def test_older_runs_are_compared_over_the_fp32_they_share() -> None:
    """Without rounds: the difference of two log ratios over one fp32, generation by generation."""
    found = compare(int8(STATIC), int8(QAT), {STATIC: over_baseline(-0.8), QAT: over_baseline(-0.9)})
    assert found.evidence == "baseline"
    assert found.value == pytest.approx(0.1)
    assert found.difference.generations == 3


@pytest.mark.parametrize("turned", [False, True])
def test_against_its_own_fp32_the_log_ratios_are_the_answer(turned: bool) -> None:
    """Either way round."""
    stored = {STATIC: over_baseline(-0.8), FP32: blocks(0.001)}
    pair = (fp32(), int8(STATIC)) if turned else (int8(STATIC), fp32())
    found = compare(*pair, stored)
    assert found.evidence == "baseline"
    assert found.value == pytest.approx(0.799 if turned else -0.799, abs=1e-3)


def test_samples_of_the_first_version_are_of_one_process() -> None:
    """They do not say which process a block ran in: one, and the limits allow for the others."""
    stored = over_baseline(-0.8, processes=1)
    del stored["process"]
    found = compare(int8(STATIC), fp32(), {STATIC: stored, FP32: blocks(0.001, 1)})
    assert found.difference.generations == 1
    assert found.difference.coarse


def test_without_samples_the_records_decide() -> None:
    """Two speed-ups over one fp32 as independent, over the fastest one, and last two typical calls."""
    apart = compare(int8(STATIC, speedup=speedup(2.0)), int8(QAT, speedup=speedup(2.5)), {})
    assert apart.evidence == "apart"
    assert apart.value == pytest.approx(math.log(2.5 / 2.0))
    best = Fastest(baseline="net/fp32/openvino/t1/b1", value=1.0, low=0.99, high=1.01)
    other = speedup(3.0, baseline="net/fp32/openvino/t1/b1")
    over_best = compare(int8(STATIC, speedup_fastest=best), int8(QAT, speedup=other), {})
    assert over_best.evidence == "apart"
    assert over_best.value == pytest.approx(math.log(3.0), rel=1e-3)
    alone = [int8(case, speedup=None, latency=latency(seconds)) for case, seconds in ((STATIC, 0.001), (QAT, 0.002))]
    p50 = compare(*alone, {})
    assert p50.evidence == "p50"
    assert p50.high - p50.value == pytest.approx(0.22, abs=0.01)


def test_a_case_of_which_nothing_is_known_is_not_compared() -> None:
    """Null is not 0."""
    bare = int8(STATIC, speedup=None, latency=None)
    assert compare(bare, int8(QAT), {}) is None


@pytest.mark.parametrize(
    "damage",
    [
        {"block": np.arange(3)},
        {"log_ratios": np.zeros(4)},
        {"log_ratios": np.full(21, np.nan)},
    ],
)
def test_arrays_that_do_not_fit_are_left_out_with_a_reason(damage: dict[str, Any]) -> None:
    """A run's folder is data: whoever wrote it, the records still decide."""
    records = [int8(STATIC, samples="a"), int8(QAT, samples="b")]
    times = paired_times(records, lambda record: {**over_baseline(-0.8), **damage})
    found = times.compare(STATIC, QAT)
    assert found is not None
    assert found.evidence == "apart"
    assert set(times.problems) == {STATIC, QAT}


def test_a_damaged_file_is_named() -> None:
    """The reader's own message is kept."""

    def read(record: Record) -> Any:
        raise UsageError(f"{record.samples}: not a zip")

    times = paired_times([int8(STATIC, samples="a.npz"), int8(QAT)], read)
    times.compare(STATIC, QAT)
    assert times.problems == {STATIC: "a.npz: not a zip"}


def test_protocol_sequential_has_one_figure_for_one_ratio() -> None:
    """Its speed-up is a ratio of means, so the comparison with the same fp32 is that, and not the ratio of two p50."""
    alone = speedup(2.09, low=None, high=None, protocol="sequential", control=None)
    case = int8(STATIC, latency=replace(latency(0.0025 / 2.13), mean_seconds=0.0026 / 2.09), speedup=alone)
    full = replace(fp32(), latency=replace(latency(0.0025), mean_seconds=0.0026))
    comparison = paired_times([full, case], lambda record: {}).compare(STATIC, FP32)
    assert comparison is not None
    assert comparison.evidence == "p50"
    assert 1 / comparison.ratio().value == pytest.approx(2.09)


def test_times_as_fast_is_the_ratio_of_times_turned_round() -> None:
    """A case that takes between 0.4 and 0.6 of the time is 1.67 to 2.5 times as fast."""
    comparison = SimpleNamespace(ratio=lambda: Interval(value=0.5, low=0.4, high=0.6))
    faster = as_ratio(comparison)  # type: ignore[arg-type]
    assert (faster.value, faster.low, faster.high) == pytest.approx((2.0, 1 / 0.6, 2.5))
