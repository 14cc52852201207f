"""Growing observations to samples and back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qbench.measure.block_size import Block
from qbench.measure.samples import BlockTiming
from qbench.measure.series import Series, join_controls, resume_series, split_controls

CONTROLS = {1: np.asarray([0.1, 0.2]), 2: np.asarray([0.3])}


def grow() -> Series:
    series = Series(case="a", seconds=1.5)
    for number, process in enumerate((0, 1, 1)):
        timing = BlockTiming(calls_ns=np.asarray([10, 20 + number]), involuntary=number, canary_ns=(1, 2))
        series.keep(timing, process=process, number=number)
    return series


def test_a_killed_run_goes_on_with_the_same_samples():
    """Samples to a series and back: every array and the seconds."""
    samples = grow().samples("paired", "racing", CONTROLS)
    again = resume_series("a", samples).samples("paired", "racing", CONTROLS)
    for name in ("calls_ns", "block", "process", "round", "involuntary", "faults", "canary_ns", "control_log_ratios"):
        assert np.array_equal(getattr(samples, name), getattr(again, name)), name
    assert (again.seconds, again.stopped) == (1.5, "racing")


def test_the_control_of_the_own_processes_is_kept():
    """A generation that the case was not in says nothing of it."""
    samples = grow().samples("paired", "left", CONTROLS)
    assert samples.control_log_ratios.tolist() == [0.1, 0.2]
    assert samples.control_process.tolist() == [1, 1]


def test_controls_are_joined_and_split():
    """By process; none is none."""
    assert join_controls({})["control_log_ratios"].tolist() == []
    both = Series(case="a", process=[1, 2]).samples("paired", "left", CONTROLS)
    assert {number: ratios.tolist() for number, ratios in split_controls(both).items()} == {1: [0.1, 0.2], 2: [0.3]}


def test_a_series_goes_on_with_the_block_that_its_samples_had() -> None:
    """How many calls were discarded, and what of each block is known; nothing kept is an empty one."""
    samples = grow().samples("paired", "racing", {})
    again = resume_series("a", samples)
    assert [timing.canary_ns for timing in again.timings] == [(1, 2)] * 3
    assert [timing.involuntary for timing in again.timings] == [0, 1, 2]
    assert [timing.faults for timing in again.timings] == [None] * 3
    assert (again.process, again.round, again.discarded) == ([0, 1, 1], [0, 1, 2], 0)
    assert (again.block, again.error) == (None, None)
    empty = resume_series("a", None)
    assert (empty.case, empty.timings, empty.seconds) == ("a", [], 0.0)


def test_what_is_stored_says_how_many_calls_were_discarded() -> None:
    """By the block that was found here, else as an earlier part of the run had it."""
    series = grow()
    series.discarded = 3
    assert series.samples("paired", "left", {}).discarded == 3
    series.block = Block(discard=5, keep=2)
    assert series.samples("paired", "left", {}).discarded == 5


def test_samples_that_contradict_themselves_are_not_gone_on_with() -> None:
    """Readings of fewer blocks than there are: nobody knows of which."""
    samples = grow().samples("paired", "racing", {})
    for name in ("canary_ns", "involuntary"):
        alone = replace(samples, canary_ns=samples.canary_ns[:0], involuntary=samples.involuntary[:0])
        with pytest.raises(ValueError, match="zip"):
            resume_series("a", replace(alone, **{name: getattr(samples, name)[:2]}))
