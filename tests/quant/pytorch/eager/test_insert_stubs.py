"""Rules of qbench/quant/pytorch/eager/insert_stubs.py: what stands in a graph where int8 begins, ends and adds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from composed_network import Network
from torch import nn

from qbench.quant.pytorch import torch_ao
from qbench.quant.pytorch.eager import graph, insert_stubs
from qbench.quant.pytorch.eager.fusion_patterns import Chain
from qbench.quant.pytorch.eager.plan import Int8Plan


def of(part: Any, ends: Any) -> Any:
    """A quantization that remembers for what it is."""
    configuration = torch_ao.QConfig(activation=torch_ao.MinMaxObserver, weight=torch_ao.MinMaxObserver)
    ASKED.append((type(part).__name__, ends))
    return configuration


ASKED: list[Any] = []


def carried(net: nn.Module, int8: set[str], chains: tuple[tuple[tuple[str, ...], Any], ...] = (),
            training: bool = False, cut: bool = False) -> tuple[Any, dict[str, str]]:  # fmt: skip
    """The graph after a plan in which these nodes are int8, and node -> the node that it serves."""
    ASKED.clear()
    traced = torch.fx.symbolic_trace(net.train(training))
    nodes = list(traced.graph.nodes)
    names = [node.name for node in nodes]
    x = torch.rand(1, 2, 4, 4)
    values = graph.values(traced, (x,))
    fused = tuple(Chain(nodes=tuple(names.index(name) for name in part), ends=ends, cut=cut) for part, ends in chains)
    plan = Int8Plan(int8=frozenset(names.index(name) for name in int8), chains=fused)
    serves = insert_stubs.carry_out(traced, plan, values, of, training=training)
    assert set(serves) <= set(traced.graph.nodes)
    return traced, {node.name: names[position] for node, position in serves.items()}


def calls(traced: Any) -> list[str]:
    """What each node runs, in order."""
    kinds = []
    for node in traced.graph.nodes:
        part = traced.get_submodule(node.target) if node.op == "call_module" else node.target
        kinds.append(type(part).__name__ if node.op == "call_module" else getattr(part, "__name__", part))
    return kinds


def conv() -> nn.Module:
    return nn.Conv2d(2, 2, 1)


def test_stubs_stand_where_int8_begins_and_ends() -> None:
    """One for all readers; what only asks for a shape reads int8."""
    net = Network(lambda m, x: (m.b(m.a(x)), m.a(x).shape[0]), a=conv(), b=conv())
    traced, serves = carried(net, {"a", "b", "a_1"})
    assert calls(traced) == [
        "x", "QuantStub", "Conv2d", "Conv2d", "DeQuantStub", "Conv2d", "getattr", "getitem", "output",
    ]  # fmt: skip
    assert serves["x_quant"] == "a"
    assert serves["b_dequant"] == "b"
    assert all(traced.get_submodule(name).qconfig is not None for name in ("x_quant", "b_dequant", "a", "b"))


def test_float_layers_have_no_quantization() -> None:
    """Neither they nor what is around them; a stub has the mode of the network."""
    for training in (False, True):
        traced, _ = carried(Network(lambda m, x: m.b(m.a(x)), a=conv(), b=conv()), {"a"}, training=training)
        assert traced.b.qconfig is None
        assert traced.qconfig is None
        assert [part.training for part in traced.modules()] == [training] * 5
        assert calls(traced) == ["x", "QuantStub", "Conv2d", "DeQuantStub", "Conv2d", "output"]


@pytest.mark.parametrize(
    ("run", "name", "method", "arguments"),
    [
        (lambda m, x: m.a(x) + m.b(x), "add", "add", 2),
        (lambda m, x: torch.mul(m.a(x), m.b(x)), "mul", "mul", 2),
        (lambda m, x: m.a(x) + 3, "add", "add_scalar", 2),
        (lambda m, x: 3 * m.a(x), "mul", "mul_scalar", 2),
        (lambda m, x: torch.cat([m.a(x), m.b(x)]), "cat", "cat", 2),
        (lambda m, x: torch.cat((m.a(x), m.b(x)), 1), "cat", "cat", 2),
        (lambda m, x: torch.cat(tensors=(m.a(x), m.b(x)), dim=2), "cat", "cat", 2),
        (lambda m, x: torch.cat((m.a(x), m.b(x)), axis=3), "cat", "cat", 2),
    ],
)
def test_arithmetic_is_that_of_a_float_functional(run: Any, name: str, method: str, arguments: int) -> None:
    """Of a number with the scale of its tensor, on whichever side it stands."""
    net = Network(run, a=conv(), b=conv())
    names = {node.name for node in torch.fx.symbolic_trace(net).graph.nodes}
    traced, serves = carried(net, {"a", "b", name} & names)
    call = next(node for node in traced.graph.nodes if node.op == "call_method")
    assert call.target == method
    assert len(call.args) == arguments + 1
    functional = traced.get_submodule(call.args[0].target)
    assert isinstance(functional, torch_ao.FloatFunctional)
    assert serves[call.name] == name
    fixed = "scalar" in method
    observer = functional.qconfig.activation()
    assert isinstance(observer, torch_ao.FixedQParamsObserver) == fixed
    if fixed:
        assert (float(observer.scale), int(observer.zero_point), call.args[1].name, call.args[2]) == (1.0, 0, "a", 3)
    if name == "cat":
        with torch.no_grad():
            x = torch.rand(1, 2, 4, 4)
            shape = run(net, x).shape
            assert isinstance(call.args[1], list | torch.fx.immutable_collections.immutable_list)
            assert traced(x).shape == shape


def test_an_addition_takes_its_relu_along() -> None:
    """Their sum is one operator; the ReLU is gone."""
    net = Network(lambda m, x: m.r(m.a(x) + m.b(x)), a=conv(), b=conv(), r=nn.ReLU())
    traced, _ = carried(net, {"a", "b", "add", "r"}, (((("add", "r")), (0.0, 6.0)),))
    assert "add_relu" in [node.target for node in traced.graph.nodes]
    assert "ReLU" not in calls(traced)


def test_fused_layers_have_the_range_of_their_end() -> None:
    """And the quantization of the first; the parts of a fused one carry it, too."""
    net = Network(lambda m, x: m.r(m.a(x)), a=conv(), r=nn.ReLU())
    traced, serves = carried(net, {"a", "r"}, ((("a", "r"), (0.0, 6.0)),))
    assert ("Conv2d", (0.0, 6.0)) in ASKED
    assert all(part.qconfig is not None for part in traced.a.modules())
    assert calls(traced) == ["x", "QuantStub", "ConvReLU2d", "DeQuantStub", "output"]
    assert serves == {"x": "x", "x_quant": "a", "a": "a", "a_dequant": "a", "output": "output"}


@pytest.mark.parametrize("training", [False, True])
def test_an_activation_that_goes_into_the_range_is_a_relu_where_that_fuses(training: bool) -> None:
    """A ReLU6 behind a convolution; behind a transposed one the range alone is left."""
    net = Network(lambda m, x: m.r(m.a(x)), a=conv(), r=nn.ReLU6())
    traced, _ = carried(net, {"a", "r"}, ((("a", "r"), (0.0, 6.0)),), training=training, cut=True)
    assert "ConvReLU2d" in calls(traced)
    assert not {"ReLU6", "ReLU"} & set(calls(traced))
    net = Network(lambda m, x: m.r(m.a(x)), a=nn.ConvTranspose2d(2, 2, 1), r=nn.ReLU6())
    traced, _ = carried(net, {"a", "r"}, ((("a", "r"), (0.0, 6.0)),), training=training, cut=True)
    assert calls(traced) == ["x", "QuantStub", "ConvTranspose2d", "DeQuantStub", "output"]


def test_layers_that_keep_a_scale_are_not_observed() -> None:
    """But for those with one of their own."""
    net = Network(lambda m, x: m.s(m.p(m.a(x))), a=conv(), p=nn.MaxPool2d(2), s=nn.Sigmoid())
    traced, _ = carried(net, {"a", "p", "s"})
    assert traced.p.qconfig is None
    assert traced.s.qconfig is not None


def test_whole_numbers_are_not_quantized() -> None:
    """What an int8 node reads beside its tensor."""
    net = Network(lambda m, x: m.a(x).view(x.shape[0], -1), a=conv())
    traced, _ = carried(net, {"a", "view"})
    assert calls(traced).count("QuantStub") == 1
    assert calls(traced)[-2:] == ["DeQuantStub", "output"]
