"""What is read from an exported graph and written into it, on graphs that were made by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from qbench.errors import BuildError, ModeImpossible
from qbench.quant.artifacts import torch_export
from qbench.quant.artifacts.torch_export import foreign_class, layer_name

torch = pytest.importorskip("torch")


class Outer:
    """A class of the user's."""


def inside(*stack: tuple[str, Any]) -> Any:
    return SimpleNamespace(meta={"nn_module_stack": {str(i): entry for i, entry in enumerate(stack)}})


@pytest.mark.parametrize(
    ("node", "name", "kind"),
    [
        (SimpleNamespace(meta={}), None, None),
        (inside(("", Outer)), None, "Outer"),
        (inside(("", "models.Net"), ("L['self'].block", "models.Block")), "block", "Block"),
        (inside(("", "models.Net"), ("block.conv", "torch.nn.modules.conv.Conv2d")), "block.conv", None),
        (inside(("block", Outer), ("", torch.nn.Linear)), "block", None),
    ],
)
def test_where_a_node_comes_from(node: Any, name: str | None, kind: str | None) -> None:
    """The innermost submodule that has a name; the class of the innermost, where it is not torch's."""
    assert (layer_name(node), foreign_class(node)) == (name, kind)


def graph_of(make: Any, **tensors: Any) -> Any:
    """The module of a graph that ``make`` writes; ``tensors`` are its buffers."""
    root = torch.nn.Module()
    for name, value in tensors.items():
        root.register_buffer(name, value)
    graph = torch.fx.Graph()
    graph.output(make(graph, graph.placeholder("x")))
    return torch.fx.GraphModule(root, graph)


VECTOR = {name: torch.ones(2) for name in ("gamma", "beta", "mean", "var", "other")}


def normalizes(graph: Any, x: Any) -> Any:
    """BatchNorm, dropouts, and what QAT adds to a variance."""
    aten = torch.ops.aten
    read = {name: graph.get_attr(name) for name in VECTOR}
    parameters = [read[name] for name in ("gamma", "beta", "mean", "var")]
    norm = graph.call_function(aten.batch_norm.default, (x, *parameters, False, 0.1, 1e-5, True))
    unknown = [read[name] for name in ("gamma", "beta", "mean", "other")]
    norm = graph.call_function(aten.batch_norm.default, (norm, *unknown, False, 0.1, 1e-5, True))
    for dropout in (aten.dropout, aten.feature_dropout, aten.alpha_dropout, aten.feature_alpha_dropout):
        norm = graph.call_function(dropout.default, (norm, 0.5, False))
    added = graph.call_function(aten.add.Tensor, (read["var"], 1e-5))
    added = graph.call_function(aten.add.Tensor, (added, graph.call_function(aten.add.Tensor, (read["other"], 1e-5))))
    added = graph.call_function(aten.add.Tensor, (read["var"], added))
    norm = graph.call_function(aten.clamp.default, (norm, 0, 6))
    return graph.call_function(aten.add.Tensor, (norm, added))


def calls(module: Any, name: str) -> list[Any]:
    return [node for node in module.graph.nodes if torch_export.is_operator(node, name)]


def modes(module: Any) -> tuple[set[bool], set[bool]]:
    """Of BatchNorm and of all dropouts whether they train."""
    dropouts = ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
    training_flags = [node.args[2] for name in dropouts for node in calls(module, name)]
    assert len(training_flags) == 4
    return {node.args[5] for node in calls(module, "batch_norm")}, set(training_flags)


def test_train_and_eval_mode_of_a_graph() -> None:
    """Of BatchNorm only as long as it is not frozen; the code that runs is written anew."""
    module = graph_of(normalizes, **VECTOR)
    assert modes(module) == ({False}, {False})
    torch_export.set_training(module, True)
    assert modes(module) == ({True}, {True})
    assert "dropout.default(" in module.code
    assert "0.5, False" not in module.code
    assert [node.args[1:] for node in calls(module, "clamp")] == [(0, 6)]
    torch_export.freeze_batch_norm(module)
    assert modes(module) == ({False}, {True})
    torch_export.set_training(module, False)
    torch_export.set_training(module, True)
    assert modes(module) == ({False}, {True})


def test_the_constants_of_a_batch_norm() -> None:
    """Read from the layers, torch's default where the momentum is a mean of all batches; written where a known
    variance is read, and where a number is added to one."""
    network = torch.nn.Sequential(
        torch.nn.BatchNorm1d(2, eps=0.5, momentum=None),
        torch.nn.BatchNorm2d(2, momentum=0.3),
        torch.nn.BatchNorm1d(2, track_running_stats=False),
        torch.nn.Linear(2, 2),
    )
    assert torch_export.batch_norm_constants(network) == {"0.running_var": (0.5, 0.1), "1.running_var": (1e-5, 0.3)}
    module = graph_of(normalizes, **VECTOR)
    torch_export.set_batch_norm_constants(module, {"var": (0.5, 0.3)})
    assert [node.args[5:] for node in calls(module, "batch_norm")] == [
        (False, 0.3, 0.5, True),
        (False, 0.1, 1e-5, True),
    ]
    numbers = [node.args[1] for node in calls(module, "add") if isinstance(node.args[1], float)]
    assert numbers == [0.5, 1e-5]
    assert "0.3, 0.5" in module.code


def test_each_call_counts_its_batch_in_the_buffer_itself() -> None:
    """Counters of batches alone: another sum of sums stays as it is."""

    def count(graph: Any, x: Any) -> Any:
        add = torch.ops.aten.add_.Tensor
        counter, other = graph.get_attr("num_batches_tracked"), graph.get_attr("other")
        twice = graph.call_function(add, (graph.call_function(add, (counter, 1)), 1))
        sums = graph.call_function(add, (graph.call_function(add, (other, 1)), 1))
        return graph.call_function(add, (x, graph.call_function(torch.ops.aten.add.Tensor, (twice, sums))))

    module = graph_of(count, num_batches_tracked=torch.tensor(0), other=torch.tensor(0))
    torch_export._separate_counters(module)
    added = calls(module, "add_")
    read = [node.args[0] for node in added]
    assert [str(node) for node in read[:3]] == ["num_batches_tracked", "num_batches_tracked", "other"]
    assert read[3:] == [added[2], next(iter(module.graph.nodes))]


def test_each_call_gets_weights_of_its_own() -> None:
    """Those that are dequantized for each channel; the first keeps the one that was there."""

    def twice(graph: Any, x: Any) -> Any:
        weight = graph.get_attr("weight")
        for _ in range(3):
            x = graph.call_function(dequantize_per_channel, (weight, x))
        return graph.call_function(other, (weight, x))

    module = graph_of(twice, weight=torch.tensor([1, 2], dtype=torch.int8))
    torch_export.separate_weights(module)
    read = [node.args[0].target for node in module.graph.nodes if node.op == "call_function"]
    assert read == ["weight", "weight_call_2", "weight_call_3", "weight"]
    assert module.weight_call_3.tolist() == [1, 2]
    assert module.weight_call_3 is not module.weight


def dequantize_per_channel(weight: Any, x: Any) -> Any:
    return weight + x


def other(weight: Any, x: Any) -> Any:
    return weight - x


def test_why_a_layer_of_a_graph_stays_float() -> None:
    """By the recipe, the mode, or what the quantizer says; nothing is said of what is int8, or computes nothing."""

    def layers(graph: Any, x: Any) -> Any:
        aten = torch.ops.aten
        weight = graph.get_attr("weight")
        int8 = graph.call_function(dequantize_per_channel, (weight, weight))
        for name, operator, arguments in (
            ("int8", aten.linear.default, (int8, int8)),
            ("half", aten.linear.default, (int8, weight)),
            ("skipped.a", aten.conv2d.default, (x, weight)),
            ("conv", aten.conv2d.default, (x, weight)),
            ("relu", aten.relu.default, (x,)),
            (None, aten.conv2d.default, (x, weight)),
        ):
            x = graph.call_function(operator, arguments)
            x.meta["nn_module_stack"] = {} if name is None else {"1": (name, "torch.nn.modules.X")}
        return x

    module = graph_of(layers, weight=torch.ones(2))

    def reasons(*, dynamic: bool) -> dict[str, str]:
        return torch_export.float_reasons(
            module, {"skipped": "it is skipped"}, lambda node, operator: f"{operator} at {layer_name(node)}",
            dynamic=dynamic,
        )  # fmt: skip

    says = {"half": "linear at half", "skipped.a": "it is skipped", "conv": "conv2d at conv"}
    assert reasons(dynamic=False) == says
    covers = "dynamic quantization by PT2E covers Linear layers only"
    assert reasons(dynamic=True) == {**says, "conv": covers}


def test_stacks_of_calls_are_hidden_while_it_is_exported() -> None:
    """Those of calls of modules alone; a module without a graph has none."""
    graph = torch.fx.Graph()
    marked = graph.call_module("a", (graph.placeholder("x"),))
    plain = graph.call_module("a", (marked,))
    function = graph.call_function(torch.relu, (plain,))
    marked.meta["nn_module_stack"], function.meta["nn_module_stack"] = "the call", "the function"
    with torch_export._stacks_of_calls(SimpleNamespace(graph=graph)):
        assert [dict(node.meta) for node in (marked, plain)] == [{}, {}]
        assert function.meta == {"nn_module_stack": "the function"}
    assert marked.meta == {"nn_module_stack": "the call"}
    assert plain.meta == {}
    with torch_export._stacks_of_calls(object()):
        pass


def test_masks_are_taken_as_they_are_given() -> None:
    """Causal only where the caller says so, while it is exported."""
    from torch.nn.modules import transformer

    compare = transformer._detect_is_causal_mask
    causal = transformer._generate_square_subsequent_mask(3)
    assert compare(causal)
    with torch_export._masks_as_given():
        given = transformer._detect_is_causal_mask
        assert [given(causal), given(causal, None, 3), given(causal, False), given(causal, True)] == [
            False, False, False, True,
        ]  # fmt: skip
    assert transformer._detect_is_causal_mask is compare


class Doubling(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x * 2


class OneByOne(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        if x.shape[0] != 1:
            raise ValueError("one at a time")
        return x * 2


class ByValue(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x


def test_the_batch_axis_of_an_export() -> None:
    """Free where that is asked for and the network allows it."""
    x = (torch.ones(1, 2),)
    free = torch_export.export(Doubling(), x)
    assert free.fixed_batch is None
    assert free.module()(torch.ones(5, 2)).shape == (5, 2)
    assert torch_export.export(Doubling(), x, any_batch=False).fixed_batch == 1
    assert torch_export.export(OneByOne(), x).fixed_batch == 1


@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_what_export_cannot_trace() -> None:
    """Control flow by values, and TorchScript: each with its way out."""
    x = (torch.ones(1, 2),)
    with pytest.raises(ModeImpossible, match="cannot trace this network .*rewrite that part"):
        torch_export.export(ByValue(), x)
    with pytest.raises(BuildError, match="does not take TorchScript"):
        torch_export.export(torch.jit.trace(Doubling(), x), x)


def test_a_lack_of_memory_is_no_reason_to_export_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes up as it is, once."""
    calls = []

    def full(*_: Any, **__: Any) -> Any:
        calls.append(1)
        raise MemoryError

    monkeypatch.setattr(torch.export, "export", full)
    with pytest.raises(MemoryError):
        torch_export.export(Doubling(), (torch.ones(1, 2),))
    assert len(calls) == 1
