"""Rules of qbench/quant/canonical/graph_cleanup.py: what does nothing goes, what is shared gets instances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from composed_network import Network
from torch import nn
from torch.nn import functional

from qbench.quant.canonical.graph_cleanup import drop_idle, lift_constants, separate_shared


def trace(run: Callable[[Any, Any], Any], **layers: nn.Module) -> torch.fx.GraphModule:
    """The graph of a network."""
    return torch.fx.symbolic_trace(Network(run, **layers))


@pytest.mark.parametrize(
    ("run", "dropped"),
    [
        (lambda m, x: functional.dropout(x), False),
        (lambda m, x: functional.dropout(x, 0.5, True), False),
        (lambda m, x: functional.dropout(x, 0.5, False), True),
        (lambda m, x: functional.dropout(x, training=False), True),
        (lambda m, x: functional.dropout2d(x, training=m.training), False),
        (lambda m, x: functional.alpha_dropout(x), True),
        (lambda m, x: functional.alpha_dropout(x, training=True), False),
        (lambda m, x: functional.rrelu(x, training=False), False),
    ],
)
def test_a_dropout_that_was_traced_in_eval_mode_is_taken_out(run: Any, dropped: bool) -> None:
    """By what it was given, or by its own default."""
    graph = trace(run)
    assert [each.what for each in drop_idle(graph, training=True)] == ["functional dropout taken out"] * dropped
    assert ([node.op for node in graph.graph.nodes] == ["placeholder", "output"]) == dropped


@pytest.mark.parametrize(
    "layer", [nn.Dropout(), nn.Dropout1d(), nn.Dropout2d(), nn.Dropout3d(), nn.AlphaDropout(), nn.FeatureAlphaDropout()]
)
def test_dropout_stays_for_training(layer: nn.Module) -> None:
    """Identity goes in either mode; what else there is stays."""
    for training in (True, False):
        graph = trace(lambda m, x: m.c(m.b(m.a(x))), a=nn.Identity(), b=layer, c=nn.ReLU())
        names = [each.name for each in drop_idle(graph, training=training)]
        assert names == (["a"] if training else ["a", "b"])
        assert [node.target for node in graph.graph.nodes if node.op == "call_module"] == (
            ["b", "c"] if training else ["c"]
        )


class Own(nn.Module):
    """A layer of a user's."""

    def forward(self, x: Any) -> Any:
        """The same."""
        return x


@pytest.mark.parametrize(
    ("layer", "weights", "said"),
    [
        (nn.ReLU(), False, "shared ReLU given one instance per use"),
        (nn.Linear(4, 4), True, "shared Linear given one instance per use, 32 bytes of int8 weights more"),
        (nn.Linear(4, 4), False, None),
        (nn.LayerNorm(4), False, "shared LayerNorm given one instance per use"),
        (nn.Sequential(nn.ReLU()), True, None),
        (Own(), True, None),
        (nn.Embedding(4, 4), True, None),
        (nn.GRUCell(4, 4), True, None),
    ],
)
def test_each_use_of_a_shared_layer_gets_an_instance(layer: nn.Module, weights: bool, said: str | None) -> None:
    """Of torch's own without layers in it and without a state; one that multiplies only where that is asked for, with
    what it adds to a file: a weight for each further use."""

    class Whole(torch.fx.Tracer):
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            return True

    network = Network(lambda m, x: m.a(m.a(m.a(x))), a=layer)
    graph = torch.fx.GraphModule(network, Whole().trace(network))
    rewrites = separate_shared(graph, weights=weights)
    assert [(each.what, each.name) for each in rewrites] == ([] if said is None else [(said, "a")])
    targets = [node.target for node in graph.graph.nodes if node.op == "call_module"]
    assert targets == (["a"] * 3 if said is None else ["a", "a_1", "a_2"])
    for name in set(targets):
        own, first = (dict(graph.get_submodule(each).named_parameters()) for each in (name, "a"))
        assert all(own[key] is first[key] for key in first)
    once, twice = (trace(run, a=nn.ReLU()) for run in (lambda m, x: m.a(x), lambda m, x: m.a(m.a(x))))
    assert [len(separate_shared(graph, weights=True)) for graph in (once, twice)] == [0, 1]


def test_a_padded_convolution_has_its_name_back() -> None:
    """Its padding stands beside it; other layers keep their names."""
    pair = nn.Sequential()
    pair.add_module("padding", nn.ZeroPad2d(1))
    pair.add_module("conv", nn.Conv2d(1, 1, 3))
    graph = trace(lambda m, x: m.relu(m.a(x)), a=pair, relu=nn.ReLU())
    lift_constants(graph, ["a"])
    assert [node.target for node in graph.graph.nodes if node.op == "call_module"] == ["a_padding", "a", "relu"]
    assert (type(graph.a), type(graph.a_padding)) == (nn.Conv2d, nn.ZeroPad2d)
