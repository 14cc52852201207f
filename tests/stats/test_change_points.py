"""Rules of qbench/stats/change_points.py: a change of level is found, noise is not."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from scipy.stats import chi2

from qbench.stats import change_points
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


@pytest.mark.parametrize(
    ("before", "after", "places"), [(4, 4, (4,)), (3, 5, (3,)), (5, 3, (5,)), (3, 4, ()), (2, 6, ()), (6, 2, ())]
)
def test_a_change_takes_eight_runs_and_three_on_either_side(before: int, after: int, places: tuple[int, ...]) -> None:
    """Fewer tell nothing, however far they lie apart."""
    assert find_change_points([[0.0] * before + [9.0] * after], least_noise=0.005) == (places,)


def test_the_neighbours_of_a_run_are_the_five_around_it() -> None:
    """At the ends the five first and the five last."""
    near = [change_points._near(place, 9) for place in range(9)]
    assert [(each.start, each.stop) for each in near] == [
        *((0, 5), (0, 5), (0, 5), (1, 6), (2, 7), (3, 8)),
        *((4, 9), (4, 9), (4, 9)),
    ]
    assert change_points._near(1, 3) == slice(0, 5)


class Search:
    """Stands for the search of ruptures: keeps what it is given."""

    given: ClassVar[list[tuple[object, ...]]] = []

    def __init__(self, **options: object) -> None:
        self.options = options

    def fit(self, values: np.ndarray) -> Search:
        """Keeps the values."""
        self.values = values
        return self

    def predict(self, pen: float) -> list[int]:
        """Finds nothing."""
        Search.given.append((self.options, self.values.ravel(), pen))
        return [len(self.values)]


def test_a_series_is_searched_in_units_of_its_noise_with_single_runs_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """At three deviations from its neighbours; every place can be that of a change, and all series of all families
    share the error."""
    monkeypatch.setattr("ruptures.Pelt", Search)
    monkeypatch.setattr(Search, "given", [])
    series = noise(2, 12)
    series[0, 6] += 5.0
    series[1] *= 3
    find_change_points(series.tolist(), least_noise=0.0)
    find_change_points(series.tolist(), least_noise=10.0, families=3)
    noises = [noise_of(each) for each in series]
    pooled = float(np.median(noises))
    assert pooled > min(noises)
    (first, second, coarse, _) = Search.given
    assert first[0] == {"model": "l2", "min_size": 3, "jump": 1}
    for (_, values, _), plain, own in zip((first, second), series, noises, strict=True):
        scaled = plain / max(own, pooled)
        middle = [np.median(scaled[change_points._near(place, 12)]) for place in range(12)]
        assert values == pytest.approx(np.clip(scaled, np.array(middle) - 3, np.array(middle) + 3))
    assert first[1].max() < 10
    assert coarse[1].max() < 1
    assert (first[2], coarse[2]) == (penalty(12, 2), penalty(12, 6))


def test_series_of_the_fewest_runs_share_their_noise() -> None:
    """One that hardly varies is held against the noise of the others."""
    quiet = [0.0] * 4 + [0.01] * 4
    wide = [0.0, 1.0] * 4
    assert find_change_points([quiet], least_noise=1e-4) == ((4,),)
    assert find_change_points([quiet, wide, wide], least_noise=1e-4)[0] == ()
