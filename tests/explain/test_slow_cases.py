"""Which cases of a run are slow."""

from __future__ import annotations

from dataclasses import replace

from made_records import failed, fp32, int8

from qbench.explain.slow_cases import list_slow_cases

FP32 = "net/fp32/torch/t1/b1"


def record(case, speedup, seconds):
    """An int8 case that is so many times as fast as fp32."""
    plain = int8(case)
    return replace(
        plain,
        speedup=replace(plain.speedup, value=speedup, low=speedup, high=speedup),
        latency=replace(plain.latency, p50_seconds=seconds, p50_low=seconds, p50_high=seconds),
    )


def test_cases_below_the_expected_speedup_are_slow_and_those_that_lose_most_come_first():
    """A slow case of a few microseconds loses less than a better one of milliseconds; fp32 and failures are none."""
    records = [
        fp32(FP32), failed("net/static/x86/t1/b1"),
        record("net/static/onednn/t1/b1", 2.5, 1e-3),
        record("net/static/fbgemm/t1/b1", 0.5, 1e-5),
        record("net/dynamic/fbgemm/t1/b1", 1.5, 1e-3),
    ]  # fmt: skip
    slow = list_slow_cases(records, 2.0)
    assert [each.case for each in slow] == ["net/dynamic/fbgemm/t1/b1", "net/static/fbgemm/t1/b1"]
    assert [round(each.seconds, 9) for each in slow] == [2.5e-4, 7.5e-6]


def test_cases_that_are_explained_are_left_out():
    """So the same command goes on where it stopped; an example of a batch counts, not the batch."""
    one, eight = record("net/static/onednn/t1/b1", 1.0, 1e-3), record("net/static/onednn/t1/b8", 1.0, 4e-3)
    assert [each.case for each in list_slow_cases([one, eight], 2.0, known=[one.case.id])] == [eight.case.id]
    assert [each.case for each in list_slow_cases([one, eight], 2.0)] == [one.case.id, eight.case.id]
