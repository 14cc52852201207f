"""qbench.quant.calibrators: one contract for all that are registered, and each against its exact definition."""

from __future__ import annotations

import functools
import math
import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from qbench import registry
from qbench.quant.affine import fake_quantize
from qbench.quant.calibrators.base import Calibrator
from qbench.quant.calibrators.extremes import CHUNK
from qbench.quant.calibrators.histogram import SIDE, Histogram
from qbench.quant.pytorch import torch_ao
from qbench.quant.recipe import FLOWS
from qbench.quant.scale_rules import QParams, amct_qparams

Array = NDArray[Any]
NAMES = registry.names("calibrator")
# How far order and batches may move the scale, as a share of it.
TOLERANCE = {
    "minmax": 0.0,
    "moving_average": 1e-6,
    "percentile": 1 / 256,
    "entropy": 1 / 64,
    "mse": 1 / 32,
    "ifmr": 0.02,
    "hfmg": 1 / 256,
    "histogram": 1 / 256,
}
# Below the least normal float32 a value has fewer digits than a bin; such a tensor gets the scale of zeros anyway.
FLOATS = st.floats(-(2.0**60), 2.0**60, width=32, allow_subnormal=False)
BATCHES = hnp.arrays(np.float32, hnp.array_shapes(min_dims=2, max_dims=2, max_side=30), elements=FLOATS)
few = settings(max_examples=10)  # the search for a range takes 5 to 50 ms
both = pytest.mark.parametrize("with_offset", [True, False], ids=["asymmetric", "symmetric"])
every = pytest.mark.parametrize("name", NAMES)


def calibrator(name: str, with_offset: bool = True, **options: Any) -> Calibrator:
    """A new one."""
    result: Calibrator = registry.load("calibrator", name)(asymmetric=with_offset, **options)
    return result


def calibrate(name: str, values: Array, with_offset: bool = True, **options: Any) -> Calibrator:
    """One that has been given ``values``."""
    instance = calibrator(name, with_offset, **options)
    instance.add(values)
    return instance


@functools.cache
def distribution(name: str) -> Array:
    """100,000 values as layers have them, by kind."""
    random = np.random.default_rng(len(name))
    normal = random.standard_normal(100_000).astype(np.float32)
    result = {
        "normal": normal,
        "relu": np.maximum(normal - 0.2, 0),
        "relu6": np.clip(normal * 3 + 1, 0, 6),
        "swish": normal * 2 / (1 + np.exp(-normal * 2)),
        "heavy": random.standard_t(3, 100_000),
        "lopsided": np.where(normal < 0, normal, normal**3),
        "negative": -np.abs(normal) - 1,
        "pixels": (random.integers(0, 256, 100_000) / 255 - 0.45) / 0.225,
        "outlier": np.append(normal, [40.0]),
    }
    return np.asarray(result[name], np.float32)


KINDS = ("normal", "relu", "relu6", "swish", "heavy", "lopsided", "negative", "pixels", "outlier")
kinds = pytest.mark.parametrize("kind", KINDS)


# --- the contract -----------------------------------------------------------------------------------------------------


def test_every_calibrator_has_a_stated_tolerance() -> None:
    """A new calibrator says how far order and batches move it."""
    assert set(NAMES) == set(TOLERANCE)


@every
def test_it_is_a_calibrator_with_the_registered_name(name: str) -> None:
    """The class knows the name it is registered under, and quantizes with an offset unless told otherwise."""
    loaded = registry.load("calibrator", name)
    assert issubclass(loaded, Calibrator)
    assert loaded.name == name
    assert loaded.flows == FLOWS  # a plan takes this for granted of qbench's own, since loading them takes time
    assert loaded().asymmetric


@every
def test_memory_is_bounded(name: str) -> None:
    """Whatever it is given, and after its range was asked for, a calibrator holds at most 256 KB."""
    random = np.random.default_rng(0)
    warm = calibrate(name, random.standard_normal((4, 50_000)).astype(np.float32))  # scratch memory of the thread
    warm.range()
    tracemalloc.start()
    try:
        instance = calibrator(name)
        for power in (0, 5, -5, 20):
            instance.add((random.standard_normal((4, 50_000)) * 2.0**power).astype(np.float32))
            instance.range()
        content, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert content <= 256 * 1024


@every
@both
@few
@given(batch=BATCHES, data=st.data())
def test_order_and_batches_do_not_matter(name: str, with_offset: bool, batch: Array, data: st.DataObject) -> None:
    """The examples in another order, cut into other batches, give the same scale up to the stated tolerance."""
    order = data.draw(st.permutations(range(len(batch))))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(batch)), max_size=4)))
    whole, parts = calibrate(name, batch, with_offset), calibrator(name, with_offset)
    for part in np.split(batch[list(order)], cuts):
        parts.add(part)
    assert math.isclose(whole.qparams().scale, parts.qparams().scale, rel_tol=TOLERANCE[name] + 1e-9)
    assert abs(whole.qparams().zero_point - parts.qparams().zero_point) <= 1 + 255 * TOLERANCE[name]


@every
@both
@kinds
def test_many_values_in_another_order_give_the_same_range(name: str, with_offset: bool, kind: str) -> None:
    """Sorted values, which grow from batch to batch, and the same in one piece and reversed, agree."""
    values = np.sort(distribution(kind)[:40_000])
    values = values[np.argsort(np.abs(values), kind="stable")].reshape(-1, 100)
    whole = calibrate(name, values, with_offset).qparams()
    growing, shrinking = calibrator(name, with_offset), calibrator(name, with_offset)
    for start in range(0, 400, 50):
        growing.add(values[start : start + 50])
        shrinking.add(values[350 - start : 400 - start])
    for actual in (growing.qparams(), shrinking.qparams()):
        assert math.isclose(actual.scale, whole.scale, rel_tol=TOLERANCE[name] + 1e-9)


@every
@both
@few
@given(batch=BATCHES)
def test_any_values_give_scale_and_offset(name: str, with_offset: bool, batch: Array) -> None:
    """The range is finite and in order, the scale is a positive float32, the offset is in -128 .. 127, and 0 where the
    quantization is symmetric."""
    calibrated = calibrate(name, batch, with_offset)
    low, high = calibrated.range()
    assert math.isfinite(low)
    assert math.isfinite(high)
    assert low <= high
    params = calibrated.qparams()
    assert 0 < params.scale == float(np.float32(params.scale)) < math.inf
    assert -128 <= params.zero_point <= 127
    assert with_offset or params.zero_point == 0


@every
@both
@few
@given(batch=BATCHES, power=st.integers(-20, 20))
@example(batch=np.array([[2.0**-14]], np.float32), power=-2)  # its scale becomes less than AMCT's least
@example(batch=np.ldexp(np.linspace(-1, 0, 100, dtype=np.float32), -20).reshape(10, 10), power=-20)
def test_twice_the_values_have_twice_the_range(name: str, with_offset: bool, batch: Array, power: int) -> None:
    """A power of two times the values gives the same power of two times the range, also where AMCT takes them for
    zeros: torch's rule uses the range, and clips what lies outside."""
    batch = np.where(np.abs(batch) < 2.0**-80, 0, batch)  # below 2**-100 values share bins
    low, high = calibrate(name, batch, with_offset).range()
    scaled = calibrate(name, batch * np.float32(2.0**power), with_offset).range()
    assert scaled == pytest.approx((low * 2.0**power, high * 2.0**power), rel=1e-6, abs=0)


@every
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused_and_not_counted(name: str, wrong: float) -> None:
    """NaN and inf raise with their number, and what was seen before stays as it was."""
    calibrated = calibrate(name, distribution("normal").reshape(100, -1))
    before = calibrated.range()
    spoilt = distribution("heavy").reshape(100, -1).copy()
    spoilt[[3, 50, 99], [2, 999, 0]] = wrong
    with pytest.raises(ValueError, match=r"^3 values are NaN or inf$"):
        calibrated.add(spoilt)
    with pytest.raises(ValueError, match=r"^1 value is NaN or inf$"):
        calibrated.add(np.array([wrong], np.float32))
    with pytest.raises(ValueError, match=r"^1 value is NaN or inf$"):
        calibrated.add(np.array([1e300]))  # beyond float32
    assert calibrated.range() == before


@every
def test_nothing_seen_has_no_range(name: str) -> None:
    """Before the first value, and after empty batches alone, there is no range; an empty batch changes none."""
    instance = calibrator(name)
    with pytest.raises(ValueError, match=r"^no value was seen$"):
        instance.range()
    instance.add(np.empty((0, 3), np.float32))
    with pytest.raises(ValueError, match=r"^no value was seen$"):
        instance.qparams()
    instance.add(np.ones((2, 3), np.float32))
    before = instance.range()
    instance.add(np.empty((4, 0), np.float32))
    assert instance.range() == before


@every
@both
def test_zeros_have_a_scale_of_one(name: str, with_offset: bool) -> None:
    """A tensor that is all zeros, of either sign, is quantized with a scale of 1 and an offset of 0."""
    assert calibrate(name, np.array([[0.0, -0.0]] * 4, np.float32), with_offset).qparams() == QParams(
        scale=1.0, zero_point=0
    )


@every
@both
@pytest.mark.parametrize("value", [3.0, -3.0, 1e-3, -7e4, 3.4e38])
def test_a_constant_is_kept(name: str, with_offset: bool, value: float) -> None:
    """A tensor of one value comes back within half a step."""
    values = np.full((3, 5), value, np.float32)
    params = calibrate(name, values, with_offset).qparams()
    assert fake_quantize(values, params.scale, params.zero_point) == pytest.approx(values, abs=0.5001 * params.scale)
    assert params.scale <= abs(value) / 60


@every
def test_negative_values_use_the_whole_range(name: str) -> None:
    """Values of which none is positive get an offset of 127: all 256 levels lie below zero."""
    params = calibrate(name, distribution("negative").reshape(100, -1)).qparams()
    assert params.zero_point == 127
    assert params.scale <= 6 / 255


@every
@both
def test_an_outlier_does_not_hide_the_rest(name: str, with_offset: bool) -> None:
    """With one value of 1,000 times the rest, the range still reaches from the rest to within what was searched."""
    values = distribution("normal").reshape(100, -1).copy()
    values[50, 7] = 4000
    low, high = calibrate(name, values, with_offset).range()
    assert values.min() * 1.3 * 128 / 127 <= low <= 0
    assert 1 <= high <= 4000 * 1.3


@every
@pytest.mark.parametrize("kind", ["float16", "float64", "int8", "uint8", "strided", "scalar", "read-only"])
def test_any_array_of_numbers_is_taken_and_left_as_it_is(name: str, kind: str) -> None:
    """Other types, layouts and ranks give what their float32 values give, and stay unchanged."""
    plain = (np.arange(48) % 13).astype(np.float32).reshape(6, 8)
    given_: Array = {
        "strided": np.repeat(plain, 2, axis=1)[:, ::2],
        "scalar": np.array(5.0, np.float32),
        "read-only": plain.copy(),
    }.get(kind, plain.astype(kind if kind[-1].isdigit() else np.float32))
    given_.flags.writeable = False
    before = given_.copy()
    expected = plain if given_.ndim else np.array([[5.0]], np.float32)
    assert calibrate(name, given_).range() == calibrate(name, expected).range()
    np.testing.assert_array_equal(given_, before)


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("percentile", {"percentile": 50}, "percentile: expected per cent above 50 to 100, got 50"),
        ("percentile", {"percentile": 100.1}, "percentile: expected per cent above 50 to 100, got 100.1"),
        ("ifmr", {"max_percentile": 0.5}, "max_percentile: expected a share above 0.5 to 1, got 0.5"),
        ("ifmr", {"min_percentile": 1.01}, "min_percentile: expected a share above 0.5 to 1, got 1.01"),
        (
            "ifmr",
            {"search_range": (1.3, 0.7)},
            "search_range: expected a start above 0 and an end above that, got 1.3, 0.7",
        ),
        ("ifmr", {"search_range": (0, 1)}, "search_range: expected a start above 0 and an end above that, got 0, 1"),
        ("ifmr", {"search_range": (1, 1)}, "search_range: expected a start above 0 and an end above that, got 1, 1"),
        (
            "ifmr",
            {"search_range": (0.5, math.inf)},
            "search_range: expected a start above 0 and an end above that, got 0.5, inf",
        ),
        (
            "ifmr",
            {"search_step": 0.61},
            "search_step: expected a number above 0 that is at most the length of search_range, 0.6, got 0.61",
        ),
        (
            "ifmr",
            {"search_step": 0},
            "search_step: expected a number above 0 that is at most the length of search_range, 0.6, got 0",
        ),
        ("hfmg", {"num_of_bins": 1023}, "num_of_bins: expected 1024, 2048, 4096, 8192, got 1023"),
        ("hfmg", {"num_of_bins": 8193}, "num_of_bins: expected 1024, 2048, 4096, 8192, got 8193"),
    ],
)
def test_options_out_of_range_are_refused(name: str, wrong: dict[str, Any], message: str) -> None:
    """The message names the option, what it must be and what it is."""
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        calibrator(name, **wrong)


@pytest.mark.parametrize(
    ("options", "factors"),
    [
        ({}, np.arange(70, 131) / 100),
        ({"search_step": 0.6}, [0.7, 1.3]),
        ({"search_step": 0.4}, [0.7, 1.1]),
        ({"search_range": (0.5, 2), "search_step": 0.5, "max_percentile": 1, "min_percentile": 0.51}, [0.5, 1, 1.5, 2]),
    ],
)
def test_ifmr_tries_every_step_of_its_range(options: dict[str, Any], factors: Any) -> None:
    """From its start on, the end among them where a step reaches it."""
    assert calibrator("ifmr", **options)._factors == pytest.approx(factors)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("percentile", "asymmetric", "symmetric"),
    [(100, (-50, 50), (-50, 50)), (90, (-45, 45), (-45 * 128 / 127, 45)), (50.1, (-25, 25), (-25 * 128 / 127, 25))],
)
def test_percentile_cuts_half_at_each_end_or_all_of_the_absolute_values(
    percentile: float, asymmetric: tuple[float, float], symmetric: tuple[float, float]
) -> None:
    """Of the whole numbers from -50 to 50; a symmetric range reaches a level further below."""
    values = np.arange(-50, 51, dtype=np.float32)
    for with_offset, ends in ((True, asymmetric), (False, symmetric)):
        assert calibrate("percentile", values, with_offset, percentile=percentile).range() == pytest.approx(
            ends, rel=2e-3
        )


# --- the histogram ----------------------------------------------------------------------------------------------------


@given(batch=BATCHES)
@example(batch=np.array([[1.1754944e-38, 0, 0]], np.float32))
@example(batch=np.array([[-1e-45, 1e-45, 0, 2.0**-101]], np.float32))
def test_every_value_is_found_in_its_bin(batch: Array) -> None:
    """The value at each position of the sorted values is right to 1/1024 of it, near zero to a 2**-19th of the largest
    (of 2**-101 where all are smaller, as values are that are quantized as zeros); the least and the greatest are exact.
    """
    histogram = Histogram()
    histogram.add(batch)
    bins, values = histogram.bins(), np.sort(batch.ravel().astype(np.float64))
    assert bins.counts.sum() == values.size
    largest = max(np.abs(values).max(), 2.0**-101)
    for position, value in enumerate(values.tolist()):
        assert abs(bins.value(position) - value) <= abs(value) / 1024 + largest * 2.0**-19
    assert (bins.value(0), bins.value(values.size - 1)) == (values[0], values[-1])
    assert (np.diff(bins.edges) >= 0).all()


@every
@both
def test_values_too_small_for_bins_of_their_own_are_quantized_as_zeros(name: str, with_offset: bool) -> None:
    """What the histogram does not tell apart below 2**-100 decides nothing: every calibrator gives scale 1."""
    for tiny in (1.1754944e-38, 1e-45, 2.0**-101):
        calibrated = calibrate(name, np.array([[tiny, 0, 0, -tiny / 2]], np.float32), with_offset)
        assert calibrated.qparams() == QParams(scale=1.0, zero_point=0)


@given(batch=BATCHES, power=st.integers(1, 150))
def test_growing_merges_whole_bins(batch: Array, power: int) -> None:
    """Counting a larger value first or last leaves the same bins, however much larger."""
    batch = np.rint(np.clip(batch, -4000, 4000))  # no value is near an edge but those that are exactly on it
    large = np.array([2.0 ** min(power, 127)], np.float32)
    first, last = Histogram(), Histogram()
    for part in (large, batch):
        first.add(part)
    for part in (batch, large):
        last.add(part)
    np.testing.assert_array_equal(first.counts, last.counts)
    np.testing.assert_array_equal(first.bins().edges, last.bins().edges)


def test_more_values_than_a_chunk_are_all_counted() -> None:
    """A batch that is counted in several chunks, the last one not full, gives what its parts give."""
    values = np.random.default_rng(0).standard_normal(2 * CHUNK + 7).astype(np.float32)
    whole, parts = Histogram(), Histogram()
    whole.add(values)
    for part in np.array_split(values, 5):
        parts.add(part)
    assert whole.counts.sum() == values.size
    moved = np.abs(np.cumsum(whole.counts) - np.cumsum(parts.counts)).max()
    assert moved <= 2  # a value within one rounding of an edge


def test_the_widest_values_stay_inside() -> None:
    """The largest and the smallest floats have bins, without a warning, and signs do not mix."""
    top = np.finfo(np.float32).max
    values = np.array([-top, top, np.finfo(np.float32).tiny, -1e-45, 0.0], np.float32)
    histogram = Histogram()
    histogram.add(values)
    assert histogram.counts.sum() == 5
    assert histogram.counts[:SIDE].sum() == 2
    assert histogram.bins().edges[[0, -1]].tolist() == [-float(top), float(top)]


# --- what is asked of bins --------------------------------------------------------------------------------------------


@kinds
def test_folding_agrees_with_the_values(kind: str) -> None:
    """Positions among the folded bins are those among the sorted absolute values."""
    histogram = Histogram()
    histogram.add(distribution(kind))
    folded, sizes = histogram.bins().folded(), np.sort(np.abs(distribution(kind)))
    assert folded.counts.sum() == pytest.approx(sizes.size)
    for position in (0, 10, 50_000, 99_000, sizes.size - 1):
        assert folded.value(position) == pytest.approx(sizes[position], rel=2e-3, abs=1e-3)


@kinds
@pytest.mark.parametrize("ends", [(1.0, 1.0), (0.6, 0.6), (0.05, 0.3)])
def test_the_squared_error_is_that_of_the_values(kind: str, ends: tuple[float, float]) -> None:
    """The root mean square error over bins, coarse ones too, is that of quantizing every value, within 1 % or a
    sixteenth of a step (on values that lie on a grid)."""
    values = distribution(kind)
    histogram = Histogram()
    histogram.add(values)
    params = amct_qparams(float(values.min()) * ends[0], float(values.max()) * ends[1])
    exact = math.sqrt(squared_error(values, params) / values.size)
    bins = histogram.bins()
    lowest = (-128 - params.zero_point) * params.scale
    for entry in (bins, bins.coarse(params.scale / 8)):
        assert entry.counts.sum() == values.size
        root = math.sqrt(entry.squared_error(params.scale, lowest, 256) / values.size)
        assert root == pytest.approx(exact, rel=0.01, abs=params.scale / 16 if kind == "pixels" else 0)
    assert bins.coarse(params.scale / 8).counts.size < 9000


# --- each against its definition --------------------------------------------------------------------------------------


def squared_error(values: Array, params: QParams) -> float:
    """Of quantizing the stored values."""
    left = fake_quantize(values, params.scale, params.zero_point) - values
    return float(np.square(left, dtype=np.float64).sum())


def of(low: float, high: float, with_offset: bool) -> QParams:
    return amct_qparams(low, high, symmetric=not with_offset)


@both
@kinds
def test_minmax_is_the_range(kind: str, with_offset: bool) -> None:
    """No value is clipped; the two ends alone say as much as all values."""
    values = distribution(kind)
    assert calibrate("minmax", values, with_offset).range() == (values.min(), values.max())
    ends = np.array([values.min(), values.max()])
    assert calibrate("minmax", ends, with_offset).qparams() == calibrate("minmax", values, with_offset).qparams()


def test_moving_average_is_the_mean_of_the_examples_ends() -> None:
    """Each example counts alike, however many values the others have."""
    instance = calibrator("moving_average")
    instance.add(np.array([[1.0, 2.0], [-3.0, 4.0]], np.float32))
    instance.add(np.array([[[-1.0, 0.0, 9.0]]], np.float32))
    instance.add(np.array([-1.0, 1.0], np.float32))  # one axis: one example
    assert instance.range() == pytest.approx(((1 - 3 - 1 - 1) / 4, (2 + 4 + 9 + 1) / 4))


@kinds
@pytest.mark.parametrize("percentile", [90.0, 99.0, 99.99, 99.999, 100.0])
def test_percentile_keeps_that_share(kind: str, percentile: float) -> None:
    """The ends are the exact percentiles of the stored values, within 1/512 of the value; symmetric: that of the
    absolute values."""
    values = distribution(kind)
    low, high = calibrate("percentile", values, percentile=percentile).range()
    cut = (100 - percentile) / 2
    exact = np.percentile(values, [cut, 100 - cut], method="nearest")
    np.testing.assert_allclose([low, high], exact, rtol=2e-3, atol=1e-5)
    params = calibrate("percentile", values, False, percentile=percentile).qparams()
    reach = float(np.percentile(np.abs(values), percentile, method="nearest"))
    assert params.scale == pytest.approx(
        amct_qparams(max(values.min(), -reach * 128 / 127), min(values.max(), reach), symmetric=True).scale, rel=2e-3
    )


def exact_ifmr(values: Array, with_offset: bool) -> tuple[int, list[QParams]]:
    """The best of the 61 candidates over the stored values, and all of them."""
    ordered = np.sort(values.ravel())
    count = ordered.size
    high = max(float(ordered[math.ceil(0.999999 * count) - 1]), 0.0)
    low = min(float(ordered[count - math.ceil(0.999999 * count)]), 0.0)
    actual = []
    for factor in (0.7 + 0.01 * np.arange(61)).tolist():
        if not with_offset:
            actual.append(amct_qparams(low * factor, high * factor, symmetric=True))
        else:
            actual.append(amct_qparams(low, high * factor) if high > 0 else amct_qparams(low * factor, high))
    return int(np.argmin([squared_error(values, entry) for entry in actual])), actual


@both
@kinds
def test_ifmr_is_within_one_candidate_of_its_definition(kind: str, with_offset: bool) -> None:
    """The candidate is the one that the search over the stored values takes, or one beside it, or leaves an error of
    at most 1 % more (on values that lie on a grid, errors jump from one candidate to the next)."""
    values = distribution(kind)
    best, candidates = exact_ifmr(values, with_offset)
    params = calibrate("ifmr", values, with_offset).qparams()
    scales = np.array([candidate.scale for candidate in candidates])
    assert np.abs(scales - params.scale).min() < 0.003 * params.scale
    choice = int(np.abs(scales - params.scale).argmin())
    near = squared_error(values, params) <= 1.01 * squared_error(values, candidates[best])
    assert abs(choice - best) <= 1 or near


@pytest.mark.parametrize("layer", ["pixels", "first", "second", "added"])
def test_ifmr_on_real_activations(layer: str) -> None:
    """On pictures of digits and what two convolutions make of them, in batches, IFMR is within one
    candidate, or within three where the minimum is so flat that these leave at most 0.2 % more error."""
    values = activations()[layer]
    instance = calibrator("ifmr")
    for part in np.split(values, 5):
        instance.add(part)
    best, candidates = exact_ifmr(values, True)
    scales = np.array([candidate.scale for candidate in candidates])
    choice = int(np.abs(scales - instance.qparams().scale).argmin())
    near = squared_error(values, instance.qparams()) <= 1.002 * squared_error(values, candidates[best])
    assert abs(choice - best) <= 1 or (near and abs(choice - best) <= 3)


@functools.cache
def activations() -> dict[str, Array]:
    """Of 100 pictures: the input, two layers with ReLU, and the second without."""
    from sklearn.datasets import load_digits

    random = np.random.default_rng(0)
    pictures = ((load_digits().images[:100] - 4.9) / 6.0).astype(np.float32)
    patches = np.lib.stride_tricks.sliding_window_view(pictures, (3, 3), axis=(1, 2)).reshape(100, 36, 9)
    first = np.maximum(patches @ random.standard_normal((9, 32)).astype(np.float32) * 0.3, 0)
    second = first @ random.standard_normal((32, 32)).astype(np.float32) * 0.2 + 0.1
    return {"pixels": pictures, "first": first, "second": np.maximum(second, 0), "added": second}


@both
@kinds
def test_mse_leaves_the_least_error(kind: str, with_offset: bool) -> None:
    """No range with ends on a grid of shares of the values' own leaves less than 99 % of the error over the stored
    values (on pixels, which lie on a grid of their own that a step can hit, 90 %)."""
    values = distribution(kind)[::4]
    left = squared_error(values, calibrate("mse", values, with_offset).qparams())
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    shares = (np.linspace(0.05, 1, 39) if with_offset else np.linspace(0.05, 1, 200)).tolist()
    ends = [(a, b) for a in shares for b in shares] if with_offset and low < 0 < high else [(a, a) for a in shares]
    sample = values[::20] if len(ends) > 1000 else values
    end = sorted(ends, key=lambda pair: squared_error(sample, of(low * pair[0], high * pair[1], with_offset)))[:20]
    least = min(squared_error(values, of(low * a, high * b, with_offset)) for a, b in end)
    assert (0.90 if kind == "pixels" else 0.99) * left <= least


def test_mse_moves_each_end_by_itself() -> None:
    """An outlier on one side that is worth clipping does not clip the other side: among two million values, one of 20
    times the rest leaves less error than steps that reach it."""
    values = np.append(np.random.default_rng(0).uniform(-1, 1, 2_000_000), [20.0]).astype(np.float32)
    low, high = calibrate("mse", values).range()
    assert low == pytest.approx(-1, rel=0.02)
    assert 1 <= high < 5
    assert squared_error(values, amct_qparams(low, high)) <= 1.01 * squared_error(values, amct_qparams(-1.0, 1.0))


def exact_hfmg(values: Array, bins: int = 4096) -> tuple[float, float]:
    """The greedy shrink over an exact histogram, one step of 1e-5 at a time, with the error summed bin by bin."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    counts, edges = np.histogram(values.astype(np.float64), bins, (low, high))
    zero = min(int(np.searchsorted(edges, 0.0, side="right")) - 1, bins - 1)
    shares = np.cumsum(counts) / values.size
    middles = np.linspace(edges[:-1], edges[1:], 17)  # 17 points of every bin stand for the values in it
    alpha, beta, first, last, least, best = 0.0, 1.0, 0, bins - 1, math.inf, (0, bins - 1)
    moved = True
    while alpha < beta:
        if moved:
            step = (edges[last + 1] - edges[first]) / 256
            levels = edges[first] + (np.clip(np.floor((middles - edges[first]) / step), 0, 255) + 0.5) * step
            error = float((counts * np.square(middles - levels).mean(axis=0)).sum())
            if error > least:
                break
            least, best = error, (first, last)
        left = min(int(np.searchsorted(shares, alpha + 1e-5)), zero)
        right = max(int(np.searchsorted(shares, beta - 1e-5)), zero)
        moved = True
        if left - first > last - right:
            alpha, first, moved = alpha + 1e-5, left, left != first
        else:
            beta, last, moved = beta - 1e-5, right, right != last
    return float(edges[best[0]]), float(edges[best[1] + 1])


@kinds
def test_hfmg_is_the_greedy_shrink_of_its_definition(kind: str) -> None:
    """The range is that of the shrink over an exact histogram of the stored values, within 2 % of it; where the last
    few values of a tail end it earlier or later, the error over the stored values is at most 1 % larger."""
    values = distribution(kind)
    low, high = calibrate("hfmg", values).range()
    exact = exact_hfmg(values)
    close = max(abs(low - exact[0]), abs(high - exact[1])) <= 0.02 * (exact[1] - exact[0])
    assert close or squared_error(values, amct_qparams(low, high)) <= 1.01 * squared_error(values, amct_qparams(*exact))


@pytest.mark.parametrize("kind", ["normal", "relu", "relu6", "heavy", "lopsided"])
def test_hfmg_finds_what_torch_finds(kind: str) -> None:
    """torch's HistogramObserver, which shrinks the same way, ends within 2 % of the range."""
    import torch

    observer = torch_ao.quantization.HistogramObserver(bins=4096)
    observer(torch.from_numpy(distribution(kind)))
    low, high = (float(entry) for entry in observer._non_linear_param_search())
    ends = calibrate("hfmg", distribution(kind)).range()
    assert ends == pytest.approx((low, high), abs=0.02 * (high - low))


@pytest.mark.parametrize("bins", [1024, 8192])
def test_hfmg_uses_its_number_of_bins(bins: int) -> None:
    """An end of the range is an edge of the given number of equal bins."""
    values = distribution("relu")
    _, high = calibrate("hfmg", values, num_of_bins=bins).range()
    position = high / float(values.max()) * bins
    assert position == pytest.approx(round(position), abs=1e-6)
    assert high < values.max()


def exact_entropy(values: Array, levels: int) -> dict[float, float]:
    """The divergence at each end of the absolute values, every step written out."""
    reach = float(np.abs(values).max())
    counts = np.histogram(np.abs(values).astype(np.float64), 2048, (0, reach))[0].astype(float)
    counts[0] = counts[1]
    actual = {}
    for end in range(2048, levels - 1, -8):
        p = counts[:end].copy()
        p[-1] += counts[end:].sum()
        q = np.zeros(end)
        for level in range(levels):
            part = slice(level * end // levels, (level + 1) * end // levels)
            content = counts[part] > 0
            q[part] = np.where(content, counts[part].sum() / max(content.sum(), 1), 0.0)
        if not q.any():
            continue
        p, q = p[p > 0] / p.sum(), np.maximum(q[p > 0], 1e-4)
        actual[end / 2048 * reach] = float((p * np.log(p / (q / q.sum()))).sum())
    return actual


@pytest.mark.parametrize("kind", ["normal", "relu", "swish", "negative"])
def test_entropy_is_within_a_candidate_of_its_definition(kind: str) -> None:
    """The end is that of the search over an exact histogram of the stored values, within 3 %, or one where the exact
    divergence is at most a fifth above the least (its minimum is flat)."""
    values = distribution(kind)
    levels = 256 if values.min() * values.max() >= 0 else 128
    low, high = calibrate("entropy", values).range()
    exact, actual = exact_entropy(values, levels), max(high, -low)
    best = min(exact, key=lambda end: exact[end])
    near = min(exact, key=lambda end: abs(end - actual))
    assert actual == pytest.approx(best, rel=0.03) or exact[near] <= 1.2 * exact[best]
    assert exact[near] <= 0.5 * max(exact.values())
    assert low == max(float(values.min()), -actual) or high == min(float(values.max()), actual)
