"""Layers that are called several times: one range for the outputs of all their calls."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from qbench.quant.pytorch import shared_layers, torch_ao


class Several(nn.Module):
    """Observers, numbered, behind calls of layers: one under two names, one that is called once."""

    def __init__(self, run: Any) -> None:
        super().__init__()
        self.layer, self.other = nn.Linear(2, 2), nn.Linear(2, 2)
        self.again, self.run = self.layer, run
        self.watch = nn.ModuleList(torch_ao.MinMaxObserver() for _ in range(4))

    def forward(self, x: Any) -> Any:
        """By the function."""
        return self.run(self, x)


class Leaves(torch.fx.Tracer):
    """Observers and layers are one call each."""

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        """All but the network and the list."""
        return not isinstance(m, Several | nn.ModuleList)


@pytest.mark.parametrize(
    ("run", "observers", "shared"),
    [
        (lambda m, x: m.watch[1](m.layer(m.watch[0](m.layer(x)))), [0, 0], ["watch_0", "watch_1"]),
        (lambda m, x: m.watch[1](m.again(m.watch[0](m.layer(x)))), [0, 0], ["watch_0", "watch_1"]),
        (lambda m, x: m.watch[2](m.other(m.watch[1](m.layer(m.watch[0](m.layer(x)))))), [0, 0, 2],
         ["watch_0", "watch_1"]),
        (lambda m, x: m.watch[3](m.layer(m.watch[2](m.layer(m.watch[1](m.layer(m.watch[0](x))))))), [0, 1, 1, 1],
         ["watch_1", "watch_2", "watch_3"]),
        (lambda m, x: m.watch[1](m.other(m.watch[0](m.layer(x)))), [0, 1], []),
        (lambda m, x: m.watch[0](m.layer(m.layer(x))), [0], ["watch_0"]),
        (lambda m, x: m.layer(m.layer(x)), [], []),
        (lambda m, x: m.watch[1](m.watch[0](x)) + m.watch[2](m.watch[0](x * 2)), [0, 1, 0, 2], []),
        (lambda m, x: torch.relu(y := m.layer(x)) + m.watch[0](y) + m.watch[1](m.layer(x)), [0, 0],
         ["watch_0", "watch_1"]),
    ],
)  # fmt: skip
def test_the_outputs_of_all_calls_of_a_layer_are_watched_by_the_first_observer(
    run: Any, observers: list[int], shared: list[str]
) -> None:
    """Whatever its name there; those of layers that are called once, and observers themselves, stay as they are."""
    network = Several(run)
    prepared = torch.fx.GraphModule(network, Leaves().trace(network))
    assert shared_layers.share(prepared) == set(shared)
    targets = [str(node.target) for node in prepared.graph.nodes if node.op == "call_module"]
    assert [int(name.rpartition(".")[2]) for name in targets if "watch" in name] == observers
    prepared(torch.ones(1, 2))  # the code that runs, too
    seen = {i for i, observer in enumerate(network.watch) if observer.min_val.isfinite()}
    assert seen == set(observers)
