"""Rules of qbench/quant/pytorch/mean_errors_pt2e.py: biases of a converted graph give back what rounding does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from qbench.quant.flow import QuantizeJob
from qbench.quant.pytorch import mean_errors_pt2e, pt2e
from qbench.quant.recipe import Recipe

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.ao.quantization is deprecated")


class Net(nn.Module):
    """Two convolutions, of which one has no bias, and a Linear layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        self.head = nn.Linear(8, 5)
        with torch.no_grad():  # errors of rounding that have a mean
            for part in (self.conv, self.depthwise, self.head):
                part.weight[:, 0] *= 8

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.depthwise(torch.relu(self.conv(x))))
        return self.head(x.flatten(2).mean(dim=2))


def draw(count: int, seed: int) -> Any:
    return torch.rand(count, 3, 12, 12, generator=torch.Generator().manual_seed(seed)) + 0.2


def build(bias_correction: bool | None) -> Any:
    recipe = Recipe(flow="pt2e", calibrator="minmax", narrow_weights=True, bias_correction=bias_correction)
    job = QuantizeJob(module=Net().eval(), engine="inductor", recipe=recipe, example=(draw(2, 0),))
    return pt2e.static(job, lambda: [(draw(8, seed),) for seed in (1, 2, 3)]).module


def read_biases(module: Any) -> list[Any]:
    """Those of the layers, in order; None of one without."""
    nodes = [node for node in module.graph.nodes if str(node.target) in ("aten.conv2d.default", "aten.linear.default")]
    biases = [node.args[2] if len(node.args) > 2 else None for node in nodes]
    return [None if bias is None else module.get_parameter(bias.target).detach().clone()
            if bias.target in dict(module.named_parameters()) else module.get_buffer(bias.target).clone()
            for bias in biases]  # fmt: skip


def test_the_mean_of_the_outputs_is_nearer_to_that_of_fp32() -> None:
    """On other examples, too; a layer that has no bias gets one."""
    plain, given_back = build(False), build(None)
    x = draw(64, 9)
    with torch.inference_mode():
        expected = Net().eval()(x).mean(dim=0)
        off = [(int8(x).mean(dim=0) - expected).abs().max() for int8 in (plain, given_back)]
    assert off[1] < 0.5 * off[0]
    before, after = read_biases(plain), read_biases(given_back)
    assert [bias is None for bias in before] == [False, True, False]
    for bias, other in zip(before, after, strict=True):
        assert not torch.equal(torch.zeros_like(other) if bias is None else bias, other)


def test_calls_that_share_a_bias_get_one_each() -> None:
    """What is taken off for one is none of the other's."""
    graph, root = torch.fx.Graph(), nn.Module()
    root.register_parameter("bias", nn.Parameter(torch.ones(2)))
    root.register_parameter("weight", nn.Parameter(torch.eye(2)))
    x, weight = graph.placeholder("x"), graph.get_attr("weight")
    calls = [graph.call_function(torch.ops.aten.linear.default, (x, weight, graph.get_attr("bias"))) for _ in "ab"]
    graph.output(tuple(calls))
    module = torch.fx.GraphModule(root, graph)
    mean_errors_pt2e._subtract(module, calls[0], torch.tensor([0.5, 0.0]), "own")
    module.recompile()
    first, second = module(torch.zeros(1, 2))
    assert (first.tolist(), second.tolist()) == ([[0.5, 1.0]], [[1.0, 1.0]])


@pytest.mark.parametrize("batches", [[], [(draw(1, 1),)]])
def test_one_example_tells_no_mean(batches: list[Any]) -> None:
    """The graph stays as it is."""
    module = build(False)
    before, code = read_biases(module), module.code
    floats = {name: part.weight.detach() for name, part in Net().named_modules() if hasattr(part, "weight")}
    mean_errors_pt2e.give_back(module, floats, batches)
    for bias, other in zip(before, read_biases(module), strict=True):
        assert (bias is None) == (other is None)
        assert bias is None or torch.equal(bias, other)
    assert module.code == code
