"""How many evaluation examples a margin needs, and what a margin catches: tables of guide/ci.md, evidence/gate.md.

    python tests/benchmarks/margins.py

Simulated: of n examples a share flips, half of them each way but for the true loss; 2,000 draws a cell, seed 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from qbench.stats import noninferiority

DRAWS = 2_000
FLIPS = (0.01, 0.03, 0.05)
MARGINS = (0.5, 1.0, 2.0)
# Multiples that a reader remembers.
SIZES = [round(base * 10**power) for power in (2, 3, 4) for base in (1, 1.5, 2, 3, 4, 5, 6, 8)]


@cache
def outcome_of(gained: int, lost: int, n: int, margin: float) -> str:
    """What the gate's test says of these counts."""
    return noninferiority.assess_counts(gained, lost, n, margin).outcome


def count_outcomes(n: int, flips: float, loss: float, margin: float) -> dict[str, float]:
    """The share of each outcome where the truth is a loss (a share of the examples) and so many flip."""
    random = np.random.default_rng(0)
    draws = random.multinomial(n, [(flips - loss) / 2, (flips + loss) / 2, 1 - flips], size=DRAWS)
    outcomes = [outcome_of(int(gained), int(lost), n, margin) for gained, lost, _ in draws]
    return {name: outcomes.count(name) / DRAWS for name in ("PASS", "INCONCLUSIVE", "FAIL")}


def find_size(flips: float, margin: float, power: float = 0.9) -> int | None:
    """The least number of examples with which a model that lost nothing passes in nine of ten cases."""
    return next((n for n in SIZES if count_outcomes(n, flips, 0.0, margin)["PASS"] >= power), None)


def list_losses() -> Iterator[str]:
    """A line for each true loss: how often the gate passes it, and how often "the drop is at most 1 point" does."""
    for loss in (0.0, 0.005, 0.01, 0.015, 0.02):
        shares = " ".join(f"{name} {share:.1%}" for name, share in count_outcomes(1_000, 0.03, loss, 0.01).items())
        draws = np.random.default_rng(0).multinomial(1_000, [(0.03 - loss) / 2, (0.03 + loss) / 2, 0.97], size=DRAWS)
        naive = float(np.mean(draws[:, 1] - draws[:, 0] <= 10))
        yield f"loss {loss * 100:g} points: {shares} naive {naive:.0%}"


def main() -> None:
    """Prints both tables."""
    print("examples for a PASS in 9 of 10 where nothing was lost")
    for margin in MARGINS:
        cells = [f"{flips:.0%} flips {find_size(flips, margin / 100):,}" for flips in FLIPS]
        print(f"margin {margin:g} points:", *cells)
    print("1,000 examples, 3 % flips, margin 1.0 point: what comes of a true loss; naive: the drop is at most 1 point")
    print(*list_losses(), sep="\n")


if __name__ == "__main__":
    main()
