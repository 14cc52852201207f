"""The tensor level: quantize, dequantize and int_repr in numpy, equal to torch bit for bit; what torch lets pass."""

from __future__ import annotations

import platform
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import qbench.quant
from qbench.errors import BuildError
from qbench.quant import (
    QINT8,
    QINT32,
    QUINT8,
    Quantized,
    affine,
    quantize_per_channel,
    quantize_per_tensor,
    representable,
)
from qbench.quant.affine import adds_zero_point_first

# torch rounds in another order on other architectures (no fbgemm there).
on_x86 = pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="bit-equality is to torch on x86")
dtypes = st.sampled_from([QUINT8, QINT8, QINT32])
scales = st.builds(lambda digits, power: digits * 10.0**power, st.floats(1, 9.99), st.integers(-30, 30))
finite = st.floats(width=32, allow_nan=False)


def array(*values):
    return np.array(values, dtype=np.float32)


@st.composite
def around_ties(draw, shape, scale):
    """Values halfway between two integers, and their neighbours in float32: where orders of rounding differ."""
    halves = draw(hnp.arrays(np.int64, shape, elements=st.integers(-400, 400)))
    with np.errstate(over="ignore"):
        values = ((halves + 0.5) * np.float32(scale)).astype(np.float32)
    steps = draw(hnp.arrays(np.int8, shape, elements=st.integers(-2, 2)))
    for _ in range(2):
        values = np.where(steps > 0, np.nextafter(values, np.float32(np.inf)), values)
        values = np.where(steps < 0, np.nextafter(values, np.float32(-np.inf)), values)
        steps = steps - np.sign(steps)
    return values


@st.composite
def per_tensor(draw):
    """(x, scale, zero_point, dtype); long enough for torch's vector code and its remainder."""
    shape = draw(st.one_of(st.just((19,)), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5)))
    scale, dtype = draw(scales), draw(dtypes)
    zero_point = draw(st.integers(dtype.low, dtype.high))
    x = draw(st.one_of(hnp.arrays(np.float32, shape, elements=finite), around_ties(shape, scale)))
    return x, scale, zero_point, dtype


def equal_to_torch(ours, theirs, x):
    """The same integers in the same storage type and, where torch's int32 does not wrap around, the same floats."""
    assert ours.int_repr().dtype == theirs.int_repr().numpy().dtype
    wide = np.zeros(x.shape, bool)
    if not adds_zero_point_first():  # torch 2.14 adds the zero point to an int32
        along = [1] * x.ndim if ours.axis is None else [-1 if i == ours.axis else 1 for i in range(x.ndim)]
        scale, zero_point = (np.asarray(part).reshape(along) for part in (ours.scale, ours.zero_point))
        wide = np.abs(x / scale) + np.abs(zero_point) >= 2**31 - 2**8
    assert np.where(wide, True, ours.int_repr() == theirs.int_repr().numpy()).all()
    own = ours.dequantize()
    assert own.dtype == np.float32
    wraps = wide
    if ours.dtype is QINT32 and ours.axis is None:
        wraps = wide | (np.abs(ours.integers.astype(np.int64) - ours.zero_point) >= 2**31)
    assert np.where(wraps, True, own == theirs.dequantize().numpy()).all()


@on_x86
@settings(max_examples=60)
@given(per_tensor())
def test_per_tensor_is_torch_bit_for_bit(case):
    """Any float32 with infinities, any shape, every dtype, scales over 60 decades, ties and their neighbours."""
    x, scale, zero_point, dtype = case
    theirs = torch.quantize_per_tensor(torch.from_numpy(np.array(x)), scale, zero_point, getattr(torch, dtype.name))
    equal_to_torch(quantize_per_tensor(x, scale, zero_point, dtype), theirs, x)


@on_x86
@given(st.data())
def test_per_channel_is_torch_bit_for_bit(data):
    """Every axis, another scale and zero point for each index along it."""
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=4))
    axis, dtype = data.draw(st.integers(0, len(shape) - 1)), data.draw(dtypes)
    channels = shape[axis]
    several = data.draw(st.lists(scales, min_size=channels, max_size=channels))
    zeros = data.draw(st.lists(st.integers(dtype.low, dtype.high), min_size=channels, max_size=channels))
    arbitrary = hnp.arrays(np.float32, shape, elements=finite)
    x = data.draw(st.one_of(arbitrary, around_ties(shape, several[0])))
    theirs = torch.quantize_per_channel(
        torch.from_numpy(x),
        torch.tensor(several, dtype=torch.float64),
        torch.tensor(zeros),
        axis,
        getattr(torch, dtype.name),
    )
    equal_to_torch(quantize_per_channel(x, several, zeros, axis, dtype), theirs, x)


@on_x86
@pytest.mark.parametrize("dtype", [QUINT8, QINT8, QINT32], ids=str)
def test_many_values_next_to_ties_are_torchs(dtype):
    """40,000 values next to half a step: a product rounded before the sum, or another 1 / scale, is one off on some."""
    random = np.random.default_rng(1)
    for scale in 10.0 ** random.uniform(-5, 4, 20):
        zero_point = int(random.integers(max(dtype.low, -(2**20)), min(dtype.high, 2**20) + 1))
        x = ((random.integers(-400, 400, 2000) + 0.5) * np.float32(scale)).astype(np.float32)
        x = np.where(random.random(2000) < 0.5, x, np.nextafter(x, np.float32(0)))
        kind = getattr(torch, dtype.name)
        theirs = torch.quantize_per_tensor(torch.from_numpy(x), scale, zero_point, kind)
        equal_to_torch(quantize_per_tensor(x, scale, zero_point, dtype), theirs, x)
        several = (torch.tensor([scale], dtype=torch.float64), torch.tensor([zero_point]))
        theirs = torch.quantize_per_channel(torch.from_numpy(x[None]), *several, 0, kind)
        equal_to_torch(quantize_per_channel(x[None], [scale], [zero_point], 0, dtype), theirs, x[None])


@given(per_tensor())
def test_the_error_is_half_a_step_inside_the_range_and_clips_outside(case):
    """|x - x'| <= scale / 2 within the representable range (and float32's rounding), beyond it the nearest end."""
    x, scale, zero_point, dtype = case
    low, high = representable(scale, zero_point, dtype)
    back = quantize_per_tensor(x, scale, zero_point, dtype).dequantize().astype(np.float64)
    exact = x.astype(np.float64)
    # The sum x / scale + zero_point and the way back each lose half a unit in float32's last place.
    rounding = scale * 2.0**-22 * (np.abs(np.clip(exact, low, high) / scale) + abs(zero_point) + 1)
    with np.errstate(invalid="ignore"):
        inside = np.abs(exact - back) <= scale / 2 + rounding
    beyond = np.where(exact > high, back == high, back == low)
    assert np.where((exact < low) | (exact > high), beyond | inside, inside).all()


def test_known_answers_per_tensor():
    """By hand: four values, one far above and one far below the range."""
    actual = quantize_per_tensor(array(-1, 0, 1, 2), 0.1, 10, "quint8")
    assert actual.int_repr().tolist() == [0, 10, 20, 30]
    assert actual.dequantize().tolist() == pytest.approx([-1, 0, 1, 2])
    ends = quantize_per_tensor(array(100, -100), 0.1, 10, "quint8")
    assert ends.int_repr().tolist() == [255, 0]
    assert ends.dequantize().tolist() == pytest.approx([24.5, -1.0])


def test_known_answer_per_channel():
    """By hand: two channels, each with its own scale and zero point."""
    x = np.array([[-1, 0], [1, 2]], dtype=np.float32)
    actual = quantize_per_channel(x, [0.1, 0.01], [10, 0], 0, "quint8")
    assert actual.int_repr().tolist() == [[0, 10], [100, 200]]
    assert actual.dequantize().tolist() == [pytest.approx([-1, 0]), pytest.approx([1, 2])]
    assert quantize_per_channel(x.T, [0.1, 0.01], [10, 0], 1, "quint8").int_repr().tolist() == [[0, 100], [10, 200]]


@pytest.mark.parametrize(
    ("first", "zero_point", "expected"),
    [
        (True, 10, [10, 12, 12, 10, 8]),
        (True, 11, [12, 12, 14, 10, 10]),
        (False, 10, [10, 12, 12, 10, 8]),
        (False, 11, [11, 13, 13, 11, 9]),
    ],
)
def test_ties_go_to_the_even_integer(monkeypatch, first, zero_point, expected):
    """torch 2.13 adds the zero point before the rounding, so that an odd one decides otherwise; torch 2.14 after it."""
    monkeypatch.setattr(affine, "adds_zero_point_first", lambda: first)
    x = array(0.5, 1.5, 2.5, -0.5, -1.5)
    assert quantize_per_tensor(x, 1.0, zero_point, "quint8").int_repr().tolist() == expected
    assert quantize_per_channel(x, [1.0] * 5, [zero_point] * 5, 0, "quint8").int_repr().tolist() == expected


@pytest.mark.parametrize(("version", "first"), [("2.13.0+cpu", True), ("2.14.1+cu130", False), ("3.0.0", False)])
def test_the_order_is_that_of_the_installed_torch(monkeypatch, version, first):
    """By its version; without a torch it is the newest one's."""
    monkeypatch.setattr(affine.importlib.metadata, "version", lambda name: version)
    assert affine.adds_zero_point_first.__wrapped__() is first

    def missing(name):
        raise affine.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(affine.importlib.metadata, "version", missing)
    assert affine.adds_zero_point_first.__wrapped__() is False


def test_a_bias_keeps_its_32_bits():
    """qint32 saturates at its own ends, 2**31 - 1 included, and its steps come back exactly."""
    actual = quantize_per_tensor(array(1e30, -1e30, 123456.0), 1.0, 0, "qint32")
    assert actual.int_repr().tolist() == [2**31 - 1, -(2**31), 123456]
    assert actual.dequantize()[2] == 123456.0


def test_dequantizing_32_bits_does_not_wrap_around():
    """torch subtracts in int32 and comes out on the other side; here the sign stays."""
    actual = quantize_per_tensor(array(3e9), 1.0, -(2**30), "qint32")
    assert actual.int_repr().tolist() == [3 * 10**9 - 2**30]
    far = Quantized(integers=np.array([2**31 - 1], np.int32), scale=1.0, zero_point=-(2**30), dtype=QINT32)
    theirs = torch._make_per_tensor_quantized_tensor(torch.tensor([2**31 - 1], dtype=torch.int32), 1.0, -(2**30))
    assert theirs.dequantize().item() < 0 < far.dequantize()[0]


def test_the_representable_range():
    """(qmin - zero_point) * scale to (qmax - zero_point) * scale."""
    assert representable(0.1, 10, "quint8") == (pytest.approx(-1.0), pytest.approx(24.5))
    assert representable(0.5, 0, "qint8") == (-64.0, 63.5)


def test_plain_numbers_are_taken_as_float32_and_infinities_saturate():
    """A list is what ``torch.tensor`` would make of it; infinity has a nearest integer, NaN has not."""
    assert quantize_per_tensor([1, float("inf"), float("-inf")], 1.0, 0, "qint8").int_repr().tolist() == [1, 127, -128]


def test_a_dtype_goes_by_itself_its_name_or_torchs():
    """Three spellings of one type."""
    spellings = (QINT8, "qint8", torch.qint8)
    assert {quantize_per_tensor([1.0], 1.0, 0, dtype).dtype for dtype in spellings} == {QINT8}


@pytest.mark.parametrize("dtype", ["quint4x2", "int8", torch.quint4x2, None])
def test_an_unknown_dtype_lists_those_there_are(dtype):
    """What torch knows beyond these three is not affine in whole bytes."""
    with pytest.raises(BuildError, match=r"no quantized dtype '.*'; there are quint8, qint8, qint32"):
        quantize_per_tensor([1.0], 1.0, 0, dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int32])
def test_only_float32_is_quantized(dtype):
    """Another type is named, and how to convert it."""
    with pytest.raises(BuildError, match=rf"got {np.dtype(dtype)}: convert it with astype\('float32'\)"):
        quantize_per_tensor(np.ones(2, dtype), 1.0, 0, "quint8")
    with pytest.raises(BuildError, match=f"got {np.dtype(dtype)}: convert"):
        quantize_per_channel(np.ones(2, dtype), [1.0, 1.0], [0, 0], 0, "quint8")


BAD_SCALES = [0.0, -0.1, float("nan"), float("inf"), 1e-46, 1e-39, 1e39]


@pytest.mark.parametrize("scale", BAD_SCALES)
def test_a_scale_that_gives_garbage_in_torch_is_refused(scale):
    """Zero, negative, NaN, infinite, and what becomes so in float32 (1e-46, 1e39) or has such a reciprocal (1e-39); one
    channel of many is named."""
    with pytest.raises(
        BuildError, match=r"the scale must be above 0 and finite.*; got .*; qparams\(low, high, dtype\)"
    ):
        quantize_per_tensor([1.0], scale, 0, "quint8")
    with pytest.raises(BuildError, match="got .* at channel 1"):
        quantize_per_channel([1.0, 1.0], [1.0, scale], [0, 0], 0, "quint8")
    with pytest.raises(BuildError, match="above 0 and finite"):
        representable(scale, 0, "quint8")


@pytest.mark.parametrize("scale", ["0.1", None, [0.1]])
def test_a_scale_is_one_number(scale):
    """Not a text, not nothing, not a list of one."""
    with pytest.raises(BuildError, match="a scale is a number|per tensor takes one scale"):
        quantize_per_tensor([1.0], scale, 0, "quint8")


@pytest.mark.parametrize(("dtype", "outside"), [("quint8", -1), ("quint8", 256), ("qint8", 128), ("qint32", 2**31)])
def test_a_zero_point_outside_the_dtype_is_refused(dtype, outside):
    """Zero would have no integer of its own; the range of the type is told."""
    with pytest.raises(BuildError, match=rf"the zero point must lie in {dtype}, .*; got {outside}; qparams"):
        quantize_per_tensor([1.0], 1.0, outside, dtype)
    with pytest.raises(BuildError, match=f"got {outside} at channel 1"):
        quantize_per_channel([1.0, 1.0], [1.0, 1.0], [0, outside], 0, dtype)


def test_a_tensor_of_channels_takes_no_zero_point_outside_its_dtype():
    """Also where it is put together from its parts; the channel is named."""
    with pytest.raises(BuildError, match="got 256 at channel 1"):
        Quantized(integers=np.zeros(2, np.uint8), scale=np.ones(2), zero_point=np.array([0, 256]), dtype=QUINT8, axis=0)


def test_a_zero_point_is_whole():
    """A fraction would be cut without a word."""
    with pytest.raises(BuildError, match="a zero point is a whole number, got float64"):
        quantize_per_tensor([1.0], 1.0, 0.5, "quint8")
    with pytest.raises(BuildError, match="a zero point is a whole number, got float64"):
        quantize_per_channel([1.0], [1.0], [0.5], 0, "quint8")


def test_nan_in_the_input_is_refused():
    """torch gives it the integer 255 or 0; the first one is located and all are counted."""
    x = np.zeros((2, 3), np.float32)
    x[0, 2] = x[1, 0] = np.nan
    for quantize in (
        lambda: quantize_per_tensor(x, 1.0, 0, "quint8"),
        lambda: quantize_per_channel(x, [1.0, 1.0], [0, 0], 0, "quint8"),
    ):
        with pytest.raises(BuildError, match=r"2 of 6 values are NaN \(the first at index \(0, 2\)\)"):
            quantize()


@pytest.mark.parametrize(
    ("scales", "zero_points", "told"),
    [
        (0.1, [0, 0], r"scales must be 1-D with one value per channel, 2 along axis 0; got shape \(\)"),
        ([0.1], [0, 0], r"scales must be 1-D .*; got shape \(1,\)"),
        ([0.1, 0.1, 0.1], [0, 0], r"scales must be 1-D .*; got shape \(3,\)"),
        ([[0.1, 0.1]], [0, 0], r"scales must be 1-D .*; got shape \(1, 2\)"),
        ([0.1, 0.1], 0, r"zero_points must be 1-D with one value per channel, 2 along axis 0; got shape \(\)"),
        ([0.1, 0.1], [0, 0, 0], r"zero_points must be 1-D .*; got shape \(3,\)"),
    ],
)
def test_scales_and_zero_points_fit_the_axis(scales, zero_points, told):
    """One value per channel: broadcasting would hide a mistake."""
    with pytest.raises(BuildError, match=told):
        quantize_per_channel(np.zeros((2, 3), np.float32), scales, zero_points, 0, "qint8")


@pytest.mark.parametrize("axis", [2, -1])
def test_an_axis_out_of_range_is_refused(axis):
    """Axes count from 0, as in torch; a negative one is no exception."""
    message = rf"axis {axis} is out of range for a tensor of shape \(2, 3\): it counts from 0 to 1"
    with pytest.raises(BuildError, match=message):
        quantize_per_channel(np.zeros((2, 3), np.float32), [1.0], [0], axis, "qint8")


def test_a_single_number_has_no_channels():
    """The way out is the other function."""
    with pytest.raises(BuildError, match="axis 0 is out of range .*: use quantize_per_tensor for one number"):
        quantize_per_channel(np.float32(1), [1.0], [0], 0, "qint8")


def test_integers_from_elsewhere_are_checked_too():
    """A ``Quantized`` made by hand fits its dtype, its channels, and dequantizes."""
    integers = np.array([[1, 2], [3, 4]], np.uint8)
    network = Quantized(integers=integers, scale=[1.0, 0.5], zero_point=[0, 1], dtype=QUINT8, axis=1)
    assert network.dequantize().tolist() == [[1.0, 0.5], [3.0, 1.5]]
    with pytest.raises(BuildError, match="qint8 is stored as int8, got uint8"):
        Quantized(integers=integers, scale=1.0, zero_point=0, dtype=QINT8)
    with pytest.raises(BuildError, match="scales must be 1-D with one value per channel"):
        Quantized(integers=integers, scale=[1.0], zero_point=[0], dtype=QUINT8, axis=1)
    with pytest.raises(BuildError, match="the zero point must lie in quint8"):
        Quantized(integers=integers, scale=1.0, zero_point=-1, dtype=QUINT8)


def test_the_package_names_only_what_it_has():
    """Every public name is there; another one is an AttributeError, so that imports fail as they should."""
    assert all(getattr(qbench.quant, name) is not None for name in qbench.quant.__all__)
    with pytest.raises(AttributeError, match="module 'qbench.quant' has no attribute 'fake'"):
        _ = qbench.quant.fake


def test_importing_the_package_imports_no_numpy():
    """Recipes are read by commands that answer at once."""
    program = "import sys, qbench.quant.recipe; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_example_of_the_package_is_true():
    """What its docstring shows is what comes out."""
    import doctest

    assert doctest.testmod(qbench.quant).attempted == 3
    assert doctest.testmod(qbench.quant).failed == 0


def test_the_public_names_are_listed():
    """Before one of them has been asked for, too: they are found by completion."""
    assert set(qbench.quant.__all__) <= set(dir(qbench.quant))
