"""Rules of qbench/quant/pytorch/int8_padding.py: which nodes of a graph pad with zeros, and how far."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from qbench.quant.pytorch.int8_padding import zeros_of


class Net(nn.Module):
    """Runs a padding, layer or function."""

    def __init__(self, pad: Any) -> None:
        super().__init__()
        self.pad = pad

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded: torch.Tensor = self.pad(x)
        return padded


def find(pad: Any) -> Any:
    """What is told of the node of a traced padding."""
    traced = torch.fx.symbolic_trace(Net(pad))
    node = next(node for node in traced.graph.nodes if node.op in ("call_module", "call_function"))
    return zeros_of(node, traced)


@pytest.mark.parametrize(
    ("pad", "zeros"),
    [
        (nn.ZeroPad2d((1, 2, 3, 4)), ((3, 4), (1, 2))),
        (nn.ReflectionPad2d(1), None),
        (nn.ReLU(), None),
        (lambda x: functional.pad(x, (1, 2, 3, 4)), ((3, 4), (1, 2))),
        (lambda x: functional.pad(x, pad=(1, 2)), ((0, 0), (1, 2))),
        (lambda x: functional.pad(x, (1, 2), "constant", 0), ((0, 0), (1, 2))),
        (lambda x: functional.pad(x, (1, 2), mode="constant", value=0.0), ((0, 0), (1, 2))),
        (lambda x: functional.pad(x, (1, 2), value=1.0), None),
        (lambda x: functional.pad(x, (1, 2), "constant", 1), None),
        (lambda x: functional.pad(x, (1, 2), "reflect"), None),
        (lambda x: functional.pad(x, (1, 2), mode="reflect"), None),
        (lambda x: functional.relu(x), None),
    ],
)
def test_only_zeros_are_told(pad: Any, zeros: Any) -> None:
    """Of layers and of functions, however they are called."""
    assert find(pad) == zeros


def test_what_is_no_node_pads_nothing() -> None:
    """An argument may be a number."""
    assert zeros_of(3, nn.Identity()) is None
    assert zeros_of(None, nn.Identity()) is None
