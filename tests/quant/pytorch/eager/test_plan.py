"""Rules of qbench/quant/pytorch/eager/plan.py: which nodes of a graph give int8."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from qbench.quant.pytorch.eager import graph
from qbench.quant.pytorch.eager.plan import make

IMAGE = torch.rand(2, 4, 4, 4)


class Network(nn.Module):
    """Some layers and a constant, and a forward given as a function of them."""

    def __init__(self, run: Any) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
        self.norm, self.soft = nn.BatchNorm2d(4), nn.Softmax(1)
        self.up, self.relu = nn.Upsample(scale_factor=2), nn.ReLU()
        self.register_buffer("constant", torch.rand(2, 4, 4, 4))
        self.run = run

    def forward(self, x: Any) -> Any:
        """By the function."""
        return self.run(self, x)


def planned(run: Any, refused: tuple[str, ...] = (), skipped: tuple[str, ...] = ()) -> tuple[list[str], list[Any]]:
    """The names of the nodes that give int8, and of those of each chain."""
    network = Network(run).eval()
    traced = torch.fx.symbolic_trace(network)
    names = [node.name for node in traced.graph.nodes]
    out = {id(traced.get_submodule(name)) for name in skipped}
    plan = make(
        traced,
        graph.values(traced, (IMAGE,)),
        {names.index(name): "why" for name in refused},
        lambda part: id(part) in out,
        training=False,
        clip=None,
    )
    return [names[i] for i in sorted(plan.int8)], [tuple(names[i] for i in chain.nodes) for chain in plan.chains]


@pytest.mark.parametrize(
    ("run", "int8"),
    [
        (lambda m, x: m.a(x), ["a"]),
        (lambda m, x: m.soft(m.a(x)), ["a"]),
        (lambda m, x: m.b(m.soft(m.a(x))), ["a", "b"]),
        (lambda m, x: m.up(m.a(x)), ["a", "up"]),
        (lambda m, x: m.up(x), []),
        (lambda m, x: m.norm(m.soft(m.a(x))), ["a"]),
        (lambda m, x: m.norm(m.up(m.a(x))), ["a", "up", "norm"]),
        (lambda m, x: m.a(x).flatten(1), ["a", "flatten"]),
        (lambda m, x: m.a(x).exp(), ["a"]),
        (lambda m, x: torch.flatten(m.a(x), 1), ["a", "flatten"]),
        (lambda m, x: functional.max_pool2d(m.a(x), 2), ["a", "max_pool2d"]),
        (lambda m, x: m.a(x).argmax(1), ["a"]),
        (lambda m, x: m.a(x).chunk(2, 1)[0], ["a", "chunk", "getitem"]),
        (lambda m, x: torch.stack(m.a(x).chunk(2, 1)), ["a"]),
        (lambda m, x: m.a(x) + m.b(x), ["a", "b", "add"]),
        (lambda m, x: m.a(x) + x, ["a", "add"]),
        (lambda m, x: m.a(x) + x.exp(), ["a"]),
        (lambda m, x: x + x, []),
        (lambda m, x: x + m.constant, []),
        (lambda m, x: m.a(x) + m.constant, ["a"]),
        (lambda m, x: m.a(x) * m.a(x).mean((2, 3), keepdim=True), ["a", "a_1", "mean"]),
        (lambda m, x: (y := m.a(x)) + y, ["a", "add"]),
        (lambda m, x: m.a(x) * 2, ["a", "mul"]),
        (lambda m, x: 2.5 + m.a(x), ["a", "add"]),
        (lambda m, x: torch.add(m.a(x), m.b(x), alpha=2), ["a", "b"]),
        (lambda m, x: m.a(x) - m.b(x), ["a", "b"]),
        (lambda m, x: torch.cat([m.a(x), m.b(x)], 1), ["a", "b", "cat"]),
        (lambda m, x: torch.cat([m.a(x), m.b(x)], dim=1), ["a", "b", "cat"]),
        (lambda m, x: torch.cat([m.a(x), x.exp()], 1), ["a"]),
        (lambda m, x: torch.cat(tensors=[m.a(x), m.b(x)], axis=1), ["a", "b", "cat"]),
        (lambda m, x: torch.cat([m.a(x), m.b(x)], out=None), ["a", "b"]),
        (lambda m, x: m.a(x.int().float()), ["a"]),
        (lambda m, x: m.norm(m.a(x)) + m.norm(x), ["a"]),
        (lambda m, x: m.relu(m.a(x)) + m.relu(x.exp()), ["a", "relu"]),
    ],
)
def test_what_lies_between_int8_layers_stays_in_int8(run: Any, int8: list[str]) -> None:
    """Layers that multiply, whatever reads them in int8 as it stands, and arithmetic that can be observed: of int8 with
    int8 or with what is quantized for a layer anyway, of one shape."""
    assert planned(run)[0] == int8


def test_what_is_skipped_or_refused_stays_float() -> None:
    """A layer in all its calls, a node in its place; what follows it then has no int8 to go on with."""

    def run(m: Any, x: Any) -> Any:
        return m.up(m.a(x)).flatten(1), m.up(m.b(x))

    assert planned(run)[0] == ["a", "up", "flatten", "b", "up_1"]
    assert planned(run, skipped=("a",))[0] == ["b", "up_1"]
    assert planned(run, refused=("a",))[0] == ["b", "up_1"]
    assert planned(run, refused=("flatten",))[0] == ["a", "up", "b", "up_1"]
    assert planned(run, refused=("up",))[0] == ["a", "b"]  # a layer is refused in all its calls


def test_a_layer_that_is_called_with_floats_elsewhere_is_float_in_both() -> None:
    """It can be swapped for all calls or none; one that runs on either as it stands may differ."""
    assert planned(lambda m, x: m.norm(m.up(m.a(x))).flatten() + m.norm(m.up(x.exp())).flatten())[0] == ["a", "up"]


def test_chains_are_those_whose_layer_is_int8() -> None:
    """A chain is inside with its first layer."""
    assert planned(lambda m, x: m.relu(m.norm(m.a(x)))) == (["a", "norm", "relu"], [("a", "norm", "relu")])
    assert planned(lambda m, x: m.relu(m.norm(m.a(x))), skipped=("a",)) == ([], [])
    assert planned(lambda m, x: m.relu(m.norm(x))) == ([], [])
