"""McNemar's test of flips."""

from __future__ import annotations

import math

import pytest

from qbench.stats import mcnemar


def test_mcnemar_midp_matches_the_published_example() -> None:
    """Fagerland et al. (2013), airway reactivity: 1 and 7 discordant pairs give mid-p 0.039; no flips give 1."""
    assert mcnemar.midp(1, 7) == pytest.approx(0.0391, abs=1e-4)
    assert mcnemar.midp(0, 0) == 1.0
    assert mcnemar.midp(3, 3) <= 1.0


@pytest.mark.parametrize(("fewer", "more"), [(fewer, more) for more in range(9) for fewer in range(more + 1)])
def test_midp_is_what_the_binomial_distribution_says(fewer: int, more: int) -> None:
    """Twice the chance of fewer flips to one side than were seen, and that of as many, once; at most 1, whichever side
    it is. One flip alone says next to nothing: 0.5."""
    flips = fewer + more
    shares = [math.comb(flips, k) / 2**flips for k in range(fewer + 1)]
    expected = min(1.0, 2 * math.fsum(shares[:-1]) + shares[-1])
    assert mcnemar.midp(fewer, more) == pytest.approx(expected, rel=1e-12)
    assert mcnemar.midp(more, fewer) == mcnemar.midp(fewer, more)
