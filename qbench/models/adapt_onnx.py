"""An ONNX file with its examples along axis 0 of every input, its constants inside, the output that counts first, in
float32, without the branches that never run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from qbench.errors import ModelError
from qbench.models.base import InputForm, ModelReference, require_known_port

if TYPE_CHECKING:
    from qbench.quant.onnx.graph.graph import Graph


def file_of(path: Path, reference: ModelReference, example: Sequence[Any] = ()) -> Callable[[Path], str | None] | None:
    """What writes the adapted file, and returns a note where its inputs take fewer sizes than before; None where the
    file can stay as it is. ``example``: an array of one example for each input that is no constant."""
    from qbench.quant.onnx.graph import branches, fp16
    from qbench.quant.onnx.graph.graph import Graph

    graph = Graph.load(path)
    wide = any(_kind(value) in fp16.HALF for value in (*graph.model.graph.input, *graph.model.graph.output))
    if not reference.adapted and not wide and not branches.are_left(graph):
        return None

    def write(file: Path) -> str | None:
        if wide:
            fp16.widen_whole(graph)
        adapt(graph, reference)
        settled, note = _without_branches(graph, example)
        settled.save(file)
        return None if note is None else f"{reference.name}: {note}"

    return write


def adapt(graph: Graph, reference: ModelReference) -> None:
    """Changes a graph in place; raises ``ModelError`` where it has no such input or output."""
    require_known_port(reference.name, "input", reference.inputs, graph.inputs)
    for name, form in reference.inputs.items():
        if form.is_constant:
            _fix(graph, name, form, reference.name)
        elif form.axis:
            _turn_input(graph, name, form.axis, reference.name)
    _order_inputs(graph, reference)
    if reference.output is not None or reference.output_axis:
        _put_first(graph, reference)


def _without_branches(graph: Graph, example: Sequence[Any]) -> tuple[Graph, str | None]:
    """An equal graph in which each If whose condition is constant has given way to the branch that runs, also where
    that follows from the sizes of the example, which are then the only ones; with a note where they are."""
    from qbench.quant.onnx.graph import branches, equivalence

    settled, sizes = graph.copy(), dict[str, tuple[int, ...]]()
    removed = branches.take(settled)
    if branches.are_left(settled):
        sized = settled.copy()
        sizes = branches.declare_sizes(sized, dict(zip(graph.inputs, (array.shape for array in example), strict=False)))
        if sizes and branches.take(sized):
            settled = sized
        else:
            sizes = {}
    if not (removed or sizes):
        return graph, None
    settled.drop_unused()
    try:
        before = equivalence.reference(graph, [np.repeat(array, graph.batch or 1, axis=0) for array in example])
    except ModelError:  # told with the data in hand, when the network is tried
        return graph, None
    if before is not None and before.difference(settled):
        return graph, None
    fixed = ", ".join(f"{name} {list(size)}" for name, size in sizes.items())
    return (
        settled,
        f"it branches by the sizes of its inputs, so they are fixed at those of the data: {fixed}" if fixed else None,
    )


def _fix(graph: Graph, name: str, form: InputForm, model: str) -> None:
    """The input becomes an initializer of the type and shape that it declares."""
    from onnx import helper, numpy_helper

    if form.constant is None:
        raise ModelError(f"{model}: input '{name}' of an ONNX file is a tensor and cannot be null; remove it")
    body = graph.model.graph
    value = next(value_info for value_info in body.input if value_info.name == name)
    constant = np.asarray(form.constant)
    array = constant.astype(helper.tensor_dtype_to_np_dtype(_kind(value)))
    if not np.array_equal(array, constant):
        raise ModelError(f"{model}: input '{name}' takes {array.dtype}, which does not hold {form.constant!r}")
    sizes = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
    if array.ndim == 0 and value.type.tensor_type.HasField("shape"):
        array = array.reshape([1] * len(sizes))
    fits = len(sizes) == array.ndim and all(
        size in (0, length) for size, length in zip(sizes, array.shape, strict=True)
    )
    if value.type.tensor_type.HasField("shape") and not fits:
        raise ModelError(f"{model}: input '{name}' has the shape {sizes} (0: any), its constant {list(array.shape)}")
    body.input.remove(value)
    body.initializer.append(numpy_helper.from_array(array, name))
    graph.reindex()


def _turn_input(graph: Graph, name: str, axis: int, model: str) -> None:
    """The input keeps its name and gets its examples along axis 0; what read it reads the tensor turned back."""
    from onnx import helper

    from qbench.quant.onnx.graph import fp16

    value = next(value_info for value_info in graph.model.graph.input if value_info.name == name)
    sizes = list(value.type.tensor_type.shape.dim)
    if axis >= len(sizes):
        raise ModelError(f"{model}: input '{name}' has {len(sizes)} axes, none is number {axis} (counted from 0)")
    inside = graph.fresh(f"{name}_turned")
    fp16.rename(graph.model.graph, {name: inside})
    # Of the file's axes, in the new input.
    order = [axis, *(position for position in range(len(sizes)) if position != axis)]
    _declare(value, [sizes[position] for position in order])
    back = [order.index(position) for position in range(len(sizes))]
    graph.model.graph.node.insert(0, helper.make_node("Transpose", [name], [inside], name=inside, perm=back))
    graph.reindex()


def _order_inputs(graph: Graph, reference: ModelReference) -> None:
    """The inputs come in the order of the data's arrays."""
    values = {value.name: value for value in graph.model.graph.input}
    ordered = [values.pop(name) for name in reference.order_arrays(graph.inputs)] + list(values.values())
    del graph.model.graph.input[:]
    graph.model.graph.input.extend(ordered)
    graph.reindex()


def _put_first(graph: Graph, reference: ModelReference) -> None:
    """The output that counts comes first, its examples along axis 0."""
    from onnx import helper

    names = list(graph.outputs)
    output = names[0] if reference.output is None else reference.output
    if isinstance(output, int):
        if output >= len(names):
            raise ModelError(f"{reference.name}: no output {output}; it has {len(names)}, counted from 0")
        output = names[output]
    require_known_port(reference.name, "output", [output], names)
    body = graph.model.graph
    value = next(value_info for value_info in body.output if value_info.name == output)
    declaration = type(value)()
    declaration.CopyFrom(value)
    others = [value_info for value_info in body.output if value_info.name != output]
    del body.output[:]
    if axis := reference.output_axis:
        sizes = list(declaration.type.tensor_type.shape.dim)
        if axis >= len(sizes):
            raise ModelError(f"{reference.name}: output '{output}' has {len(sizes)} axes, none is number {axis}")
        order = [axis, *(position for position in range(len(sizes)) if position != axis)]
        declaration.name = graph.fresh(f"{output}_turned")
        _declare(declaration, [sizes[position] for position in order])
        body.node.append(helper.make_node("Transpose", [output], [declaration.name], name=declaration.name, perm=order))
    body.output.extend([declaration, *others])
    graph.reindex()


def _declare(value: Any, sizes: list[Any]) -> None:
    copies = []
    for size in sizes:
        copy = type(size)()
        copy.CopyFrom(size)
        copies.append(copy)
    del value.type.tensor_type.shape.dim[:]
    value.type.tensor_type.shape.dim.extend(copies)


def _kind(value: Any) -> int:
    return int(value.type.tensor_type.elem_type)
