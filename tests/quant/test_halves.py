"""Rules of qbench/quant/halves.py: what two halves of the examples do not agree on is chance."""

from __future__ import annotations

import numpy as np
import pytest

from qbench.quant.halves import shrink_mean


@pytest.mark.parametrize(
    ("first", "second", "share"),
    [
        ([1.0, 2.0], [1.0, 2.0], 1.0),
        ([3.0, 0.0], [1.0, 0.0], 0.75),  # 3 of the square of 2
        ([1.0, 0.0], [0.0, 1.0], 0.0),
        ([1.0, 1.0], [-2.0, -1.0], 0.0),  # never below
        ([0.0, 0.0], [0.0, 0.0], 0.0),
    ],
)
def test_a_mean_keeps_the_share_that_both_halves_tell_of(first: list[float], second: list[float], share: float) -> None:
    """The product of two estimates is the power of what both tell of; the square of their mean has the chance in it."""
    mean = (np.array(first) + np.array(second)) / 2
    assert shrink_mean(np.array(first), np.array(second)) == pytest.approx(mean * share)
