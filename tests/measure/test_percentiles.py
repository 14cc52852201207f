"""Rules of qbench/measure/percentiles.py; tests/benchmarks/percentile_error.py has the whole table."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
    found = table.coverage(table.Setting(processes, calls, 100, 0.4), 60)
    given, covered, independent = found[0.5]
    assert given > 50
    assert covered >= 0.88 * given
    assert independent < 30
    given, covered, _ = found[0.9]
    assert covered >= 0.88 * given
    assert found[0.99][0] == 0  # never supported by so few independent calls


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
        found = percentile(np.concatenate(groups[:count]), groups[:count], 0.99)
        assert (found is not None) is known


@pytest.mark.parametrize("processes", [1, 2])
def test_equal_calls_have_the_limits_of_what_is_known_of_processes(processes: int) -> None:
    """A clock that reads the same 40 times tells nothing of the next process: there the time differs by 1.5 %."""
    found = percentile(np.full(40 * processes, 2.0), [np.full(40, 2.0)] * processes, 0.5)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert found.value == 2.0
    assert found.low * found.high == pytest.approx(4.0)
    assert found.high == pytest.approx(2.0 * math.exp(KNOWN.limit_mean([0.0] * processes, 0.95)))


def test_two_processes_do_not_get_the_limits_of_one_degree_of_freedom() -> None:
    """Medians 4 % apart, calls 3 % off: the limits are those of processes that are known to differ by 1.5 %, where
    Student's t alone reaches from 77 to 130 %."""
    random = np.random.default_rng(0)
    groups = [level * random.lognormal(0, 0.03, 300) for level in (0.98, 1.02)]
    found = percentile(np.concatenate(groups), groups, 0.5)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    assert 0.90 < found.low < 0.98
    assert 1.02 < found.high < 1.10


def test_a_call_that_the_system_interrupted_is_no_limit_of_a_median() -> None:
    """Three processes of which one is slower in most of its calls: the median may lie in either state, and not at the
    one call in a thousand that took 250 times as long."""
    random = np.random.default_rng(1)
    groups = [level * random.lognormal(0, 0.02, 1000) for level in (1.0, 1.0, 1.4)]
    groups[2][500] = 250.0
    found = percentile(np.concatenate(groups), groups, 0.5)
    assert found is not None
    assert found.high is not None
    assert 1.35 < found.high < 2.5


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
    found = undisturbed_median(np.concatenate(groups), groups)
    assert found is not None
    assert found.value == 1.0
    assert found.high is not None
    return found.high
