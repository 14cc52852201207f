"""Ways round what torch's exporter cannot: each is taken where those before it fail, and proven equal."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
import torch
from networks import Branching, Forgetful, residual_cnn
from torch import nn

from qbench.errors import BuildError, ModeImpossible
from qbench.quant.onnx import export_torch, onnxruntime_session


class Looping(nn.Module):
    """Goes through the examples one by one, so that its graph has one batch size."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return torch.stack([self.head(x[i]) for i in range(x.shape[0])])


class Configured(nn.Module):
    """Attention as its configuration says, of which the exporter can read the plain one alone."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(_attn_implementation="sdpa")
        self.q = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        if self.config._attn_implementation == "sdpa" and float(x.abs().max()) < 1e6:
            return nn.functional.scaled_dot_product_attention(self.q(x), x, x)
        return (self.q(x) @ x.transpose(-1, -2) / 8**0.5).softmax(-1) @ x


class Experts(nn.Module):
    """Experts as transformers marks them, of which the exporter can read those in batches alone."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(_experts_implementation="grouped_mm")
        self.is_concatenated = True
        self.head = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        if self.config._experts_implementation != "batched_mm" and float(x.abs().max()) > 1e6:
            return x
        return self.head(x)


class ExpertsAndAttention(nn.Module):
    """Both, each a hindrance of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.experts = Configured(), Experts()

    def forward(self, x: Any) -> Any:
        return self.experts(self.attention(x))


class Checking(nn.Module):
    """Refuses what is too large: a decision on values, the same for every example that there is."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        if float(x.abs().max()) > 1e6:
            raise ValueError("too large")
        return self.head(x)


class Overlapping(Checking):
    """And cuts each example into pieces that overlap, by strides, as Longformer does."""

    def forward(self, x: Any) -> Any:
        heads = x.reshape(x.shape[0], 6, 2, 8).transpose(1, 2).reshape(x.shape[0] * 2, 6, 8)
        first, step, value = heads.stride()
        pieces = heads.as_strided((heads.shape[0], 2, 4, 8), (first, 2 * step, step, value))
        return super().forward(pieces).mean(2).reshape(x.shape[0], -1)


def batches(*shape: int) -> list[tuple[torch.Tensor]]:
    """Eight examples, each a batch of 1."""
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(1, *shape, generator=generator),) for _ in range(8)]


def export(module: nn.Module, file: Any, *shape: int) -> str | None:
    """Exports by any way, holds what the file gives for two examples against torch, returns its note."""
    examples = batches(*shape)
    module.eval()
    export_torch.export_any_way(module, examples[0], file, lambda: examples)
    note = export_torch.read_note(file)
    sizes = (1,) if note and "batch of 1" in note else (1, 2)
    for size in sizes:
        inputs = torch.cat([example[0] for example in examples[:size]])
        with torch.no_grad():
            expected = module(inputs).numpy()
        assert np.allclose(onnxruntime_session.run(file, (inputs.numpy(),)), expected, atol=1e-5)
    return note


def test_what_the_exporter_takes_has_no_note_and_the_same_bytes(tmp_path):
    """As `export` makes it: nothing is written that would make another artifact of it."""
    module, example = residual_cnn().eval(), batches(1, 8, 8)[0]
    assert export(module, tmp_path / "any.onnx", 1, 8, 8) is None
    export_torch.export(module, example, tmp_path / "usual.onnx")
    assert (tmp_path / "any.onnx").read_bytes() == (tmp_path / "usual.onnx").read_bytes()


@pytest.mark.parametrize(
    ("network", "shape", "way"),
    [
        (Looping, (8,), "exported for a batch of 1, as the usual way cannot ("),
        (Configured, (5, 8), "exported with attn_implementation eager, as the usual way cannot ("),
        (Experts, (8,), "exported with experts_implementation batched_mm, as the usual way cannot ("),
        (
            ExpertsAndAttention,
            (5, 8),
            "exported with experts_implementation batched_mm and attn_implementation eager, as the usual way cannot (",
        ),
        (Checking, (8,), "exported by torch's older exporter, as the usual way cannot ("),
        (Overlapping, (6, 16), "exported by torch's older exporter, as the usual way cannot ("),
    ],
)
def test_the_first_way_that_works_is_taken_and_told(network, shape, way, tmp_path):
    """With why the usual way could not; of the older exporter also which decisions its trace froze."""
    note = export(network(), tmp_path / "m.onnx", *shape)
    assert note is not None
    assert note.startswith(way)
    frozen = "; the trace froze a decision at test_export_torch.py"
    assert (frozen in note) == issubclass(network, Checking)


def test_a_configuration_is_as_it_was_afterwards(tmp_path):
    """Also where the export fails: the network is measured as its author has it."""
    module = Configured()
    export(module, tmp_path / "m.onnx", 5, 8)
    assert module.config._attn_implementation == "sdpa"
    module.config._attn_implementation = "flash"
    module.forward = lambda x: Branching().forward(x)
    with pytest.raises(export_torch._NotExported):
        export_torch._export_plain(module, batches(1, 8, 8)[0], tmp_path / "n.onnx", keys=("attn_implementation",))
    assert module.config._attn_implementation == "flash"


def test_a_configuration_without_experts_offers_no_way(tmp_path):
    """transformers names an implementation of experts in every configuration: what cannot help is not tried."""
    module = Configured()
    module.config._experts_implementation = "grouped_mm"
    assert [way for way in export_torch._list_ways(module, list) if way.startswith("with")] == [
        "with attn_implementation eager"
    ]


def test_no_file_tells_where_in_the_python_a_node_comes_from():
    """Nor a node of a branch, or of a function: a comment would give other bytes."""
    entry = onnx.StringStringEntryProto(key="pkg.torch.onnx.stack_trace", value="net.py:7")

    def traced(kind: str, *given: Any, **attributes: Any) -> onnx.NodeProto:
        node = onnx.helper.make_node(kind, *given, **attributes)
        node.metadata_props.append(entry)
        return node

    value = onnx.helper.make_tensor_value_info
    branches = {
        name: onnx.helper.make_graph(
            [traced(kind, ["x"], [name])], name, [], [value(name, onnx.TensorProto.FLOAT, None)]
        )
        for name, kind in (("then", "Relu"), ("else", "Neg"))
    }
    nodes = [traced("If", ["which"], ["y"], then_branch=branches["then"], else_branch=branches["else"])]
    ends = [value("x", onnx.TensorProto.FLOAT, [2]), value("which", onnx.TensorProto.BOOL, [])]
    graph = onnx.helper.make_graph(nodes, "net", ends, [value("y", onnx.TensorProto.FLOAT, [2])])
    graph.metadata_props.append(entry)
    graph.input[0].metadata_props.append(entry)
    opset = [onnx.helper.make_opsetid("", 18)]
    function = onnx.helper.make_function("own", "F", ["a"], ["b"], [traced("Relu", ["a"], ["b"])], opset)
    model = onnx.helper.make_model(graph, functions=[function], opset_imports=opset)
    assert model.SerializeToString().count(b"net.py:7") == 6
    export_torch._forget_sources(model)
    assert b"net.py" not in model.SerializeToString()
    assert [node.op_type for node in model.graph.node] == ["If"]


def test_the_exporter_keeps_no_graph(tmp_path):
    """Nodes that its tracer made, and weights that it fused with their BatchNorm, are gone with the export, not with
    the next one."""
    network = nn.Sequential(nn.Conv2d(3, 24, 7), nn.BatchNorm2d(24)).eval()
    export_torch.export(network, (torch.randn(1, 3, 16, 16),), tmp_path / "model.onnx")
    gc.collect()
    kept = [value for value in gc.get_objects() if type(value) is onnx_ir.Tensor]
    assert not [tensor.name for tensor in kept if tuple(tensor.shape) == (24, 3, 7, 7)]
    nodes = [value for value in gc.get_objects() if type(value) is torch.fx.Node and "val" in value.meta]
    assert not [node for node in nodes if tuple(getattr(node.meta["val"], "shape", ())) == (24, 3, 7, 7)]


def test_memory_that_runs_out_is_no_way_that_fails():
    """Another way takes as much: the error comes as it is. What else ONNX Runtime says is a reason."""
    with pytest.raises(MemoryError), export_torch._stated("it does not run"):
        raise MemoryError
    with pytest.raises(BuildError, match="^as it is$"), export_torch._stated("it does not run"):
        raise BuildError("as it is")
    reason = "^it does not run: ValueError: no such operator"
    with pytest.raises(export_torch._NotExported, match=reason), export_torch._stated("it does not run"):
        raise ValueError("no such operator")


def test_the_ways_are_tried_in_order():
    """The usual one, each part in plain operations, all of them, and the two that cost something; of a network without
    a configuration no more than it can have."""
    module = Configured()
    module.is_concatenated = True
    module.config._experts_implementation = "grouped_mm"
    experts, attention = "experts_implementation batched_mm", "attn_implementation eager"
    last = ["for a batch of 1", "by torch's older exporter"]
    assert [*export_torch._list_ways(module, list)] == [
        "", f"with {experts}", f"with {attention}", f"with {experts} and {attention}", *last,
    ]  # fmt: skip
    assert [*export_torch._list_ways(Branching(), list)] == ["", *last]


def test_why_each_way_failed_is_said_once():
    """In the order of the ways, the usual one without a name; a reason that several give by the first of them."""
    refusals = {"": ValueError("a loop"), "with eager": ValueError("no op"), "for a batch of 1": ValueError("a loop")}
    assert str(export_torch._explain(refusals)) == (
        "torch.onnx cannot export this model: a loop; with eager: no op; write that part with other tensor operations, "
        "give an ONNX file of the model, or use a torch engine"
    )


def test_a_trace_that_is_another_network_is_no_way(tmp_path):
    """A decision on values that goes both ways on the examples: each way says why, and what to do stands at the end."""
    torch.manual_seed(0)
    with pytest.raises(ModeImpossible) as refused:
        export(Branching(), tmp_path / "m.onnx", 1, 8, 8)
    said = str(refused.value)
    assert said.startswith("torch.onnx cannot export this model: ")
    assert "by torch's older exporter: the trace froze a decision at networks.py" in said
    assert said.endswith("give an ONNX file of the model, or use a torch engine")


def test_a_network_that_changes_by_itself_is_told_once(tmp_path):
    """No exporter is at fault."""
    with pytest.raises(BuildError) as refused:
        export(Forgetful(), tmp_path / "m.onnx", 1, 8, 8)
    assert str(refused.value).startswith("the network's outputs differ from call to call")
