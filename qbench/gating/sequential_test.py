"""The gate's sequential test: the ratios of fresh process pairs -> FAIL, PASS or more pairs; pure.

A process pair is one fresh process each for the baseline's artifact, the contender's, and a second copy of the
baseline's as control. After 3, 6, 9 and 12 pairs there is an interim analysis, which may spend a quarter of the gate's
error: "retry until significant" would have 17.6 % false alarms at five analyses.

**Reference.** The contender is held against the geometric mean of both copies of the baseline: ratio - control / 2 in
logs. One copy alone brings the deviation of its own process into every ratio: over 30 real A/A pairs of a 0.09 ms
network (torch, onednn) its ratios spread by 1.27 % from pair to pair, against both copies by 1.06 %; of a 0.03 ms one
(ONNX Runtime) by 0.44 and 0.40 %. Where both artifacts spread alike, the control is then uncorrelated with the ratio
that it checks.

**Spread.** Three pairs alone say little of how pairs spread. Where artifacts spread alike the control spreads 4/3 as
much (in variance) as the change does, so both estimate one spread, with twice the degrees of freedom. Where the series
itself spreads more than that, its own spread counts.

**Control.** Its 90 % interval must lie within half the tolerance: two one-sided tests at 5 %, which show that the two
copies are equal rather than fail to show that they differ. Checked at every analysis, so that a control that is still
too wide costs more pairs, not the verdict.

**Error rates** at a tolerance of 5 %, in per cent of 200,000 simulated gates, artifacts that spread alike
(``QBENCH_GATES=200000 pytest tests/gating/test_sequential_test.py -s``).
``spread``: standard deviation of one copy's ratio from one process pair to the next; 1.5 % is what was measured here:

    spread   true change   FAIL    PASS   INCONCLUSIVE  pairs
    1.5 %        0 %       0.00   99.99       0.01       4.8
    1.5 %       +5 %       1.49    1.46      97.06      11.8
    1.5 %     +7.5 %      99.90    0.00       0.10       6.0
    1.5 %      +10 %      99.99    0.00       0.01       4.8
    2.5 %        0 %       0.00   90.91       9.09       8.3
    2.5 %       +5 %       1.17    1.18      97.65      11.9
    2.5 %     +7.5 %      74.49    0.00      25.50       9.8
    2.5 %      +10 %      90.89    0.00       9.11       8.3

With the first look after 6 pairs, and the spread from the change alone, the errors at +5 % were 1.86 and 1.83 %, and
an A/A took 6.2 pairs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from qbench.stats import multiple_testing, thresholds
from qbench.stats.interval_type import Interval
from qbench.stats.multiple_testing import FAMILY_ERROR
from qbench.stats.thresholds import Outcome

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# The numbers of process pairs after which there is an interim analysis.
ANALYSES = (3, 6, 9, 12)
CONTROL_LEVEL = 0.90
# Variance of the control over that of the change, where all three processes spread alike: 2 to 1 + 1/2.
CONTROL_OVER_CHANGE = 4 / 3


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """After which numbers of process pairs there is an interim analysis. Two-sided: all of them share 5 %, so that each
    may be wrong on either side with half of its part."""

    analyses: tuple[int, ...] = ANALYSES

    @property
    def level(self) -> float:
        """Of the interval of each analysis."""
        return 1 - FAMILY_ERROR / len(self.analyses)


GATE = Schedule()
LEVEL = GATE.level


@dataclass(frozen=True, kw_only=True)
class ProcessPair:
    """One generation of fresh processes, as natural logarithms: ``ratio`` is the contender's time over the first
    copy of the baseline's, ``control`` the second copy's over the first's, ``drift`` how far the contender's ratio
    moved from the first to the last third of its blocks; ``speedup`` is the fp32's time over the contender's, with the
    standard error ``unseen`` that no number of process pairs shows (``measure.pairing``), ``start``
    the contender's load and first call over both copies' (None: not measured). ``seconds``: the typical fastest call of
    the baseline, the contender and the fp32, in that order."""

    ratio: float
    control: float
    drift: float
    speedup: float | None = None
    unseen: float = 0.0
    start: float | None = None
    seconds: tuple[float, ...] = ()

    @property
    def change(self) -> float:
        """The contender against both copies of the baseline."""
        return self.ratio - self.control / 2


@dataclass(frozen=True, kw_only=True)
class InterimAnalysis:
    """What is known after some process pairs. ``slowdown`` and ``control`` are ratios of times with limits at
    ``level`` and ``CONTROL_LEVEL``; ``doubt`` says why the measurement cannot be trusted, else None. ``number``
    counts the analyses of the ``schedule`` from 1. ``decided``: no further pairs are needed."""

    outcome: Outcome
    number: int
    slowdown: Interval
    control: Interval
    p_value: float
    doubt: str | None
    decided: bool
    schedule: Schedule = GATE

    @property
    def level(self) -> float:
        """Of the limits of ``slowdown``."""
        return self.schedule.level

    @property
    def pairs(self) -> int:
        """How many process pairs it rests on."""
        return self.schedule.analyses[self.number - 1]

    @property
    def freedom(self) -> int:
        """Degrees of freedom of its limits."""
        return count_freedom(self.pairs)


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """What running both artifacts of a case again gave: the process pairs, and the last ``analysis`` of them for time,
    ``promise`` for the speed-up and ``start`` for the cold start (None: not asked for, or not reached). ``reason``: the
    process that ended it. ``cut``: the time that may be spent was over before it was decided; ``spent`` seconds.
    ``own_versions``: each artifact ran under the libraries that its side requires, else both under those that are here.
    """

    pairs: tuple[ProcessPair, ...]
    analysis: InterimAnalysis | None
    reason: str | None = None
    promise: InterimAnalysis | None = None
    start: InterimAnalysis | None = None
    cut: bool = False
    spent: float = 0.0
    own_versions: bool = False


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


def count_freedom(pairs: int) -> int:
    """Degrees of freedom of the limits after so many pairs: the control tells of the spread, too."""
    return 2 * (pairs - 1)


def analyze(
    pairs: Sequence[ProcessPair],
    tolerance: float,
    *,
    rules: int = 1,
    schedule: Schedule = GATE,
    told_apart: float | None = None,
) -> InterimAnalysis:
    """What 3, 6, 9 or 12 process pairs (or as many as the ``schedule`` says) say of "slower by more than ``tolerance``"
    (0.05: 5 %). ``told_apart``: the change that is to be told from none, of which the control may be off by half; the
    tolerance where it is not given.

    ``rules``: how many rules share the error of this case. A FAIL that would not survive the correction for them asks
    for more pairs, where there can be more.
    """
    changes = np.asarray([pair.change for pair in pairs])
    room = math.log1p((tolerance if told_apart is None else told_apart) / 2)
    return _analyze(pairs, changes, 1 + tolerance, "below", room, rules, schedule=schedule)


def analyze_promise(pairs: Sequence[ProcessPair], promise: float, *, rules: int = 1) -> InterimAnalysis:
    """What they say of "faster than fp32 by at least ``promise``"; the ratio is fp32's time over the contender's. The
    control may be off by half the distance to the promise: no more could have decided it."""
    speedups = np.asarray([pair.speedup for pair in pairs if pair.speedup is not None])
    room = abs(float(speedups.mean()) - math.log(promise)) / 2
    unseen = max(pair.unseen for pair in pairs)
    return _analyze(pairs, speedups, promise, "above", room, rules, unseen)


def analyze_start(pairs: Sequence[ProcessPair], tolerance: float) -> InterimAnalysis:
    """What they say of a cold start that is longer by more than ``tolerance``; each process starts once, so that the
    control is one more ratio like those that are judged, and not asked."""
    starts = np.asarray([pair.start for pair in pairs if pair.start is not None])
    return _analyze(pairs, starts, 1 + tolerance, "below", None, 1)


def estimate_pairs(analysis: InterimAnalysis, threshold: float) -> int | None:
    """About how many process pairs would decide, if the ratio stayed as it is; None where it lies on the threshold."""
    low, high = analysis.slowdown.low, analysis.slowdown.high
    if low is None or high is None:
        return None
    reach, distance = math.log(high / low) / 2, abs(math.log(analysis.slowdown.value / threshold))
    if distance < reach / 20:  # 400 times as many, or more
        return None
    return max(analysis.pairs + 1, math.ceil(analysis.pairs * (reach / distance) ** 2))


def _analyze(
    pairs: Sequence[ProcessPair],
    changes: NDArray[Any],
    threshold: float,
    wanted: Any,
    room: float | None,
    rules: int,
    unseen: float = 0.0,
    schedule: Schedule = GATE,
) -> InterimAnalysis:
    looks, level = schedule.analyses, schedule.level
    if len(pairs) not in looks:
        raise ValueError(f"an interim analysis comes after {looks} process pairs, not after {len(pairs)}")
    number, freedom = looks.index(len(pairs)) + 1, count_freedom(len(pairs))
    controls = np.asarray([pair.control for pair in pairs])
    of_changes, of_control = float(changes.var(ddof=1)), float(controls.var(ddof=1))
    shared = (of_changes + of_control / CONTROL_OVER_CHANGE) / 2
    ratio = _interval(changes, max(of_changes, shared), freedom, level, unseen)
    control = _interval(controls, max(of_control, shared * CONTROL_OVER_CHANGE), freedom, CONTROL_LEVEL)
    outcome = thresholds.decide(ratio, threshold, wanted=wanted)
    side: Any = "above" if wanted == "below" else "below"
    beyond = thresholds.p_value_beyond(ratio, threshold, side=side, level=level, degrees_of_freedom=freedom)
    p_value = multiple_testing.scale_p_value(beyond, level)
    drift = math.fsum(pair.drift for pair in pairs) / len(pairs)
    doubt = None if room is None else _find_doubt(control, drift, room, coarse=of_control == 0)
    survives = outcome == "PASS" or (outcome == "FAIL" and p_value * rules <= FAMILY_ERROR)
    return InterimAnalysis(
        outcome=outcome if doubt is None else "INCONCLUSIVE",
        number=number,
        slowdown=ratio,
        control=control,
        p_value=p_value,
        doubt=doubt,
        decided=number == len(looks) or (doubt is None and survives),
        schedule=schedule,
    )


def _interval(logs: NDArray[Any], variance: float, freedom: int, level: float, unseen: float = 0.0) -> Interval:
    """A ratio with Student's t limits from the variance of its logs, one a process pair, and the standard error that
    they do not show; None where they do not spread: a clock that is too coarse says nothing."""
    from scipy.special import stdtrit

    value = float(logs.mean())
    if variance == 0:
        return Interval(value=math.exp(value))
    half = float(stdtrit(freedom, (1 + level) / 2)) * math.sqrt(variance / len(logs) + unseen**2)
    return Interval(value=math.exp(value), low=math.exp(value - half), high=math.exp(value + half))


def _find_doubt(control: Interval, drift: float, room: float, *, coarse: bool) -> str | None:
    """Why the pairs cannot be trusted: the noise check is not shown to be within ``room`` of 1, or the ratio drifted
    (both in logs)."""
    if coarse:
        return "the noise check (a second copy of the baseline) has no spread, so noise cannot be told from change"
    assert control.low is not None
    assert control.high is not None
    most = f"{math.expm1(room) * 100:.2g} %"
    if max(-math.log(control.low), math.log(control.high)) > room:
        low, high = ((limit - 1) * 100 for limit in (control.low, control.high))
        return (
            f"the machine is too noisy: the noise check (a second copy of the baseline) reads {low:+.1f} to "
            f"{high:+.1f} %, at {CONTROL_LEVEL:.0%}, and must lie within {most}, half of what is to be told apart"
        )
    if abs(drift) > room:
        return (
            f"the series was not steady: the ratio moved by {math.expm1(drift) * 100:+.1f} % from the first to the "
            f"last third of a process, more than {most}, half of what is to be told apart"
        )
    return None
