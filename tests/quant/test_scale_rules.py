"""Scale and zero point from a range: each tool's own rule, equal to the tool where it is installed."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st

from qbench.errors import BuildError
from qbench.quant import QINT8, QUINT8, RULES, QParams, qparams, quantize_per_tensor, representable
from qbench.quant.scale_rules import amct_qparams

numbers = st.floats(-(2**20), 2**20, width=32) | st.floats(-(2.0**-20), 2.0**-20, width=32) | st.just(0.0)
ends = st.tuples(numbers, numbers).map(sorted)
symmetric = st.booleans()


def torchs(low, high, dtype, *, symmetric, reduce_range=False, **more):
    """What torch's observer makes of a range: scales (float64) and zero points, 1-D."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and reduce_range too
        from torch.ao.quantization import MinMaxObserver, PerChannelMinMaxObserver

        several = np.ndim(low) > 0
        scheme = ("per_channel" if several else "per_tensor") + ("_symmetric" if symmetric else "_affine")
        observer = (PerChannelMinMaxObserver if several else MinMaxObserver)(
            dtype=getattr(torch, dtype), qscheme=getattr(torch, scheme), reduce_range=reduce_range, **more
        )
        observer(torch.from_numpy(np.stack([low, high], axis=-1).astype(np.float32)))
        scale, zero_point = observer.calculate_qparams()
    return scale.double().numpy(), zero_point.long().numpy()


@given(ends, st.sampled_from(["quint8", "qint8"]), symmetric, st.booleans())
def test_torchs_rule_is_its_observer(range_, dtype, symmetric, reduce_range):
    """The same float32 scale and the same zero point as ``MinMaxObserver``, for every scheme that it has."""
    assume(not (dtype == "quint8" and symmetric and reduce_range))
    params = qparams(*range_, dtype, symmetric=symmetric, reduce_range=reduce_range)
    scale, zero_point = torchs(*range_, dtype, symmetric=symmetric, reduce_range=reduce_range)
    assert (params.scale, params.zero_point) == (scale.item(), zero_point.item())


@given(st.lists(ends, min_size=1, max_size=5), symmetric)
def test_a_range_per_channel_gives_arrays(ranges, symmetric):
    """1-D ranges give one scale (float64) and zero point (int64) each, as ``PerChannelMinMaxObserver`` does."""
    low, high = np.array(ranges).T
    params = qparams(low, high, QINT8, symmetric=symmetric)
    scale, zero_point = torchs(low, high, "qint8", symmetric=symmetric)
    assert params.scale.dtype == np.float64
    assert params.zero_point.dtype == np.int64
    assert np.array_equal(params.scale, scale)
    assert np.array_equal(params.zero_point, zero_point)


@given(ends)
def test_qnnpacks_rule_is_its_weight_observer(range_):
    """-127 to 127 and no scale below 2**-12."""
    params = qparams(*range_, "qint8", rule="qnnpack", symmetric=True)
    scale, zero_point = torchs(*range_, "qint8", symmetric=True, quant_min=-127, quant_max=127, eps=2**-12)
    assert (params.scale, params.zero_point) == (scale.item(), zero_point.item())


@given(ends)
def test_qnnpacks_affine_rule_is_its_activation_observer(range_):
    """The symmetric qconfig's activations are affine qint8 with the same least scale."""
    params = qparams(*range_, "qint8", rule="qnnpack")
    scale, zero_point = torchs(*range_, "qint8", symmetric=False, eps=2**-12)
    assert (params.scale, params.zero_point) == (scale.item(), zero_point.item())


@given(ends, st.sampled_from(["quint8", "qint8"]), symmetric, st.booleans())
def test_onnxruntimes_rule_is_its_own_function(range_, dtype, symmetric, reduce_range):
    """The same as ``compute_scale_zp`` with the integers that ONNX Runtime takes for the type."""
    from onnx import TensorProto
    from onnxruntime.quantization.quant_utils import compute_scale_zp, get_qmin_qmax_for_qType

    kind = {"quint8": TensorProto.UINT8, "qint8": TensorProto.INT8}[dtype]
    levels = get_qmin_qmax_for_qType(kind, reduce_range=reduce_range, symmetric=symmetric)
    zero_point, scale = compute_scale_zp(*(np.array(end, np.float32) for end in range_), *levels, symmetric)
    params = qparams(*range_, dtype, rule="onnxruntime", symmetric=symmetric, reduce_range=reduce_range)
    assert (params.scale, params.zero_point) == (float(scale), int(zero_point))


@pytest.mark.parametrize(
    ("rule", "scale"),
    [("torch", 2.0 / 127.5), ("onnxruntime", 2.0 / 127), ("qnnpack", 2.0 / 127), ("amct", 2.0 / 128)],
)
def test_the_symmetric_scale_of_one_tensor_differs_between_tools(rule, scale):
    """-2 to 1 in qint8: divided by 127.5, 127 or, where the negative side dominates, 128."""
    params = qparams(-2.0, 1.0, "qint8", rule=rule, symmetric=True)
    assert params.scale == float(np.float32(scale))
    assert params.zero_point == 0


@pytest.mark.parametrize(
    ("low", "high", "symmetric", "scale", "offset"),
    [
        (-1.0, 2.0, True, 2 / 127, 0),
        (-2.0, 2.0, True, 2 / 127, 0),
        (-1.0, 1.55, False, 0.01, -28),
        (0.5, 2.55, False, 0.01, -128),
        (-2.55, -1.0, False, 0.01, 127),
        (0.0, 1e-6, True, 1.0, 0),
        (0.0, 1e-6, False, 1.0, -128),
    ],
)
def test_amcts_rule_by_hand(low, high, symmetric, scale, offset):
    """The positive side by 127, zero in the range, offset -128 - round(min / scale), scales below 1.19e-7 become 1."""
    params = qparams(low, high, "qint8", rule="amct", symmetric=symmetric)
    assert params.scale == pytest.approx(scale, rel=1e-7)
    assert params.zero_point == offset


@given(ends, symmetric)
@example([0.0, 2.7134847186971456e-05], False)  # 255 times AMCT's least scale are 3e-5
def test_calibrators_and_the_rule_amct_share_one_arithmetic(range_, symmetric):
    """A calibrated range gets the scale and zero point of the rule ``amct``, but zero point 0 where it is nothing."""
    by_rule = qparams(*range_, QINT8, rule="amct", symmetric=symmetric)
    calibrated = amct_qparams(*range_, symmetric=symmetric)
    nothing = max(abs(end) for end in range_) < 1 and by_rule.scale == 1.0  # of a range, 1 is a 127th or less
    assert calibrated == (QParams(scale=1.0, zero_point=0) if nothing else by_rule)


@given(ends, st.sampled_from([rule for rule in RULES if rule != "qnnpack"]), symmetric)
def test_zero_and_the_range_survive(range_, rule, symmetric):
    """Zero comes back exactly, and both ends lie in the representable range within a step."""
    params = qparams(*range_, QINT8, rule=rule, symmetric=symmetric)
    assert quantize_per_tensor([0.0], params.scale, params.zero_point, QINT8).dequantize().tolist() == [0.0]
    low, high = representable(params.scale, params.zero_point, QINT8)
    assert low - params.scale <= range_[0]
    assert range_[1] <= high + params.scale


def test_a_range_of_nothing_has_a_scale():
    """All zeros is a range: each rule has its own answer, none is zero."""
    assert qparams(0.0, 0.0, QUINT8).scale == 2.0**-23
    assert qparams(0.0, 0.0, QUINT8, rule="onnxruntime").scale == 1.0
    assert qparams(0.0, 0.0, QINT8, rule="amct").scale == 1.0
    assert qparams(0.0, 0.0, QINT8, rule="qnnpack").scale == 2.0**-12


@pytest.mark.parametrize(
    ("low", "high"), [(float("nan"), 1.0), (0.0, float("inf")), (float("inf"), float("-inf")), (-1e39, 1.0)]
)
def test_a_range_that_is_not_finite_is_refused(low, high):
    """NaN, infinity, an observer that saw nothing, and what float32 cannot hold."""
    with pytest.raises(BuildError, match="the range is not finite in float32: the calibration saw no data, or NaN"):
        qparams(low, high, "quint8")


def test_a_range_with_its_ends_swapped_is_refused():
    """In one channel of several, too."""
    with pytest.raises(BuildError, match="low is above high: were they swapped"):
        qparams(1.0, -1.0, "quint8")
    with pytest.raises(BuildError, match="low is above high"):
        qparams([0.0, 1.0], [1.0, 0.0], "quint8")


def test_a_range_too_wide_for_float32_is_refused():
    """torch's difference of the ends overflows to an infinite scale."""
    with pytest.raises(BuildError, match="too wide for a float32 scale; clip the outliers"):
        qparams(-3e38, 3e38, "quint8")


@pytest.mark.parametrize(("low", "high"), [([0.0], [1.0, 2.0]), (0.0, [1.0]), ([[0.0]], [[1.0]])])
def test_the_ends_have_one_shape(low, high):
    """Two numbers, or two arrays of one length."""
    with pytest.raises(BuildError, match="low and high must be two numbers, or two 1-D arrays of one length; got"):
        qparams(low, high, "quint8")


def test_an_unknown_rule_lists_those_there_are():
    """By name."""
    with pytest.raises(BuildError, match="no rule 'tflite' for scales; there are torch, qnnpack, onnxruntime, amct"):
        qparams(0.0, 1.0, "quint8", rule="tflite")


@pytest.mark.parametrize("rule", ["qnnpack", "amct"])
def test_a_rule_without_that_type_or_range_is_refused(rule):
    """QNNPACK's symmetric qconfig and AMCT have qint8 alone, and no reduced range."""
    with pytest.raises(BuildError, match=f"rule '{rule}' has no range for quint8; take rule torch"):
        qparams(0.0, 1.0, "quint8", rule=rule)
    with pytest.raises(BuildError, match=f"rule '{rule}' has no reduced range; leave reduce_range out"):
        qparams(0.0, 1.0, "qint8", rule=rule, reduce_range=True)


def test_torch_has_no_symmetric_reduced_quint8():
    """Its zero point 128 would lie outside 0 to 127; torch refuses it as well."""
    with pytest.raises(BuildError, match="no symmetric reduced range for quint8; take qint8"):
        qparams(0.0, 1.0, "quint8", symmetric=True, reduce_range=True)


@pytest.mark.parametrize("rule", RULES)
def test_a_bias_takes_its_scale_from_input_and_weight(rule):
    """qint32 has no range of its own in any rule."""
    with pytest.raises(BuildError, match="no range for qint32; a bias takes scale = input scale"):
        qparams(0.0, 1.0, "qint32", rule=rule)
