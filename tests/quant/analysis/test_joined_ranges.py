"""Which joins one scale cannot hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from qbench.quant.analysis.joined_ranges import Seen, is_uneven


def seen(low, high, spread):
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
    assert is_uneven([seen(*each) for each in inputs]) is expected
