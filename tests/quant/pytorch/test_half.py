"""Networks in 16-bit floats: what goes in and comes out stays fp32, and what cannot be cast as a whole is told."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from qbench.errors import ModeImpossible
from qbench.quant.pytorch.half import to_half


class Mixed(nn.Module):
    """Adds an fp32 value of its own before a product."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.second(self.first(x) + torch.arange(8.0))


class Ids(nn.Module):
    """Takes whole numbers and a mask, gives two outputs, one of them whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(10, 16), nn.Linear(16, 4)

    def forward(self, ids, mask):
        y = self.head(self.table(ids) * mask[..., None])
        return y, y.argmax(-1)


@pytest.mark.parametrize(("precision", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_the_weights_are_cast_and_what_is_seen_from_outside_is_fp32(precision, dtype):
    """The answers are near fp32's and not the same; the network that was given keeps its own weights."""
    torch.manual_seed(0)
    network, x = (
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)).eval(),
        torch.randn(2, 3, 8, 8),
    )
    half, note = to_half(network, (x,), precision)
    with torch.inference_mode():
        ours, theirs = half(x), network(x)
    assert note is None
    assert {weight.dtype for weight in half.parameters()} == {dtype}
    assert {weight.dtype for weight in network.parameters()} == {torch.float32}
    assert ours.dtype == torch.float32
    assert 0 < (ours - theirs).abs().max() < 0.05 * theirs.abs().max()


def test_whole_numbers_stay_whole_and_every_output_comes_out():
    """Ids are no floats; a tuple stays one."""
    network = Ids().eval()
    example = (torch.tensor([[1, 2, 3]]), torch.ones(1, 3))
    half, note = to_half(network, example, "bf16")
    scores, best = half(*example)
    assert (note, scores.dtype, best.dtype) == (None, torch.float32, torch.int64)


def test_a_network_with_fp32_values_of_its_own_is_cast_where_it_multiplies():
    """As a whole it fails, torch.autocast takes it; the note says why."""
    torch.manual_seed(0)
    network, x = Mixed().eval(), torch.randn(2, 8)
    half, note = to_half(network, (x,), "bf16")
    assert note is not None
    assert note.startswith("by torch.autocast: as a whole it does not run in bf16 (")
    with torch.inference_mode():
        ours, theirs = half(x), network(x)
    assert ours.dtype == torch.float32
    assert 0 < (ours - theirs).abs().max() < 0.05 * theirs.abs().max()


def test_a_network_that_runs_in_neither_way_is_no_variant():
    """Both refusals are told, once where they are the same."""

    class Refuses(nn.Module):
        def forward(self, x):
            raise RuntimeError("no kernel for it")

    with pytest.raises(
        ModeImpossible, match=r"^this network does not run in bf16: (RuntimeError: )?no kernel for it at [^;]*$"
    ):
        to_half(Refuses(), (torch.zeros(1),), "bf16")
