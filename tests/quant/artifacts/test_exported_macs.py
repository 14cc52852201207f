"""Multiply-accumulates of an exported graph's nodes, as torch and as ExecuTorch write them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from qbench.quant.artifacts import torch_export
from qbench.quant.artifacts.exported_macs import count_macs, name_operator


class Products(nn.Module):
    """One of each."""

    def __init__(self):
        super().__init__()
        self.conv, self.up = nn.Conv2d(2, 4, 3, groups=2), nn.ConvTranspose2d(4, 3, 2, stride=2)
        self.linear = nn.Linear(12, 5)

    def forward(self, x):
        return self.linear(self.up(self.conv(x)))


def count(graph_module):
    counted: dict[str, list[int]] = {}
    for node in graph_module.graph.nodes:
        if node.op == "call_function" and (macs := count_macs(node)) is not None:
            counted.setdefault(name_operator(node), []).append(macs)
    return counted


@pytest.fixture(scope="module")
def program():
    module, x = Products().eval(), torch.randn(1, 2, 8, 8)
    graph = torch_export.export(module, (x,), any_batch=False).program
    with torch_export.known_warnings():
        return graph.run_decompositions()


def test_products_are_counted_by_their_sizes(program):
    """A transposed convolution by its input, others by their output; what multiplies nothing has none."""
    assert count(program.graph_module)["aten.convolution"] == [4 * 6 * 6 * 9, 6 * 6 * 4 * 3 * 4]
    products = {name: macs for name, macs in count(program.graph_module).items() if name != "aten.convolution"}
    assert sum(map(sum, products.values())) == 3 * 12 * 12 * 5


def test_executorch_writes_the_same_products(program):
    """Its operators wrap torch's."""
    pytest.importorskip("executorch")
    with torch_export.known_warnings():
        from executorch.exir import to_edge

        edge = to_edge(program).exported_program().graph_module
    assert count(edge)["aten.convolution"] == count(program.graph_module)["aten.convolution"]
