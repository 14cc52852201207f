"""Multiply-accumulates of an exported graph's nodes, as torch and as ExecuTorch write them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from qbench.quant.artifacts import exported_macs, torch_export
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


def fake(size=(), *args, overload="default"):
    target = SimpleNamespace(_overloadname=overload)
    return SimpleNamespace(meta={"val": SimpleNamespace(shape=size)}, args=args, target=target)


X, W, ROWS, LINEAR = fake((2, 3, 8, 8)), fake((6, 3, 5, 5)), fake((2, 7, 4)), fake((9, 4))
CONV, PRODUCT = 2 * 6 * 4 * 4 * 3 * 5 * 5, 2 * 7 * 9 * 4


@pytest.mark.parametrize(
    ("operator", "node", "macs"),
    [
        ("onednn.qconv_pointwise", fake((2, 6, 4, 4), X, 0.1, 3, W, LINEAR), CONV),
        ("onednn.qconv2d_pointwise", fake((2, 6, 4, 4), X, 0.1, 3, W, LINEAR), CONV),
        ("onednn.qlinear_pointwise", fake((2, 7, 9), ROWS, 0.1, 3, LINEAR, W), PRODUCT),
        ("aten.convolution", fake((2, 6, 4, 4), X, W, LINEAR, [2, 2], [0, 0], [1, 1], False, [0, 0], 1), CONV),
        ("aten.linear", fake((2, 7, 9), ROWS, LINEAR, X), PRODUCT),
        ("mkldnn._convolution_pointwise", fake((2, 6, 4, 4), X, W, LINEAR), CONV),
        ("mkldnn._convolution_pointwise", fake((2, 6, 4, 4), X, LINEAR, W, overload="binary"), CONV),
        ("mkldnn._convolution_pointwise_", fake((2, 6, 4, 4), X, LINEAR, W, overload="binary"), CONV),
        ("mkldnn._convolution_pointwise_", fake((2, 6, 4, 4), X, W, LINEAR), CONV),
        ("mkldnn._linear_pointwise", fake((2, 7, 9), ROWS, LINEAR, X), PRODUCT),
        ("mkldnn._linear_pointwise", fake((2, 7, 9), ROWS, X, LINEAR, overload="binary"), PRODUCT),
        ("mkl._mkl_linear", fake((2, 7, 9), ROWS, X, LINEAR), PRODUCT),
        ("mkldnn._convolution_transpose_pointwise", fake((2, 3, 9, 9), X, fake((3, 6, 5, 5))), 2 * 64 * 3 * 6 * 25),
        ("aten.convolution", fake((2, 6, 9, 9), X, fake((3, 6, 5, 5)), *[None] * 4, True), 2 * 64 * 3 * 6 * 25),
        ("aten.mm", fake((7, 9), fake((7, 4)), X), 7 * 9 * 4),
        ("aten.bmm", fake((2, 7, 9), ROWS, X), PRODUCT),
        ("aten.addmm", fake((7, 9), X, fake((7, 4)), X), 7 * 9 * 4),
        ("aten.baddbmm", fake((2, 7, 9), X, ROWS, X), PRODUCT),
        ("aten.relu", fake((7, 9), X), None),
    ],
)
def test_the_work_of_each_operator(monkeypatch, operator, node, macs):
    """By the places of its weight and of its output's channels; after fusion with another operand one behind."""
    monkeypatch.setattr(exported_macs, "name_operator", lambda node: operator)
    assert count_macs(node) == macs
