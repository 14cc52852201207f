"""An ONNX model that is being rewritten: who makes a tensor, who reads it, what is constant."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from qbench.errors import ModelError
from qbench.files.atomic import make_workplace
from qbench.quant.artifacts import onnx_check
from qbench.quant.onnx.formats.text_file import restrict_mode
from qbench.quant.onnx.graph import model_writer, tensor_proto

Array = NDArray[Any]
# protobuf serializes no message above 2 GiB; weights of a larger model lie in a file beside it.
LARGEST_FILE = 2**31 - 2**24
EXTERNAL_ABOVE = 1024  # bytes of a tensor that then moves into that file


class Graph:
    """The top-level graph of a model, in memory, external data taken in; edits change ``model`` in place.

    Nodes are onnx's own ``NodeProto``. A tensor that a subgraph (If, Loop, Scan) reads counts as read by its node.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._index()

    @classmethod
    def load(cls, file: Path, *, valid: bool = True) -> Graph:
        """Reads and checks a file (``valid``: by onnx's checker, too); raises ``ModelError`` with what is wrong."""
        return cls(onnx_check.load(file, valid=valid))

    def reindex(self) -> None:
        """Reads ``model`` anew, after changes to it that ``editing`` did not make."""
        self._index()

    def _index(self) -> None:
        graph = self.model.graph
        self._initializers = {tensor.name: tensor for tensor in graph.initializer}
        self._values = {value.name: value for value in (*graph.value_info, *graph.output, *graph.input)}
        self._by_name = {node.name: node for node in reversed(graph.node)}
        self._makers: dict[str, Any] = {}
        self._readers: dict[str, list[tuple[Any, int]]] = {}
        for node in graph.node:
            for output in node.output:
                if output:
                    self._makers[output] = node
            for position, name in enumerate(node.input):
                if name:
                    self._readers.setdefault(name, []).append((node, position))
            for name in captured(node):
                self._readers.setdefault(name, []).append((node, -1))
        self._names = {node.name for node in graph.node} | self._makers.keys() | self._initializers.keys()
        self._names |= {value.name for value in graph.input}
        self._names |= {name for node in graph.node for name in inner_names(node)}

    @property
    def nodes(self) -> tuple[Any, ...]:
        """The nodes in the order of the file, which is one that can be executed."""
        return tuple(self.model.graph.node)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs that are not initializers, in order."""
        return tuple(value.name for value in self.model.graph.input if value.name not in self._initializers)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return tuple(value.name for value in self.model.graph.output)

    @property
    def opset(self) -> int:
        """The version of the default operator set."""
        return next(
            (int(imported.version) for imported in self.model.opset_import if imported.domain in ("", "ai.onnx")), 1
        )

    @property
    def batch(self) -> int | None:
        """The batch size that the inputs demand, as the first with a fixed one says; None where it is open."""
        firsts = [shape[0] for shape in map(self.shape, self.inputs) if shape]
        return next((size for size in firsts if isinstance(size, int)), None)

    def node(self, name: str) -> Any:
        """The node of that name; raises ``KeyError``."""
        node = self._by_name.get(name)
        if node is None or node.name != name:  # absent, or renamed since the index was made
            self._by_name = {each.name: each for each in reversed(self.model.graph.node)}
        return self._by_name[name]

    def element_type(self, tensor: str) -> Any:
        """What a tensor holds, as numpy's dtype; None where neither the file nor shape inference says."""
        value = self._values.get(tensor)
        kind = value.type.tensor_type.elem_type if value is not None else 0
        if tensor in self._initializers:
            kind = self._initializers[tensor].data_type
        return tensor_proto.dtype(kind) if kind else None

    def shape(self, tensor: str) -> tuple[int | str | None, ...] | None:
        """The dimensions of a tensor: a size, a symbol, or None for one that is not known; None where not even their
        number is known."""
        if tensor in self._initializers:
            return tuple(self._initializers[tensor].dims)
        value = self._values.get(tensor)
        if value is None or not value.type.tensor_type.HasField("shape"):
            return None
        dims = value.type.tensor_type.shape.dim
        return tuple(tensor_proto.size(dim) for dim in dims)

    def maker(self, tensor: str) -> Any | None:
        """The node whose output a tensor is; None for inputs and initializers."""
        return self._makers.get(tensor)

    def readers(self, tensor: str) -> tuple[tuple[Any, int], ...]:
        """Who reads a tensor: node and position among its inputs (-1: in one of its subgraphs). A graph output that
        is the tensor is not in it: see ``is_output``."""
        return tuple(self._readers.get(tensor, ()))

    def is_output(self, tensor: str) -> bool:
        """Whether the graph gives the tensor to its caller."""
        return tensor in self.outputs

    def constant(self, tensor: str) -> Array | None:
        """The value of an initializer, or of a Constant node, also behind Identity; None for what is computed."""
        while (maker := self._makers.get(tensor)) is not None and maker.op_type == "Identity":
            tensor = maker.input[0]
        if maker is not None:
            values = [attr for attr in maker.attribute if attr.name == "value"] if maker.op_type == "Constant" else []
            return tensor_proto.value(values[0].t) if values else None
        if tensor not in self._initializers:
            return None
        return tensor_proto.value(self._initializers[tensor])

    @property
    def constants(self) -> tuple[str, ...]:
        """The names of the initializers."""
        return tuple(self._initializers)

    def make_constant(self, values: Mapping[str, Array]) -> None:
        """Tensors that nodes compute become initializers of the same names; their nodes, of one output, vanish."""
        with self.editing() as nodes:
            nodes[:] = [node for node in nodes if not (len(node.output) == 1 and node.output[0] in values)]
            for name, value in values.items():
                tensor_proto.fill(self.model.graph.initializer.add(), name, value)

    def add_constant(self, name: str, value: Array) -> str:
        """Adds an initializer under ``name`` or the next free one like it; the name it got."""
        name = self.fresh(name)
        self._initializers[name] = self.model.graph.initializer.add()
        tensor_proto.fill(self._initializers[name], name, value)
        return name

    def set_constant(self, name: str, value: Array) -> None:
        """Gives an initializer another value (type and shape may change)."""
        self._initializers[name].Clear()
        tensor_proto.fill(self._initializers[name], name, value)

    def take_constants(self, prefix: str) -> dict[str, Array]:
        """Takes the initializers out whose names begin so, which nothing reads; by the rest of their names."""
        names = [name for name in self.constants if name.startswith(prefix)]
        taken = {name.removeprefix(prefix): tensor_proto.value(self._initializers[name]) for name in names}
        initializers = self.model.graph.initializer
        for i in reversed([i for i, tensor in enumerate(initializers) if tensor.name.startswith(prefix)]):
            del initializers[i]
        self._index()
        return taken

    def own_constant(self, node: Any, position: int, value: Array) -> str:
        """The name of an initializer with this value for one input of a node: its own, with the new value, where
        nothing else reads it, otherwise a new one. The caller puts it in its place."""
        name = node.input[position] if position < len(node.input) else ""
        if name in self._initializers and len(self.readers(name)) <= 1 and not self.is_output(name):
            self.set_constant(name, value)
            return str(name)
        own_name = name or f"{node.name}.{'weight' if position == 1 else 'bias'}"
        return self.add_constant(own_name, value)

    def fresh(self, base: str) -> str:
        """``base``, or it with a number behind: a name that no tensor and no node has; it is taken from now on."""
        name, number = base, 1
        while name in self._names:
            name, number = f"{base}_{number}", number + 1
        self._names.add(name)
        return name

    @contextlib.contextmanager
    def editing(self) -> Iterator[list[Any]]:
        """The list of nodes, to be changed freely (also ``node.input``, ``node.output``); afterwards it is sorted so
        that it can be executed, and the index is made anew."""
        nodes = list(self.model.graph.node)
        yield nodes
        ordered = _sorted(nodes)
        copies = [copy_message(node) for node in ordered]
        del self.model.graph.node[:]
        self.model.graph.node.extend(copies)
        self._index()

    def drop_unused(self) -> None:
        """Removes nodes and initializers that lead to no output."""
        needed_tensors, used_nodes = set(self.outputs), []
        for node in reversed(self.model.graph.node):
            if needed_tensors.intersection(node.output):
                used_nodes.append(node)
                needed_tensors.update(node.input, captured(node))
        with self.editing() as nodes:
            nodes[:] = used_nodes[::-1]
        initializers, inputs = self.model.graph.initializer, self.model.graph.input
        for i in reversed([i for i, value in enumerate(inputs) if value.name in self._initializers]):
            if inputs[i].name not in needed_tensors:
                del inputs[i]
        for i in reversed([i for i, value in enumerate(initializers) if value.name not in needed_tensors]):
            del initializers[i]
        self._index()

    def copy(self, *, without: Collection[str] = ()) -> Graph:
        """An independent copy. ``without``: initializers that the caller puts others in the place of; protobuf keeps
        the memory of what is taken out of a model, or changed, as long as the model."""
        model = type(self.model)()
        if not without or not model_writer.is_known(self.model):
            model.CopyFrom(self.model)
            return Graph(model)
        model_writer.copy_fields(self.model, model, lambda field: field.name != "graph")
        model_writer.copy_fields(self.model.graph, model.graph, lambda field: field.name != "initializer")
        model.graph.initializer.extend(tensor for tensor in self.model.graph.initializer if tensor.name not in without)
        return Graph(model)

    def byte_size(self) -> int:
        """The size of the initializers, which is that of a large file. The model's own would cost a copy of it."""
        return sum(tensor_proto.byte_size(tensor) for tensor in self.model.graph.initializer)

    def save(self, file: Path) -> None:
        """Writes the file whole or not at all, mode 0640 or what the umask leaves of it; above 2 GB its weights lie
        beside it, in a file that is named after what it holds: a file and weights that do not belong together are never
        found, whenever this is killed. Of weights beside it those go that the file which it replaces was made of."""
        import onnx

        former = _list_weights(file)
        with make_workplace(file) as folder:
            part, weights = folder / file.name, None
            if self.byte_size() > LARGEST_FILE:
                weights = f"{file.name}.{self._digest()}.data"
                model = self.copy().model
                onnx.save(model, str(part), save_as_external_data=True, location=weights, size_threshold=EXTERNAL_ABOVE)
                restrict_mode(part, folder / weights)
                (folder / weights).replace(file.with_name(weights))
            else:
                model_writer.write_model(self.model, part)
            restrict_mode(part)
            part.replace(file)
        for old in weights_beside(file):
            if old.name in former and old.name != weights:
                old.unlink()

    def _digest(self) -> str:
        """Sixteen hex digits that follow from the initializers."""
        digest = hashlib.sha256()
        for tensor in self.model.graph.initializer:
            digest.update(tensor.name.encode())
            digest.update(tensor.raw_data or tensor.SerializeToString(deterministic=True))
        return digest.hexdigest()[:16]


def _list_weights(file: Path) -> set[str]:
    """The names of the files that hold the weights of a model; none where no model can be read there."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    if not weights_beside(file):
        return set()
    try:
        model = onnx.load(str(file), load_external_data=False)
    except (OSError, DecodeError):
        return set()
    entries = (entry for tensor in model.graph.initializer for entry in tensor.external_data)
    return {entry.value for entry in entries if entry.key == "location"}


def weights_beside(file: Path) -> list[Path]:
    """The files with weights that ``Graph.save`` has written beside a model."""
    return sorted(file.parent.glob(f"{glob.escape(file.name)}.{'[0-9a-f]' * 16}.data"))


def attribute(node: Any, name: str, default: Any = None) -> Any:
    """The value of a node's attribute, ``default`` where it is absent."""
    import onnx

    for attr in node.attribute:
        if attr.name == name:
            return onnx.helper.get_attribute_value(attr)
    return default


def captured(node: Any) -> set[str]:
    """The names of outer tensors that the subgraphs of a node read."""
    names: set[str] = set()
    for attr in node.attribute:
        for graph in [attr.g] if attr.HasField("g") else list(attr.graphs):
            own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
            own |= {name for inner in graph.node for name in inner.output}
            inputs = {name for inner in graph.node for name in (*inner.input, *captured(inner)) if name}
            names |= (inputs | {value.name for value in graph.output}) - own
    return names


def inner_names(node: Any) -> Iterator[str]:
    """The tensors of a node's subgraphs: an outer one of the same name would be hidden there."""
    for attr in node.attribute:
        for graph in [attr.g] if attr.HasField("g") else list(attr.graphs):
            yield from (value.name for value in (*graph.input, *graph.initializer))
            for inner in graph.node:
                yield from inner.output
                yield from inner_names(inner)


def _sorted(nodes: Iterable[Any]) -> list[Any]:
    """The nodes so that each stands behind those it reads from, otherwise in the order they had."""
    in_file = list(nodes)
    makers = {name: i for i, node in enumerate(in_file) for name in node.output if name}
    needs = [{makers[name] for name in (*node.input, *captured(node)) if name in makers} for node in in_file]
    readers: list[list[int]] = [[] for _ in in_file]
    for i, sources in enumerate(needs):
        for maker in sources:
            readers[maker].append(i)
    missing = [len(sources) for sources in needs]
    ready = [i for i, count in enumerate(missing) if not count]
    ordered: list[Any] = []
    while ready:
        i = heapq.heappop(ready)
        ordered.append(in_file[i])
        for reader in readers[i]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if len(ordered) < len(in_file):
        late = next(node for node, count in zip(in_file, missing, strict=True) if count)
        raise ModelError(f"the graph has a cycle through {late.name or late.op_type}")
    return ordered


def copy_message(message: Any) -> Any:
    """A node or graph of its own: one of a model keeps all weights of it in memory."""
    copied = type(message)()
    copied.CopyFrom(message)
    return copied
