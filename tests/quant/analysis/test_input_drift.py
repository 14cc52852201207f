"""Inputs that an artifact clips, and evaluation data unlike that of the calibration: measured, and told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_records import accuracy, int8

from qbench.quant.analysis import input_drift
from qbench.quant.analysis.quantized_range import InputRange
from qbench.record.schema import InputFit, Spread
from qbench.report.run_warnings import warn_of_inputs

RNG = np.random.default_rng(0)


def spread(array, axis=1):
    values = input_drift.InputValues(axis)
    for start in range(0, len(array), 7):
        values.add(array[start : start + 7])
    return values.spread()


def photos(n, *, means=(0.48, 0.46, 0.41), scale=1.0, seed=0):
    """Images whose brightness and colours differ from one to the next, in 0..1 times ``scale``."""
    rng = np.random.default_rng(seed)
    light, tint = rng.normal(0, 0.12, (n, 1, 1, 1)), rng.normal(0, 0.03, (n, 3, 1, 1))
    noise = rng.normal(0, 0.2, (n, 3, 8, 8))
    return (np.clip(np.reshape(means, (1, 3, 1, 1)) + light + tint + noise, 0, 1) * scale).astype(np.float32)


@given(st.lists(st.floats(-1e4, 1e4, width=32), min_size=1, max_size=60), st.integers(1, 60))
def test_sums_do_not_depend_on_the_batches(values, size):
    """Least, greatest, mean and deviation of the whole, as numpy computes them in double precision."""
    array = np.asarray(values, dtype=np.float32).reshape(-1, 1)
    values = input_drift.InputValues(1)
    for start in range(0, len(array), size):
        values.add(array[start : start + size])
    actual, exact = values.spread(), array.astype(np.float64)
    assert (actual.least, actual.greatest) == (exact.min(), exact.max())
    assert actual.mean == pytest.approx(exact.mean(), rel=1e-6, abs=1e-6)
    assert actual.deviation == pytest.approx(exact.std(), rel=1e-4, abs=1e-5 * (1 + np.abs(exact).max()))
    assert actual.channels == ()


def test_channels_are_told_apart_in_either_layout():
    """The mean of each channel, first or last axis."""
    images = photos(20)
    first, last = spread(images), spread(np.ascontiguousarray(images.transpose(0, 2, 3, 1)), axis=3)
    assert first.channels == pytest.approx(images.mean(axis=(0, 2, 3), dtype=np.float64))
    assert last.channels == pytest.approx(first.channels)
    assert last.channel_errors == pytest.approx(first.channel_errors)


@pytest.mark.parametrize(
    ("values", "share"),
    [([-1.0, 0.0, 1.0, 2.5], 0.0), ([-1.04, 2.54, 0.0, 0.0], 0.0), ([-1.06, 2.6, 0.0, 0.0], 0.5), ([9.0] * 4, 1.0)],
)
def test_a_value_is_clipped_from_half_a_step_beyond_the_range_on(values, share):
    """Up to there it is rounded to the end of the range, as any other to its level."""
    outside = input_drift.count_outside(
        np.asarray([values], dtype=np.float32), InputRange(low=-1.0, high=2.5, step=0.1)
    )
    assert outside / len(values) == share


def test_where_the_range_is_not_known_the_share_is_not_known():
    """Null, not 0; a range that nothing exceeds gives 0."""
    calls, known = spread(photos(4)), InputRange(low=0.0, high=1.0, step=0.01)
    unsure, sure = input_drift.compare_inputs((calls, calls), (calls, calls), (None, known), (0.0, 0.0))
    assert (unsure.low, unsure.high, unsure.clipped) == (None, None, None)
    assert (sure.low, sure.high, sure.clipped) == (0.0, 1.0, 0.0)


def test_inputs_of_whole_numbers_are_not_watched():
    """Token ids are names: their range says nothing."""
    batch = (np.ones((2, 3), dtype=np.int64), np.ones((2, 3), dtype=np.float32))
    spreads = input_drift.measure_spreads([batch, batch], 1)
    assert (spreads[0], spreads[1].mean) == (None, 1.0)


@pytest.mark.parametrize("seed", range(8))
def test_two_draws_from_one_source_are_not_told_apart(seed):
    """A guard that cries wolf is switched off: no warning at 8 to 200 images of each."""
    n = (8, 20, 60, 200)[seed % 4]
    assert (
        input_drift.describe_difference("x", spread(photos(n, seed=seed)), spread(photos(50, seed=seed + 100))) is None
    )


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (photos(50, scale=255.0), "differ in scale: calibration 0 to 1, .* evaluation 0 to 255, mean 11"),
        (photos(50, means=(0.41, 0.46, 0.48), seed=1), "RGB against BGR.*: means 0.4.*; load both splits in the order"),
        (photos(50) - np.float32(0.5), "differ in their means: 0.4.* in calibration, -0.0"),
    ],
)
def test_gross_differences_are_told_with_figures(other, said):
    """0..255 against 0..1, red and blue exchanged, a mean taken off one split only."""
    difference = input_drift.describe_difference("the inputs", spread(photos(100)), spread(other))
    assert difference is not None
    assert __import__("re").search(said, difference)


def told(**changes):
    """Three channels with means of 1, 2 and 4, deviation 1."""
    plain = Spread(
        least=0.0, greatest=8.0, mean=7 / 3, deviation=1.0, channels=(1.0, 2.0, 4.0), channel_errors=(0.1, 0.1, 0.1)
    )
    return replace(plain, **changes)


@pytest.mark.parametrize(
    ("evaluated", "word"),
    [
        ({}, None),
        ({"deviation": 3.0}, None),
        ({"deviation": 3.01}, "differ in scale"),
        ({"deviation": 0.33}, "differ in scale"),
        ({"deviation": 1 / 3}, None),
        ({"channels": (2.0, 2.0, 4.0)}, None),
        ({"channels": (1.0, 2.0, 5.01)}, "differ in their means"),
        ({"channels": (-0.01, 2.0, 4.0)}, "differ in their means"),
        ({"channels": (-0.9, 2.0, 4.0), "deviation": 2.0}, None),  # of the larger deviation
        (
            {"channels": (), "channel_errors": (), "mean": 9.0},
            None,
        ),  # what has no channels is not compared with what has
        ({"channels": (4.0, 2.0, 1.0)}, "channels the other way round"),
        ({"channels": (4.0, 2.0, 1.0), "channel_errors": ()}, "differ in their means"),
        ({"channels": (3.0, 2.0, 1.5), "channel_errors": (0.1,) * 3}, "channels the other way round"),
        ({"channels": (1.9, 2.0, 2.9)}, "differ in their means"),  # closer, but not where the other was
    ],
)
def test_how_far_apart_data_must_be_to_be_told(evaluated, word):
    """Three times the deviation, a mean by more than the larger deviation; less is chance."""
    difference = input_drift.describe_difference("x", told(), told(**evaluated))
    assert (difference is None) == (word is None)
    assert word is None or word in difference


@pytest.mark.parametrize(
    ("errors", "swapped"), [(0.35, True), (0.353, True), (0.354, False), (0.4, False), (0.0, True)]
)
def test_exchanged_channels_are_six_errors_apart(errors, swapped):
    """Each outer one by that of both data together: here by 3."""
    ours = told(channel_errors=(errors,) * 3)
    theirs = told(channels=(4.0, 2.0, 1.0), channel_errors=(errors,) * 3)
    assert input_drift._swapped(ours, theirs) == swapped
    assert not input_drift._swapped(ours, replace(theirs, channels=(1.0, 2.0), channel_errors=(0.1, 0.1)))
    assert not input_drift._swapped(replace(ours, channels=(1.0, 2.0), channel_errors=(0.1, 0.1)), theirs)


@pytest.mark.parametrize(("outer", "swapped"), [(0.33, False), (0.34, True), (1.0, True), (2.99, True), (3.01, False)])
def test_exchanged_channels_are_where_the_other_was(outer, swapped):
    """Less than half of the way is left to it."""
    ours = told(channels=(-1.0, 0.0, 1.0), channel_errors=(0.01,) * 3)
    assert input_drift._swapped(ours, replace(ours, channels=(outer, 0.0, -outer))) == swapped


@pytest.mark.parametrize(("channels", "watched"), [(1, False), (2, True), (16, True), (17, False)])
def test_few_channels_are_told_apart(channels, watched):
    """Two to 16, of inputs that have further axes; of one example no error of the means is known."""
    images = RNG.normal(size=(3, channels, 4)).astype(np.float32)
    of_images, of_rows = input_drift.InputValues(1), input_drift.InputValues(1)
    of_images.add(images)
    of_rows.add(images[:, :, 0])
    assert len(of_images.spread().channels) == len(of_images.spread().channel_errors) == (channels if watched else 0)
    assert of_rows.spread().channels == of_rows.spread().channel_errors == ()
    single = input_drift.InputValues(1)
    single.add(images[:1])
    assert (len(single.spread().channels), single.spread().channel_errors) == (channels if watched else 0, ())


def test_the_error_of_a_channels_mean_is_that_of_the_examples():
    """Of what sets it apart from the mean of all channels of its example."""
    images = RNG.normal(size=(5, 3, 4, 4))
    means = images.mean(axis=(2, 3))
    apart = means - means.mean(axis=1, keepdims=True)
    assert spread(images).channel_errors == pytest.approx(apart.std(axis=0, ddof=1) / 5**0.5)
    assert spread(images).channels == pytest.approx(means.mean(axis=0))


def test_values_beyond_a_block_count_as_the_first_ones_do():
    """The deviation of many float32 and float64 values is numpy's; before the first there is none."""
    values = RNG.normal(3.0, 2.0, (1, 65536 + 9))
    values[0, -9:] = 50.0
    for kind in (np.float32, np.float64):
        of_input = input_drift.InputValues(1)
        of_input.add(values.astype(kind))
        assert of_input.spread().deviation == pytest.approx(values.std(), rel=1e-6)
    with pytest.raises(ValueError, match="^no example was seen$"):
        input_drift.InputValues(1).spread()


def test_only_what_is_of_both_data_is_compared():
    """Inputs of whole numbers are left out; an input behind the last range has none."""
    a, b = spread(photos(4)), spread(photos(4, seed=1))
    fits = input_drift.compare_inputs((a, None, a, b), (b, a, None, a), (None,), (0.5, 0.0, 0.0, 0.0))
    assert [fit is None for fit in fits] == [False, True, True, False]
    assert (fits[0].evaluated, fits[0].calibrated, fits[0].clipped) == (a, b, None)
    assert (fits[3].low, fits[3].high, fits[3].clipped) == (None, None, None)
    known = InputRange(low=0.0, high=1.0, step=0.01)
    assert input_drift.compare_inputs((a,), (b,), (known,), (0.25,))[0].clipped == 0.25
    assert input_drift.measure_spreads([], 1) == ()


def fit(share, **changes):
    plain = Spread(least=-1.0, greatest=1.0, mean=0.0, deviation=0.5)
    return replace(InputFit(evaluated=plain, calibrated=plain, low=-1.0, high=1.0, clipped=share), **changes)


def record(case, *fits):
    return int8(case, accuracy=replace(accuracy(), inputs=fits))


@pytest.mark.parametrize(
    ("share", "warned"), [(None, False), (0.0, False), (1e-6, False), (1e-3, False), (0.0011, True), (0.02, True)]
)
def test_a_warning_has_a_threshold(share, warned):
    """One value in a million is harmless, one in fifty is not."""
    warnings = warn_of_inputs([record("net/static/onednn/t1/b1", fit(share))])
    assert bool(warnings) == warned


def test_a_warning_names_share_ranges_cases_and_the_way_out():
    """Cases that clip alike share a sentence; of several inputs it says which."""
    wide = Spread(least=-1.0, greatest=4.0, mean=0.0, deviation=0.5)
    fits = (fit(0.0), fit(0.02, evaluated=wide))
    warnings = warn_of_inputs([record("net/static/onednn/t1/b1", *fits), record("net/static/x86/t1/b1", *fits)])
    assert warnings == (
        "2.0 % of the values of input 1 are clipped: they reach from -1 to 4, and int8 takes -1 to 1, as the "
        "calibration data had -1 to 1; calibrate on examples like those evaluated (net/static/onednn/t1/b1, "
        "net/static/x86/t1/b1)",
    )


def test_a_difference_of_the_data_is_told_once():
    """It is the same for every case."""
    other = Spread(least=0.0, greatest=255.0, mean=120.0, deviation=60.0)
    records = [record(f"net/static/{engine}/t1/b1", fit(None, evaluated=other)) for engine in ("onednn", "x86")]
    assert len(warn_of_inputs(records)) == 1


def test_records_without_inputs_are_passed_over():
    """Older records, fp32 and dynamic cases have none."""
    assert warn_of_inputs([int8(), record("net/static/x86/t1/b1", None)]) == ()
