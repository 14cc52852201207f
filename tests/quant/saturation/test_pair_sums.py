"""Which sums of two products leave 16 bits, held against a slow reference that adds them one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qbench.quant.saturation import pair_sums
from qbench.quant.saturation.pair_sums import PairedProduct, exact_sums, find_lost, find_pairs
from tests.fixtures import pair_sum_reference

SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def products(draw: st.DrawFn) -> tuple[PairedProduct, np.ndarray]:
    """A product with weights of all sizes, and an input for it."""
    random, axes = np.random.default_rng(draw(SEEDS)), draw(st.integers(0, 2))
    groups, inputs, outputs = (draw(st.integers(1, 3)), draw(st.integers(1, 5)), draw(st.integers(1, 3)))
    groups = groups if axes else 1
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(axes))
    product = PairedProduct(
        weight=random.integers(-128, 128, (outputs * groups, inputs, *kernel)).astype(np.int8),
        pairing=draw(st.sampled_from(("flat", "even"))),
        stride=tuple(draw(st.integers(1, 2)) for _ in range(axes)),
        dilation=tuple(draw(st.integers(1, 2)) for _ in range(axes)),
        pads=tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(axes)),
        groups=groups,
        zero_point=draw(st.sampled_from((0, 3, 255))),
    )
    levels = draw(st.sampled_from((64, 200, 256)))
    sizes = [draw(st.integers(5, 6)) for _ in range(axes)]
    return product, random.integers(levels // 2, levels, (2, inputs * groups, *sizes)).astype(np.uint8)


@given(products())
@settings(deadline=None, max_examples=60)
def test_exact_sums_less_what_is_lost_are_what_the_kernel_gives(drawn: tuple[PairedProduct, np.ndarray]) -> None:
    """For every output, also in padding, with strides, dilation, groups and both orders of the sums."""
    product, x = drawn
    expected, exact = (pair_sum_reference.sums(product, x, saturates=saturates) for saturates in (True, False))
    lost = find_lost(product, find_pairs(product), x)
    by_channel = np.moveaxis(exact, 1, 0).reshape(len(product.weight), -1)
    assert (
        exact_sums(product, product.weight.astype(np.int32), x, 0, lost.place, lost.channel)
        == by_channel[lost.channel, lost.place]
    ).all()
    by_channel[lost.channel, lost.place] -= lost.amount
    assert (by_channel == np.moveaxis(expected, 1, 0).reshape(len(product.weight), -1)).all()


@given(products())
@settings(deadline=None, max_examples=30)
def test_every_pair_saturates_on_some_input_and_no_other_does(drawn: tuple[PairedProduct, np.ndarray]) -> None:
    """Without such a pair no input loses anything; with the largest input every pair does."""
    product, x = drawn
    pairs = find_pairs(product)
    full = np.full_like(x, 255)
    lost = find_lost(product, pairs, full)
    assert bool(len(pairs)) >= bool(lost.saturated)
    if not any(sum(pad) for pad in product.pads):
        places = lost.saturated // max(1, len(pairs))
        assert lost.saturated == len(pairs) * places
        assert not len(pairs) or places


def test_the_bound_is_the_last_weight_that_fits() -> None:
    """255 * 128 fits into 16 bits signed on both sides of zero; 255 * 129 does not, and loses 128 or 127."""
    for weights, amount in (([[64, 64]], 0), ([[65, 64]], 128), ([[-64, -64]], 0), ([[-65, -64]], -127)):
        product = PairedProduct(weight=np.array(weights, np.int8), pairing="flat")
        lost = find_lost(product, find_pairs(product), np.full((1, 2), 255, np.uint8))
        assert lost.amount.tolist() == ([amount] if amount else [])
        assert lost.largest == abs(amount)


@pytest.mark.parametrize(("weights", "fits", "amount"), [([127, 2], 191, 2), ([-128, -1], 128, -1)])
def test_a_sum_that_is_just_the_limit_loses_nothing(weights: list[int], fits: int, amount: int) -> None:
    """32767, or -32768; the next one loses what it is beyond."""
    product = PairedProduct(weight=np.array([weights], np.int8), pairing="flat")
    lost = find_lost(product, find_pairs(product), np.array([[255, fits], [255, fits + 1]], np.uint8))
    assert (lost.place.tolist(), lost.amount.tolist(), lost.saturated) == ([1], [amount], 1)


def test_a_smaller_largest_input_proves_more_weights_exact() -> None:
    """Activations of 7 bits leave room for the largest weights."""
    weight = np.full((1, 2), 127, np.int8)
    assert len(find_pairs(PairedProduct(weight=weight, pairing="flat"))) == 1
    assert len(find_pairs(PairedProduct(weight=weight, pairing="flat", top=128))) == 0


@pytest.mark.parametrize(("pairing", "per_output"), [("flat", 14), ("even", 18)])
def test_odd_channels_are_paired_across_places_or_filled_up(pairing: str, per_output: int) -> None:
    """27 products of 3 channels at 9 places make 14 flat pairs, or 2 for each place."""
    weight = np.zeros((1, 3, 3, 3), np.int8)
    weight[0, 2, 0, 0] = weight[0, 0, 0, 1] = 127  # the last channel of a place, the first of the next
    product = PairedProduct(weight=weight, pairing=pairing, stride=(1, 1), dilation=(1, 1), pads=((0, 0),) * 2)
    assert product.pairs_per_output == per_output
    assert len(find_pairs(product)) == (1 if pairing == "flat" else 0)
    assert PairedProduct(weight=weight[:, :2, :1, :1], pairing=pairing).pairs_per_output == 1


@pytest.mark.parametrize("block", [16, 32, 100])
def test_blocks_lose_what_the_whole_loses(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of places as of pairs, the last one not full."""
    random = np.random.default_rng(0)
    weight = random.integers(100, 128, (3, 4, 2)).astype(np.int8)
    weight[1] *= -1
    product = PairedProduct(weight=weight, pairing="flat", stride=(1,), dilation=(1,), pads=((0, 1),), zero_point=200)
    x = random.integers(100, 256, (3, 4, 12)).astype(np.uint8)
    pairs = find_pairs(product)
    whole = find_lost(product, pairs, x)
    monkeypatch.setattr(pair_sums, "_BLOCK", block)
    parts = find_lost(product, pairs, x)
    assert whole.saturated > 100
    assert (parts.saturated, parts.largest) == (whole.saturated, whole.largest)
    for name in ("channel", "place", "amount"):
        assert np.array_equal(getattr(parts, name), getattr(whole, name))


def test_no_input_loses_nothing() -> None:
    """Nor do weights of which no pair can."""
    product = PairedProduct(weight=np.full((2, 4), 127, np.int8), pairing="flat")
    for pairs, x in (
        (find_pairs(product), np.zeros((0, 4), np.uint8)),
        (find_pairs(product).select(np.zeros(0, int)), np.full((3, 4), 255, np.uint8)),
    ):
        lost = find_lost(product, pairs, x)
        assert (len(lost.channel), len(lost.place), len(lost.amount), lost.saturated, lost.largest) == (0, 0, 0, 0, 0)


def test_what_an_output_loses_is_the_sum_of_its_pairs() -> None:
    """How many sums saturated, and the largest loss of one, are told beside it."""
    product = PairedProduct(weight=np.array([[127, 127, 65, 64], [-128, -128, 0, 0]], np.int8), pairing="flat")
    lost = find_lost(product, find_pairs(product), np.full((2, 4), 255, np.uint8))
    pair = 255 * 254 - 32767
    assert lost.channel.tolist() == [0, 0, 1, 1]
    assert lost.place.tolist() == [0, 1, 0, 1]
    assert lost.amount.tolist() == [pair + 128] * 2 + [-(255 * 256 - 32768)] * 2
    assert (lost.saturated, lost.largest) == (6, 255 * 256 - 32768)


def test_exact_sums_are_of_bytes_less_their_zero() -> None:
    """By other weights than the product's, where those are asked for; channels of groups have their own inputs."""
    x = np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8)
    product = PairedProduct(
        weight=np.ones((2, 1, 2), np.int8), pairing="flat", stride=(1,), dilation=(1,), pads=((0, 0),), groups=2
    )
    weight = np.array([[[1, 10]], [[100, 1000]]], np.int32)
    sums = exact_sums(product, weight, x, 1, np.array([0, 1, 0, 1]), np.array([0, 0, 1, 1]))
    assert sums.tolist() == [0 + 10, 1 + 20, 300 + 4000, 400 + 5000]
