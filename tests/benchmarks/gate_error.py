"""How often a whole gate of 1, 5 and 20 cases errs, by simulation.

    python tests/benchmarks/gate_error.py [GATES]

Each case is judged by time (tolerance 5 %, looks at ``sequential_test.ANALYSES`` process pairs, drawn from the noise
that qbench brings) and by top-1 on 1,000 examples against fp32 and against the baseline (margins of 1 point; 2 % flips
and 0.2 points lost against fp32, 0.5 % flips against the baseline), corrected by Holm over the rules of one kind of
one case, as ``qbench gate`` does. All cases were built anew; a case whose artifact is the baseline's takes no part.
Prints by noise, change and number of cases the per cent of gates that FAIL (exit code 1), that are held (4) and that
pass (0), and the process pairs a case takes. Where something changed, it is the first case.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from qbench.gating.error_rates import _pairs, traces
from qbench.gating.sequential_test import InterimAnalysis, ProcessPair, analyze, is_analysis_due
from qbench.gating.verdict import HARM
from qbench.stats import intervals, multiple_testing, noninferiority, thresholds
from qbench.stats.multiple_testing import FAMILY_ERROR
from qbench.stats.noninferiority import NonInferiority

TOLERANCE, MARGIN, EXAMPLES = 0.05, 0.01, 1000


@dataclass(frozen=True)
class Change:
    """What happened to the first case: its time (0.08: 8 % slower), and the share of examples that it lost."""

    name: str
    slower: float = 0.0
    lost: float = 0.0


CHANGES = (
    Change("nothing"),
    Change("4 % slower", slower=0.04),
    Change("8 % slower", slower=0.08),
    Change("0.3 points lost", lost=0.003),
    Change("2 points lost", lost=0.02),
)


def judge_time(rng: np.random.Generator, pairs: Sequence[ProcessPair], cases: int) -> tuple[str, int]:
    """The outcome (``hold`` for an INCONCLUSIVE that holds, ``note`` for one that does not), and the pairs."""
    drawn: list[ProcessPair] = []
    while True:
        drawn.append(pairs[int(rng.integers(len(pairs)))])
        if is_analysis_due(len(drawn)) and (analysis := analyze(drawn, TOLERANCE)).decided:
            break
    if analysis.outcome != "INCONCLUSIVE":
        return analysis.outcome, len(drawn)
    return ("hold" if points_to_harm(analysis, cases) else "note"), len(drawn)


def points_to_harm(analysis: InterimAnalysis, cases: int) -> bool:
    """Whether the time alone is shown to be longer than the baseline's, as ``Verdict`` says."""
    p = thresholds.p_value_beyond(
        analysis.slowdown, 1.0, side="above", level=analysis.level, degrees_of_freedom=analysis.freedom
    )
    return p < (HARM if analysis.slowdown.value - 1 >= TOLERANCE else HARM / cases)


def judge_accuracy(rng: np.random.Generator, lost: float, cases: int) -> str:
    """Both rules on the metric."""
    tests = [draw_test(rng, flips, loss + lost) for flips, loss in ((0.02, 0.002), (0.005, 0.0))]
    adjusted = multiple_testing.adjust_by_holm([test.p_worse or 0.0 for test in tests])
    failed = [test.outcome == "FAIL" and p <= FAMILY_ERROR for test, p in zip(tests, adjusted, strict=True)]
    if any(failed):
        return "FAIL"
    if all(test.outcome == "PASS" for test in tests):
        return "PASS"
    regression = tests[1].delta
    p_harm = thresholds.p_value_beyond(regression, 0.0, side="below", level=noninferiority.LEVEL)
    return "hold" if p_harm < (HARM if -regression.value >= MARGIN else HARM / cases) else "note"


def draw_test(rng: np.random.Generator, flips: float, loss: float) -> NonInferiority:
    """The test on 1,000 examples of which that share flips, and that much more loses than gains."""
    flips = max(flips, loss)
    lost, gained, _ = rng.multinomial(EXAMPLES, [(flips + loss) / 2, (flips - loss) / 2, 1 - flips])
    return assess(int(gained), int(lost))


@cache
def assess(gained: int, lost: int) -> NonInferiority:
    """The same counts come often."""
    return noninferiority.assess_counts(gained, lost, EXAMPLES, MARGIN)


def gate(rng: np.random.Generator, cases: int, same: Sequence[ProcessPair], changed: Sequence[ProcessPair],
         change: Change) -> tuple[str, int]:  # fmt: skip
    """The exit of one gate, and the process pairs it took."""
    effects, taken = set(), 0
    for case in range(cases):
        effect, pairs = judge_time(rng, changed if case == 0 else same, cases)
        taken += pairs
        effects |= {effect, judge_accuracy(rng, change.lost if case == 0 else 0.0, cases)}
    return next((effect for effect in ("FAIL", "hold") if effect in effects), "PASS"), taken


def rows(gates: int) -> Iterator[str]:
    """The table."""
    yield "noise  first case        cases    FAIL [limits]          held   passes   pairs a case"
    for trace in traces():
        same = _pairs(trace, 0.0)
        for change in CHANGES:
            changed = _pairs(trace, change.slower)
            for cases in (1, 5, 20):
                rng = np.random.default_rng(cases)
                count = max(50, gates if cases == 1 else gates * 4 // (3 + cases))
                drawn = [gate(rng, cases, same, changed, change) for _ in range(count)]
                exits = Counter(effect for effect, _ in drawn)
                failed = intervals.clopper_pearson(exits["FAIL"], count)
                limits = f"[{100 * (failed.low or 0):.2f}, {100 * (failed.high or 0):.2f}]"
                pairs = sum(taken for _, taken in drawn) / count / cases
                yield (
                    f"{trace.name:7}{change.name:18}{cases:5}{100 * failed.value:8.2f} {limits:16}"
                    f"{100 * exits['hold'] / count:8.2f} {100 * exits['PASS'] / count:8.2f} {pairs:10.1f}"
                )


if __name__ == "__main__":
    for row in rows(int(sys.argv[1]) if len(sys.argv) > 1 else 1000):
        print(row, flush=True)
