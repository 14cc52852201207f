"""Which outputs of a network are finite, what observers have met, and where they go (of real networks: test_fx)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from qbench.quant.pytorch import drop_observers, torch_ao

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("outputs", "finite"),
    [
        (torch.ones(2), True),
        ((torch.ones(2), None), True),
        ({"logits": torch.ones(2), "loss": None, "name": "x"}, True),
        ((None, {"mask": torch.tensor([0.0, -INF])}), False),
        ((torch.ones(2), torch.tensor([NAN])), False),
        ((torch.tensor([3]), torch.tensor([True])), True),
        (None, True),
    ],
)
def test_every_tensor_of_the_outputs_counts_and_nothing_else(outputs: object, finite: bool) -> None:
    """Networks give tuples and dicts with None among them where an output is switched off."""
    assert drop_observers.finite(outputs) is finite


@pytest.mark.parametrize(
    ("low", "high", "met"),
    [
        ([-INF], [1.0], True),
        ([0.0], [INF], True),
        ([INF], [-INF], False),
        ([0.0], [1.0], False),
        ([-INF], [NAN], False),
        ([0.0, INF], [1.0, -INF], False),
        ([], [], False),
    ],
)
def test_an_observer_has_met_infinity_where_its_range_ends_there(
    low: list[float], high: list[float], met: bool
) -> None:
    """One that has met nothing begins at the wrong infinities, and NaN says nothing of where values end."""
    ends = SimpleNamespace(min_val=torch.tensor(low), max_val=torch.tensor(high))
    assert drop_observers.met_infinity(ends) is met
    assert drop_observers.met_infinity(SimpleNamespace(inner=ends)) is met
    assert not drop_observers.met_infinity(SimpleNamespace())
    assert not drop_observers.met_infinity(SimpleNamespace(min_val=torch.tensor([-INF])))
    assert not drop_observers.met_infinity(SimpleNamespace(max_val=torch.tensor([INF])))


class Watched(nn.Module):
    """Each value with what watches it: one observer watches two places, another what no scale holds."""

    def __init__(self, *, masks_outputs: bool = False, observer: Any = torch_ao.MinMaxObserver) -> None:
        super().__init__()
        self.norm, self.masks_outputs = nn.BatchNorm1d(2), masks_outputs
        names = ("floats", "booleans", "doubles", "numbers", "mask")
        self.watch = nn.ModuleDict({name: observer() for name in names})

    def forward(self, x: Any) -> Any:
        """A mask of -inf is weighed by a softmax, or given back."""
        x = self.watch["floats"](self.norm(x))
        above = self.watch["booleans"](x > 0)
        x = self.watch["floats"](x + self.watch["booleans"](above & (x < 1)))
        x = x * self.watch["numbers"](x.size(1)) + self.watch["doubles"](x.double()).float()
        mask = self.watch["mask"](x.masked_fill(x < x.amax(1, keepdim=True), float("-inf")))
        return mask if self.masks_outputs else torch.softmax(mask, 1)


class Leaves(torch.fx.Tracer):
    """Observers and layers are one call each."""

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        """All but the network and the dictionary."""
        return not isinstance(m, Watched | nn.ModuleDict)


def watched(**options: Any) -> Any:
    """The graph of the network, in train mode but for its BatchNorm."""
    network = Watched(**options)
    network.norm.eval()
    return torch.fx.GraphModule(network, Leaves().trace(network))


def watching(graph: Any) -> list[str]:
    """What is watched still, in the graph and in its code."""
    calls = [str(node.target).rpartition(".")[2] for node in graph.graph.nodes if "watch." in str(node.target)]
    assert graph.code.count("self.watch") == len(calls)
    return calls


X = torch.tensor([[0.5, -1.0], [2.0, 0.1]])


@pytest.mark.parametrize(
    ("infinite", "masks_outputs", "left"),
    [
        (False, False, ["floats", "floats", "mask"]),
        (True, False, ["floats", "floats"]),
        (True, True, ["floats", "floats", "mask"]),  # no mask: the network itself gives no numbers
    ],
)
def test_observers_of_what_no_scale_holds_go_from_every_place(
    infinite: bool, masks_outputs: bool, left: list[str]
) -> None:
    """What is no tensor of float32, and with ``infinite`` what has infinite values under finite outputs. To look, the
    network is run in eval mode and past its observers; each part then is in the mode that it was in."""
    graph = watched(masks_outputs=masks_outputs)
    graph.norm.train()
    graph.watch.mask.eval()
    expected = Watched(masks_outputs=masks_outputs, observer=nn.Identity).eval()(X)
    before = {name: value.clone() for name, value in graph.norm.state_dict().items()}
    drop_observers.drop(graph, (X,), infinite=infinite)
    assert watching(graph) == left
    assert graph.training
    assert graph.norm.training
    assert not graph.watch.mask.training
    assert graph.watch.floats.min_val == INF
    assert all(torch.equal(value, before[name]) for name, value in graph.norm.state_dict().items())
    assert torch.equal(graph.eval()(X), expected)


def test_observers_that_have_met_infinity_go_when_all_is_calibrated() -> None:
    """Those alone: they then have met every example."""
    graph = watched()
    for name, low in (("floats", -3.0), ("mask", -INF)):
        observer = graph.get_submodule(f"watch.{name}")
        observer.min_val, observer.max_val = torch.tensor(low), torch.tensor(1.0)
    drop_observers.drop_infinite(graph)
    assert watching(graph) == ["floats", "booleans", "booleans", "floats", "numbers", "doubles"]


def test_an_operator_on_what_is_no_float_tensor_loses_its_annotation() -> None:
    """And those that are to stay float; what is no tensor, or not known, is no reason."""

    def node(*operands: Any, annotated: bool = True) -> Any:
        inputs = [SimpleNamespace(meta={} if value is None else {"val": value}) for value in operands]
        meta = {"val": 1} | ({"quantization_annotation": "int8"} if annotated else {})
        return SimpleNamespace(all_input_nodes=inputs, meta=meta)

    floats, mask = torch.ones(1), torch.tensor([True])
    nodes = [
        node(floats, floats), node(floats, mask), node(mask, annotated=False), node(floats, None, 3), node(floats),
    ]  # fmt: skip
    drop_observers.unannotate(SimpleNamespace(nodes=nodes), nodes[4:])
    assert ["quantization_annotation" in node.meta for node in nodes] == [True, False, False, True, False]
    assert all(node.meta["val"] == 1 for node in nodes)
