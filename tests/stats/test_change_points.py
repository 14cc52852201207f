"""Rules of qbench/stats/change_points.py: a change of level is found, noise is not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from qbench.stats.change_points import LEAST_RUNS, LEAST_SEGMENT, find_change_points, noise_of, penalty


def noise(*size: int, seed: int = 0) -> np.ndarray:
    """Runs that differ by 2 %."""
    return np.random.default_rng(seed).normal(0, 0.02, size)


def test_a_change_of_level_is_found_where_it_is() -> None:
    """10 % slower from run 9 on, in one of five series: there, and nowhere else."""
    series = noise(5, 16)
    series[2, 9:] += 0.1
    assert find_change_points(series.tolist(), least_noise=0.005) == ((), (), (9,), (), ())


def test_several_changes_are_found() -> None:
    """Slower, and back again."""
    series = noise(1, 24)
    series[0, 8:16] += 0.2
    assert find_change_points(series.tolist(), least_noise=0.005) == ((8, 16),)


def test_nothing_is_found_where_nothing_changed() -> None:
    """In at most one of twenty panels of ten series, also with long tails."""
    rng = np.random.default_rng(1)
    panels = [rng.standard_t(4, (10, 15)) * 0.02 for _ in range(60)]
    assert sum(any(find_change_points(panel.tolist(), least_noise=0.005)) for panel in panels) <= 3


def test_one_bad_run_is_no_change() -> None:
    """However far it is off, and whether it is the last one."""
    for place in (5, 11):
        series = noise(1, 12)
        series[0, place] += 5.0
        assert find_change_points(series.tolist(), least_noise=0.005) == ((),)


@pytest.mark.parametrize("runs", [0, 1, 2, LEAST_RUNS - 1])
def test_too_few_runs_show_no_change(runs: int) -> None:
    """Whatever they look like."""
    assert find_change_points([[0.0] * (runs // 2) + [9.0] * (runs - runs // 2)], least_noise=0.005) == ((),)


def test_the_fewest_runs_can_show_a_change() -> None:
    """``LEAST_RUNS`` are enough where the change is plain."""
    half = LEAST_RUNS // 2
    assert find_change_points([[0.0] * half + [9.0] * (LEAST_RUNS - half)], least_noise=0.005) == ((half,),)


def test_what_does_not_vary_changes_by_any_step_beyond_the_least() -> None:
    """Sizes are exact: 1 % more is a change, a hundredth of a percent is none."""
    flat = [0.0] * 6
    assert find_change_points([flat + [0.01] * 6], least_noise=0.001) == ((6,),)
    assert find_change_points([flat + [0.0001] * 6], least_noise=0.001) == ((),)


def test_noise_is_that_of_steps() -> None:
    """Of many runs it is their standard deviation, also where they changed their level; nothing varies in nothing."""
    values = noise(4000)
    stepped = values + np.repeat([0.0, 5.0], 2000)
    assert noise_of(values) == pytest.approx(0.02, rel=0.05)
    assert noise_of(stepped) == pytest.approx(noise_of(values), rel=0.01)
    assert noise_of(np.array([1.0])) == 0.0


def test_the_penalty_grows_with_what_is_looked_at() -> None:
    """More runs and more series have more chances of a false alarm."""
    assert penalty(8, 1) < penalty(40, 1) < penalty(40, 100)
    # Twice what 1 of 20 panels of 12 x 10 squared deviations exceeds, and 5 for where the change lies is chosen.
    assert penalty(12, 10) == pytest.approx(2 * chi2.isf(0.05 / 120, 1) + 5)
    assert LEAST_SEGMENT * 2 <= LEAST_RUNS
