"""Rules of qbench/quant/canonical/graph.py: how a network is traced, and what is asked of its graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from composed_network import Network
from torch import nn

from qbench.quant.canonical import graph


def traced(run: Callable[..., Any], **layers: nn.Module) -> Any:
    """The graph for a row of four numbers."""
    return graph.trace(Network(run, **layers), (torch.rand(2, 4),))


def named(module: Any, name: str) -> Any:
    return next(node for node in module.graph.nodes if node.name == name)


X = torch.rand(2, 4)


@pytest.mark.parametrize(
    "run",
    [
        lambda m, x: sum(part.sum() for part in x.split(2, 1)),
        lambda m, x: [2 * part for part in torch.chunk(x, 3, dim=1)],
        lambda m, x: sum(row * row for row in x.unbind(1)),
        lambda m, x: [part + other for part in x.split(2, 1) for other in torch.tensor_split(x, 2, 1)],
    ],
)
def test_parts_are_taken_one_by_one(run: Any) -> None:
    """As many as there are on the example; the graph names what they are parts of."""
    module = traced(run)
    actual, expected = module(X), run(None, X)
    torch.testing.assert_close(actual, expected)
    assert len(module.meta[graph.UNPACKED]) in (1, 3)
    assert traced(lambda m, x: x + 1).meta[graph.UNPACKED] == ()


def test_sizes_of_weights_decide() -> None:
    """A branch on the size of a parameter is no branch on a value: the sizes are known while it is traced."""
    module = traced(
        lambda m, x: nn.functional.linear(x, m.fc.weight) if m.fc.weight.shape[0] == 3 else x, fc=nn.Linear(4, 3)
    )
    assert module(X).shape == (2, 3)


def test_arguments_are_tensors_first() -> None:
    """What is none becomes part of the graph, which callers go on giving; a tensor behind it is refused."""

    class Two(nn.Module):
        def forward(self, x: Any, times: Any = 1, *rest: Any) -> Any:
            return x * times

    module = graph.trace(Two(), (X, 3))
    torch.testing.assert_close(module(X), X * 3)
    torch.testing.assert_close(graph.trace(Two(), (X,))(X), X)
    for wrong in ((3, X), (X, 3, X), (X, [X])):
        with pytest.raises(graph.Untraceable, match="a tensor comes after an argument that is none, or in a list"):
            graph.trace(Two(), wrong)


def test_names_of_arguments_are_the_forwards() -> None:
    """Made up where it has none for them."""
    assert graph._parameters(lambda self, a, b=1, *rest, c=2: None, 1) == ["a"]
    assert graph._parameters(lambda self, a, b=1, *rest, c=2: None, 4) == ["a", "b", "input_2", "input_3"]
    assert graph._parameters(lambda self, *rest: None, 2) == ["input_0", "input_1"]
    assert graph._parameters(lambda self, *, c=2: None, 1) == ["input_0"]


def test_layers_of_torch_are_not_gone_into() -> None:
    """But sequences and a user's own classes are; annotations are gone."""

    class Own(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    module = traced(lambda m, x: m.b(m.a(x)), a=nn.Sequential(nn.Linear(4, 4), Own()), b=nn.ReLU())
    assert [str(node.target) for node in module.graph.nodes if node.op != "placeholder"][:1] == ["a.0"]
    assert [node.op for node in module.graph.nodes] == [
        "placeholder", "call_module", "call_function", "call_module", "output",
    ]  # fmt: skip
    assert all(node.type is None for node in module.graph.nodes)
    assert type(module).__name__ == Network.__name__


def test_what_a_node_calls_and_reads() -> None:
    """None for nodes of another kind, and for what is no node."""

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(4))

        def forward(self, x: Any) -> Any:
            return x * self.w

    module = traced(lambda m, x: m.a(x) + m.o(x), a=nn.ReLU(), o=Own())
    assert graph.layer(module, named(module, "a")) is module.a
    assert graph.layer(module, named(module, "add")) is None
    assert graph.layer(module, 3) is None
    assert graph.own_tensor(module, named(module, "o_w")) is module.o.w
    assert graph.own_tensor(module, named(module, "a")) is None
    assert graph.own_tensor(module, None) is None


def test_calls_are_those_of_one_instance() -> None:
    """Whatever its names are."""
    shared = nn.ReLU()
    module = traced(lambda m, x: m.a(m.b(m.a(x))) + m.c(x), a=shared, b=shared, c=nn.ReLU())
    assert sorted(len(nodes) for nodes in graph.calls_of(module).values()) == [1, 3]


def test_users_and_inputs_of_a_node() -> None:
    """None where there are several, or none."""
    module = traced(lambda m, x: (torch.neg(m.a(x)), torch.add(x, 1), torch.flatten(x, 1)), a=nn.ReLU())
    names = {node.name: node for node in module.graph.nodes}
    assert graph.only_user(names["a"]) is names["neg"]
    assert graph.only_user(names["x"]) is None
    assert graph.only_user(names["output"]) is None
    assert graph.single_input(names["a"]) is names["x"]
    assert graph.single_input(names["add"]) is None
    assert graph.single_input(names["flatten"]) is None
    assert graph.single_input(names["x"]) is None
    by_name = traced(lambda m, x: m.a(input=x), a=nn.ReLU())
    assert graph.single_input(named(by_name, "a")) is None


def test_a_name_is_free_or_gets_a_number() -> None:
    """Also within a part of the network."""
    module = traced(lambda m, x: m.a(x), a=nn.Sequential(nn.ReLU(), nn.ReLU()))
    assert graph.free_name(module, "b") == "b"
    assert graph.free_name(module, "a") == "a_1"
    assert graph.free_name(module, "a.0") == "a.0_1"
    assert graph.free_name(module, "a.2") == "a.2"
    module.add_submodule("a_1", nn.ReLU())
    assert graph.free_name(module, "a") == "a_2"


def test_a_node_that_is_taken_out_leaves_its_input() -> None:
    """By position or by name; layers that nothing calls any more are gone."""
    for run in (lambda m, x: torch.neg(m.a(x)), lambda m, x: torch.neg(m.a(input=x))):
        module = traced(run, a=nn.ReLU(), b=nn.ReLU())
        graph.remove(module, named(module, "a"))
        done = graph.finished(module)
        torch.testing.assert_close(done(X), -X)
        assert dict(done.named_children()) == {}


def test_facts_of_weights_are_in_the_graph() -> None:
    """Their type and device, of those of parts, too; other attributes stay."""

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)

        def forward(self, x: Any) -> Any:
            return x.to(dtype=self.a.weight.dtype).to(self.a.bias.device).reshape(self.a.weight.shape[0], -1)

    traced_module = torch.fx.symbolic_trace(Own())
    graph.fix_facts_of_weights(traced_module)
    names = [str(node.args[1]) for node in traced_module.graph.nodes if node.target is getattr]
    assert names == ["shape"]
    assert not [node for node in traced_module.graph.nodes if node.op == "get_attr" and node.target == "a.bias"]
    torch.testing.assert_close(traced_module(X), Own()(X))
