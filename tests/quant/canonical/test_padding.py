"""Rules of qbench/quant/canonical/padding.py: zeros around a convolution, as torch writes them and as pairs by axis."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from qbench.quant.canonical import padding


@pytest.mark.parametrize(
    ("pad", "spatial", "pairs"),
    [
        ([1, 2], 1, ((1, 2),)),
        ((1, 2, 3, 4), 2, ((3, 4), (1, 2))),
        ([1, 2], 2, ((0, 0), (1, 2))),
        ([1, 2, 0, 0], 1, ((1, 2),)),
        ([], 2, ((0, 0), (0, 0))),
        ([0, 0], 1, ((0, 0),)),
        ([1, 2, 0, 1], 1, None),
        ([-1, 2], 1, None),
        ([2, -1], 1, None),
        ([1, 2, 3], 2, None),
        ([1.0, 2], 1, None),
        (1, 1, None),
    ],
)
def test_a_list_of_pads_begins_with_the_last_axis(pad: Any, spatial: int, pairs: padding.Pairs | None) -> None:
    """None where it cuts, or reaches beyond the spatial axes, or is none of numbers."""
    assert padding.of_pad(pad, spatial) == pairs
    if pairs is not None and len(pad) == 2 * spatial:
        assert list(padding.as_pad(pairs)) == list(pad)


@pytest.mark.parametrize(
    ("argument", "kernel", "dilation", "pairs"),
    [
        (2, (3, 3), (1, 1), ((2, 2), (2, 2))),
        ((1, 2), (3, 3), (1, 1), ((1, 1), (2, 2))),
        ((3,), (3, 3), (1, 1), ((3, 3), (3, 3))),
        ("valid", (3, 3), (1, 1), ((0, 0), (0, 0))),
        ("same", (3, 4), (1, 1), ((1, 1), (1, 2))),
        ("same", (3, 2), (2, 3), ((2, 2), (1, 2))),
    ],
)
@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
def test_a_convolutions_argument_as_pairs(
    argument: Any, kernel: tuple[int, ...], dilation: tuple[int, ...], pairs: padding.Pairs
) -> None:
    """As torch pads: the odd zero of ``same`` stands behind."""
    assert padding.of_argument(argument, kernel, dilation) == pairs
    x, weight = torch.rand(1, 1, 9, 9), torch.rand(1, 1, *kernel)
    expected = functional.conv2d(x, weight, padding=argument, dilation=dilation)
    padded = functional.pad(x, padding.as_pad(pairs))
    torch.testing.assert_close(functional.conv2d(padded, weight, dilation=dilation), expected)


@pytest.mark.parametrize(
    ("layer", "pairs"),
    [
        (nn.ZeroPad1d((1, 2)), ((1, 2),)),
        (nn.ZeroPad2d((1, 2, 3, 4)), ((3, 4), (1, 2))),
        (nn.ZeroPad3d(1), ((1, 1),) * 3),
        (nn.ConstantPad2d(1, 0.0), ((1, 1),) * 2),
        (nn.ConstantPad1d(1, 0.0), ((1, 1),)),
        (nn.ConstantPad2d(1, 0.5), None),
        (nn.ReflectionPad2d(1), None),
        (nn.ZeroPad2d((-1, 0, 0, 0)), None),
        (nn.Identity(), None),
    ],
)
def test_a_layer_of_zeros_as_pairs(layer: nn.Module, pairs: padding.Pairs | None) -> None:
    """And of nothing else."""
    assert padding.pairs_of(layer) == pairs


@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_layer_that_pads_as_a_convolution_does(mode: str, axes: int) -> None:
    """In each of its modes, over each number of axes."""
    x = torch.rand(1, 2, *(5,) * axes)
    pairs = tuple((place, place) for place in range(1, axes + 1))
    kind = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[axes]
    argument = tuple(before for before, _ in pairs)
    convolution = kind(2, 2, 3, padding=argument, padding_mode=mode)  # type: ignore[arg-type]
    bare = kind(2, 2, 3)
    bare.load_state_dict(convolution.state_dict())
    torch.testing.assert_close(bare(padding.make_pad_layer(pairs, mode)(x)), convolution(x))


def test_symmetric_pairs_become_a_convolutions_own() -> None:
    """In each of its modes, so that it pads as if it had been made so."""
    assert padding.symmetric(((1, 1), (2, 2)))
    assert not padding.symmetric(((1, 1), (1, 2)))
    assert padding.add_pads(((1, 2), (0, 0)), ((3, 1), (1, 0))) == ((4, 3), (1, 0))
    x = torch.rand(1, 1, 7, 7)
    for mode in ("zeros", "circular"):
        plain = nn.Conv2d(1, 1, 3, padding_mode=mode)
        expected = nn.Conv2d(1, 1, 3, padding=(1, 2), padding_mode=mode)
        expected.load_state_dict(plain.state_dict())
        padding.set_padding(plain, ((1, 1), (2, 2)))
        torch.testing.assert_close(plain(x), expected(x))


def test_a_convolution_of_torchs_own_is_told_from_others() -> None:
    """Not a transposed one, not a subclass."""

    class Own(nn.Conv2d):
        """One with more to it."""

    layers = (nn.Conv1d(1, 1, 1), nn.Conv2d(1, 1, 1), nn.Conv3d(1, 1, 1), nn.ConvTranspose2d(1, 1, 1), Own(1, 1, 1))
    assert [padding.convolves(layer) for layer in layers] == [True, True, True, False, False]
