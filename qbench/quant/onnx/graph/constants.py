"""What is constant in a graph becomes an initializer, and each layer gets weights of its own."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import out_of_memory
from qbench.quant.onnx.graph import tensor_proto
from qbench.quant.onnx.graph.graph import Graph, attribute, captured
from qbench.quant.onnx.graph.layers import STANDARD

Array = NDArray[Any]
# Positions of what a layer holds.
WEIGHTED = {"Conv": (1, 2), "ConvTranspose": (1, 2), "Gemm": (1, 2), "MatMul": (1,)}
SMALL = 2**16  # elements of a computed constant that is no weight
# Elements that may be computed in all, beside four times those of the initializers: a few bytes can ask for terabytes.
BUDGET = 2**26
# Operators without randomness, state or subgraphs.
FOLDABLE = {
    "Transpose", "Reshape", "Cast", "Unsqueeze", "Squeeze", "Flatten", "Identity", "Mul", "Div", "Add", "Sub", "Neg",
    "Sqrt", "Reciprocal", "Pow", "Exp", "Concat", "Slice", "Gather", "Expand", "ReduceSum", "ReduceMean", "ReduceL2",
    "ConstantOfShape", "Shape", "Tile", "Pad", "Where", "Range", "Abs", "Log", "Equal", "Not", "Max", "Min", "And",
    "Or", "Xor", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mod", "ReduceProd", "Size", "GatherElements",
}  # fmt: skip


# Of those, the ones whose output can be larger than what they read.
SIZED = {
    "ConstantOfShape", "Expand", "Tile", "Range", "Pad", "Gather", "Mul", "Div", "Add", "Sub", "Pow", "Where", "Equal",
    "Max", "Min", "Concat", "And", "Or", "Xor", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Mod",
}  # fmt: skip


def fold(graph: Graph) -> None:
    """Constant nodes become initializers, Identity nodes and inputs that are initializers vanish, weights that are
    computed from constants are computed now, and weights with several readers get a copy for each layer."""
    _unlist(graph)
    _constants(graph)
    _identities(graph)
    _computed(graph)
    graph.drop_unused()
    _unshare(graph)


def share(graph: Graph) -> None:
    """Equal weights of layers that stayed float are one constant again, as before ``fold``."""
    names: dict[tuple[Any, ...], str] = {}
    with graph.editing() as nodes:
        for node in nodes:
            is_layer = node.op_type in WEIGHTED and node.domain in STANDARD
            if is_layer and (weight := graph.constant(node.input[1])) is not None:
                content = (weight.dtype.str, weight.shape, hashlib.sha256(weight.tobytes()).digest())
                node.input[1] = names.setdefault(content, node.input[1])
    graph.drop_unused()


def compute(graph: Graph) -> None:
    """What nodes compute from constants alone becomes an initializer; everything else stays."""
    _constants(graph)
    _computed(graph)


def _unlist(graph: Graph) -> None:
    """Initializers among the inputs are defaults that a caller may override: from here on they are constants."""
    initializers = {tensor.name for tensor in graph.model.graph.initializer}
    inputs = [value for value in graph.model.graph.input if value.name not in initializers]
    del graph.model.graph.input[:]
    graph.model.graph.input.extend(inputs)


def _constants(graph: Graph) -> None:
    """The output of a Constant becomes an initializer of that name."""
    constants = [node for node in graph.nodes if node.op_type == "Constant" and node.domain in STANDARD]
    values = {node.output[0]: _read_constant(node) for node in constants if not graph.is_output(node.output[0])}
    graph.make_constant({name: value for name, value in values.items() if value is not None})


def _read_constant(node: Any) -> Array | None:
    """The value of a Constant; None for strings and sparse tensors."""
    from onnx import TensorProto, numpy_helper

    value = node.attribute[0]
    if value.name == "value":
        return None if value.t.data_type == TensorProto.STRING else np.asarray(numpy_helper.to_array(value.t))
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    return np.asarray(attribute(node, value.name), kinds[value.name]) if value.name in kinds else None


def _identities(graph: Graph) -> None:
    """Readers of an Identity, or of a Cast to the type it reads, read what that reads; one that makes an output of the
    graph, or that a subgraph reads, stays."""
    inner = {name for node in graph.nodes for name in captured(node)}
    source: dict[str, str] = {}
    for node in graph.nodes:
        name = node.output[0]
        free = not graph.is_output(name) and name not in inner
        if free and _same(graph, node):
            source[name] = source.get(node.input[0], node.input[0])
    with graph.editing() as nodes:
        nodes[:] = [node for node in nodes if node.output[0] not in source]
        for node in nodes:
            for i, name in enumerate(node.input):
                node.input[i] = source.get(name, name)


def _same(graph: Graph, node: Any) -> bool:
    """Whether a node gives what it reads: an Identity, or a Cast to the type that its input has."""
    if node.domain not in STANDARD or node.op_type not in ("Identity", "Cast"):
        return False
    if node.op_type == "Identity":
        return True
    from onnx import helper

    has = graph.element_type(node.input[0])
    return has is not None and has == np.dtype(helper.tensor_dtype_to_np_dtype(attribute(node, "to")))


def _computed(graph: Graph) -> None:
    """What only constants lead to is computed now, by onnx's reference evaluator: weights (Transpose(W), weight
    normalization) of any size, everything else where it is small."""
    values: dict[str, Array] = {}
    budget = BUDGET + 4 * sum(math.prod(tensor.dims) for tensor in graph.model.graph.initializer)
    for node in graph.nodes:
        if node.op_type in FOLDABLE and node.domain in STANDARD and len(node.output) == 1:
            inputs = [values[name] if name in values else graph.constant(name) for name in map(str, node.input) if name]
            if all(value is not None for value in inputs):
                results = computed(graph, node, inputs, budget)
                budget -= sum(value.size for value in results.values())
                values |= results
    useful = {name: value for name, value in values.items() if _worth(graph, name, value, values)}
    graph.make_constant({name: value for name, value in useful.items() if not graph.is_output(name)})


def _worth(graph: Graph, name: str, value: Array, values: Collection[str]) -> bool:
    """Whether something that is not constant itself reads a value, and it is small or a weight."""
    readers = [node for node, _ in graph.readers(name) if node.output[0] not in values]
    is_weight = any(node.op_type in (*WEIGHTED, "Einsum") for node in readers)
    return bool(readers) and (value.size <= SMALL or is_weight)


def computed(graph: Graph, node: Any, inputs: list[Array | None], most: int) -> dict[str, Array]:
    """The output of a node by its name; empty where the evaluator cannot, or where it has more than ``most`` elements,
    or, as far as onnx infers, might have."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    feed = dict(zip([str(name) for name in node.input if name], inputs, strict=True))
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in feed]
    output = onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.UNDEFINED, None)
    body = onnx.helper.make_graph([node], "one", values, [output])
    model = onnx.helper.make_model(body, opset_imports=[onnx.helper.make_opsetid("", graph.opset)])
    if node.op_type in SIZED and not _fits(model, feed, most):
        return {}
    try:
        if node.op_type == "GatherElements":  # the evaluator's takes 64 rows at most
            return {str(node.output[0]): _pick(node, *inputs)}
        results: Any = ReferenceEvaluator(model).run(None, feed)
        return {str(node.output[0]): np.asarray(results[0])}
    except Exception as error:  # its operators raise all kinds
        if out_of_memory(error):
            raise
        return {}


def _pick(node: Any, values: Any, places: Any) -> Array:
    axis = attribute(node, "axis", 0) % values.ndim
    ends = tuple(slice(None if i == axis else size) for i, size in enumerate(places.shape))
    return np.asarray(np.take_along_axis(values[ends], places, axis))


def _fits(model: Any, feed: Mapping[str, Array | None], most: int) -> bool:
    """Whether the output of a model of one node has at most so many elements, for the given inputs."""
    import onnx

    copied = type(model)()
    copied.CopyFrom(model)
    del copied.graph.input[:]
    for name, value in feed.items():
        assert value is not None
        if value.size <= SMALL:
            tensor_proto.fill(copied.graph.initializer.add(), name, value)
        else:
            kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
            copied.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, value.shape))
    try:
        inferred = onnx.shape_inference.infer_shapes(copied, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return False
    tensor_type = inferred.graph.output[0].type.tensor_type
    dims = [tensor_proto.size(dim) for dim in tensor_type.shape.dim]
    sizes = [dim for dim in dims if isinstance(dim, int)]
    return tensor_type.HasField("shape") and len(sizes) == len(dims) and math.prod(sizes) <= most


def _unshare(graph: Graph) -> None:
    """A weight or bias that is read more than once gets a copy for each further layer."""
    owners: dict[str, str] = {}
    shared = {name for name in graph.constants if len(graph.readers(name)) > 1}
    with graph.editing() as nodes:
        for node in nodes:
            for position in WEIGHTED.get(node.op_type, ()) if node.domain in STANDARD else ():
                name = node.input[position] if position < len(node.input) else ""
                if name not in shared:
                    continue
                others = [reader for reader, _ in graph.readers(name) if reader.op_type not in WEIGHTED]
                if name in owners or others or graph.is_output(name):
                    value = graph.constant(name)
                    assert value is not None
                    node.input[position] = graph.add_constant(f"{name}_{node.name}", value)
                owners[name] = node.name
