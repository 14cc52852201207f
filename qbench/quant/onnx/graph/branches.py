"""An If whose condition is constant gives way to the branch that it takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from qbench.quant.onnx.graph import fp16, known_values, names
from qbench.quant.onnx.graph.graph import Graph, attribute, copy_message, inner_names
from qbench.quant.onnx.graph.layers import is_if


def take(graph: Graph) -> int:
    """Puts the nodes of the branch that runs in the place of each top-level If whose condition follows from constants
    and from the declared sizes of the inputs, and of each that comes to the top level by that; how many."""
    count = 0
    while branches := _chosen(graph):
        _replace(graph, branches)
        count += len(branches)
    if count:
        names.give(graph)
    return count


def are_left(graph: Graph) -> bool:
    """Whether there is an If at the top level."""
    return any(is_if(node) for node in graph.nodes)


def declare_sizes(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Declares the open sizes of inputs, but those of axis 0, as in ``shapes``; the inputs that had some, with their
    sizes behind axis 0."""
    changed = {}
    for value in graph.model.graph.input:
        dims, shape = value.type.tensor_type.shape.dim, shapes.get(value.name, ())
        unknown = [i for i, dim in enumerate(dims) if i and not (dim.HasField("dim_value") and dim.dim_value >= 0)]
        if unknown and len(dims) == len(shape):
            for i in unknown:
                dims[i].dim_value = shape[i]
            changed[value.name] = tuple(shape[1:])
    graph.reindex()
    return changed


def _chosen(graph: Graph) -> dict[int, Any]:
    """Position of an If among the nodes -> the branch of it that always runs."""
    places = {i: node for i, node in enumerate(graph.nodes) if is_if(node)}
    if not places:
        return {}
    values = known_values.values(graph, [node.input[0] for node in places.values()])
    branches = {}
    for i, node in places.items():
        condition = values.get(node.input[0])
        if condition is not None and condition.is_whole and condition.values.size == 1:
            branch = attribute(node, "then_branch" if condition.values.reshape(()) else "else_branch")
            if _plain(branch):
                branches[i] = branch
    return branches


def _plain(branch: Any) -> bool:
    """Whether a branch gives tensors, as far as its file tells, and holds no sparse ones."""
    kinds = {name.type.WhichOneof("value") for name in branch.output}
    return not branch.sparse_initializer and kinds <= {None, "tensor_type"}


def _replace(graph: Graph, branch_of: Mapping[int, Any]) -> None:
    body = graph.model.graph
    nodes = [copy_message(node) for node in body.node]
    branches = {i: copy_message(branch) for i, branch in branch_of.items()}
    del body.node[:]
    body.node.extend(node for i, node in enumerate(nodes) if i not in branches)
    graph.reindex()  # the names within the Ifs are free now
    for name in (name for i in branches for name in nodes[i].output):
        graph.fresh(name)
    replaced: list[Any] = []
    for i, node in enumerate(nodes):
        replaced += _inlined(graph, node, branches[i]) if i in branches else [node]
    del body.node[:]
    body.node.extend(replaced)
    graph.reindex()


def _inlined(graph: Graph, node: Any, branch: Any) -> Iterator[Any]:
    """The nodes that take the place of an If; what the branch holds goes to the graph. Tensors whose names are used
    elsewhere get others."""
    from onnx import helper

    for name in {name for inner in branch.node for name in inner_names(inner)}:
        graph.fresh(name)  # from now on no outer tensor is called so: it would be hidden there
    own = [tensor.name for tensor in branch.initializer] + [
        name for inner in branch.node for name in inner.output if name
    ]
    renamed = {name: graph.fresh(name) for name in own}
    fp16.rename(branch, renamed)
    for tensor in branch.initializer:
        tensor.name = renamed[tensor.name]
        graph.model.graph.initializer.append(tensor)
    yield from branch.node
    for inner, outer in zip(branch.output, node.output, strict=False):
        if outer:
            name_outside = renamed.get(inner.name, inner.name)
            yield helper.make_node(
                "Identity", [name_outside], [outer], name=graph.fresh(f"{node.name or 'If'}_{outer}")
            )
