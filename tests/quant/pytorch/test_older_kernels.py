"""Which channels' sums can leave 16 bits on CPUs without VNNI, told from the weights; that kernels do it:
test_narrow_weights."""

from __future__ import annotations

import pytest
import torch

from qbench.quant.pytorch import older_kernels
from qbench.quant.pytorch.packed_layers import LayerKernel
from qbench.quant.saturation import torch_products

GROUPS = LayerKernel(kind="conv", dimensions=2, stride=(1, 1), padding=(1, 1), dilation=(1, 1), groups=4)
LINEAR = LayerKernel(kind="linear")


def pairs(engine: str, kernel: LayerKernel, shape: tuple[int, ...], target: str = "avx2") -> set[int]:
    """The largest sums of two weights of 100, one for all channels."""
    levels = torch.full(shape, 100, dtype=torch.int8)
    return set(older_kernels.largest_pairs(engine, kernel, levels, target=(target,)).tolist())


@pytest.mark.parametrize("vnni", [True, False])
def test_groups_that_are_exact_on_the_building_machine_overflow_on_older_ones(
    monkeypatch: pytest.MonkeyPatch, vnni: bool
) -> None:
    """fbgemm's kernel for groups of few channels is exact with VNNI and adds in 16 bits without it (an emulated
    Haswell): a build for older CPUs is told so, whichever CPU it runs on."""
    monkeypatch.setattr(torch_products, "has_vnni", lambda: vnni)
    assert pairs("fbgemm", GROUPS, (64, 16, 3, 3)) == {200}
    assert pairs("x86", GROUPS, (64, 16, 3, 3)) == {200}


def test_small_groups_are_exact_on_onednn_but_with_avx512() -> None:
    """Its kernels for AVX2 take channels by fours and leave others to an exact one; one channel has no neighbour."""
    small, alone = (LayerKernel(**{**vars(GROUPS), "groups": groups}) for groups in (4, 8))
    assert pairs("onednn", small, (8, 2, 3, 3)) == {0}
    assert pairs("onednn", small, (8, 2, 3, 3), "avx512") == {200}
    assert pairs("fbgemm", small, (8, 2, 3, 3)) == {200}
    assert pairs("onednn", alone, (8, 1, 3, 3), "avx512") == {0}


def test_an_engine_that_widens_first_has_no_pairs() -> None:
    """qnnpack; packages of Inductor call what onednn calls."""
    assert pairs("qnnpack", LINEAR, (3, 8)) == {0}
    assert pairs("inductor", LINEAR, (3, 8)) == pairs("onednn", LINEAR, (3, 8)) == {200}


def test_any_two_weights_meet_where_the_order_is_not_known() -> None:
    """A transposed convolution: the two largest of one sign that an output channel reads, wherever they are."""
    kernel = LayerKernel(kind="conv_transpose", dimensions=1, stride=(1,), padding=(0,), dilation=(1,), groups=2)
    levels = torch.zeros((4, 3, 5), dtype=torch.int8)  # of each of 2 groups 2 channels in, 3 out
    levels[0, 1, 0], levels[1, 1, 4] = 70, 80  # the same channel, far apart
    levels[2, 0, 0], levels[3, 0, 1], levels[3, 0, 2] = 90, -75, -60  # one sign alone does not add up with the other
    levels[3, 1, 3] = 127  # its neighbour is another channel's
    largest = older_kernels.largest_pairs("fbgemm", kernel, levels, target=("avx2",))
    assert largest.tolist() == [0, 150, 0, 135, 127, 0]


def test_the_least_pair_that_overflows() -> None:
    """255 * 129 is above 32767, 255 * 128 is not; with inputs of 7 bits no pair is."""
    levels = torch.tensor([[64, 64], [64, 65], [127, 127]], dtype=torch.int8)
    for top, told in ((255, [False, True, True]), (127, [False, False, False])):
        assert older_kernels.overflowing("fbgemm", LINEAR, levels, top=top).tolist() == told
