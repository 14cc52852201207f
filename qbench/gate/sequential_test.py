"""The gate's sequential test: the ratios of fresh process pairs -> FAIL, PASS or more pairs; pure.

A process pair is one fresh process each for the baseline's artifact, the contender's, and a second copy of the
baseline's as control. After 6, 9 and 12 pairs there is an interim analysis, which may spend a third of the gate's
error: "retry until significant" would have 17.6 % false alarms at five analyses.

**Reference.** The contender is held against the geometric mean of both copies of the baseline: ratio - control / 2 in
logs. One copy alone brings the deviation of its own process into every ratio: over 30 real A/A pairs of a 0.09 ms
network (torch, onednn) its ratios spread by 1.27 % from pair to pair, against both copies by 1.06 %; of a 0.03 ms one
(ONNX Runtime) by 0.44 and 0.40 %. Where both artifacts spread alike, the control is then uncorrelated with the ratio
that it checks.

**Control.** Its 90 % interval must lie within half the tolerance: two one-sided tests at 5 %, which show that the two
copies are equal rather than fail to show that they differ. Checked at every analysis, so that a control that is still
too wide costs more pairs, not the verdict. A 95 % interval would leave 0.1 % of quiet A/A gates undecided, and 21 % at
a spread of 2.5 %.

**Error rates** at a tolerance of 5 %, in per cent of 200,000 simulated gates, artifacts that spread alike
(``QBENCH_GATES=200000 pytest tests/gate/test_sequential_test.py -s``).
``spread``: standard deviation of one copy's ratio from one process pair to the next; 1.5 % is what was measured here:

    spread   true change   FAIL    PASS   INCONCLUSIVE  pairs
    1.5 %        0 %       0.00   99.99       0.01       6.2
    1.5 %       +5 %       1.86    1.83      96.31      11.9
    1.5 %     +7.5 %      99.87    0.00       0.13       6.9
    1.5 %      +10 %      99.99    0.00       0.01       6.2
    2.5 %        0 %       0.00   90.60       9.40       8.7
    2.5 %       +5 %       1.32    1.32      97.37      11.9
    2.5 %     +7.5 %      73.95    0.00      26.05      10.3
    2.5 %      +10 %      90.56    0.00       9.44       8.7
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from qbench.stats import intervals, multiple_testing, thresholds
from qbench.stats.interval_type import Interval
from qbench.stats.multiple_testing import FAMILY_ERROR
from qbench.stats.thresholds import Outcome

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# The numbers of process pairs after which there is an interim analysis.
ANALYSES = (6, 9, 12)
# Two-sided: each analysis may be wrong on either side with a third of the 5 %.
LEVEL = 1 - FAMILY_ERROR / len(ANALYSES)
CONTROL_LEVEL = 0.90


@dataclass(frozen=True, kw_only=True)
class ProcessPair:
    """One generation of fresh processes, as natural logarithms: ``ratio`` is the contender's time over the first
    copy of the baseline's, ``control`` the second copy's over the first's, ``drift`` how far the contender's ratio
    moved from the first to the last third of its blocks."""

    ratio: float
    control: float
    drift: float

    @property
    def change(self) -> float:
        """The contender against both copies of the baseline."""
        return self.ratio - self.control / 2


@dataclass(frozen=True, kw_only=True)
class InterimAnalysis:
    """What is known after some process pairs. ``slowdown`` and ``control`` are ratios of times with limits at
    ``level`` and ``CONTROL_LEVEL``; ``doubt`` says why the measurement cannot be trusted, else None. ``number``
    counts the analyses from 1. ``decided``: no further pairs are needed."""

    outcome: Outcome
    number: int
    slowdown: Interval
    control: Interval
    p_value: float
    doubt: str | None
    decided: bool
    level: float = LEVEL

    @property
    def pairs(self) -> int:
        """How many process pairs it rests on."""
        return ANALYSES[self.number - 1]


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """What running both artifacts of a case again gave: the process pairs, and the last ``analysis`` of them, which is
    None where a process ended before it, for the ``reason``."""

    pairs: tuple[ProcessPair, ...]
    analysis: InterimAnalysis | None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class NotRun:
    """Why a case could not be run again, so that only the stored figures can be compared."""

    reason: str


def process_pair(log_ratios: ArrayLike, control_log_ratios: ArrayLike) -> ProcessPair | None:
    """What the block log ratios of one generation say; None where either series is empty."""
    mine, control = (np.asarray(series, dtype=np.float64).ravel() for series in (log_ratios, control_log_ratios))
    if not mine.size or not control.size:
        return None
    third = max(1, mine.size // 3)
    return ProcessPair(
        ratio=float(np.median(mine)),
        control=float(np.median(control)),
        drift=float(np.median(mine[-third:]) - np.median(mine[:third])),
    )


def is_analysis_due(pairs: int) -> bool:
    """Whether there is an interim analysis after so many process pairs."""
    return pairs in ANALYSES


def analyze(pairs: Sequence[ProcessPair], tolerance: float, *, rules: int = 1) -> InterimAnalysis:
    """What 6, 9 or 12 process pairs say of "slower by more than ``tolerance``" (0.05: 5 %).

    ``rules``: how many rules share the gate's error. A FAIL that would not survive the correction for them asks
    for more pairs, where there can be more.
    """
    if not is_analysis_due(len(pairs)):
        raise ValueError(f"an interim analysis comes after {ANALYSES} process pairs, not after {len(pairs)}")
    number = ANALYSES.index(len(pairs)) + 1
    slowdown = intervals.ratio_over_processes([pair.change for pair in pairs], LEVEL)
    control = intervals.ratio_over_processes([pair.control for pair in pairs], CONTROL_LEVEL)
    threshold = 1 + tolerance
    outcome = thresholds.decide(slowdown, threshold, wanted="below")
    beyond = thresholds.p_value_beyond(
        slowdown, threshold, side="above", level=LEVEL, degrees_of_freedom=len(pairs) - 1
    )
    p_value = multiple_testing.scale_p_value(beyond, LEVEL)
    doubt = _find_doubt(control, math.exp(math.fsum(pair.drift for pair in pairs) / len(pairs)), tolerance)
    last = number == len(ANALYSES)
    survives = outcome == "PASS" or (outcome == "FAIL" and p_value * rules <= FAMILY_ERROR)
    return InterimAnalysis(
        outcome=outcome if doubt is None else "INCONCLUSIVE",
        number=number,
        slowdown=slowdown,
        control=control,
        p_value=p_value,
        doubt=doubt,
        decided=last or (doubt is None and survives),
    )


def _find_doubt(control: Interval, drift: float, tolerance: float) -> str | None:
    """Why the pairs cannot be trusted: the control is not shown to be 1, or the ratio drifted."""
    room = math.log1p(tolerance / 2)
    if control.low is None or control.high is None:
        return "the control (A/A) has no spread, so noise cannot be told from change"
    if max(-math.log(control.low), math.log(control.high)) > room:
        low, high = ((limit - 1) * 100 for limit in (control.low, control.high))
        return (
            f"the machine is too noisy: the control (a second copy of the baseline) reads {low:+.1f} to {high:+.1f} % "
            f"and must lie within half the tolerance, {tolerance * 50:.2g} %"
        )
    if abs(math.log(drift)) > room:
        return (
            f"the series was not steady: the ratio moved by {(drift - 1) * 100:+.1f} % from the first to the last "
            f"third of a process, more than half the tolerance, {tolerance * 50:.2g} %"
        )
    return None
