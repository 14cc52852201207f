"""Rules of qbench/quant/canonical/functional_ops.py: which spellings are rewritten, as what, and under which name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from qbench.quant.canonical.functional_ops import replace_activations, replace_arithmetic
from qbench.quant.canonical.rewrite import Rewrite

Run = Callable[[Any], Any]


class Network(nn.Module):
    """A layer, and what is made of its output."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.run = run

    def forward(self, x: Any) -> Any:
        """By the function."""
        return self.run(self.fc(x))


def trace(run: Run) -> torch.fx.GraphModule:
    """The graph of a network."""
    return torch.fx.symbolic_trace(Network(run))


def activation_of(run: Run) -> str | None:
    """The layer that a call is made, as it shows itself; None where none is."""
    graph = trace(run)
    rewrites = replace_activations(graph)
    return repr(graph.get_submodule(rewrites[0].name)) if rewrites else None


@pytest.mark.parametrize(
    ("run", "layer"),
    [
        (functional.relu, "ReLU()"),
        (lambda x: x.relu(), "ReLU()"),
        (lambda x: x.clamp(min=0), "ReLU()"),
        (lambda x: x.clamp(0, 6), "ReLU6()"),
        (lambda x: torch.clip(x, 0.0, max=6.0), "ReLU6()"),
        (lambda x: x.clamp(0, 5), "Hardtanh(min_val=0.0, max_val=5.0)"),
        (lambda x: x.clamp(-1, 6), "Hardtanh(min_val=-1.0, max_val=6.0)"),
        (functional.hardtanh, "Hardtanh(min_val=-1.0, max_val=1.0)"),
        (functional.hardtanh_, "Hardtanh(min_val=-1.0, max_val=1.0)"),
        (lambda x: functional.hardtanh_(x, -2), "Hardtanh(min_val=-2.0, max_val=1.0)"),
        (lambda x: functional.hardtanh(x, -2), "Hardtanh(min_val=-2.0, max_val=1.0)"),
        (lambda x: functional.hardtanh(x, max_val=3), "Hardtanh(min_val=-1.0, max_val=3.0)"),
        (lambda x: functional.hardtanh(x, 0, 6, True), "ReLU6()"),
        (lambda x: x.clamp(1, 1), None),
        (lambda x: x.clamp(2, 1), None),
        (lambda x: x.clamp(min=1), None),
        (lambda x: x.clamp(max=0), None),
        (lambda x: x.clamp(torch.zeros(1), 6), None),
        (lambda x: x.clamp(0, torch.ones(1)), None),
        (torch.tanh, "Tanh()"),
        (lambda x: x.sigmoid(), "Sigmoid()"),
        (functional.hardsigmoid, "Hardsigmoid()"),
        (functional.softplus, None),
        (lambda x: torch.relu(torch.ones(1)) + x, None),
    ],
)
def test_a_call_that_clips_or_has_a_fixed_range_is_made_a_layer(run: Run, layer: str | None) -> None:
    """With the bounds that it was given, or its defaults; bounds that are none of numbers in order stay a call."""
    assert activation_of(run) == layer


@pytest.mark.parametrize(
    "call",
    [
        lambda x: functional.relu(x, True),
        lambda x: functional.relu(x, inplace=True),
        lambda x: functional.relu6(x, True),
        lambda x: functional.hardtanh(x, -1.0, 1.0, True),
        lambda x: functional.hardsigmoid(x, True),
        lambda x: x.relu_(),
        lambda x: x.clamp_(0, 6),
        torch.sigmoid_,
    ],
)
def test_a_call_in_place_stays_where_others_use_its_input(call: Run) -> None:
    """They would see the old values; out of place, or where nobody else looks, it is made a layer."""
    assert activation_of(lambda x: (call(x), x)) is None
    assert activation_of(call) is not None


@pytest.mark.parametrize(
    "call", [functional.relu, lambda x: functional.hardtanh(x, -1.0, 1.0, False), lambda x: x.clamp(0, 6)]
)
def test_a_call_out_of_place_is_made_a_layer_whoever_uses_its_input(call: Run) -> None:
    """Nothing that they see is changed."""
    assert activation_of(lambda x: (call(x), x)) is not None


@pytest.mark.parametrize("training", [True, False])
def test_a_layer_is_named_after_the_one_before_it(training: bool) -> None:
    """By a number more where there is such a name; behind a function by its own name alone. It is in the mode of the
    network, and what was done is told."""
    graph = trace(lambda x: functional.relu(functional.relu(x)) + x.relu_()).train(training)
    assert replace_activations(graph) == [
        Rewrite(what="relu made a ReLU layer", name="fc_relu"),
        Rewrite(what="relu made a ReLU layer", name="fc_relu_relu"),
    ]
    assert graph.get_submodule("fc_relu").training == training
    assert replace_activations(trace(lambda x: (x + 1).relu().tanh())) == [
        Rewrite(what="relu made a ReLU layer", name="relu"),
        Rewrite(what="tanh made a Tanh layer", name="relu_tanh"),
    ]
    assert [each.name for each in replace_activations(trace(lambda x: x.relu() + x.relu()))] == ["fc_relu", "fc_relu_1"]


@pytest.mark.parametrize(
    ("run", "what"),
    [
        (lambda x: x.add(x), "method add written as add"),
        (lambda x: x.mul(2), "method mul written as mul"),
        (lambda x: x.add_(1), "method add_ written as add"),
        (lambda x: torch.concat([x, x], 1), "concat written as cat"),
        (lambda x: torch.concatenate([x, x], 1), "concatenate written as cat"),
        (lambda x: (x.add_(1), x), None),
        (lambda x: (x.mul_(1), x), None),
        (lambda x: (x.mul(1), x), "method mul written as mul"),
        (lambda x: x.add(x, alpha=2), None),
        (lambda x: torch.concat([x, x], dim=1), None),
        (lambda x: torch.concat([x, x]), None),
        (lambda x: x + x, None),
        (lambda x: x.sub(x), None),
    ],
)
def test_arithmetic_is_written_as_quantizers_match_it(run: Run, what: str | None) -> None:
    """Of two arguments and no option; in place only where nobody else uses what is changed. The result is the same."""
    graph, x = trace(run), torch.rand(3, 2)
    expected = graph(x)
    assert [each.what for each in replace_arithmetic(graph)] == ([] if what is None else [what])
    graph.recompile()
    torch.testing.assert_close(graph(x), expected)
