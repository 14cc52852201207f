"""A model in float16 or bfloat16 computes in float32; its inputs and outputs stay as they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from qbench.quant.onnx.graph.graph import Graph, attribute
from qbench.quant.onnx.graph.layers import subgraphs

# TensorProto's numbers.
FLOAT, FLOAT16, BFLOAT16 = 1, 10, 16
HALF = (FLOAT16, BFLOAT16)
# Attributes that hold a type: of Cast, of RandomNormal, EyeLike and the like, of SequenceEmpty.
TYPES = ("to", "dtype")


def is_half(graph: Graph) -> bool:
    """Whether anything in the graph, its subgraphs included, is held or made in 16 bits."""
    return _holds_half(graph.model.graph)


def widen(graph: Graph) -> None:
    """Changes a graph of 16-bit floats to float32 between a Cast behind each input and one before each output; those
    that have one already keep it."""
    body = graph.model.graph
    kinds = {value.name: _type(value) for value in (*body.input, *body.output) if _type(value) in HALF}
    initializers = {tensor.name for tensor in body.initializer}
    inputs = [value.name for value in body.input if value.name in kinds and value.name not in initializers]
    outputs = [value.name for value in body.output if value.name in kinds and value.name not in inputs]
    ends: dict[str, Any] = {name: graph.maker(name) for name in outputs if _ends_in_cast(graph, name)}
    wide_inputs = {name: graph.fresh(f"{name}_float") for name in inputs if not _starts_with_casts(graph, name)}
    wide_outputs = {name: graph.fresh(f"{name}_float") for name in outputs if name not in ends}
    _widen(body)
    for value in (*body.input, *body.output):
        value.type.tensor_type.elem_type = kinds.get(value.name, _type(value))
    for name, node in ends.items():
        next(attr for attr in node.attribute if attr.name == "to").i = kinds[name]
    rename(body, wide_inputs | wide_outputs)
    with graph.editing() as nodes:
        nodes[:0] = [_cast(name, wide, FLOAT) for name, wide in wide_inputs.items()]
        nodes += [_cast(wide, name, kinds[name]) for name, wide in wide_outputs.items()]


def widen_whole(graph: Graph) -> None:
    """The same with float32 inputs and outputs, for whoever gives and takes float32."""
    _widen(graph.model.graph)
    graph.reindex()


def _starts_with_casts(graph: Graph, name: str) -> bool:
    """Whether everything that reads an input widens it first."""
    readers = [node for node, position in graph.readers(name) if position >= 0]
    whole = len(readers) == len(graph.readers(name))
    return whole and all(node.op_type == "Cast" and attribute(node, "to") not in HALF for node in readers)


def _ends_in_cast(graph: Graph, name: str) -> bool:
    """Whether an output is narrowed last, and for nothing else."""
    node = graph.maker(name)
    return node is not None and node.op_type == "Cast" and not graph.readers(name)


def _cast(source: str, target: str, kind: int) -> Any:
    from onnx import helper

    return helper.make_node("Cast", [source], [target], name=f"{target}_cast", to=kind)


def _type(value: Any) -> int:
    return int(value.type.tensor_type.elem_type)


def _is_half(value: Any) -> bool:
    return _type(value) in HALF


def _holds_half(body: Any) -> bool:
    if any(tensor.data_type in HALF for tensor in body.initializer):
        return True
    if any(_is_half(value) for value in (*body.input, *body.output)):
        return True
    for node in body.node:
        if any(_attribute_is_half(attr) for attr in node.attribute) or any(
            _holds_half(inner) for _, inner in subgraphs(node)
        ):
            return True
    return False


def _attribute_is_half(value: Any) -> bool:
    return value.t.data_type in HALF if value.HasField("t") else value.name in TYPES and value.i in HALF


def _widen(body: Any) -> None:
    """Constants, declared types and types in attributes, in subgraphs too."""
    for tensor in body.initializer:
        _widen_tensor(tensor)
    for value in (*body.input, *body.output, *body.value_info):
        if _is_half(value):
            value.type.tensor_type.elem_type = FLOAT
    for node in body.node:
        for attr in node.attribute:
            if attr.HasField("t"):
                _widen_tensor(attr.t)
            elif attr.name in TYPES and attr.i in HALF:
                attr.i = FLOAT
        for _, inner in subgraphs(node):
            _widen(inner)


def _widen_tensor(tensor: Any) -> None:
    from onnx import numpy_helper

    if tensor.data_type in HALF:
        values = np.asarray(numpy_helper.to_array(tensor)).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def rename(body: Any, names: dict[str, str]) -> None:
    """Tensors get new names wherever nodes make or read them, in subgraphs too where these mean the outer one."""
    for node in body.node:
        for slots in (node.input, node.output):
            for i, name in enumerate(slots):
                slots[i] = names.get(name, name)
        for _, inner in subgraphs(node):
            own = {name for part in inner.node for name in part.output} | {value.name for value in inner.input}
            own |= {tensor.name for tensor in inner.initializer}
            captured = {name: wide for name, wide in names.items() if name not in own}
            rename(inner, captured)
            for value in inner.output:
                value.name = captured.get(value.name, value.name)
