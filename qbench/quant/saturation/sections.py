"""An ONNX graph cut behind some of its nodes, so that what they give can be changed before it is read."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from qbench.quant.onnx import onnxruntime_session
from qbench.quant.onnx.graph.layers import subgraphs

Array = NDArray[Any]
# A model -> what computes outputs of given names from arrays by name, as a session of ONNX Runtime does.
Open = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class ModelSection:
    """Some nodes that follow each other, as a session: the tensors that it reads and gives, and which tensors nothing
    reads any more behind it."""

    session: Any
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    finished: tuple[str, ...]

    def run(self, tensors: dict[str, Array]) -> None:
        """Adds what it gives to the tensors."""
        feed = {name: tensors[name] for name in self.inputs}
        tensors.update(zip(self.outputs, self.session.run(list(self.outputs), feed), strict=True))


def optimize(file: Path) -> Any:
    """The graph that ONNX Runtime executes for a file, as an ONNX model."""
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime_session.session_options(1)
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        onnxruntime_session.open_session(file, options=options)
        return onnx.load(options.optimized_model_filepath)


def read_constants(model: Any) -> dict[str, Array]:
    """The initializers and the outputs of Constant nodes."""
    import onnx

    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
    return constants


def name_layer(node: Any, makers: Mapping[str, Any]) -> str:
    """The torch module that a node came from, by a weight that is called after it, also where that is dequantized by
    the node in ``makers`` that gives it; else the node's own name."""
    for tensor in node.input:
        while tensor in makers and makers[tensor].op_type == "DequantizeLinear":
            tensor = makers[tensor].input[0]
        module, weight, _ = tensor.partition(".weight")
        if weight:
            return str(module)
    return str(node.name or node.output[0])


def cut(
    model: Any, behind: Sequence[int], requested: Sequence[Sequence[str]], open_part: Open
) -> tuple[ModelSection, ...]:
    """The sections of a model that end behind the nodes of these numbers; the tensors ``requested`` with each are given
    by it or by one before it. ``open_part`` opens what runs one of them, such as ``open_as_written``."""
    nodes = list(model.graph.node)
    bounds = [0, *(number + 1 for number in behind), len(nodes)]
    groups = [nodes[start:stop] for start, stop in itertools.pairwise(bounds)]
    tensors = {value.name for value in model.graph.input} | {name for node in nodes for name in node.output}
    reads = [_read(group) & tensors - _given(group) for group in groups]
    requested_behind = [set(names) & tensors for names in [*requested, ()]]
    results = {value.name for value in model.graph.output}
    needed_behind = [set().union(results, *reads[i + 1 :], *requested_behind[i:]) for i in range(len(groups))]
    model_inputs = {value.name for value in model.graph.input}
    types = _types(model, set().union(*reads, *requested_behind) - results - model_inputs)
    sections = []
    for i, group in enumerate(groups):
        outputs, inputs = sorted(_given(group) & needed_behind[i]), sorted(reads[i])
        if outputs:
            later = set().union(results, *reads[i + 1 :], *requested_behind[i + 1 :])
            session = open_part(_part(model, group, inputs, outputs, types))
            finished = tuple({*inputs, *outputs} - later)
            sections.append(
                ModelSection(session=session, inputs=tuple(inputs), outputs=tuple(outputs), finished=finished)
            )
    return tuple(sections)


def _given(nodes: Sequence[Any]) -> set[str]:
    return {name for node in nodes for name in node.output if name}


def _read(nodes: Sequence[Any]) -> set[str]:
    """The tensors that nodes read, and those that graphs within them read of the one around."""
    names: set[str] = set()
    for node in nodes:
        names |= {name for name in node.input if name}
        for _, inner in subgraphs(node):
            names |= _read(inner.node)
    return names


def _types(model: Any, names: set[str]) -> dict[str, tuple[int, list[int | None] | None]]:
    """Tensor -> its type and its shape (None: not known), as ONNX Runtime tells them."""
    import onnx

    kinds = {f"tensor({name.lower()})": kind for name, kind in onnx.TensorProto.DataType.items()}
    if not names:
        return {}
    typed = type(model)()
    typed.CopyFrom(model)
    typed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(names))
    return {
        value.name: (kinds[value.type], [size if isinstance(size, int) else None for size in value.shape] or None)
        for value in open_as_written(typed).get_outputs()
    }


def _part(model: Any, nodes: Sequence[Any], inputs: list[str], outputs: list[str], types: Mapping[str, Any]) -> Any:
    """Some nodes of a model as a model of their own."""
    import onnx

    part, reads = onnx.ModelProto(ir_version=model.ir_version), _read(nodes)
    part.opset_import.extend(model.opset_import)
    part.functions.extend(model.functions)
    part.graph.name = model.graph.name
    part.graph.node.extend(nodes)
    part.graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in reads)
    model_inputs = {value.name: value for value in model.graph.input}
    for name in inputs:
        declared = onnx.helper.make_tensor_value_info(name, *types.get(name, (0, None)))
        part.graph.input.append(model_inputs.get(name, declared))
    part.graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    return part


def open_as_written(model: Any, *, threads: int = 1) -> Any:
    """A session of ONNX Runtime that runs a model as it is written."""
    import onnxruntime

    options = onnxruntime_session.session_options(threads)
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
