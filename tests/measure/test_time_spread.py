"""Rules of qbench/measure/time_spread.py; its docstring has the table of tests/benchmarks/time_spread_error.py."""

from __future__ import annotations

import importlib.util
import math
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

from qbench.machine.process_spread import FREEDOM, TIME_SPREAD
from qbench.measure.time_spread import KNOWN, pool_cases

HALF = TIME_SPREAD / math.sqrt(2)  # of the distance between two processes whose deviation is as known


def simulation() -> Any:
    """The benchmark as a module."""
    file = Path(__file__).parent.parent / "benchmarks" / "time_spread_error.py"
    spec = importlib.util.spec_from_file_location("time_spread_error", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("processes", [1, 2, 3, 9])
def test_limits_cover_where_processes_differ_as_is_known_or_less(processes: int) -> None:
    """95 % are meant; of 300 seeded settings at least 93 % hold the truth, alone and among ten cases, and two processes
    have a quarter of the width that Student's t alone gives them."""
    table = simulation()
    for spread in (0.5, 1.0):
        for cases in (1, 10):
            setting = table.Setting(processes=processes, spread=spread, cases=cases, shared=0.7 if cases > 1 else 0.0)
            covered, half, _, alone = table.coverage(setting, 300)
            assert covered >= 0.93
            if processes == 2 and spread == 1.0:
                assert half < alone / 3


def test_the_cases_of_a_setting_show_that_processes_differ_more_here() -> None:
    """Twice the spread: alone two processes cover 84 %, among ten cases 95 %."""
    table = simulation()
    alone, together = (
        table.coverage(table.Setting(processes=2, spread=2, cases=cases, shared=shared), 300)[0]
        for cases, shared in ((1, 0.0), (10, 0.7))
    )
    assert alone < 0.9 < together


def test_one_case_that_differs_like_no_other_leaves_the_limits_of_the_others() -> None:
    """Nine cases as known and one 40 times as far apart: it has wide limits, the others keep theirs."""
    usual = [[-HALF, HALF]] * 9
    pooled = pool_cases([*usual, [40 * -HALF, 40 * HALF]])
    assert pooled == pool_cases(usual)
    assert pooled.freedom == FREEDOM
    assert pooled.variance == pytest.approx(KNOWN.variance)
    assert pooled.limit_mean([-HALF, HALF], 0.95) < 0.03
    assert pooled.limit_mean([40 * -HALF, 40 * HALF], 0.95) > 0.6


def test_what_refutes_the_knowledge_replaces_it() -> None:
    """Where all cases differ four times as much as is known, that is how much processes differ here, and one process
    has limits to match."""
    pooled = pool_cases([[4 * -HALF, 4 * HALF]] * 10)
    assert pooled.variance == pytest.approx(16 * KNOWN.variance)
    assert pooled.limit_mean([0.0], 0.95) > 4 * KNOWN.limit_mean([0.0], 0.95)
    refuted = KNOWN.complete(100 * KNOWN.variance, 1)
    assert (refuted.variance, refuted.freedom) == (100 * KNOWN.variance, 2)


def test_nothing_seen_is_what_is_known() -> None:
    """Cases of one process each say nothing of how processes differ."""
    assert pool_cases([[0.1], [0.2], []]) == KNOWN


@pytest.mark.parametrize("cases", [1, 2, 3])
def test_cases_of_one_setting_are_worth_less_than_as_many_of_different_ones(cases: int) -> None:
    """Each shares a part of what its processes do with the others: so many degrees of freedom beside what is known."""
    logs = [-1.2 * HALF, 1.2 * HALF, 0.0]
    variance = statistics.variance(logs)
    worth = 2 * cases / (1 + 0.25 * (cases - 1))
    expected = (KNOWN.freedom * KNOWN.variance + worth * variance) / (KNOWN.freedom + worth)
    pooled = pool_cases([logs] * cases)
    assert pooled.variance == pytest.approx(expected)
    assert pooled.freedom == KNOWN.freedom
