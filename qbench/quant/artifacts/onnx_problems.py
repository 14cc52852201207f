"""What is wrong with the names, types, tensors and functions of an ONNX model that somebody else wrote."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

# Bits of an element where several share a byte; what is not here has 8 times numpy's itemsize.
_BITS = {"UINT4": 4, "INT4": 4, "FLOAT4E2M1": 4, "UINT2": 2, "INT2": 2}
# The field of a TensorProto that holds its values where these are no raw bytes.
_FIELDS = {
    "FLOAT": "float_data", "COMPLEX64": "float_data", "DOUBLE": "double_data", "COMPLEX128": "double_data",
    "INT64": "int64_data", "UINT32": "uint64_data", "UINT64": "uint64_data", "STRING": "string_data",
}  # fmt: skip
# Attributes by which ONNX Runtime divides: 0 ends its process (group of a ConvTranspose, seen with 1.31).
_DIVISORS = ("group", "strides", "dilations", "kernel_shape", "blocksize", "num_groups", "num_outputs")
_DENSE = 2**28  # elements of a sparse initializer, which runtimes make dense
_EXPANDED = 1_000_000  # nodes, once the functions of a model stand where they are called


def find_problems(model: Any, file: Path) -> Iterator[str]:
    """What is wrong with the names, types and tensors of a model."""
    functions = _functions(model)
    bodies = [model.graph, *model.functions]
    if (strange := _strange_text(model)) is not None:
        yield f"a name in it is no text: {strange[:40]!r}"
        return
    total_bytes = 0
    for body in bodies:
        empty = set(_list_empty(body))
        for graph in _with_inner(body):
            yield from _value_problems(graph)
            yield from _node_problems(graph, empty)
    for tensor in _tensors(bodies):
        what = find_tensor_problem(tensor)
        if what is None and _is_external(tensor):
            what = _external_problem(tensor, file)
            total_bytes += _bytes(tensor) or 0
        if what is not None:
            yield f"tensor {quote(tensor.name)}: {what}"
    for sparse in model.graph.sparse_initializer:
        if any(size < 0 for size in sparse.dims) or math.prod(sparse.dims) >= _DENSE:
            yield f"tensor {quote(sparse.values.name)}: a sparse tensor of the shape {_shape(sparse)}"
    if total_bytes > (memory := psutil.virtual_memory().total):
        yield f"its weights take {total_bytes / 2**30:.1f} GB, this machine has {memory / 2**30:.1f} GB of memory"
    yield from _function_problems(model, functions)


def _with_inner(body: Any) -> Iterator[Any]:
    """A graph (or the body of a function) and those inside its nodes; protobuf bounds how deep they lie."""
    yield body
    for node in body.node:
        for attribute in node.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _with_inner(graph)


def _tensors(bodies: list[Any]) -> Iterator[Any]:
    """Every tensor that graphs and functions hold."""
    for body in bodies:
        for graph in _with_inner(body):
            attributes = [attribute for node in graph.node for attribute in node.attribute]
            attributes += getattr(graph, "attribute_proto", ())  # defaults of a function
            yield from getattr(graph, "initializer", ())
            yield from (attribute.t for attribute in attributes if attribute.HasField("t"))
            yield from (tensor for attribute in attributes for tensor in attribute.tensors)
            sparse = [*getattr(graph, "sparse_initializer", ())]
            sparse += [values for attribute in attributes for values in attribute.sparse_tensors]
            sparse += [attribute.sparse_tensor for attribute in attributes if attribute.HasField("sparse_tensor")]
            yield from (tensor for values in sparse for tensor in (values.values, values.indices))


def _value_problems(graph: Any) -> Iterator[str]:
    """Declared inputs, outputs and values of a type that there is not."""
    for field in ("input", "output", "value_info"):
        declared = [value for value in getattr(graph, field, ()) if not isinstance(value, str)]  # as a function's are
        for value in declared:
            wrong = _type_problem(value.type)
            if wrong is not None:
                yield f"{field} {quote(value.name)}: {wrong}"


def _strange_text(message: Any) -> bytes | None:
    """The first text of a message that is no UTF-8 (protobuf gives it as bytes); None where all of it is text."""
    if message.DESCRIPTOR.name == "TensorProto":  # its values are bytes as a rule, and many
        pairs = [(message.DESCRIPTOR.fields_by_name[key], getattr(message, key)) for key in ("name", "external_data")]
    else:
        pairs = message.ListFields()
    for field, value in pairs:
        for inner in value if field.is_repeated else (value,):
            if field.message_type is not None:
                if (strange := _strange_text(inner)) is not None:
                    return strange
            elif field.type != field.TYPE_STRING:
                break
            elif isinstance(inner, bytes):
                return inner
    return None


def _type_problem(kind: Any) -> str | None:
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        own = getattr(kind, which)
        return None if own.elem_type == 0 or _name(own.elem_type) else f"an unknown data type ({own.elem_type})"
    if which in ("sequence_type", "optional_type"):
        return _type_problem(getattr(kind, which).elem_type)
    if which == "map_type":
        return _type_problem(kind.map_type.value_type)
    return None


def _list_empty(body: Any) -> Iterator[str]:
    """The names of the constants without a value, in a graph and in those inside its nodes."""
    for graph in _with_inner(body):
        yield from (tensor.name for tensor in getattr(graph, "initializer", ()) if 0 in tensor.dims)
        for node in graph.node:
            held = {attribute.name: attribute for attribute in node.attribute}
            if node.op_type == "Constant" and (
                ("value" in held and 0 in held["value"].t.dims)
                or ("value_ints" in held and not held["value_ints"].ints)
            ):
                yield node.output[0]


def _node_problems(graph: Any, empty: Collection[str]) -> Iterator[str]:
    """Nodes without an output that counts, with a number by which a runtime divides without asking, or a Loop whose
    count is ``empty``: ONNX Runtime reads it all the same, which ends its process (seen with 1.32)."""
    for node in graph.node:
        if node.op_type == "Loop" and node.input and node.input[0] in empty:
            yield f"node {quote(node.name or 'Loop')}: its count {quote(node.input[0])} is empty: one number is needed"
        if not any(node.output):
            yield f"node {quote(node.name or node.op_type)}: it gives nothing"
        for attribute in node.attribute:
            values = list(attribute.ints) or ([attribute.i] if attribute.HasField("i") else [])
            if attribute.name in _DIVISORS and min(values, default=1) < 1:
                yield f"node {quote(node.name or node.op_type)}: {attribute.name} {values}: at least 1 is needed"


def find_tensor_problem(tensor: Any) -> str | None:
    """Why the bytes of a tensor are not what its type and dimensions say."""
    kind = _name(tensor.data_type)
    if kind is None:
        return f"an unknown data type ({tensor.data_type})"
    if any(size < 0 for size in tensor.dims):
        return f"a negative dimension in its shape {_shape(tensor)}"
    count = math.prod(tensor.dims)
    if count >= 2**60:
        return f"a shape that nothing can hold, {_shape(tensor)}"
    if _is_external(tensor):
        return "text cannot lie in another file" if kind == "STRING" else None
    if kind != "STRING" and tensor.HasField("raw_data"):
        actual, expected = len(tensor.raw_data), _bytes(tensor)
        if expected is not None and actual != expected:
            return f"{actual} bytes where its shape {_shape(tensor)} of {kind.lower()} takes {expected}"
        return None
    field = _FIELDS.get(kind, "int32_data")
    actual, expected = len(getattr(tensor, field)), count * (2 if kind.startswith("COMPLEX") else 1)
    packed = 8 // _BITS.get(kind, 8)
    if actual != expected and actual != -(-expected // packed):
        return f"{actual} values where its shape {_shape(tensor)} takes {expected}"
    return None


def _bytes(tensor: Any) -> int | None:
    """How many bytes a tensor's values take; None where that is not fixed."""
    import onnx

    kind = _name(tensor.data_type)
    if kind in (None, "STRING", "FLOAT6E2M3", "FLOAT6E3M2"):
        return None
    bits = _BITS.get(kind) or 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    count: int = math.prod(tensor.dims)
    return -(-count * int(bits) // 8)


def _name(kind: int) -> str | None:
    """onnx's name of a data type; None for a number that is none, or not one of a tensor."""
    import onnx

    if kind == onnx.TensorProto.UNDEFINED or kind not in onnx.TensorProto.DataType.values():
        return None
    return str(onnx.TensorProto.DataType.Name(kind))


def _is_external(tensor: Any) -> bool:
    import onnx

    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def _external_problem(tensor: Any, file: Path) -> str | None:
    """Why the file that an external tensor names is not read, or does not hold it."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    where = entries.get("location", "")
    place = _plain_path(where)
    if place is None:
        return f"its values lie at {where!r}; only a file in the model's own folder is read"
    path, inner = file.parent, place.split("/")
    for part in inner:
        path = path / part
        if path.is_symlink():
            return f"its values lie at {where!r}, which is a link; put the file itself beside the model"
    if not path.is_file():
        return f"its values lie in {where}, which must stand beside the model"
    begin, length = (_number(entries.get(key, "")) for key in ("offset", "length"))
    expected, size = _bytes(tensor), path.stat().st_size
    if begin is None or length is None:
        return "an offset or a length that is no number"
    begin, length = max(begin, 0), size - max(begin, 0) if length < 0 else length
    if length != expected or begin + length > size:
        return f"{expected} bytes are wanted, {where} has {size} and gives {length} from {begin} on"
    return None


def _plain_path(where: str) -> str | None:
    """A path below the model's folder, with ``/``; None for any other."""
    parts = where.replace("\\", "/").split("/")
    absolute = where.startswith(("/", "\\")) or (len(where) > 1 and where[1] == ":")
    if not where or absolute or "\0" in where or ".." in parts:
        return None
    return "/".join(part for part in parts if part not in ("", "."))


def _number(text: str) -> int | None:
    """A whole number of a key of external data, -1 where it is not there; None for other text."""
    if not text:
        return -1
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


def _functions(model: Any) -> dict[tuple[str, str], Any]:
    return {(function.domain, function.name): function for function in model.functions}


def _function_problems(model: Any, functions: Mapping[tuple[str, str], Any]) -> Iterator[str]:
    """Functions that call themselves, or that unfold to more nodes than any network has."""
    sizes: dict[tuple[str, str], int] = {}
    calls = {
        key: [(node.domain, node.op_type) for graph in _with_inner(body) for node in graph.node]
        for key, body in functions.items()
    }
    unplaced = set(calls)
    while ready := {key for key in unplaced if not unplaced.intersection(calls[key])}:
        sizes |= {key: sum(sizes.get(called, 1) for called in calls[key]) for key in ready}
        unplaced -= ready
    if unplaced:
        yield f"function {quote(min(unplaced)[1])} calls itself"
        return
    every = sum(sizes.get((node.domain, node.op_type), 1) for graph in _with_inner(model.graph) for node in graph.node)
    if functions and every > _EXPANDED:
        yield f"its functions unfold to {every:.3g} nodes"


def quote(name: str) -> str:
    """A name as text, cut to a readable length."""
    return repr(name) if len(name) <= 60 else repr(name[:57] + "…")


def _shape(tensor: Any) -> str:
    dims = list(tensor.dims)
    return str(dims) if len(dims) <= 8 else f"{dims[:8]} and {len(dims) - 8} more"
