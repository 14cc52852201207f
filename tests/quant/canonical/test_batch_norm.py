"""Rules of qbench/quant/canonical/batch_norm.py: which norms go into which layers, and with which numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from qbench.quant.canonical import batch_norm


def norm(channels: int = 4, kind: type = nn.BatchNorm2d, **options: Any) -> Any:
    """With statistics of its own."""
    layer = kind(channels, **options).eval()
    generator = torch.Generator().manual_seed(1)
    for value in (*layer.buffers(), *layer.parameters()):
        if value.is_floating_point():
            value.data.copy_(torch.rand(value.shape, generator=generator) + 0.1)
    return layer


@pytest.mark.parametrize(
    ("module", "is_norm"),
    [
        (nn.BatchNorm1d(2), True),
        (nn.BatchNorm2d(2), True),
        (nn.BatchNorm3d(2), True),
        (nn.SyncBatchNorm(2), True),
        (nn.BatchNorm2d(2, track_running_stats=False), False),
        (nn.InstanceNorm2d(2, track_running_stats=True), False),
        (nn.Conv2d(1, 1, 1), False),
        (type("Own", (nn.BatchNorm2d,), {})(2), False),
    ],
)
def test_a_norm_is_torchs_own_with_statistics(module: Any, is_norm: bool) -> None:
    """A subclass may do more."""
    assert batch_norm.is_norm(module) == is_norm


def test_a_norm_without_one_of_its_statistics_is_none() -> None:
    """Either of them."""
    for name in ("running_mean", "running_var"):
        half = norm()
        setattr(half, name, None)
        assert not batch_norm.is_norm(half)


@pytest.mark.parametrize(
    ("layer", "takes"),
    [
        *((kind(2, 2, 1), True) for kind in (nn.Conv1d, nn.Conv2d, nn.Conv3d)),
        *((kind(2, 2, 1), True) for kind in (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)),
        (nn.Linear(2, 2), True),
        (nn.Bilinear(2, 2, 2), False),
        (type("Own", (nn.Linear,), {})(2, 2), False),
        (None, False),
    ],
)
def test_layers_of_torchs_own_take_a_norm(layer: Any, takes: bool) -> None:
    """Those whose output channels can be scaled and shifted."""
    assert batch_norm.takes_norm(layer) == takes


@pytest.mark.parametrize(
    ("layer", "channels", "axes", "fits"),
    [
        (nn.Conv2d(3, 4, 1), 4, 4, True),
        (nn.Conv2d(3, 4, 1), 3, 4, False),
        (nn.Conv2d(3, 4, 1), 4, 3, False),
        (nn.ConvTranspose1d(3, 4, 1), 4, 3, True),
        (nn.Linear(3, 4), 4, 2, True),
        (nn.Linear(3, 4), 4, 3, False),
        (nn.Linear(3, 4), 3, 2, False),
    ],
)
def test_the_channels_of_a_norm_are_those_of_axis_one(layer: Any, channels: int, axes: int, fits: bool) -> None:
    """Of a batch; an example alone has another axis there."""
    assert batch_norm.fits(layer, SimpleNamespace(num_features=channels), axes) == fits


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("layer", "kind", "shape"),
    [
        (lambda **o: nn.Conv2d(2, 4, 3, groups=2, **o), nn.BatchNorm2d, (2, 2, 5, 5)),
        (lambda **o: nn.ConvTranspose2d(6, 4, 3, groups=2, **o), nn.BatchNorm2d, (2, 6, 5, 5)),
        (lambda **o: nn.Conv1d(2, 4, 3, **o), nn.BatchNorm1d, (2, 2, 5)),
        (lambda **o: nn.Linear(3, 4, **o), nn.BatchNorm1d, (2, 3)),
    ],
)
def test_a_folded_norm_computes_the_same(layer: Any, kind: type, shape: Any, bias: bool, affine: bool) -> None:
    """With and without a bias, scale and shift; eps decides for small variances."""
    torch.manual_seed(0)
    module, after = layer(bias=bias), norm(kind=kind, affine=affine, eps=0.3)
    x = torch.rand(shape)
    expected = after(module(x)).detach()
    assert batch_norm.fold(module, after)
    torch.testing.assert_close(module(x).detach(), expected)


def test_a_frozen_weight_stays_frozen() -> None:
    """And its new bias with it; one that trains goes on."""
    for trains in (True, False):
        module = nn.Conv2d(2, 4, 1, bias=False)
        module.weight.requires_grad_(trains)
        assert batch_norm.fold(module, norm())
        assert module.weight.requires_grad == module.bias.requires_grad == trains


@pytest.mark.parametrize("what", ["running_var", "running_mean", "bias"])
def test_a_norm_that_gives_no_numbers_stays(what: str) -> None:
    """Neither weight nor bias may become infinite; then nothing has changed."""
    module, after = nn.Conv2d(2, 4, 1), norm(eps=0.0)
    getattr(after, what).data[1] = 0.0 if what == "running_var" else float("inf")
    before = module.weight.clone(), module.bias.clone()
    assert not batch_norm.fold(module, after)
    assert torch.equal(module.weight, before[0])
    assert torch.equal(module.bias, before[1])


def test_the_tensors_of_a_function_are_a_norm() -> None:
    """As many channels as it has means."""
    tensors = {name: torch.ones(5) for name in ("running_mean", "running_var")}
    assert batch_norm.Norm(**tensors, weight=None, bias=None, eps=0.0).num_features == 5
