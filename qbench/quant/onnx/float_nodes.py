"""Nodes of an ONNX file that int8 would spoil, as ``quant.pytorch.float_calls`` finds calls: joins of what one scale
cannot hold, and arithmetic behind the last layers. ONNX Runtime's own quantizer leaves them in float where it is asked
to; qbench's files have joins apart anyway."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.analysis.joined_ranges import Seen, is_uneven
from qbench.quant.artifacts import onnx_file
from qbench.quant.onnx import onnxruntime_session

Array = NDArray[Any]
EXAMPLES = 8  # of which ranges are looked at
_JOIN = "Concat"
_ARITHMETIC = ("Add", "Sub", "Mul", "Div")
_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# What hands values on as they are, or some of them.
_CARRIERS = (
    *("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Split", "Slice", "Gather", "Expand", "Tile"),
    *("Resize", "Upsample", "MaxPool", "Relu", "Identity", "DepthToSpace", "SpaceToDepth"),
)


def find_float_nodes(file: Path, inputs: tuple[Array, ...]) -> list[Any]:
    """The nodes that are to stay float on the first examples of ``inputs``, in the order of the file; those of whole
    numbers, which nobody quantizes, are none."""
    import onnx

    model = onnx.shape_inference.infer_shapes(onnx.load(str(file)))
    nodes = list(model.graph.node)
    readers: dict[str, list[int]] = {}
    for place, node in enumerate(nodes):
        for name in node.input:
            readers.setdefault(name, []).append(place)
    last = _find_last(nodes, readers)
    if not any(node.op_type == _JOIN or (node.op_type in _ARITHMETIC and i in last) for i, node in enumerate(nodes)):
        return []
    floats = _list_floats(model)
    uneven = _find_uneven(model, file, inputs, floats)
    chosen, held = list[Any](), set[str]()
    for place, node in enumerate(nodes):
        if not all(name in floats for name in node.output if name):
            continue
        follows = any(name in held for name in node.input)
        if place in last:
            apart = follows or node.op_type in (_JOIN, *_ARITHMETIC)
        else:
            apart = follows and node.op_type in (_JOIN, *_CARRIERS)
            apart = apart or (place in uneven and not _is_for_layers(nodes, readers, place))
        if apart:
            chosen.append(node)
            held.update(node.output)
    return chosen


def name_joins(file: Path, inputs: tuple[Array, ...]) -> tuple[str, ...]:
    """The names of those of ``find_float_nodes`` that make one tensor of several, or another of one."""
    return tuple(
        node.name or node.output[0] for node in find_float_nodes(file, inputs) if node.op_type in (_JOIN, *_ARITHMETIC)
    )


def _find_last(nodes: list[Any], readers: dict[str, list[int]]) -> set[int]:
    """The nodes behind a layer that no other layer follows."""
    before, behind = set[int](), set[str]()
    for place in reversed(range(len(nodes))):
        users = [user for name in nodes[place].output for user in readers.get(name, ())]
        if any(user in before or nodes[user].op_type in _LAYERS for user in users):
            before.add(place)
    last = set[int]()
    for place, node in enumerate(nodes):
        is_layer = node.op_type in _LAYERS
        if is_layer or any(name in behind for name in node.input):
            behind.update(node.output)
            if not is_layer and place not in before:
                last.add(place)
    return last


def _list_floats(model: Any) -> set[str]:
    """The tensors that hold floats, or of which the file does not tell."""
    import onnx

    values = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    kinds = {value.name: value.type.tensor_type.elem_type for value in values}
    named = [name for node in model.graph.node for name in (*node.input, *node.output) if name]
    constants = {each.name: each.data_type for each in model.graph.initializer}
    plain = onnx.TensorProto.FLOAT
    return {name for name in named if kinds.get(name, constants.get(name, plain)) == plain}


def _find_uneven(model: Any, file: Path, inputs: tuple[Array, ...], floats: set[str]) -> set[int]:
    """The joins whose inputs one scale cannot hold."""
    constants = {each.name for each in model.graph.initializer}
    joins = {place: node for place, node in enumerate(model.graph.node) if node.op_type == _JOIN}
    wanted = {name for node in joins.values() for name in node.input if name in floats and name not in constants}
    if not wanted:
        return set()
    ranges = {name: Seen() for name in wanted}
    for values in _run(model, file, tuple(array[:EXAMPLES] for array in inputs), sorted(wanted)):
        for name, array in values.items():
            if array.size:
                ranges[name].add(array)
    return {
        place
        for place, node in joins.items()
        if is_uneven(ranges[name] for name in dict.fromkeys(node.input) if name in ranges and ranges[name].count)
    }


def _run(model: Any, file: Path, inputs: tuple[Array, ...], names: list[str]) -> Iterator[dict[str, Array]]:
    """The tensors of these names, batch by batch."""
    import onnx

    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    known = {value.name for value in watched.graph.output}
    for name in names:
        if name not in known:
            watched.graph.output.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None))
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(watched, str(Path(folder) / "watched.onnx"))
        session = onnxruntime_session.open_session(Path(folder) / "watched.onnx")
        for batch in onnx_file.Batches(file, inputs):
            yield dict(zip(names, map(np.asarray, session.run(names, batch)), strict=True))


def _is_for_layers(nodes: list[Any], readers: dict[str, list[int]], join: int) -> bool:
    """Whether all that reads a join's values computes with weights."""
    ends, left, known = list[bool](), [join], {join}
    while left:
        for user in (user for name in nodes[left.pop()].output for user in readers.get(name, ())):
            if user in known:
                continue
            known.add(user)
            if nodes[user].op_type in (_JOIN, *_CARRIERS):
                left.append(user)
            else:
                ends.append(nodes[user].op_type in _LAYERS)
    return bool(ends) and all(ends)
