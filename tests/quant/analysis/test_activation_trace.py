"""Rules of qbench/quant/analysis/activation_trace.py: what made an output, what follows it, and what is captured."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from composed_network import Network
from torch import nn

from qbench.errors import BuildError
from qbench.quant.analysis import activation_trace
from qbench.quant.analysis.activation_trace import ActivationTrace, run_traced

X = torch.rand(2, 4)


def traced(run: Callable[..., Any], trace: ActivationTrace | None = None, **layers: nn.Module) -> ActivationTrace:
    """What one call does; no hook is left."""
    net = Network(run, **layers).eval()
    trace = trace or ActivationTrace()
    run_traced(net, (X,), trace, "fp32")
    assert not any(part._forward_hooks for part in net.modules())
    return trace


def chain(trace: ActivationTrace, name: str, call: int = 0) -> list[str]:
    """The functions from a module's output on."""
    return [trace.steps[number].name for number in trace.chain((name, call))]


LINEAR = {"a": nn.Linear(4, 4)}


@pytest.mark.parametrize(
    ("run", "names"),
    [
        (lambda m, x: m.a(x), ["linear"]),
        (lambda m, x: torch.relu(m.a(x)), ["linear", "relu"]),
        (lambda m, x: m.a(x).relu_(), ["linear", "relu"]),
        (lambda m, x: m.a(x).clamp(0, 6).contiguous(), ["linear", "clamp", "contiguous"]),
        (lambda m, x: torch.neg(torch.relu(m.a(x))), ["linear", "relu"]),
        (lambda m, x: torch.neg(m.a(x)).relu(), ["linear"]),
        (lambda m, x: (lambda y: y.relu() + y)(m.a(x)), ["linear"]),  # two use it
        (lambda m, x: (lambda y: y.relu() + y.tanh())(m.a(x)), ["linear"]),
        (lambda m, x: torch.quantize_per_tensor(m.a(x), 0.1, 0, torch.quint8), ["linear", "quantize_per_tensor"]),
        (lambda m, x: torch.quantize_per_tensor(m.a(x), 0.1, 0, torch.quint8).dequantize(),
         ["linear", "quantize_per_tensor", "dequantize"]),
        (lambda m, x: (lambda q: q.dequantize() + q.dequantize())(
            torch.quantize_per_tensor(m.a(x), 0.1, 0, torch.quint8)),
         ["linear", "quantize_per_tensor", "dequantize"]),  # one for each user
    ],
)  # fmt: skip
def test_what_is_fused_into_a_layer_follows_it(run: Any, names: list[str]) -> None:
    """As long as it alone uses what is before it."""
    assert chain(traced(run, **LINEAR), "a") == names


def test_a_step_whose_output_stands_for_nothing_by_itself_ends_no_chain() -> None:
    """Whole numbers that were quantized do not; the layer itself always does."""
    trace = ActivationTrace()
    first, second = torch.rand(2), torch.rand(2)
    trace.step(torch.relu, ((), {}), first)
    trace.left("a", first)
    trace.step(torch.clamp, ((first,), {}), torch.ones(2, dtype=torch.int8))
    assert [step.readable for step in trace.steps] == [True, False]
    assert trace.chain(("a", 0)) == [0]
    whole = ActivationTrace()
    whole.step(torch.relu, ((), {}), torch.ones(2, dtype=torch.int8))
    whole.left("a", second)
    assert whole.chain(("a", 0)) == []


def test_calls_of_a_module_are_counted() -> None:
    """In their order; what was never called comes after all others, what no step made before."""
    trace = traced(lambda m, x: m.b(m.a(m.a(x))), a=nn.Linear(4, 4), b=nn.Identity())
    assert trace.calls("a") == [("a", 0), ("a", 1)]
    assert trace.calls("c") == []
    assert [trace.step_of(call) for call in (("a", 0), ("a", 1), ("b", 0), ("c", 0))] == [0, 1, 1, math.inf]
    unmade = traced(lambda m, x: m.b(x), b=nn.Identity())
    assert unmade.step_of(("b", 0)) == -1
    assert unmade.chain(("b", 0)) == []


def test_a_step_knows_who_made_what_it_uses() -> None:
    """Arguments by name and in lists, too; what gives no tensor is no step."""
    trace = traced(lambda m, x: torch.cat([m.a(x), torch.add(input=m.a(x), other=x)]) * x.shape[0], **LINEAR)
    assert [(step.name, sorted(step.inputs)) for step in trace.steps] == [
        ("linear", []), ("linear", []), ("add", [1]), ("cat", [0, 2]), ("mul", [3]),
    ]  # fmt: skip


def test_outputs_that_hold_no_tensor_end_nothing() -> None:
    """The first tensor of a tuple or dict is a module's output."""

    class Says(nn.Module):
        def forward(self, x: Any) -> Any:
            return "nothing"

    class Several(nn.Module):
        def forward(self, x: Any) -> Any:
            return {"a": [torch.neg(x), torch.abs(x)]}

    def run(m: Any, x: Any) -> Any:
        m.s(x)
        return m.t(x)["a"][1]

    trace = traced(run, s=Says(), t=Several())
    assert trace.calls("s") == []
    assert trace.step_of(("t", 0)) == 0


@pytest.mark.parametrize(
    ("further", "expected"), [(0, lambda y: y), (1, torch.relu), (2, lambda y: torch.neg(torch.relu(y)))]
)
def test_outputs_are_given_so_many_functions_further(further: int, expected: Any) -> None:
    """Once each, as they appear; what is done with one is no step."""
    captured: list[Any] = []

    def capture(call: Any, tensor: Any) -> None:
        captured.append((call, tensor.clone() + 0))

    wanted = {("module", "a", 1): (("name", 7), further)}
    trace = ActivationTrace(wanted, capture)
    layer = nn.Linear(4, 4)
    traced(lambda m, x: (m.a(x * 0), torch.neg(torch.relu(m.a(x))))[1], trace, a=layer)
    ((call, tensor),) = captured
    assert call == ("name", 7)
    torch.testing.assert_close(tensor, expected(layer(X)).detach())
    assert [step.name for step in trace.steps] == ["mul", "linear", "linear", "relu", "neg"]
    plain = ActivationTrace(wanted)  # nobody takes it
    assert len(traced(lambda m, x: (m.a(x), torch.neg(torch.relu(m.a(x))))[1], plain, a=layer).steps) == 4


def exported(module: nn.Module) -> Any:
    """The graph of torch.export."""
    return torch.export.export(module.eval(), (X,)).module()


def test_operators_of_a_graph_are_told_by_their_module() -> None:
    """What runs last of a module makes its output, of those that it lies in, too; dequantizing makes none."""
    net = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Linear(4, 2))
    trace = ActivationTrace()
    run_traced(exported(net), (X,), trace, "int8")
    names = [step.name for step in trace.steps]
    assert names == ["linear", "relu", "linear"]
    assert {name: step for (name, _), (_, step) in trace.ends.items()} == {"0.0": 0, "0.1": 1, "0": 1, "1": 2}
    assert trace.scope is None


def test_a_network_that_does_not_run_is_told_with_the_batch() -> None:
    """And its hooks are gone."""
    net = Network(lambda m, x: m.a(x[:, :3]), **LINEAR)
    with pytest.raises(BuildError, match="^per-layer numbers: the int8 network does not run on a calibration batch "):
        run_traced(net, (X,), ActivationTrace(), "int8")
    assert not net.a._forward_hooks


def test_tensors_are_those_in_tuples_lists_and_dicts() -> None:
    """In their order; nothing else holds any."""
    a, b, c = torch.ones(1), torch.ones(2), torch.ones(3)
    value = (a, [b, 3, None], {"x": c, "y": {a}})
    assert [tensor is other for tensor, other in zip(activation_trace.flatten_tensors(value), (a, b, c), strict=True)]
    assert len(list(activation_trace.flatten_tensors(value))) == 3
    assert list(activation_trace.flatten_tensors(None)) == []
