"""Where the time of a call goes, by torch's profiler."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from qbench.quant.artifacts import torchscript_profile, tracing

CALLS = 3


@pytest.fixture(scope="module")
def kinds():
    """The kind of each operator of a traced network, by its name; in it a linear layer quantized by hand."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)
            weight = torch.quantize_per_tensor(torch.randn(10, 144), 0.05, 0, torch.qint8)
            self.packed = torch.ops.quantized.linear_prepack(weight, None)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.conv(x)).flatten(1)
            x = torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
            return torch.ops.quantized.linear(x, self.packed, 0.1, 0).dequantize()

    x = torch.randn(1, 3, 8, 8)
    with torch.inference_mode(), tracing.known_warnings():
        script = torch.jit.freeze(torch.jit.trace(Net().eval(), x).eval())
    profile = torchscript_profile.time_nodes(script, (x,), calls=CALLS)
    return profile, {node.operator: node.kind for node in profile.nodes}


def test_operators_are_told_apart_by_kind(kinds):
    """Products in int8 and in float, conversions, and the rest; what an operator calls counts as its own."""
    assert kinds[1]["quantized::linear"] == "int8 product"
    assert "float product" in {kind for operator, kind in kinds[1].items() if "conv" in operator}
    assert kinds[1]["aten::quantize_per_tensor"] == kinds[1]["aten::dequantize"] == "conversion"
    assert kinds[1]["aten::flatten"] == "other"
    assert not any(operator.startswith("aten::empty") for operator in kinds[1])


def test_operators_are_numbered_in_their_order_and_take_time(kinds):
    """Each once, since a frozen file knows no modules."""
    profile, _ = kinds
    assert [int(node.layer.partition("#")[2]) for node in profile.nodes] == list(range(len(profile.nodes)))
    assert profile.watched_seconds >= profile.node_seconds > 0
