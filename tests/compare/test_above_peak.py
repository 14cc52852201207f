"""An int8 case that is faster than its core can compute."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_records import fp32, int8

from qbench.compare import above_peak
from qbench.record.schema import Record, Roofline
from qbench.report import timing_warnings


def roofed(record: Record, fraction: float | None, shared: bool | None = False) -> Record:
    """The record with that share of its core's peak."""
    return replace(record, roofline=Roofline(macs=1000, peak_fraction=fraction, peak_shared=shared))


@pytest.mark.parametrize(
    ("record", "impossible", "words"),
    [
        (roofed(int8(), 0.87), False, "87.0 %"),
        (roofed(int8(), 1.05), False, "105 %"),
        (roofed(int8(), 1.1), False, "110 %"),
        (roofed(int8(), 1.11), True, "111 %: not possible"),
        (roofed(fp32(), 0.9), False, "90.0 %"),
        (roofed(fp32(), 1.0), False, "100 %"),
        (roofed(fp32(), 1.01), False, "101 % (Winograd does fewer multiplications than counted)"),
        (roofed(int8(), 1.3), True, "130 %: not possible"),
        (roofed(int8(), 1.3, None), True, "130 %: not possible"),
        (roofed(int8(), 1.3, True), False, "130 % (the peak was read on a shared core: too low)"),
        (roofed(fp32(), 1.3), False, "130 % (Winograd does fewer multiplications than counted)"),
        (roofed(int8(), None), False, None),
        (int8(), False, None),
    ],
)
def test_int8_clearly_above_the_peak_is_impossible(record: Record, impossible: bool, words: str | None) -> None:
    """More than a tenth above what the core was measured to do. fp32 may, by Winograd; and a peak that was read while
    the host shared the core proves nothing."""
    assert above_peak.is_impossible(record) is impossible
    assert above_peak.describe(record) == words


def test_each_impossible_case_is_warned_of_by_name() -> None:
    """One sentence for each, and none for the rest."""
    (sentence,) = timing_warnings.warn_of_impossible([roofed(int8(), 1.34), roofed(fp32(), 1.34), int8()])
    assert sentence.startswith("net/static/onednn/t1/b1 reads 134 % of the int8 peak")


def test_a_peak_that_proves_nothing_is_warned_of_once() -> None:
    """The sentence says what happens by itself; no case is called impossible by such a peak."""
    (sentence,) = timing_warnings.warn_of_impossible([roofed(int8(), 1.34, True), roofed(fp32(), 0.5, True)])
    assert sentence.startswith("the peak of this core was measured while the host shared it")
    assert sentence.endswith("the next run that finds the core calm measures it again")
