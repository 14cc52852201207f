"""A graph without its large weights, for what onnx does in C++ with a serialized copy: quick, and at any size."""

from __future__ import annotations

from typing import Any

from qbench.quant.onnx.graph.graph import Graph

# Elements; what decides about shapes (axes, sizes, scales of Resize) is smaller.
SMALL = 1024


def skeleton(graph: Graph) -> Any:
    """A ``ModelProto`` in which initializers of more than ``SMALL`` elements are inputs of their type and shape."""
    import onnx

    whole = graph.model
    without = onnx.ModelProto(ir_version=whole.ir_version)
    without.opset_import.extend(whole.opset_import)
    without.graph.name = whole.graph.name or "graph"
    for field in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(without.graph, field).extend(getattr(whole.graph, field))
    listed = {value.name for value in whole.graph.input}
    for tensor in whole.graph.initializer:
        if not _large(tensor):
            without.graph.initializer.append(tensor)
        elif tensor.name not in listed:
            value = onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            without.graph.input.append(value)
    return without


def put_back(graph: Graph, without: Any) -> None:
    """Gives the graph the nodes, the opset, the outputs, the shapes and the small initializers of a changed
    skeleton; its inputs and its large initializers stay."""
    whole = graph.model
    del whole.opset_import[:]
    whole.opset_import.extend(without.opset_import)
    for field in ("node", "value_info"):
        tensors = getattr(whole.graph, field)
        del tensors[:]
        tensors.extend(getattr(without.graph, field))
    for i in reversed([i for i, tensor in enumerate(whole.graph.initializer) if not _large(tensor)]):
        del whole.graph.initializer[i]
    whole.graph.initializer.extend(without.graph.initializer)
    graph.reindex()


def _large(tensor: Any) -> bool:
    count = 1
    for size in tensor.dims:
        count *= size
    return count > SMALL
