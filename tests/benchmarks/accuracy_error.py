"""How often the accuracy test errs, exactly: summed over all outcomes of n examples, for many true models.

``python tests/benchmarks/accuracy_error.py`` prints, for each continuity adjustment, the worst and the median share of
models exactly on the margin that pass and that fail, and the mean share of models without a loss that pass. The figures
in qbench/guide/accuracy.md and in ``qbench/stats/noninferiority.py`` are its. About 20 s of processor time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

from qbench.stats import noninferiority

Array = NDArray[Any]
EXAMPLES = (100, 200, 300, 450, 700, 1000, 2000, 5000)
MARGINS = (0.005, 0.01, 0.02, 0.03)
FLIPS = (0.006, 0.012, 0.02, 0.03, 0.06, 0.12)
ADJUSTMENTS = (0.0, 0.1, 0.25, 0.5)


def statistics(gained: Array, lost: Array, n: int, margin: float, adjustment: float) -> Array:
    """Tango's score statistic of "worse by the margin" for whole tables of counts, in closed form, as in the paper."""
    half = -gained - lost - (2 * n - gained + lost) * margin
    root = half * half - 8 * n * lost * margin * (1 + margin)
    share = (np.sqrt(np.maximum(0.0, root)) - half) / (4 * n)
    distance = gained - lost + n * margin
    nearer = np.sign(distance) * np.maximum(0.0, np.abs(distance) - adjustment)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(nearer / np.sqrt(n * (2 * share - margin * (1 + margin))))


def chances(n: int, lost: float, gained: float) -> tuple[Array, Array]:
    """Counts that may occur, and the probability of each pair of them (lost x gained)."""
    most = min(n, int(n * max(lost, gained) + 8 * np.sqrt(n * max(lost, gained)) + 12))
    counts = np.arange(most + 1)
    given = [binom.pmf(counts, n - each, min(1.0, gained / (1 - lost))) for each in counts]
    return counts, binom.pmf(counts, n, lost)[:, None] * np.array(given)


def rates(n: int, margin: float, flips: float, adjustment: float) -> tuple[float, float, float]:
    """Shares of models on the margin that pass and that fail, and of models without a loss that pass."""
    z = float(norm.isf(0.05))
    found = []
    for loss in (margin, 0.0):
        counts, chance = chances(n, (flips + loss) / 2, (flips - loss) / 2)
        lost, gained = np.meshgrid(counts, counts, indexing="ij")
        told = statistics(gained, lost, n, margin, adjustment)
        found += [float(chance[told > z].sum()), float(chance[told < -z].sum())]
    return found[0], found[1], found[2]


def agrees(n: int, margin: float) -> bool:
    """Whether the closed form gives the verdicts of ``qbench.stats.noninferiority`` on a hundred pairs of counts."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, max(4, int(0.06 * n)), size=(100, 2))
    told = statistics(pairs[:, 0], pairs[:, 1], n, margin, noninferiority.CONTINUITY)
    names = np.where(told > norm.isf(0.05), "PASS", np.where(told < -norm.isf(0.05), "FAIL", "INCONCLUSIVE"))
    return all(
        noninferiority.assess_counts(int(gained), int(lost), n, margin).outcome == name
        for (gained, lost), name in zip(pairs, names, strict=True)
    )


def main() -> None:
    """Prints one line for each adjustment."""
    assert all(agrees(n, margin) for n in (100, 1000) for margin in MARGINS)
    for adjustment in ADJUSTMENTS:
        table = np.array(
            [
                rates(n, margin, flips, adjustment)
                for n in EXAMPLES
                for margin in MARGINS
                for flips in (margin, *FLIPS)
                if flips >= margin
            ]
        )
        worst, median, power = 100 * table.max(axis=0), 100 * np.median(table, axis=0), 100 * table[:, 2].mean()
        mark = "  (qbench)" if adjustment == noninferiority.CONTINUITY else ""
        print(
            f"adjustment {adjustment:4.2f}, {len(table)} settings: on the margin pass at most {worst[0]:.2f} % "
            f"(median {median[0]:.2f}), fail at most {worst[1]:.2f} % (median {median[1]:.2f}); "
            f"without a loss {power:.1f} % pass{mark}"
        )
    for loss in (0.010, 0.015):
        counts, chance = chances(1000, (0.03 + loss) / 2, (0.03 - loss) / 2)
        lost, gained = np.meshgrid(counts, counts, indexing="ij")
        naive = 100 * float(chance[lost - gained <= 10].sum())
        told = statistics(gained, lost, 1000, 0.01, noninferiority.CONTINUITY)
        tested = 100 * float(chance[told > norm.isf(0.05)].sum())
        worse = f"1,000 examples, 3 % flips, {100 * loss:g} points worse"
        print(f"{worse}: the rule 'at most 1 point down' passes {naive:.1f} %, qbench {tested:.2f} %")


if __name__ == "__main__":
    main()
