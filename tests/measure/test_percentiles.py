"""Rules of qbench/measure/percentiles.py; tests/benchmarks/percentile_error.py has the whole table."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st
from scipy import stats

from qbench.measure import percentiles
from qbench.measure.percentiles import percentile, undisturbed_median
from qbench.measure.time_spread import KNOWN


def simulation() -> Any:
    """The benchmark as a module."""
    file = Path(__file__).parent.parent / "benchmarks" / "percentile_error.py"
    spec = importlib.util.spec_from_file_location("percentile_error", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("processes", "calls"), [(1, 4000), (3, 1200), (9, 600)])
def test_limits_cover_where_the_host_stays_in_its_states_for_100_calls(processes: int, calls: int) -> None:
    """95 % are meant: of 60 seeded series at least 88 % of the limits that are given hold the truth. Limits that take
    the calls for independent hold it in less than half of them."""
    table = simulation()
    counts = table.coverage(table.Setting(processes, calls, 100, 0.4), 60)
    given, covered, independent = counts[0.5]
    assert given > 50
    assert covered >= 0.88 * given
    assert independent < 30
    given, covered, _ = counts[0.9]
    assert covered >= 0.88 * given
    assert counts[0.99][0] == 0  # never supported by so few independent calls


def test_independent_calls_are_not_punished() -> None:
    """Where calls do not hang together all three percentiles are given, with limits that cover."""
    table = simulation()
    for given, covered, _ in table.coverage(table.Setting(1, 4000, 1, 0.4), 40).values():
        assert given == 40
        assert covered >= 36


def test_three_processes_do_not_tell_how_the_longest_calls_differ() -> None:
    """p99 takes six processes, or speaks of a single one."""
    random = np.random.default_rng(0)
    groups = [random.lognormal(0, 0.05, 2000) for _ in range(6)]
    for count, known in ((1, True), (3, False), (6, True)):
        quantile = percentile(np.concatenate(groups[:count]), groups[:count], 0.99)
        assert (quantile is not None) is known


@pytest.mark.parametrize("processes", [1, 2])
def test_equal_calls_have_the_limits_of_what_is_known_of_processes(processes: int) -> None:
    """A clock that reads the same 40 times tells nothing of the next process: there the time differs by 1.5 %."""
    quantile = percentile(np.full(40 * processes, 2.0), [np.full(40, 2.0)] * processes, 0.5)
    assert quantile is not None
    assert quantile.low is not None
    assert quantile.high is not None
    assert quantile.value == 2.0
    assert quantile.low * quantile.high == pytest.approx(4.0)
    assert quantile.high == pytest.approx(2.0 * math.exp(KNOWN.limit_mean([0.0] * processes, 0.95)))


def test_two_processes_do_not_get_the_limits_of_one_degree_of_freedom() -> None:
    """Medians 4 % apart, calls 3 % off: the limits are those of processes that are known to differ by 1.5 %, where
    Student's t alone reaches from 77 to 130 %."""
    random = np.random.default_rng(0)
    groups = [level * random.lognormal(0, 0.03, 300) for level in (0.98, 1.02)]
    median = percentile(np.concatenate(groups), groups, 0.5)
    assert median is not None
    assert median.low is not None
    assert median.high is not None
    assert 0.90 < median.low < 0.98
    assert 1.02 < median.high < 1.10


def test_a_call_that_the_system_interrupted_is_no_limit_of_a_median() -> None:
    """Three processes of which one is slower in most of its calls: the median may lie in either state, and not at the
    one call in a thousand that took 250 times as long."""
    random = np.random.default_rng(1)
    groups = [level * random.lognormal(0, 0.02, 1000) for level in (1.0, 1.0, 1.4)]
    groups[2][500] = 250.0
    median = percentile(np.concatenate(groups), groups, 0.5)
    assert median is not None
    assert median.high is not None
    assert 1.35 < median.high < 2.5


def test_the_median_of_undisturbed_calls_allows_for_how_processes_differ() -> None:
    """Limits of Student's t on the processes' medians, completed by what is known of processes; wider where most calls
    are one process's, and not narrow where the medians are equal."""
    even = widest([60, 60, 60], [1.00, 1.03, 0.97])
    together = math.sqrt((2 * 0.03**2 + 6 * 0.015**2) / 8)
    assert even == pytest.approx(math.exp(2.306 * together / math.sqrt(3)), rel=0.001)
    assert widest([600, 20, 20], [1.00, 1.03, 0.97]) > even * 1.015
    assert widest([60, 60, 60], [1.0, 1.0, 1.0]) > 1.01
    assert undisturbed_median(np.ones(5), [np.ones(5)]) is None


def widest(counts: list[int], levels: list[float]) -> float:
    """The upper limit over the median, which is 1, of processes with so many calls at those levels."""
    groups = [np.full(count, level) for count, level in zip(counts, levels, strict=True)]
    median = undisturbed_median(np.concatenate(groups), groups)
    assert median is not None
    assert median.value == 1.0
    assert median.high is not None
    return median.high


@pytest.mark.parametrize(
    ("sizes", "pieces"),
    [
        ([12], [2] * 6),
        ([7], [2, 1, 1, 1, 1, 1]),
        ([4], [1, 1, 1, 1]),
        ([4, 6, 2], [2, 2, 3, 3, 1, 1]),
        ([3, 3, 3, 1], [2, 1, 2, 1, 2, 1, 1]),
        ([5] * 7, [5] * 7),
    ],
)
def test_six_parts_tell_how_the_median_moves(sizes: list[int], pieces: list[int]) -> None:
    """Or more, as many of each process; none is empty, and each call is in one."""
    groups = np.split(np.arange(sum(sizes), dtype=float), np.cumsum(sizes)[:-1])
    cut = percentiles.cut_groups(groups)
    assert [len(piece) for piece in cut] == pieces
    assert np.concatenate(cut).tolist() == list(range(sum(sizes)))


@hypothesis.given(st.lists(st.integers(1, 6), min_size=1, max_size=30))
def test_equal_calls_share_their_ranks(values: list[int]) -> None:
    """The mean of those that they take."""
    assert percentiles.ranks(np.asarray(values, dtype=float)).tolist() == stats.rankdata(values).tolist()


@pytest.mark.parametrize(("worth", "q"), [(6, 0.5), (40, 0.9), (1000, 0.99), (57, 0.5)])
def test_the_limits_of_independent_calls_are_exact(worth: int, q: float) -> None:
    """Clopper and Pearson's, of as many calls as the share of them."""
    low, high = percentiles._order(worth, q)
    assert stats.beta.cdf(low, worth * q, worth - worth * q + 1) == pytest.approx(0.025)
    assert stats.beta.cdf(high, worth * q + 1, worth - worth * q) == pytest.approx(0.975)
