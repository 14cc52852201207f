"""How often the accuracy test errs, exactly: summed over all outcomes of n examples, for many true models.

``python tests/benchmarks/accuracy_error.py`` prints, for each form of the test, the worst and median share of models
exactly on the margin that pass and that fail, in how many settings more than 5 % fail, and the mean share of models
without a loss that pass. Figures in qbench/guide/evidence/accuracy.md and ``qbench/stats/noninferiority.py`` are its.
About 30 s of processor time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

from qbench.stats import noninferiority

Array = NDArray[Any]
EXAMPLES = (50, 70, 100, 140, 200, 300, 450, 600, 800, 1000, 1400, 2000, 3000, 5000)
MARGINS = (0.0025, 0.0035, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03)
FLIPS = (0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.07, 0.10, 0.15)


@dataclass(frozen=True)
class Form:
    """One form of the test: by how much counts are shortened where it speaks for the contender and against it, and
    whether the latter side is straightened by the skewness."""

    name: str
    toward: float
    against: float
    straightened: bool


QBENCH = Form("qbench", noninferiority.CONTINUITY, noninferiority.CONTINUITY_AGAINST, straightened=True)
FORMS = (
    Form("no adjustment", 0.0, 0.0, straightened=False),
    Form("a quarter", 0.25, 0.25, straightened=False),
    Form("a half", 0.5, 0.5, straightened=False),
    Form("a quarter, straightened", 0.25, 0.25, straightened=True),
    QBENCH,
)


def statistics(gained: Array, lost: Array, n: int, margin: float, form: Form) -> Array:
    """Tango's score statistic of "worse by the margin" for whole tables of counts, in closed form, as in the paper."""
    half = -gained - lost - (2 * n - gained + lost) * margin
    root = half * half - 8 * n * lost * margin * (1 + margin)
    share = (np.sqrt(np.maximum(0.0, root)) - half) / (4 * n)
    distance = gained - lost + n * margin
    nearer = np.sign(distance) * np.maximum(0.0, np.abs(distance) - np.where(distance > 0, form.toward, form.against))
    variance = 2 * share - margin * (1 + margin)
    with np.errstate(divide="ignore", invalid="ignore"):
        plain = nearer / np.sqrt(n * variance)
        third = -margin * (1 - 3 * (2 * share - margin) + 2 * margin * margin)
        bend = third / variance**1.5 / np.sqrt(n) / 6
        straight = plain - bend * plain**2 + bend**2 * plain**3 / 3 + bend
    return np.asarray(np.where(form.straightened & (plain < 0), straight, plain))


def chances(n: int, lost: float, gained: float) -> tuple[Array, Array]:
    """Counts that may occur, and the probability of each pair of them (lost x gained)."""
    middle, reach = n * max(lost, gained), 8 * np.sqrt(n * max(lost, gained)) + 12
    counts = np.arange(max(0, int(n * min(lost, gained) - reach)), min(n, int(middle + reach)) + 1)
    given = [binom.pmf(counts, n - each, min(1.0, gained / (1 - lost))) for each in counts]
    return counts, binom.pmf(counts, n, lost)[:, None] * np.array(given)


def rates(n: int, margin: float, flips: float, forms: Sequence[Form]) -> list[tuple[float, float, float]]:
    """By form: shares of models on the margin that pass and that fail, and of models without a loss that pass."""
    z = float(norm.isf(0.05))
    tables = [chances(n, (flips + loss) / 2, (flips - loss) / 2) for loss in (margin, 0.0)]
    shares = []
    for form in forms:
        sides = []
        for counts, chance in tables:
            lost, gained = np.meshgrid(counts, counts, indexing="ij")
            values = statistics(gained, lost, n, margin, form)
            sides += [float(chance[values > z].sum()), float(chance[values < -z].sum())]
        shares.append((sides[0], sides[1], sides[2]))
    return shares


def agrees(n: int, margin: float) -> bool:
    """Whether the closed form gives the verdicts of ``qbench.stats.noninferiority`` on a hundred pairs of counts."""
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, max(4, int(0.06 * n)), size=(100, 2))
    values = statistics(pairs[:, 0], pairs[:, 1], n, margin, QBENCH)
    names = np.where(values > norm.isf(0.05), "PASS", np.where(values < -norm.isf(0.05), "FAIL", "INCONCLUSIVE"))
    return all(
        noninferiority.assess_counts(int(gained), int(lost), n, margin).outcome == name
        for (gained, lost), name in zip(pairs, names, strict=True)
    )


def main() -> None:
    """Prints one line for each form."""
    assert all(agrees(n, margin) for n in (50, 100, 1000) for margin in MARGINS)
    settings = [
        (n, margin, flips)
        for n in EXAMPLES
        for margin in MARGINS
        for flips in sorted({margin, 1.3 * margin, 1.7 * margin, *FLIPS})
        if flips >= margin
    ]
    table = 100 * np.array([rates(*setting, FORMS) for setting in settings])
    for form, shares in zip(FORMS, table.transpose(1, 0, 2), strict=True):
        worst, median, power = shares.max(axis=0), np.median(shares, axis=0), shares[:, 2].mean()
        print(
            f"{form.name}, {len(table)} settings: on the margin pass at most {worst[0]:.2f} % "
            f"(median {median[0]:.2f}), "
            f"fail at most {worst[1]:.2f} % (median {median[1]:.2f}; above 5 % in {(shares[:, 1] > 5).sum()}); "
            f"without a loss {power:.1f} % pass"
        )
    for loss in (0.010, 0.015):
        counts, chance = chances(1000, (0.03 + loss) / 2, (0.03 - loss) / 2)
        lost, gained = np.meshgrid(counts, counts, indexing="ij")
        naive = 100 * float(chance[lost - gained <= 10].sum())
        tested = 100 * float(chance[statistics(gained, lost, 1000, 0.01, QBENCH) > norm.isf(0.05)].sum())
        worse = f"1,000 examples, 3 % flips, {100 * loss:g} points worse"
        print(f"{worse}: the rule 'at most 1 point down' passes {naive:.1f} %, qbench {tested:.2f} %")


if __name__ == "__main__":
    main()
