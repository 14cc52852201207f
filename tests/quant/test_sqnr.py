"""The signal-to-noise ratio of outputs, within its limits."""

from __future__ import annotations

import numpy as np
import pytest

from qbench.quant.sqnr import MOST_DECIBELS, measure_sqnr, measure_sqnr_of


@pytest.mark.parametrize(("share", "decibels"), [(0.1, 20.0), (0.01, 40.0), (1.0, 0.0)])
def test_an_error_of_a_share_of_the_signal_has_its_decibels(share, decibels):
    """10 log10 of signal power to noise power: a tenth of every value is 20 dB."""
    expected = np.linspace(-3, 3, 100, dtype=np.float32)
    assert measure_sqnr(expected, expected * (1 + share)) == pytest.approx(decibels, abs=1e-3)


@pytest.mark.parametrize("value", [0.0, 2.5, np.nan, np.inf])
def test_equal_outputs_have_the_most(value):
    """Also where both are 0 everywhere, which leaves no noise to tell them apart by."""
    expected = np.full(3, value, np.float32)
    assert measure_sqnr(expected, expected.copy()) == MOST_DECIBELS


@pytest.mark.parametrize(
    ("expected", "outputs"), [([0.0, 0.0], [1.0, 0.0]), ([1.0, 2.0], [1.0, np.nan]), ([1.0, 2.0], [[1.0, 2.0]])]
)
def test_what_cannot_be_compared_has_the_least(expected, outputs):
    """Noise without a signal, a value that one side alone has not, another shape."""
    assert measure_sqnr(np.array(expected), np.array(outputs)) == -MOST_DECIBELS


def test_batches_have_the_decibels_of_all_their_values_together():
    """Not the mean of theirs; one of another shape has the least, and no further one is asked for."""
    rng = np.random.default_rng(0)
    expected, outputs = rng.normal(size=(2, 6, 5))
    sizes = np.array([1, 100, 1, 1, 10, 1])[:, None]
    pairs = list(zip(expected, expected + sizes * outputs, strict=True))
    assert measure_sqnr_of(iter(pairs)) == pytest.approx(measure_sqnr(expected, expected + sizes * outputs), abs=1e-9)
    rest = iter([pairs[0], (expected[0], outputs[:2]), pairs[1]])
    assert measure_sqnr_of(rest) == -MOST_DECIBELS
    assert len(list(rest)) == 1
