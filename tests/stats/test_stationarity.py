"""Whether a series moved by more than matters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbench.stats import stationarity

ROOM = 0.02


def wander(rng: np.random.Generator, blocks: int, correlation: float = 0.6, drift: float = 0.0) -> np.ndarray:
    """Log ratios with a spread of 1.5 %, each like its neighbour."""
    level, values = rng.normal(), []
    for step in rng.normal(size=blocks):
        level = correlation * level + np.sqrt(1 - correlation**2) * step
        values.append(level)
    return 0.015 * np.array(values) + drift * 1.5 * np.linspace(-0.5, 0.5, blocks)


@pytest.mark.parametrize(("processes", "blocks"), [(1, 60), (3, 20), (6, 20)])
def test_a_series_that_only_wanders_is_stationary(processes: int, blocks: int) -> None:
    """At most 5 % of series without a drift are called moving (200 of them, three standard deviations), and at least
    nine in ten with one of 8 %, where neighbours are alike."""
    rng = np.random.default_rng(0)
    moving = {
        drift: np.mean(
            [
                not stationarity.is_stationary([wander(rng, blocks, drift=drift) for _ in range(processes)], ROOM)
                for _ in range(200)
            ]
        )
        for drift in (0.0, 0.08)
    }
    assert moving[0.0] <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 200)
    assert moving[0.08] >= 0.9


def test_a_drift_that_is_certain_and_small_does_not_matter() -> None:
    """0.5 % with hardly any noise: significant, and of no consequence; 5 % is."""
    rng = np.random.default_rng(1)
    small, large = (wander(rng, 60, 0.0, drift) for drift in (0.0, 0.05))
    creeping = small / 100 + np.linspace(0, 0.0075, 60)
    drift = stationarity.measure_drift([creeping])
    assert drift is not None
    assert drift.exceeds(0.0)
    assert stationarity.is_stationary([creeping], ROOM) is True
    assert stationarity.is_stationary([large], ROOM) is False


def test_too_few_blocks_are_not_judged() -> None:
    """A third has at least 6 blocks, over all processes."""
    assert stationarity.is_stationary([np.zeros(17)], ROOM) is None
    assert stationarity.is_stationary([np.zeros(9), np.zeros(8)], ROOM) is None
    assert stationarity.is_stationary([np.zeros(9), np.zeros(9)], ROOM) is True
    assert stationarity.is_stationary([], ROOM) is None
    assert stationarity.is_stationary([np.zeros(15), *[np.zeros(2)] * 9], ROOM) is None
    assert stationarity.is_stationary([np.zeros(3)] * 6, ROOM) is True
    two = stationarity.measure_drift([np.zeros(18), np.ones(2), np.arange(2.0)])
    assert two is not None
    assert (two.value, two.error) == (0.0, 0.0)


@given(st.lists(st.lists(st.floats(-0.1, 0.1), min_size=6, max_size=30), min_size=1, max_size=5), st.floats(-1, 1))
def test_the_level_of_a_series_is_no_drift(series: list[list[float]], shift: float) -> None:
    """Processes differ from each other; a shift of the whole of one moves no verdict."""
    arrays = [np.array(values) for values in series]
    drift = stationarity.measure_drift(arrays)
    moved = stationarity.measure_drift([arrays[0] + shift, *arrays[1:]])
    if drift is None or moved is None:
        assert drift is moved
    else:
        assert moved.value == pytest.approx(drift.value, abs=1e-9)


def test_a_drift_is_the_move_from_the_first_third_to_the_last() -> None:
    """By their medians, so that one block of either says nothing; what lies between says nothing, either."""
    series = np.repeat([1.0, 7.0, 3.0], 20)
    series[[0, -1]] = 100.0
    drift = stationarity.measure_drift([series, series + 1])
    assert drift is not None
    assert drift.value == 2.0


@pytest.mark.parametrize("processes", [1, 2])
def test_the_error_of_a_drift_is_how_much_it_differs_from_series_to_series(processes: int) -> None:
    """Of fewer processes than tell by themselves, too: read off the spread within each, to which a slope adds
    nothing."""
    rng, slope = np.random.default_rng(2), np.linspace(0, 0.3, 60)
    plain = rng.normal(0, 0.015, (400, processes, 60))
    drifts, tilted = ([stationarity.measure_drift(list(series)) for series in many] for many in (plain, plain + slope))
    spread = np.std([drift.value for drift in drifts if drift is not None])
    errors, tilted_errors = ([drift.error for drift in many if drift is not None] for many in (drifts, tilted))
    assert np.mean(errors) == pytest.approx(spread, rel=0.2)
    assert tilted_errors == pytest.approx(errors)


def test_three_processes_tell_by_themselves_how_far_their_drifts_differ() -> None:
    """The error is that of the mean of their drifts, with one degree of freedom less than there are processes; two are
    too few for that, and have those of the values that they are worth."""
    series = [np.repeat([0.0, 0.0, drift], 6) for drift in (0.01, 0.02, 0.06)]
    three = stationarity.measure_drift(series)
    assert three is not None
    assert (three.value, three.freedom) == (pytest.approx(0.03), 2)
    assert three.error == pytest.approx(np.std([0.01, 0.02, 0.06], ddof=1) / np.sqrt(3))
    for blocks, freedom in (((18,), 17), ((18, 18), 34), ((18, 5), 21), ((18, 3), 19)):
        drift = stationarity.measure_drift([np.zeros(count) for count in blocks])
        assert drift is not None
        assert drift.freedom == freedom


@pytest.mark.parametrize(
    ("value", "error", "exceeds"),
    [(0.02, 0.0, False), (0.0201, 0.0, True), (-0.0201, 0.0, True), (0.28, 0.1, True), (0.27, 0.1, False)],
)
def test_a_drift_is_one_where_it_is_larger_than_room_and_chance(value: float, error: float, exceeds: bool) -> None:
    """By Student's t at 95 %: 2.776 errors with 4 degrees of freedom."""
    assert stationarity.Drift(value=value, error=error, freedom=4).exceeds(ROOM) is exceeds
