"""McNemar's test of flips."""

from __future__ import annotations

import pytest

from qbench.stats import mcnemar


def test_mcnemar_midp_matches_the_published_example() -> None:
    """Fagerland et al. (2013), airway reactivity: 1 and 7 discordant pairs give mid-p 0.039; no flips give 1."""
    assert mcnemar.midp(1, 7) == pytest.approx(0.0391, abs=1e-4)
    assert mcnemar.midp(0, 0) == 1.0
    assert mcnemar.midp(3, 3) <= 1.0
