"""Rules of qbench/quant/pytorch/eager/graph.py: when two outputs are the same, and what a graph takes for a layer."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from composed_network import Network
from torch import nn
from torch.nn import functional

from qbench.quant.canonical.graph import Untraceable
from qbench.quant.pytorch.eager import graph as graph_module
from qbench.quant.pytorch.eager.graph import SAME, Value, alone, same, trace, values


def t(*numbers: float, dtype: Any = torch.float32) -> torch.Tensor:
    """A row of numbers."""
    return torch.tensor(numbers, dtype=dtype)


@pytest.mark.parametrize(
    ("actual", "expected", "is_same"),
    [
        (t(1, 2), t(1, 2), True),
        (t(1, 100), t(1 + 90 * SAME, 100), True),
        (t(1, 100), t(1 + 110 * SAME, 100), False),
        (t(0, 0), t(0, 1e-18), True),
        (t(0, 1e-10), t(0, 0), False),
        (t(1, math.nan), t(1, math.nan), True),
        (t(1, math.nan), t(1, 2), False),
        (t(1, math.inf), t(1, math.inf), True),
        (t(1.001, math.inf), t(1, math.inf), False),
        (t(math.nan), t(math.nan), True),
        (t(1), t(1, 1), False),
        (t(1), t(1, dtype=torch.float64), False),
        (t(1, dtype=torch.int64), t(1, dtype=torch.int64), True),
        (t(1, dtype=torch.int64), t(2, dtype=torch.int64), False),
        (1.0, t(1), False),
        ({"a": t(1)}, {"a": t(1)}, True),
        ({"a": t(1)}, {"a": t(2)}, False),
        ({"a": t(1)}, {"b": t(1)}, False),
        ([t(1)], {"a": t(1)}, False),
        ((t(1), 2), (t(1), 2), True),
        ((t(1), 2), (t(1), 3), False),
        ((t(1),), (t(1), 2), False),
        (3, (3,), False),
        ("a", "a", True),
        ("a", "b", False),
        (None, None, True),
    ],
)
def test_outputs_are_the_same_up_to_rounding(actual: Any, expected: Any, is_same: bool) -> None:
    """Of the largest finite value of each tensor, in nests of one form; whole numbers and everything else exactly."""
    assert same(actual, expected) == is_same


def test_what_flows_through_a_graph_is_told_by_its_kind() -> None:
    """One float32 tensor, several tensors, or neither; a size is none of several."""
    network = Network(lambda m, x: (x.chunk(2), x.double(), x.shape, x.argmax(), x.stride()))
    told = values(torch.fx.symbolic_trace(network), (torch.rand(2, 3),))
    assert told[:6] == (
        Value(floats=True, shape=(2, 3)),
        Value(several=True),
        Value(shape=(2, 3)),
        Value(),
        Value(),
        Value(),
    )


def layers_of(run: Any, **layers: nn.Module) -> list[str]:
    """The layers that a traced network calls, as they show themselves."""
    traced = trace(Network(run, **layers).eval(), (torch.rand(2, 3),))
    return [repr(traced.get_submodule(node.target)) for node in traced.graph.nodes if node.op == "call_module"]


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        (lambda m, x: functional.hardswish(x), ["Hardswish()"]),
        (lambda m, x: functional.leaky_relu(x), ["LeakyReLU(negative_slope=0.01)"]),
        (lambda m, x: functional.leaky_relu(x, 0.25), ["LeakyReLU(negative_slope=0.25)"]),
        (lambda m, x: functional.elu(x, alpha=0.5), ["ELU(alpha=0.5)"]),
        (lambda m, x: functional.dropout(x, 0.25, False), ["Dropout(p=0.25, inplace=False)"]),
        (lambda m, x: functional.dropout(x, training=m.training), ["Dropout(p=0.5, inplace=False)"]),
        (lambda m, x: functional.softplus(x), []),
        (lambda m, x: x.sigmoid() + torch.tanh(x), ["Sigmoid()", "Tanh()"]),
        (lambda m, x: functional.relu(x), ["ReLU()"]),
        (lambda m, x: m.a(input=x), ["Linear(in_features=3, out_features=3, bias=True)"]),
    ],
)
def test_functions_that_are_layers_are_layers_of_the_graph(run: Any, expected: list[str]) -> None:
    """With what they were given; others stay calls."""
    assert layers_of(run, a=nn.Linear(3, 3)) == expected


@pytest.mark.parametrize(
    ("run", "is_refused"),
    [
        (lambda m, x: (y := x + 1, y.mul_(2), y)[-1], True),
        (lambda m, x: (x + 1).mul_(2), False),
        (lambda m, x: (y := x + 1, m.r(y), y)[-1], True),
        (lambda m, x: (y := x + 1, m.r(y))[-1], False),
        (lambda m, x: (y := x + 1, z := y * 2, y.mul_(2) + z)[-1], False),
        (lambda m, x: (y := x + 1, y.__add__(2) + y)[-1], False),
    ],
)
def test_what_is_changed_in_place_must_not_be_read_again(run: Any, is_refused: bool) -> None:
    """An int8 copy of it would not change; what was read before is another matter."""
    network = Network(run, r=nn.ReLU(inplace=True)).eval()
    if not is_refused:
        trace(network, (torch.rand(2, 3),))
        return
    with pytest.raises(Untraceable, match="changes a tensor in place that is read again later"):
        trace(network, (torch.rand(2, 3),))


@pytest.mark.parametrize("training", [True, False])
def test_a_layer_alone_is_called_with_its_input(training: bool) -> None:
    """By position or by torch's name of it, in the layer's mode."""
    layer, x = nn.Linear(3, 2).train(training), torch.rand(2, 3)
    network = alone(layer)
    assert (network.module is layer, network.training) == (True, training)
    assert torch.equal(network(x), layer(x))
    assert torch.equal(network(input=x), layer(x))


@pytest.mark.parametrize(("error", "kind"), [(MemoryError, MemoryError), (ValueError, Untraceable)])
def test_what_a_graph_raises_makes_it_none(error: type[Exception], kind: type[Exception], monkeypatch: Any) -> None:
    """But a lack of memory, which is no fault of the network's."""

    def refuse(*_: Any) -> Any:
        raise error("no luck")

    monkeypatch.setattr(graph_module, "_to_modules", refuse)
    with pytest.raises(kind, match="no luck"):
        trace(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
