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


def test_a_drift_is_the_last_third_against_the_first() -> None:
    """By their medians: whatever the middle third does, and one value of either, is none of it."""
    drift = stationarity.measure_drift([np.repeat([0.0, 10.0, 1.0], 6), np.array([0.0] * 5 + [-8.0] * 3 + [3.0] * 4)])
    assert drift is not None
    assert drift.value == pytest.approx((1.0 + 3.0) / 2)


def test_a_straight_line_has_a_drift_and_no_spread() -> None:
    """Values are taken about their own slope: with noise or without, a drift does not hide itself."""
    line = stationarity.measure_drift([np.linspace(0.0, 1.0, 30)])
    assert line is not None
    assert line.error == pytest.approx(0.0, abs=1e-9)
    noise = np.random.default_rng(2).normal(0, 0.015, 60)
    still, moving = (stationarity.measure_drift([noise + slope]) for slope in (0.0, np.linspace(0.0, 0.3, 60)))
    assert still is not None
    assert moving is not None
    assert moving.error == pytest.approx(still.error, rel=1e-6)


@pytest.mark.parametrize("processes", [1, 3])
def test_the_error_of_a_drift_is_how_much_drifts_differ(processes: int) -> None:
    """Of 400 draws without a drift the errors that are told and the spread of the drifts agree to a quarter."""
    rng = np.random.default_rng(3)
    drifts = [stationarity.measure_drift([wander(rng, 60, 0.0) for _ in range(processes)]) for _ in range(400)]
    told = np.sqrt(np.mean([drift.error**2 for drift in drifts if drift is not None]))
    assert told == pytest.approx(np.std([drift.value for drift in drifts if drift is not None]), rel=0.25)
