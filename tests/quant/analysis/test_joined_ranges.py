"""Which joins one scale cannot hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qbench.quant.analysis.joined_ranges import Seen, is_uneven


def watch(low, high, spread):
    values = np.array([low, high])
    result = Seen()
    result.add(values)
    assert math.isclose(result.spread, spread, rel_tol=1e-6)
    return result


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        pytest.param([(0.0, 640.0, 320.0), (0.0, 1.0, 0.5)], True, id="pixels and probabilities"),
        pytest.param([(0.0, 6.0, 3.0), (0.0, 3.0, 1.5)], False, id="two branches"),
        pytest.param([(-15.0, 15.0, 15.0), (-25.0, 0.0, 12.5)], False, id="raw heads of YOLOv8"),
        pytest.param([(0.0, 640.0, 320.0), (1.0, 1.0, 0.0)], False, id="a constant"),
        pytest.param([(0.0, 640.0, 320.0)], False, id="one alone"),
    ],
)
def test_only_what_one_scale_cannot_hold_is_uneven(inputs, expected):
    """Inputs are apart where the noise of the common step drowns one of them; a constant and branches of like size are
    not."""
    assert is_uneven([watch(*each) for each in inputs]) is expected


def of(high, spread, low=0.0):
    """An input of these ends and this spread."""
    return Seen(low=low, high=high, count=1, squares=spread**2)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ([of(10.0, 5.0), of(1.0, 0.2013)], True),  # 10 / 255 / sqrt(12) is 25 dB below a spread of 0.20131
        ([of(10.0, 5.0), of(1.0, 0.2014)], False),
        ([of(4.0, 2.0), of(1.0, 0.01)], True),
        ([of(3.99, 2.0), of(1.0, 0.01)], False),
        ([of(8.0, 2.0), of(2.0, 0.01, low=1.0)], True),  # a scale holds 0, too
        ([of(7.9, 2.0), of(2.0, 0.01, low=1.0)], False),
        ([of(0.0, 2.0, low=-4.0), of(1.0, 0.01)], True),
        ([of(1.0, 0.01), of(0.0, 2.0, low=-3.0)], True),
        ([of(2.0, 2.0, low=-1.9), of(1.0, 0.01)], False),
        ([of(10.0, 5.0), of(1.0, math.inf)], False),
        ([], False),
    ],
)
def test_an_input_is_lost_from_a_ratio_and_a_noise_on(inputs, expected):
    """Its own step would be four times as fine, and the noise of the common one is above -25 dB of its spread."""
    assert is_uneven(inputs) is expected


def test_the_spread_is_that_of_all_values():
    """However they come; whole numbers count as they are."""
    result = Seen()
    for values in (np.array([1, 3], np.uint8), np.array([[-250.0]], np.float32)):
        result.add(values)
    assert (result.low, result.high, result.count, result.total) == (-250.0, 3.0, 3, -246.0)
    assert result.spread == pytest.approx(float(np.std([1, 3, -250])))
    assert Seen(count=3, total=3.0, squares=3.0 - 1e-12).spread == 0.0
