"""Rules of qbench/quant/pytorch/eager/regions.py: the parts of a network that have a graph, and what each was given."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from qbench.errors import BuildError
from qbench.quant.pytorch import torch_ao
from qbench.quant.pytorch.eager import regions

X = torch.arange(6.0).reshape(1, 6)


class Decides(nn.Module):
    """Asks for a value, so that FX has no graph of it; calls its parts as the case has it."""

    def __init__(self, call: Any, **parts: nn.Module) -> None:
        super().__init__()
        self.call = call
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: Any) -> Any:
        if float(x.abs().max()) > 1e6:
            raise ValueError("too large")
        return self.call(self, x)


def block() -> nn.Module:
    """A part that can be traced."""
    return nn.Sequential(nn.Linear(6, 6), nn.ReLU())


class Counted(nn.Module):
    """Is told a number beside the tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, x: Any, count: int, *, scale: float = 1.0) -> Any:
        return self.inner(x).reshape(count, -1) * scale


def split(module: nn.Module, batches: Any = None) -> Any:
    """The regions of a network in eval mode, and its answer, which stays."""
    module.eval()
    expected = module(X)
    parts = regions.split(module, (X,), batches)
    assert torch.equal(parts.module(X), expected)
    return parts


def test_a_network_with_a_graph_is_one_region() -> None:
    """The example is what it was given, and there is nothing to explain."""
    parts = split(block())
    (region,) = parts.regions
    assert isinstance(region.traced, torch.fx.GraphModule)
    assert region.inputs == (X,)
    assert (parts.why, parts.unused) == (None, ())


def test_each_part_is_as_large_as_fx_has_a_graph_of_it() -> None:
    """One that stands twice is one region; what holds no layer stays as it is; of a part without a graph its layers."""
    shared = block()
    inner = Decides(lambda net, x: net.a(x), a=nn.Linear(6, 6))
    parts = split(
        Decides(
            lambda net, x: net.norm(net.second(net.first(x)) + net.inner(x)),
            first=shared, second=shared, inner=inner, norm=nn.LayerNorm(6),
        )
    )  # fmt: skip
    assert len(parts.regions) == 2
    assert parts.module.first is parts.module.second is parts.regions[0].traced
    assert parts.module.inner.a is parts.regions[1].traced
    assert type(parts.module.norm) is nn.LayerNorm
    assert parts.why is not None


@pytest.mark.parametrize(
    ("call", "whole"),
    [
        (lambda net, x: net.part(x, 1), True),
        (lambda net, x: net.part(x, 3), True),
        (lambda net, x: net.part(x, len(x)), False),
        (lambda net, x: net.part(x, 1, scale=2.0), False),
        (lambda net, x: net.part(x, count=1), False),
    ],
)
def test_a_part_that_counts_examples_or_is_called_by_keyword_has_no_graph(call: Any, whole: bool) -> None:
    """A graph would hold the number fast; a number that stays is part of it."""
    parts = split(Decides(call, part=Counted()))
    assert parts.regions[0].inputs[0].shape == (1, 6)
    assert isinstance(parts.module.part, torch.fx.GraphModule) is whole
    assert whole or isinstance(parts.module.part.inner, torch.fx.GraphModule)


def test_layers_that_the_example_does_not_reach_are_looked_for_in_batches() -> None:
    """Until all were seen; what no batch reaches is named."""
    asked = []

    def batches() -> Any:
        for number in range(4):
            asked.append(number)
            yield (X - 10 * number,)

    def call(net: Any, x: Any) -> Any:
        return net.far(x) if float(x.min()) < -15 else net.near(x)

    parts = split(Decides(call, near=nn.Linear(6, 6), far=nn.Linear(6, 6)), batches)
    assert asked == [0, 1, 2, 3]
    assert (parts.unused, len(parts.regions)) == ((), 2)
    asked.clear()
    parts = split(Decides(call, near=nn.Linear(6, 6), far=nn.Linear(6, 6), never=nn.Linear(1, 1)), batches)
    assert asked == [0, 1, 2, 3]
    assert parts.unused == ("never",)
    assert split(Decides(call, near=nn.Linear(6, 6), far=nn.Linear(6, 6))).unused == ("far",)


def test_a_network_of_one_layer_without_a_graph_has_no_region() -> None:
    """There is no part of it to take the place of."""

    class Own(nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x) if float(x.max()) < 1e6 else x

    parts = split(Own(6, 6))
    assert (parts.regions, parts.unused) == ((), ())


def test_parts_that_together_are_another_network_are_refused() -> None:
    """What a part does beside what it gives is not in its graph."""

    class Remembers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.calls = nn.Linear(6, 6), 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return self.inner(x) * self.calls

    module = Decides(lambda net, x: net.part(x) * 0 + net.part.calls, part=Remembers()).eval()
    with pytest.raises(BuildError, match="differ from call to call|are another network than the whole"):
        regions.split(module, (X,), None)
    with pytest.raises(BuildError, match=r"does not run with its parts as graphs \(.*\), which eager mode puts in"):
        regions._require_same(Decides(lambda net, x: net.gone(x)), (X,), X)
    regions._require_same(nn.Identity(), (X,), X)


def test_what_stood_on_a_part_stands_on_its_graph() -> None:
    """And on the graph's copy; of weights what an int8 layer does not tell; nothing private, nor what it has."""
    part = nn.Linear(6, 5)
    part.f, part._hidden = [-1], 1  # type: ignore[assignment]
    graph = torch.fx.symbolic_trace(nn.Sequential(nn.ReLU()))
    graph.in_features = "kept"
    regions._take_over_attributes(part, graph)
    assert (graph.f, graph.out_features, graph.in_features) == ([-1], 5, "kept")
    assert not hasattr(graph, "_hidden")
    assert (tuple(graph.weight.shape), graph.weight.dtype, graph.bias.device.type) == ((5, 6), torch.float32, "cpu")
    copied = regions.copy_network(nn.ModuleDict({"a": graph}))
    assert copied["a"] is not graph
    assert copied["a"].f == [-1]


def test_numbers_are_all_that_is_no_tensor() -> None:
    """In order, out of whatever holds them."""
    held = (X, 1, [X, "a", {"b": 2.0, "c": X}], None)
    assert regions._list_numbers(held) == [1, "a", 2.0, None]


def test_stubs_of_the_author_are_found_by_name() -> None:
    """Of both kinds, wherever they stand."""
    module = nn.ModuleDict(
        {"q": torch_ao.QuantStub(), "l": nn.Linear(1, 1), "in": nn.Sequential(torch_ao.DeQuantStub())}
    )
    assert [name for name, _ in regions.stubs(module)] == ["q", "in.0"]


def test_a_lack_of_memory_for_two_examples_ends_the_search() -> None:
    """A network that takes one alone is fine; this is no fault of the network's."""

    class Full(nn.Module):
        error: type[Exception] = MemoryError

        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(6, 6)

        def forward(self, x: Any) -> Any:
            if len(x) > 1:
                raise self.error
            if float(x.sum()) > 1e9:
                return x
            return self.inner(x)

    with pytest.raises(MemoryError):
        regions.split(Full().eval(), (X,), None)
    Full.error = ValueError
    assert len(split(Full()).regions) == 1
