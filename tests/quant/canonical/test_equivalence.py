"""Rules of qbench/quant/canonical/equivalence.py: when a rewritten network is the same, at which batch sizes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from qbench.quant.canonical import equivalence

INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("expected", "outputs", "largest", "share"),
    [
        ([1.0, -4.0], [1.0, -4.0], 0.0, 0.0),
        ([1.0, -4.0], [1.5, -4.0], 0.5, 0.125),
        ([1.0, -4.0], [1.5, -6.0], 2.0, 0.5),
        ([1.0, INF], [1.5, INF], 0.5, 0.5),  # infinity is the same, and no measure
        ([1.0, NAN], [2.0, NAN], 1.0, 1.0),
        ([1.0, NAN], [1.0, 3.0], INF, INF),
        ([1.0, 3.0], [1.0, NAN], INF, INF),
        ([1.0, INF], [1.0, 3.0], INF, INF),
        ([0.0, 0.0], [0.0, 1e-9], INF, INF),  # nothing to be small beside
        ([], [], 0.0, 0.0),
    ],
)
def test_a_difference_is_absolute_and_a_share_of_the_largest(
    expected: list[float], outputs: list[float], largest: float, share: float
) -> None:
    """Of the tensor that it is in."""
    actual = equivalence.measure_difference(torch.tensor(expected), torch.tensor(outputs))
    assert actual.largest == pytest.approx(largest)
    assert actual.share == pytest.approx(share)


def test_the_worst_of_several_outputs_counts() -> None:
    """The largest difference may be of another one than the largest share; whole numbers are the same or not."""
    ours = {"a": torch.tensor([100.0]), "b": [torch.tensor([1.0]), torch.tensor([3])]}
    theirs = {"a": torch.tensor([101.0]), "b": [torch.tensor([1.5]), torch.tensor([3])]}
    actual = equivalence.measure_difference(ours, theirs)
    assert (actual.largest, actual.share) == (1.0, 0.5)
    theirs["b"][1] = torch.tensor([4])  # type: ignore[index]
    assert equivalence.measure_difference(ours, theirs).share == INF
    assert equivalence.measure_difference((), ()) == equivalence.OutputDifference(largest=0.0, share=0.0)
    assert equivalence.measure_difference(torch.ones(1), (torch.ones(1), torch.ones(1))).share == INF


@pytest.mark.parametrize(("share", "none"), [(1e-4, True), (1.01e-4, False), (0.0, True)])
def test_a_ten_thousandth_is_rounding(share: float, none: bool) -> None:
    """More is a difference."""
    assert equivalence.OutputDifference(largest=9.0, share=share).none == none


class Sizes(nn.Module):
    """Notes the sizes that it is called with, and refuses some."""

    def __init__(self, refused: tuple[int, ...] = (), by: float = 1.0, error: type = ValueError) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.refused, self.by, self.error = refused, by, error

    def forward(self, x: Any, y: Any) -> Any:
        assert not torch.is_grad_enabled()
        assert len(x) == len(y)
        self.sizes.append(len(x))
        if len(x) in self.refused:
            raise self.error
        return x * self.by


@pytest.mark.parametrize(("size", "sizes"), [(1, [1, 2]), (2, [2, 1]), (5, [5, 1])])
def test_a_network_is_judged_at_two_batch_sizes(size: int, sizes: list[int]) -> None:
    """That of the example and 1, or 2 where that is 1; a size that it does not take is none to judge at."""
    example = torch.rand(size, 3), torch.rand(size, 2)
    network, same = Sizes(), Sizes()
    judge = equivalence.Judge(network, example)
    assert network.sizes == sizes
    assert judge.difference(same) == equivalence.OutputDifference(largest=0.0, share=0.0)
    assert same.sizes == sizes
    narrow, also = Sizes(refused=(sizes[1],)), Sizes()
    assert equivalence.Judge(narrow, example).difference(also).none
    assert also.sizes == sizes[:1]
    for refused in sizes:
        assert judge.difference(Sizes(refused=(refused,))) == equivalence.OutputDifference(largest=INF, share=INF)
    assert not judge.difference(Sizes(by=1.001)).none


def test_a_lack_of_memory_is_no_difference() -> None:
    """It is raised, by either network."""
    example = torch.rand(1, 3), torch.rand(1, 2)
    with pytest.raises(MemoryError):
        equivalence.Judge(Sizes(refused=(2,), error=MemoryError), example)
    with pytest.raises(MemoryError):
        equivalence.Judge(Sizes(), example).difference(Sizes(refused=(2,), error=MemoryError))
