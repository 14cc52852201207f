"""How often the limits of a case's time cover the truth where processes differ, by simulation.

    python tests/benchmarks/time_spread_error.py [SETTINGS]

ln(time) of a process is normal around the truth, ``spread`` times as wide as is known of processes; the case of
interest has 1, 2, 3 or 9 of them, alone or as one of ten cases of a setting, of which the others have 1, 2 or 9.
``wild`` of these differ 40 times as much; ``shared`` is the correlation of a generation's cases. Prints the coverage of
the limits and their median half width in per cent, and the same of Student's t alone.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qbench.machine.process_spread import TIME_SPREAD
from qbench.measure.percentiles import LEVEL
from qbench.measure.time_spread import pool_cases
from qbench.stats import intervals

OTHERS = (2, 2, 2, 9, 1, 1, 1, 2, 9)  # processes of the other cases of a setting
WILD = 40


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One row of the table."""

    processes: int
    spread: float
    cases: int = 1
    wild: int = 0
    shared: float = 0.0


SETTINGS = [
    Setting(processes=processes, spread=spread, cases=cases, wild=wild, shared=shared)
    for cases, wild, shared in ((1, 0, 0.0), (10, 0, 0.0), (10, 0, 0.7), (10, 2, 0.7))
    for processes in (1, 2, 3, 9)
    for spread in (0.5, 1, 2, 4)
]


def draw(setting: Setting, random: np.random.Generator) -> list[NDArray[np.float64]]:
    """ln(time / truth) of the processes of each case; the first is the one of interest."""
    counts = (setting.processes, *OTHERS[: setting.cases - 1])
    generation = random.standard_normal(max(counts))
    share = setting.shared
    cases = [
        math.sqrt(share) * generation[:count] + math.sqrt(1 - share) * random.standard_normal(count) for count in counts
    ]
    factors = [WILD if 0 < number <= setting.wild else 1 for number in range(len(counts))]
    return [setting.spread * TIME_SPREAD * factor * case for factor, case in zip(factors, cases, strict=True)]


def coverage(setting: Setting, count: int, seed: int = 0) -> tuple[float, float, float | None, float | None]:
    """The share of limits that hold the truth, and their median half width; the same of Student's t alone."""
    random = np.random.default_rng(seed)
    errors, halves, alone = [], [], []
    for _ in range(count):
        case, *others = draw(setting, random)
        errors.append(abs(float(case.mean())))
        halves.append(
            pool_cases([case.tolist(), *(other.tolist() for other in others)]).limit_mean(case.tolist(), LEVEL)
        )
        student = intervals.t_interval(case, LEVEL)
        alone.append(math.nan if student.high is None else student.high - student.value)
    student_cover = None if setting.processes == 1 else float(np.mean(np.less_equal(errors, alone)))
    student_half = None if setting.processes == 1 else float(np.median(alone))
    return float(np.mean(np.less_equal(errors, halves))), float(np.median(halves)), student_cover, student_half


def rows(count: int) -> Iterator[str]:
    """The table."""
    yield "cases  wild  shared  processes  spread     coverage  half width     Student's t alone  half width"
    for setting in SETTINGS:
        covered, half, student, student_half = coverage(setting, count)
        head = f"{setting.cases:5} {setting.wild:5} {setting.shared:7} {setting.processes:10} {setting.spread:7}"
        alone = "-" if student is None else f"{100 * student:.0f}"
        alone_half = "-" if student_half is None else f"{100 * student_half:.1f}"
        yield f"{head} {100 * covered:12.0f} {100 * half:11.1f} {alone:>21} {alone_half:>11}"


if __name__ == "__main__":
    for row in rows(int(sys.argv[1]) if len(sys.argv) > 1 else 2000):
        print(row, flush=True)
