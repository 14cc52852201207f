"""Rules of qbench/quant/canonical/rewrite_untraceable.py: which layers follow each other in a call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from composed_network import Network
from torch import nn

from qbench.quant.canonical import rewrite_untraceable
from qbench.quant.canonical.rewrite import Rewrite


class Both(nn.Module):
    """Takes two tensors."""

    def forward(self, x: Any, y: Any) -> Any:
        return x + y


class Same(nn.Module):
    """Gives its input."""

    def forward(self, x: Any) -> Any:
        return x


def pairs(run: Any, **layers: nn.Module) -> list[tuple[str, str, int]]:
    """The neighbours by name, with the axes of what is between them."""
    net = Network(run, **({"a": nn.Conv2d(2, 2, 1), "b": nn.BatchNorm2d(2).eval(), "c": nn.Conv2d(2, 2, 1)} | layers))
    told = [(pair.first, pair.second, pair.axes)
            for pair in rewrite_untraceable.find_neighbours(net, (torch.rand(1, 2, 3, 3),))]  # fmt: skip
    assert not any(part._forward_hooks for part in net.modules())
    return told


@pytest.mark.parametrize(
    ("run", "told"),
    [
        (lambda m, x: m.c(m.b(m.a(x))), [("a", "b", 4), ("b", "c", 4)]),
        (lambda m, x: m.b(m.a(x)).flatten(1), [("a", "b", 4)]),
        (lambda m, x: m.c(m.b(m.a(x)) + 1), [("a", "b", 4)]),
        (lambda m, x: (lambda y: m.b(y) + y)(m.a(x)), []),  # somebody else reads it
        (lambda m, x: (lambda y: (m.b(y), y))(m.a(x)), []),  # the caller gets it
        (lambda m, x: m.b(m.a(m.a(x))), []),  # called twice
        (lambda m, x: m.b(m.b(m.a(x))), []),
        (lambda m, x: m.b(x), []),
        (lambda m, x: m.a(x)[0].unsqueeze(0), []),
    ],
)
def test_neighbours_are_called_once_and_alone(run: Any, told: list[tuple[str, str, int]]) -> None:
    """In the order of the call."""
    assert pairs(run) == told


def test_what_gives_its_input_or_takes_two_is_no_neighbour() -> None:
    """Nobody could take its place."""
    assert pairs(lambda m, x: m.b(m.a(x)), b=Same()) == []
    assert pairs(lambda m, x: m.d(m.a(x), x), d=Both()) == []
    assert pairs(lambda m, x: m.b(m.d(m.a(x))), d=nn.Sequential(nn.ReLU())) == [("a", "d.0", 4), ("d.0", "b", 4)]


@pytest.mark.parametrize(
    ("pad", "conv", "padding"),
    [
        (nn.ZeroPad2d(1), nn.Conv2d(2, 2, 3, padding=1), (2, 2)),
        (nn.ZeroPad2d((1, 1, 2, 2)), nn.Conv2d(2, 2, 3), (2, 1)),
        (nn.ZeroPad2d((0, 1, 0, 1)), nn.Conv2d(2, 2, 3), None),
        (nn.ZeroPad2d(1), nn.Conv2d(2, 2, 3, padding=1, padding_mode="reflect"), None),
        (nn.ReflectionPad2d(1), nn.Conv2d(2, 2, 3), None),
        (nn.ZeroPad2d(1), nn.ConvTranspose2d(2, 2, 3), None),
        (nn.ConstantPad1d((1, 1), 0.0), nn.Conv2d(2, 2, 3), None),
    ],
)
def test_a_padding_goes_into_its_convolution(pad: Any, conv: Any, padding: Any) -> None:
    """Zeros, the same on both sides, around all of its axes; an Identity is left."""
    net = Network(lambda m, x: m.b(m.a(x)), a=pad, b=conv)
    x = torch.rand(1, 2, 5, 5)
    expected = net(x)
    told = rewrite_untraceable.fold_paddings(net, (x,))
    torch.testing.assert_close(net(x), expected)
    assert isinstance(net.a, nn.Identity) == (padding is not None)
    assert told == ([] if padding is None else [Rewrite(what="zero padding folded into its Conv2d", name="b")])
    if padding is not None:
        assert net.b.padding == padding


@pytest.mark.parametrize(
    ("layer", "norm", "folds"),
    [
        (nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), True),
        (nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2, track_running_stats=False), False),
        (nn.ReLU(), nn.BatchNorm2d(2), False),
        (nn.Conv2d(2, 2, 1), nn.ReLU(), False),
    ],
)
def test_a_norm_goes_into_the_layer_before_it(layer: Any, norm: Any, folds: bool) -> None:
    """Where it fits; an Identity is left."""
    net = Network(lambda m, x: m.b(m.a(x)), a=layer, b=norm).eval()
    told = rewrite_untraceable.fold_batch_norms(net, (torch.rand(1, 2, 5, 5),))
    assert isinstance(net.b, nn.Identity) == folds
    assert told == ([Rewrite(what="BatchNorm2d folded into Conv2d", name="b")] if folds else [])
