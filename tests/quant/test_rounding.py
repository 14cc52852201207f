"""Rules of qbench/quant/rounding.py: how far outputs move where values on the edge of a step fall to either side."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch
from torch import nn

from qbench.quant.rounding import spread

STEP = 0.5


class Rounds(nn.Module):
    """Rounds to steps, as a converted graph does, or not at all."""

    def __init__(self, rounds: bool = True) -> None:
        super().__init__()
        self.rounds = rounds

    def forward(self, x: Any) -> Any:
        if self.rounds:
            ops = torch.ops.quantized_decomposed
            kept = (STEP, 0, -128, 127, torch.int8)
            x = ops.dequantize_per_tensor(ops.quantize_per_tensor(x, *kept), *kept)
        return x * 2


@pytest.fixture(autouse=True)
def _operators() -> None:
    """What a converted graph calls is registered as converting is imported."""
    importlib.import_module("torch.ao.quantization.fx._decomposed")


def test_only_what_lies_on_an_edge_falls_to_the_other_side() -> None:
    """By one step, as the rest of the graph makes it; what lies in the middle of a step stays, whatever the order."""
    graph = torch.fx.symbolic_trace(Rounds())
    middle, edge = (torch.tensor([[0.0, STEP, -3 * STEP]]),), (torch.full((1, 40), 1.5 * STEP),)
    assert spread(graph, [middle]) == 0.0
    assert spread(graph, [edge]) == spread(graph, [edge, middle]) == spread(graph, [middle, edge]) == 2 * STEP


def test_what_rounds_nothing_does_not_move() -> None:
    """A graph of floats, and a module that is no graph."""
    example = (torch.full((1, 4), 1.5 * STEP),)
    assert spread(torch.fx.symbolic_trace(Rounds(rounds=False)), [example]) == 0.0
    assert spread(Rounds(), [example]) == 0.0
