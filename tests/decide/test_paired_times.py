"""Rules of decide/paired_times: two cases are held against each other by the strongest evidence that is stored."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from made_records import FP32, fp32, int8, latency, speedup

from qbench.decide.paired_times import Comparison, as_ratio, paired_times
from qbench.errors import UsageError
from qbench.measure.paired_difference import PairedDifference
from qbench.record.schema import Fastest, Interference, Interval, Record

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
    comparison = compare(int8(STATIC), int8(QAT), {STATIC: blocks(0.002), QAT: blocks(0.001)})
    assert comparison.evidence == "rounds"
    assert comparison.value == pytest.approx(math.log(2), abs=1e-6)


def test_older_runs_are_compared_over_the_fp32_they_share() -> None:
    """Without rounds: the difference of two log ratios over one fp32, generation by generation."""
    comparison = compare(int8(STATIC), int8(QAT), {STATIC: over_baseline(-0.8), QAT: over_baseline(-0.9)})
    assert comparison.evidence == "baseline"
    assert comparison.value == pytest.approx(0.1)
    assert comparison.difference.generations == 3


@pytest.mark.parametrize("turned", [False, True])
def test_against_its_own_fp32_the_log_ratios_are_the_answer(turned: bool) -> None:
    """Either way round."""
    stored = {STATIC: over_baseline(-0.8), FP32: blocks(0.001)}
    pair = (fp32(), int8(STATIC)) if turned else (int8(STATIC), fp32())
    comparison = compare(*pair, stored)
    assert comparison.evidence == "baseline"
    assert comparison.value == pytest.approx(0.799 if turned else -0.799, abs=1e-3)


def test_samples_of_the_first_version_are_of_one_process() -> None:
    """They do not say which process a block ran in: one, and the limits allow for the others."""
    stored = over_baseline(-0.8, processes=1)
    del stored["process"]
    comparison = compare(int8(STATIC), fp32(), {STATIC: stored, FP32: blocks(0.001, 1)})
    assert comparison.difference.generations == 1
    assert comparison.difference.coarse


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


def test_races_that_never_met_are_compared_by_their_records() -> None:
    """What has rounds has no log ratios over a neighbour."""
    later = blocks(0.002)
    later["process"] = later["process"] + 3
    assert compare(int8(STATIC), int8(QAT), {STATIC: blocks(0.001), QAT: later}).evidence == "apart"
    assert compare(int8(STATIC), fp32(), {STATIC: blocks(0.001), FP32: later}).value == pytest.approx(-math.log(2.5))


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
        {"log_ratios": np.full(21, 30.0)},
        {"log_ratios": np.full(21, -30.0)},
        {"processor_ns": np.zeros(20, dtype=np.int64)},
        {"canary_ns": np.ones((20, 2), dtype=np.int64)},
    ],
)
def test_arrays_that_do_not_fit_are_left_out_with_a_reason(damage: dict[str, Any]) -> None:
    """A run's folder is data: whoever wrote it, the records still decide."""
    records = [int8(STATIC, samples="a"), int8(QAT, samples="b")]
    times = paired_times(records, lambda record: {**over_baseline(-0.8), **damage})
    comparison = times.compare(STATIC, QAT)
    assert comparison is not None
    assert comparison.evidence == "apart"
    assert set(times.problems) == {STATIC, QAT}


@pytest.mark.parametrize(
    "whole",
    [
        {"log_ratios": np.full(21, -29.9)},
        {"processor_ns": np.full(21, 900), "canary_ns": np.ones((21, 2), dtype=np.int64), "discarded": np.asarray(2)},
    ],
)
def test_arrays_that_fit_each_other_are_taken(whole: dict[str, Any]) -> None:
    """However small a ratio of two times, and with all that may be stored beside the calls."""
    times = paired_times([int8(STATIC, samples="a"), fp32()], lambda record: {**over_baseline(-0.8), **whole})
    assert times._load(times.records[STATIC]) is not None
    assert times.problems == {}


def test_samples_of_another_kind_are_no_problem() -> None:
    """What holds no calls is not compared by them; a file that is not there is named."""
    records = [int8(STATIC, samples="a.npz"), int8(QAT, samples="b.npz")]
    stored: Stored = {STATIC: {"seconds": np.asarray(1.0)}}
    times = paired_times(records, lambda record: stored.get(record.case.id, {}))
    comparison = times.compare(STATIC, QAT)
    assert comparison is not None
    assert comparison.evidence == "apart"
    assert times.problems == {QAT: "b.npz is not there"}


def watched(medians: dict[int, float], calm: tuple[int, ...] = ()) -> dict[str, Any]:
    """Three blocks in each process, about its median in microseconds; undisturbed in those that are ``calm``, and in
    these half as long."""
    processes = np.repeat(sorted(medians), 3)
    factors = np.tile([1.0, 0.9, 1.4], len(medians))
    halves = np.where(np.isin(processes, calm) & (factors != 1.4), 0.5, 1.0)
    readings = np.where(halves < 1, 1000, 5000)
    count = len(processes)
    return {
        "calls_ns": np.rint([medians[p] * 1e5 for p in processes.tolist()] * factors * halves).astype(np.int64),
        "block": np.arange(count),
        "process": processes,
        "round": np.tile(np.arange(3), len(medians)),
        "canary_ns": np.stack([readings, readings], axis=1),
    }


@pytest.mark.parametrize(
    ("medians", "calm", "ratio"),
    [
        ({0: 1.0}, (), None),
        ({0: 1.0, 1: 1.3}, (), 1.3),
        ({0: 1.5, 3: 1.0, 4: 1.2}, (), 1.5),
        ({0: 1.0, 1: 1.3, 2: 2.0}, (0, 1), 1.3),
        ({0: 1.0, 1: 1.3, 2: 2.0}, (0,), 4.0),
    ],
)
def test_how_far_processes_lie_apart(medians: dict[int, float], calm: tuple[int, ...], ratio: float | None) -> None:
    """By the median block of each, the slowest over the fastest: of undisturbed blocks where two processes have any;
    undisturbed is what the canary's least time on a core of its own says."""
    facts = [Interference(blocks=3, involuntary_switches=0, page_faults=0, calm_seconds=s) for s in (None, 1e-6, 9e-6)]
    others = [int8(f"net/static/{name}/t1/b1", interference=fact) for name, fact in zip("abc", facts, strict=True)]
    records = [int8(STATIC, samples="a"), *others]
    spread = paired_times(records, lambda record: watched(medians, calm)).spread_over_processes(STATIC)
    assert spread == (None if ratio is None else pytest.approx(math.log(ratio), abs=1e-4))


def test_processes_that_only_one_of_two_older_runs_had_are_left_out() -> None:
    """The rest are held against each other, each with its like."""
    mine, theirs = over_baseline(-0.8, 4), over_baseline(-0.9, 4)
    mine["log_ratios"] = np.repeat([-5.0, -0.8, -0.9, -1.0], 7)
    theirs["log_ratios"], theirs["process"] = np.repeat([-1.0, -1.1, -1.2, 5.0], 7), np.repeat([1, 2, 3, 9], 7)
    comparison = compare(int8(STATIC), int8(QAT), {STATIC: mine, QAT: theirs})
    assert (comparison.evidence, comparison.difference.generations) == ("baseline", 3)
    assert comparison.value == pytest.approx(0.2)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_a_stored_interval_comes_back(processes: int) -> None:
    """By Student's t of its processes, the normal distribution of one; either way round, and half as sure of two."""
    known = int8(STATIC, speedup=speedup(2.0, 0.1, processes=processes))
    for pair, sign in (((known, fp32()), -1), ((fp32(), known), 1)):
        comparison = compare(*pair, {})
        assert (comparison.evidence, comparison.value) == ("baseline", pytest.approx(sign * math.log(2)))
        half = math.log(1.1 / 0.9) / 2
        assert comparison.high - comparison.value == pytest.approx(half, rel=2e-3)
        assert comparison.value - comparison.low == pytest.approx(half, rel=2e-3)
    rival = int8(QAT, speedup=speedup(2.0, 0.1, processes=processes + 1))
    apart, other = compare(known, rival, {}), compare(rival, known, {})
    assert apart.difference.error == pytest.approx(
        math.hypot(*(compare(r, fp32(), {}).difference.error for r in (known, rival)))
    )
    assert apart.difference.freedom == other.difference.freedom == (processes - 1 if processes > 1 else 1)


def test_a_speed_up_without_limits_tells_less_than_two_typical_calls() -> None:
    """So these are compared, and means where one speed-up is a ratio of means, if they are known."""
    open_ = int8(STATIC, latency=latency(0.001), speedup=speedup(3.0, low=None))
    assert compare(open_, fp32(), {}).value == pytest.approx(math.log(0.4))
    alone = replace(open_, speedup=speedup(3.0, low=None, high=None, protocol="sequential"))
    lacking = replace(alone, latency=replace(latency(0.001), mean_seconds=None))
    full = replace(fp32(), latency=replace(latency(0.0025), mean_seconds=0.005))
    assert compare(alone, full, {}).value == pytest.approx(math.log(0.2))
    assert compare(full, lacking, {}).value == pytest.approx(math.log(5))


def test_what_differs_by_mode_is_less_certain_than_what_does_not() -> None:
    """What moves int8 and fp32 apart from run to run does not move two of a kind."""
    stored = {case: blocks(0.001) for case in (STATIC, QAT, FP32, "net/fp32/x86/t1/b1")}
    pairs = ((int8(STATIC), int8(QAT)), (fp32(), fp32("net/fp32/x86/t1/b1")), (int8(STATIC), fp32()))
    assert [compare(*pair, stored).difference.unseen > 0 for pair in pairs] == [False, False, True]


@pytest.mark.parametrize("log", [35.0, -35.0])
def test_no_ratio_is_beyond_what_a_number_holds(log: float) -> None:
    """Of the least and the most that a person can read as one."""
    difference = PairedDifference(value=log, error=1.0, freedom=3, generations=3, coarse=False)
    ratio = Comparison(difference=difference, evidence="rounds").ratio()
    limit = math.exp(math.copysign(30, log))
    assert (ratio.value, ratio.high if log > 0 else ratio.low) == (limit, limit)


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


def test_what_the_records_alone_tell_is_coarse_and_of_one_generation() -> None:
    """Speed-ups and typical calls do not say how processes differed."""
    alone = [int8(case, speedup=None) for case in (STATIC, QAT)]
    for pair in ((int8(STATIC), fp32()), (int8(STATIC), int8(QAT)), alone):
        difference = compare(*pair, {}).difference
        assert (difference.generations, difference.coarse) == (1, True)
    assert compare(*alone, {}).difference.freedom == 1000
