"""The gate's looks: what fresh process pairs said of two artifacts -> FAIL, PASS or another look; pure.

A process pair is one fresh process each for the baseline's artifact, the contender's, and a second copy of the
baseline's as control. After 6, 9 and 12 pairs the gate looks, and spends a third of its error at each: "retry until
significant" would have 17.6 % false alarms at five looks.

**Reference.** The contender is held against the geometric mean of both copies of the baseline: ratio - control / 2 in
logs. One copy alone brings its own process's luck into every ratio: over 30 real A/A pairs of a 0.09 ms network
(torch, onednn) its ratios spread by 1.27 % from pair to pair, against both copies by 1.06 %; of a 0.03 ms one (ONNX
Runtime) by 0.44 and 0.40 %. Where the arms spread alike, the control is then uncorrelated with what it vouches for.

**Honesty.** The control's 90 % interval must lie within half the tolerance: two one-sided tests at 5 %, which show
that the two copies are equal rather than fail to show that they differ. Asked at every look, so that a control that
is still too wide costs another look, not the verdict. A 95 % interval would leave 0.1 % of quiet A/A gates
undecided, and 21 % at a spread of 2.5 %.

**Error rates** at a tolerance of 5 %, in per cent of 200,000 simulated gates, arms that spread alike
(``QBENCH_GATES=200000 pytest tests/test_gate_looks.py -s``). ``spread``: standard deviation of one copy's ratio from
one process pair to the next; 1.5 % is what was measured here:

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

from qbench import decide, stats
from qbench.decide import FAMILY_ERROR, Outcome
from qbench.record import Interval

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

LOOKS = (6, 9, 12)
# Two-sided, as measurement.md's: each look may be wrong on either side with a third of the 5 %.
LEVEL = 1 - FAMILY_ERROR / len(LOOKS)
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
class Look:
    """What is known after some process pairs. ``slowdown`` and ``control`` are ratios of times with limits at
    ``level`` and ``CONTROL_LEVEL``; ``doubt`` says why the measurement cannot be trusted, else None. ``number``
    counts the looks from 1. ``decided``: no further look is needed."""

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
        """How many process pairs were seen."""
        return LOOKS[self.number - 1]


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """What running both artifacts of a case again gave: the process pairs, and the last look at them. ``look`` is
    None where a process ended before it, for the ``reason``."""

    pairs: tuple[ProcessPair, ...]
    look: Look | None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class NotRun:
    """Why a case could not be run again, so that only the stored figures can be compared."""

    reason: str


def process_pair(log_ratios: ArrayLike, control_log_ratios: ArrayLike) -> ProcessPair | None:
    """What the block log ratios of one generation say; None where either series is empty."""
    mine, control = (np.asarray(one, dtype=np.float64).ravel() for one in (log_ratios, control_log_ratios))
    if not mine.size or not control.size:
        return None
    third = max(1, mine.size // 3)
    return ProcessPair(
        ratio=float(np.median(mine)),
        control=float(np.median(control)),
        drift=float(np.median(mine[-third:]) - np.median(mine[:third])),
    )


def is_look(pairs: int) -> bool:
    """Whether the gate looks after so many process pairs."""
    return pairs in LOOKS


def look(pairs: Sequence[ProcessPair], tolerance: float, *, rules: int = 1) -> Look:
    """What 6, 9 or 12 process pairs say of "slower by more than ``tolerance``" (0.05: 5 %).

    ``rules``: how many rules share the gate's error. A FAIL that would not survive the correction for them takes
    another look, if there is one.
    """
    if not is_look(len(pairs)):
        raise ValueError(f"a look is taken after {LOOKS} process pairs, not after {len(pairs)}")
    number = LOOKS.index(len(pairs)) + 1
    slowdown = stats.ratio_over_processes([pair.change for pair in pairs], LEVEL)
    control = stats.ratio_over_processes([pair.control for pair in pairs], CONTROL_LEVEL)
    threshold = 1 + tolerance
    outcome = decide.judge(slowdown, threshold, wanted="below")
    beyond = decide.p_beyond(slowdown, threshold, side="above", level=LEVEL, freedom=len(pairs) - 1)
    p_value = decide.scaled(beyond, LEVEL)
    doubt = _doubt(control, math.exp(math.fsum(pair.drift for pair in pairs) / len(pairs)), tolerance)
    last = number == len(LOOKS)
    survives = outcome == "PASS" or (outcome == "FAIL" and p_value * rules <= FAMILY_ERROR)
    return Look(
        outcome=outcome if doubt is None else "INCONCLUSIVE",
        number=number,
        slowdown=slowdown,
        control=control,
        p_value=p_value,
        doubt=doubt,
        decided=last or (doubt is None and survives),
    )


def _doubt(control: Interval, drift: float, tolerance: float) -> str | None:
    """Why the pairs cannot vouch for themselves: the control is not shown to be 1, or the ratio drifted."""
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
