"""Rules of qbench/quant/pytorch/narrow_weights_pt2e.py: which weights of a graph are asked, and as what kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from qbench.quant.pytorch import narrow_weights_pt2e
from qbench.quant.pytorch.packed_layers import LayerKernel

pytest.importorskip("torchao", reason="torchao is not installed; pip install 'torchao>=0.18'")
ATEN = torch.ops.aten


def conv(*more: Any) -> Any:
    """A node of a convolution with these arguments behind its bias."""
    graph = torch.fx.Graph()
    return graph.call_function(ATEN.conv2d.default, (graph.placeholder("x"), graph.placeholder("w"), None, *more))


@pytest.mark.parametrize(
    ("more", "stride", "padding", "dilation", "groups"),
    [
        ((), (1, 1), (0, 0), (1, 1), 1),
        (([2, 3],), (2, 3), (0, 0), (1, 1), 1),
        (([2, 3], [1, 0]), (2, 3), (1, 0), (1, 1), 1),
        (([2, 3], [1, 0], [2, 1]), (2, 3), (1, 0), (2, 1), 1),
        (([2, 3], [1, 0], [2, 1], 4), (2, 3), (1, 0), (2, 1), 4),
    ],
)
def test_what_a_convolution_leaves_out_has_torchs_defaults(
    more: Any, stride: Any, padding: Any, dilation: Any, groups: int
) -> None:
    """Of each argument."""
    assert narrow_weights_pt2e.read_kernel(conv(*more)) == LayerKernel(
        kind="conv", dimensions=2, stride=stride, padding=padding, dilation=dilation, groups=groups
    )


def test_a_product_is_a_linear_kernel() -> None:
    """It has no place to move to."""
    graph = torch.fx.Graph()
    node = graph.call_function(ATEN.linear.default, (graph.placeholder("x"), graph.placeholder("w")))
    assert narrow_weights_pt2e.read_kernel(node) == LayerKernel(kind="linear")


def module(operator: Any, axis: int = 0, dequantized: bool = True) -> Any:
    """A graph of one operator with int8 weights that lie in a part of the network."""
    from torchao.quantization.pt2e import quantize_pt2e  # noqa: F401  # registers quantized_decomposed

    root = torch.nn.Module()
    root.part = torch.nn.Module()
    root.part.register_buffer("levels", torch.ones(3, 3, dtype=torch.int8))
    root.register_buffer("scales", torch.full((3,), 0.5))
    graph = torch.fx.Graph()
    x, levels, scales = graph.placeholder("x"), graph.get_attr("part.levels"), graph.get_attr("scales")
    dequantize = torch.ops.quantized_decomposed.dequantize_per_channel.default
    weight = graph.call_function(dequantize, (levels, scales, None, axis, -128, 127, torch.int8))
    arguments = (x, weight if dequantized else levels) if operator is not ATEN.relu.default else (x,)
    graph.output(graph.call_function(operator, arguments))
    return torch.fx.GraphModule(root, graph)


@pytest.mark.parametrize(
    ("operator", "changes", "asked"),
    [
        (ATEN.linear.default, {}, True),
        (ATEN.conv2d.default, {}, True),
        (ATEN.linear.default, {"axis": 1}, False),
        (ATEN.linear.default, {"dequantized": False}, False),
        (ATEN.conv1d.default, {}, False),
        (ATEN.relu.default, {}, False),
    ],
)
def test_weights_by_output_channel_are_asked(operator: Any, changes: Any, asked: bool) -> None:
    """Of convolutions and products, wherever their integers lie."""
    network = module(operator, **changes)
    weights = list(narrow_weights_pt2e.list_weights(network))
    assert len(weights) == asked
    for node, weight in weights:
        assert node.target is operator
        assert torch.equal(weight.int_repr(), network.part.levels)
        assert torch.equal(weight.q_per_channel_scales(), network.scales.double())


def test_wider_steps_are_written_where_the_weights_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """In oneDNN's engine; weights that hold stay, bit for bit."""
    network, calls = module(ATEN.linear.default), []
    wide = torch.quantize_per_channel(torch.full((3, 3), 4.0), torch.tensor([2.0, 1.0, 4.0]).double(),
                                      torch.zeros(3).long(), 0, torch.qint8)  # fmt: skip

    def ask(sums: Any, kernels: Any, name: str, kernel: Any, weight: Any, floats: Any, *, narrow: bool) -> Any:
        calls.append((torch.backends.quantized.engine, name, floats, narrow))
        assert torch.equal(weight.int_repr(), torch.ones(3, 3, dtype=torch.int8))
        assert weight.q_per_channel_scales().tolist() == [0.5] * 3
        return wide if narrow else weight

    monkeypatch.setattr(narrow_weights_pt2e.narrow_weights, "ask", ask)
    before = torch.backends.quantized.engine
    narrow_weights_pt2e.hold(network, {"None": "float"}, narrow=False)
    assert network.scales.tolist() == [0.5] * 3
    narrow_weights_pt2e.hold(network, {"None": "float"}, narrow=True)
    assert calls == [("onednn", "None", "float", narrow) for narrow in (False, True)]
    assert torch.backends.quantized.engine == before
    assert network.scales.tolist() == [2.0, 1.0, 4.0]
    assert network.part.levels.tolist() == [[2] * 3, [4] * 3, [1] * 3]
