"""Which layers of fbgemm and onednn add in 16 bits on AVX2, and in which order (how they do: test_torch_prediction)."""

from __future__ import annotations

import numpy as np
import pytest

from qbench.quant.pytorch.packed_layers import LayerKernel
from qbench.quant.saturation import torch_products
from qbench.quant.saturation.pair_sums import PairedProduct


@pytest.fixture(autouse=True)
def vnni(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU has AVX512-VNNI, whichever runs the test."""
    monkeypatch.setattr(torch_products, "has_vnni", lambda: True)


def read(
    engine: str,
    weight: tuple[int, ...],
    *,
    groups: int = 1,
    stride: int = 1,
    padding: int = 1,
    dilation: int = 1,
    switched: bool = True,
) -> str:
    """How a convolution's sums are paired; "exact"; or why it is not modelled."""
    axes = len(weight) - 2
    kernel = LayerKernel(
        kind="conv", dimensions=axes, stride=(stride,) * axes, padding=(padding,) * axes, dilation=(dilation,) * axes,
        groups=groups,
    )  # fmt: skip
    product = torch_products.read_product(engine, kernel, np.zeros(weight, np.int8), 0, switched=switched)
    return product.pairing if isinstance(product, PairedProduct) else product or "exact"


@pytest.mark.parametrize(
    ("weight", "groups", "fbgemm", "onednn"),
    [
        ((8, 3, 3, 3), 1, "flat", "even"),
        ((64, 16, 3, 3), 4, "exact", "even"),
        ((48, 12, 3, 3), 4, "flat", "even"),
        ((25, 5, 3, 3), 5, "flat", "exact"),
        ((24, 1, 3, 3), 24, "flat", "exact"),
        ((8, 4, 3, 3), 2, "flat", "even"),
        ((16, 4, 3, 3), 4, "exact", "even"),
        ((64, 16, 5, 5), 4, "flat", "even"),
        ((8, 8, 3, 3), 4, "flat", "exact"),
    ],
)
def test_the_kernel_of_a_shape(weight: tuple[int, ...], groups: int, fbgemm: str, onednn: str) -> None:
    """As tried on torch 2.13 under the engines' switches."""
    assert read("fbgemm", weight, groups=groups) == fbgemm
    assert read("onednn", weight, groups=groups) == onednn


@pytest.mark.parametrize(
    ("geometry", "pairing"),
    [
        ({"padding": 0}, "flat"),
        ({"padding": 2}, "flat"),
        ({"stride": 2}, "exact"),
        ({"stride": 3}, "flat"),
        ({"dilation": 2}, "flat"),
        ({"stride": 2, "dilation": 2}, "flat"),
    ],
)
def test_the_kernel_for_groups_wants_plain_steps_and_full_padding(geometry: dict[str, int], pairing: str) -> None:
    """Without them fbgemm goes another way, which adds in 16 bits."""
    assert read("fbgemm", (64, 16, 3, 3), groups=4, **geometry) == pairing


@pytest.mark.parametrize(("channels", "fewest"), [(2, 8), (4, 4), (8, 1), (16, 1)])
def test_the_kernel_for_groups_takes_so_many_together(channels: int, fewest: int) -> None:
    """Fewer go another way, as do those of other numbers of channels."""
    for groups in range(1, fewest + 2):
        pairing = read("fbgemm", (channels * groups, channels, 3, 3), groups=groups)
        assert pairing == ("exact" if groups >= fewest else "flat")
    assert read("fbgemm", (16 * (channels + 1), channels + 1, 3, 3), groups=16) == "flat"


@pytest.mark.parametrize(
    ("weight", "groups", "pairing"),
    [
        ((5, 5, 3, 3), 1, "even"),
        ((10, 5, 3, 3), 2, "exact"),
        ((10, 4, 3, 3), 2, "exact"),
        ((8, 5, 3, 3), 2, "exact"),
        ((8, 4, 3, 3), 2, "even"),
    ],
)
def test_onednn_is_exact_for_groups_that_are_not_of_fours(weight: tuple[int, ...], groups: int, pairing: str) -> None:
    """On either side; one group is none."""
    assert read("onednn", weight, groups=groups) == pairing


def test_a_cpu_without_vnni_is_not_this_one_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an emulated Haswell answers: fbgemm's kernel for groups adds in 16 bits, x86 gives it every layer."""
    few, many = (
        LayerKernel(kind="conv", dimensions=2, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=groups)
        for groups in (100, 101)
    )
    assert read("fbgemm", (64, 16, 3, 3), groups=4, switched=False) == "flat"
    assert [torch_products.choose_engine("x86", kernel) for kernel in (few, many)] == ["onednn", "fbgemm"]
    assert torch_products.choose_engine("onednn", many) == "onednn"
    monkeypatch.setattr(torch_products, "has_vnni", lambda: False)
    assert read("fbgemm", (64, 16, 3, 3), groups=4) == "flat"
    assert torch_products.choose_engine("x86", few) == "fbgemm"


def test_transposed_convolutions_are_not_claimed() -> None:
    """Their order was not tried."""
    kernel = LayerKernel(kind="conv_transpose", dimensions=2, stride=(1, 1), padding=(0, 0), dilation=(1, 1))
    reason = torch_products.read_product("onednn", kernel, np.zeros((2, 2, 3, 3), np.int8), 0, switched=True)
    assert reason == "transposed convolutions are not modelled"


@pytest.mark.parametrize("engine", ["fbgemm", "onednn"])
def test_sums_become_bytes_by_scales_bias_and_zero_point(engine: str) -> None:
    """100 * 0.5 * 0.1 + 1 = 6, in steps of 0.5 above 128: 140; below the ReLU's zero point it is that."""
    bias, scales = np.array([1.0, -90.0], np.float32), (0.5, np.array([0.1, 0.1]), 0.5)
    levels = torch_products.finish(engine, scales, 128, bias, 128, np.array([100, 100]), np.array([0, 1]))
    assert levels.tolist() == [140, 128]
    scales = (0.5, np.array([0.1]), 0.5)  # of the weights one for all channels
    levels = torch_products.finish(engine, scales, 128, None, 0, np.array([100, -100, 9999, -9999]), np.arange(4))
    assert levels.tolist() == [138, 118, 255, 0]
    with_bias = torch_products.finish(engine, scales, 0, bias, 0, np.array([0, 2000]), np.array([0, 1]))
    assert with_bias.tolist() == [2, 20]
