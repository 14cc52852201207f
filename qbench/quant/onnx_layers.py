"""What ONNX Runtime really ran: the layers that multiply and accumulate, from its own profile."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.errors import BuildError
from qbench.quant import onnx_file, onnx_model
from qbench.quant.coverage import Layer

_FLOAT = {"Conv", "FusedConv", "ConvTranspose", "Gemm", "FusedGemm", "MatMul", "FusedMatMul", "LSTM", "GRU", "RNN"}
_INT8 = {
    "QLinearConv", "ConvInteger", "QGemm", "QLinearMatMul", "MatMulInteger", "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul", "DynamicQuantizeLSTM",
}  # fmt: skip
_RECURRENT_GATES = {"LSTM": 4, "DynamicQuantizeLSTM": 4, "GRU": 3, "RNN": 1}
_SAME_SHAPE = {"QuantizeLinear", "DequantizeLinear", "Identity", "Cast"}

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Executed:
    """One executed node and the layer that it is; ``names``: those that a node of the file goes by (its own, or that of
    its output where it has none)."""

    names: frozenset[str]
    layer: Layer


def layers(file: Path, example: tuple[onnx_model.Array, ...], *, optimized: bool = True) -> tuple[Layer, ...]:
    """The operators that multiply and accumulate in one inference, in order; multiply-accumulates at batch size 1.

    ``optimized=True`` is what the kernels really do; ``False`` runs the graph as written (the fp32 reference,
    whose names and counts no optimization has touched). ``example`` is a batch of 1, repeated to the batch size that
    the file demands. Constant weights' shapes come from the graph that the runtime wrote, all others from the profile.
    """
    return tuple(one.layer for one in executed(file, example, optimized=optimized))


def executed(file: Path, example: tuple[onnx_model.Array, ...], *, optimized: bool = True) -> tuple[Executed, ...]:
    """``layers`` with the names of their nodes."""
    inputs = onnx_file.tiled(file, example)
    graph, events = _profile(file, inputs, optimized=optimized)
    shapes = _Shapes(graph)
    nodes = {node.name: node for node in graph.node}
    found = []
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            name, arguments = event["name"].removesuffix("_kernel_time"), event["args"]
            operator = arguments["op_name"]
            if operator in _FLOAT | _INT8 and name in nodes:
                macs = _multiply_accumulates(operator, nodes[name], arguments, shapes) // len(inputs[0])
                label = onnx_model.module_of(nodes[name]) or name
                layer = Layer(name=label, operator=operator, macs=macs, int8=operator in _INT8)
                found.append(Executed(names=frozenset([name, *nodes[name].output]), layer=layer))
    return tuple(found)


def _profile(file: Path, inputs: tuple[onnx_model.Array, ...], *, optimized: bool) -> tuple[Any, list[dict[str, Any]]]:
    """The graph that the runtime made of a file, and the events of one inference."""
    import onnx
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        options = onnx_model.session_options(1)
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder) / "profile")
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        if not optimized:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnx_model.open_session(_with_names(file, Path(folder) / "named.onnx"), options=options)
        names = [value.name for value in session.get_inputs()]
        session.run(None, dict(zip(names, inputs, strict=True)))
        events: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text())
        return onnx.load(str(Path(folder) / "optimized.onnx")).graph, events


def _with_names(file: Path, target: Path) -> Path:
    """The file itself where every node has a name of its own, else a copy where it has: the profile knows no other
    link from an event to its node."""
    import onnx

    model = onnx.load(str(file))
    names = [node.name for node in model.graph.node]
    if all(names) and len(set(names)) == len(names):
        return file
    used: set[str] = set()
    for i, node in enumerate(model.graph.node):
        if not node.name or node.name in used:
            node.name = f"{node.op_type}_{i}"
            while node.name in used or node.name in names:
                node.name += "_"
        used.add(node.name)
    onnx.save(model, str(target))
    return target


class _Shapes:
    """The shapes of what is constant in a graph."""

    def __init__(self, graph: Any) -> None:
        self._constants: dict[str, Shape] = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        self._makers = {output: node for node in graph.node for output in node.output}

    def constant(self, name: str) -> Shape | None:
        """The shape of an initializer, also of one that is quantized and dequantized on its way; None for others."""
        while name not in self._constants and name in self._makers and self._makers[name].op_type in _SAME_SHAPE:
            name = self._makers[name].input[0]
        return self._constants.get(name)


def _multiply_accumulates(operator: str, node: Any, arguments: Mapping[str, Any], shapes: _Shapes) -> int:
    """Those of the whole batch. The profile lists the shapes of a node's inputs, but not of weights that a kernel has
    packed for itself: these are constants of the graph."""
    seen: list[Shape] = [tuple(next(iter(shape.values()))) for shape in arguments["input_type_shape"]]
    output: int = math.prod(next(iter(arguments["output_type_shape"][0].values())))
    if operator in _RECURRENT_GATES:
        hidden = next(int(a.i) for a in node.attribute if a.name == "hidden_size")
        steps, batch, width = seen[0]
        directions: int = output // (steps * batch * hidden)
        gates: int = _RECURRENT_GATES[operator]
        return directions * steps * batch * gates * hidden * (width + hidden)
    if "Conv" in operator:
        position = 3 if operator == "QLinearConv" else 1
        weight = shapes.constant(node.input[position]) or (seen[position] if position < len(seen) else ())
        if len(weight) < 3:  # output channels, input channels, at least one axis of the kernel
            raise BuildError(f"ONNX Runtime tells no shape for the weight of {node.name} ({operator})")
        elements = math.prod(seen[0]) if operator == "ConvTranspose" else output
        return elements * math.prod(weight[1:])
    # Gemm and MatMul: the last axis of A is summed over, or the one before it where A is transposed.
    transposed = any(a.name == "transA" and a.i for a in node.attribute)
    return output * seen[0][-2 if transposed else -1]
