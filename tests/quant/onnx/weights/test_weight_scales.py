"""qbench.quant.onnx.weights.weight_scales: ARQ's scales, and the integers of a weight."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from qbench.quant.affine import dequantize_linear
from qbench.quant.onnx.weights.weight_scales import arq, quantized, spread
from qbench.quant.scale_rules import amct_qparams

FLOATS = st.floats(-(2.0**100), 2.0**100, width=32)
WEIGHTS = hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=5, max_side=4), elements=FLOATS)


@given(weight=WEIGHTS, data=st.data())
def test_each_channel_has_the_scale_of_its_own_range(weight: np.ndarray, data: st.DataObject) -> None:
    """A channel's scale is the one that qparams gives for its least and greatest value, along any axis."""
    axis = data.draw(st.integers(0, weight.ndim - 1))
    rows = np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1)
    expected = tuple(amct_qparams(float(row.min()), float(row.max()), symmetric=True).scale for row in rows)
    assert arq(weight, axis) == expected


@given(weight=WEIGHTS)
def test_without_an_axis_the_tensor_has_one_scale(weight: np.ndarray) -> None:
    """Per tensor there is one scale, that of the whole range."""
    assert arq(weight, None) == (amct_qparams(float(weight.min()), float(weight.max()), symmetric=True).scale,)


@given(weight=WEIGHTS, data=st.data())
def test_integers_are_within_half_a_step(weight: np.ndarray, data: st.DataObject) -> None:
    """No weight is clipped, and each is at most half a step of its channel from its integer."""
    axis = data.draw(st.one_of(st.none(), st.integers(0, weight.ndim - 1)))
    scales = arq(weight, axis)
    wide = spread(scales, axis, weight.ndim)
    q = quantized(weight, scales, axis)
    assert q.dtype == np.int8
    assert q.shape == weight.shape
    apart = np.abs(dequantize_linear(q, wide).astype(np.float64) - weight)
    assert (apart <= 0.5001 * wide.astype(np.float64)).all()


def test_known_scales() -> None:
    """The side that reaches further decides, with 127 levels above zero and 128 below; zeros have a scale of 1."""
    weight = np.array([[1.27, -0.5], [0.5, -1.28], [0.0, 0.0], [1e-9, 0.0]], np.float32)
    np.testing.assert_allclose(arq(weight, 0), [0.01, 0.01, 1.0, 1.0], rtol=1e-6)
    np.testing.assert_array_equal(quantized(weight, arq(weight, 0), 0), [[127, -50], [50, -128], [0, 0], [0, 0]])
    np.testing.assert_allclose(arq(weight, None), [0.01], rtol=1e-6)


def test_an_empty_weight_has_scales() -> None:
    """A layer with no inputs at all has scales of 1."""
    assert arq(np.empty((3, 0), np.float32), 0) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused_with_its_channel(wrong: float) -> None:
    """The message says how many values, and the first channel with one."""
    weight = np.ones((2, 5, 3), np.float32)
    weight[1, 2, 0] = weight[0, 4, 1] = wrong
    with pytest.raises(ValueError, match=r"^the weight has 2 values that are NaN or inf, the first in channel 2$"):
        arq(weight, 1)
    with pytest.raises(ValueError, match=r"^the weight has 2 values that are NaN or inf$"):
        arq(weight, None)
