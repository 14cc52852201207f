"""Single tensors of ONNX files: which layers two files share, and a file that gives one of its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.quant.onnx import node_names
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.graph.without_weights import skeleton

_MARKS = ("QuantizeLinear", "DequantizeLinear")
_NO_LAYER = (*_MARKS, "Constant", "Shape", "Cast", "Identity")


@dataclass(frozen=True, kw_only=True)
class LayerTensor:
    """A layer as a person knows it, and the tensor that it gives, behind its quantization where it has one."""

    name: str
    tensor: str


def shared_layers(first: Path, other: Path) -> list[LayerTensor]:
    """The layers of the first file whose float output the second has under the same name, in the order of the graph."""
    graph, names = Graph.load(first), set(_float_tensors(Graph.load(other)))
    floats = set(_float_tensors(graph))
    layers = []
    for node in graph.nodes:
        if node.op_type in _NO_LAYER or not node.output:
            continue
        tensors = [behind for behind in (_dequantized(graph, node.output[0]), node.output[0]) if behind]
        tensor = next((name for name in tensors if name in names and name in floats), None)
        if tensor is not None:
            layers.append(LayerTensor(name=node_names.module_of(node) or node.name or node.output[0], tensor=tensor))
    return layers


def _dequantized(graph: Graph, tensor: str) -> str | None:
    """What is read in place of a tensor that is quantized."""
    for node, _ in graph.readers(tensor):
        if node.op_type == "QuantizeLinear":
            for reader, _ in graph.readers(node.output[0]):
                if reader.op_type == "DequantizeLinear":
                    return str(reader.output[0])
    return None


def _float_tensors(graph: Graph) -> list[str]:
    import onnx

    inferred = onnx.shape_inference.infer_shapes(skeleton(graph)).graph
    kinds = {value.name: value.type.tensor_type.elem_type for value in (*inferred.value_info, *inferred.output)}
    return [name for name, kind in kinds.items() if kind == onnx.TensorProto.FLOAT]


def with_first_output(source: Path, tensor: str, file: Path) -> Path:
    """Writes a copy of a file that gives a tensor before its own outputs."""
    import onnx

    model: Any = onnx.load(str(source))
    outputs = [value for value in model.graph.output if value.name != tensor]
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info(tensor, onnx.TensorProto.FLOAT, None))
    model.graph.output.extend(outputs)
    onnx.save(model, str(file))
    return file
