"""Rules of decide/objective: how well what is minimized is known of two cases."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from made_records import fp32, int8

from qbench.decide.objective import COLD_SPREAD, EXACT, MEMORY_SPREAD, Objective
from qbench.decide.paired_times import PairedTimes
from qbench.formatting import DASH
from qbench.record.schema import ColdStart, Memory, Record
from qbench.suite.settings import ObjectiveName

LIMITS = {"load_low": 0.0, "load_high": 0.12, "first_call_low": 0.08, "first_call_high": 0.13}


def start(**changes: Any) -> Record:
    """A case that loads in 0.1 s and answers first after as long again."""
    return int8(cold_start=ColdStart(load_seconds=0.1, first_call_seconds=0.1, **changes))


def error(name: ObjectiveName, record: Record, rival: Record) -> float:
    """The standard error of the logarithm of the ratio of two cases."""
    objective = Objective(name=name, times=PairedTimes(records={}, read=lambda record: {}))
    return objective.compare(record, rival).difference.error


def test_a_cold_start_is_known_as_well_as_its_limits_say() -> None:
    """A quarter of the width of both limits together, in shares; without one of them, a tenth of a single process."""
    limited = math.hypot(0.12, 0.05) / 4 / 0.2
    assert error("cold_start", start(**LIMITS), start(**LIMITS)) == pytest.approx(math.hypot(limited, limited))
    assert error("cold_start", start(), start(processes=4)) == pytest.approx(math.hypot(COLD_SPREAD, COLD_SPREAD / 2))
    for name in LIMITS:
        partly = start(**{**LIMITS, name: None})
        assert error("cold_start", partly, start(**LIMITS)) == pytest.approx(math.hypot(COLD_SPREAD, limited))


def test_bytes_of_a_file_are_exact_and_those_of_a_process_are_not() -> None:
    """Sizes that differ by a byte differ; resident sets move by about a per cent."""
    memory = Memory(loaded_rss_bytes=100_000_000, peak_rss_bytes=None)
    assert error("size", fp32(), int8()) == EXACT
    assert error("memory", replace(fp32(), memory=memory), int8(memory=memory)) == MEMORY_SPREAD


@pytest.mark.parametrize(
    ("name", "shown", "words"),
    [
        ("latency", "1.00 ms a call", ("latency", "faster", "slower")),
        ("size", "260 kB in all", ("size", "smaller", "larger")),
        ("memory", "2.00 MB resident", ("memory", "smaller in memory", "larger in memory")),
        ("cold_start", "200 ms to load and call once", ("cold start", "faster to start", "slower to start")),
    ],
)
def test_what_is_minimized_is_shown_in_its_unit(name: ObjectiveName, shown: str, words: tuple[str, str, str]) -> None:
    """Bytes or seconds; a dash where it was not measured."""
    objective = Objective(name=name, times=PairedTimes(records={}, read=lambda record: {}))
    record = replace(start(), memory=Memory(loaded_rss_bytes=1_000_000, peak_rss_bytes=2_000_000))
    assert objective.show(record) == shown
    assert (objective.title, objective.better, objective.worse) == words
    bare = int8(latency=None, artifact=None)
    assert (objective.value(bare), objective.show(bare)) == (None, DASH)


@pytest.mark.parametrize(("name", "spread"), [("size", 1e-9), ("memory", 0.01), ("cold_start", 0.1 * math.sqrt(2))])
def test_how_far_a_figure_may_be_off_that_has_no_limits(name: ObjectiveName, spread: float) -> None:
    """Bytes are exact, memory moves by a per cent and a start by ten; by the normal distribution, of one measurement
    that nothing makes coarser."""
    record = replace(start(), memory=Memory(loaded_rss_bytes=1_000_000, peak_rss_bytes=None))
    objective = Objective(name=name, times=PairedTimes(records={}, read=lambda record: {}))
    comparison = objective.compare(record, record)
    difference = comparison.difference
    assert (difference.value, difference.error) == (0.0, pytest.approx(spread))
    assert (difference.generations, difference.coarse, comparison.evidence) == (1, False, "recorded")
    assert difference.freedom == 1000
