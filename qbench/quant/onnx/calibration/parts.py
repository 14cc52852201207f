"""A model file as sessions of consecutive parts, each given what those before it computed: all is computed once, and
held are the activations of one part, where a session of the whole would hold all that are asked for."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from qbench.quant.artifacts import onnx_outline
from qbench.quant.onnx import graph_process, onnxruntime_session
from qbench.quant.onnx.calibration.batches import Declared, Feed, infer
from qbench.quant.onnx.graph.graph import Graph, captured, copy_message

# A feed and the number of its batch -> the outputs asked for, of one part after the other.
Run: TypeAlias = Callable[[Feed, int], Iterator[Feed]]
MOST_PARTS = 32  # or one more: each session has some memory, and threads, of its own
_WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"  # of a model that is no file
_NUMBERS = "fiub"  # kinds of what numpy holds itself, and a session takes


class Model:
    """A model file, and its session: opened when it is first asked for, and again after it was closed."""

    def __init__(self, file: Path, threads: int) -> None:
        self.file = file
        self._threads = threads

    @functools.cached_property
    def session(self) -> Any:
        """Of the file as it is, which holds all outputs that the model declares, asked for or not."""
        session = onnxruntime_session.open_session(self.file, options=self._options())
        graph_process.release_memory(self.file)  # that reading the file took
        return session

    def close(self) -> None:
        """Gives back what the session holds, where nobody else has it."""
        self.__dict__.pop("session", None)

    @functools.cached_property
    def inputs(self) -> tuple[Declared, ...]:
        """What the model declares, in order."""
        return tuple(map(Declared.copy, self.session.get_inputs()))

    @functools.cached_property
    def outputs(self) -> tuple[Declared, ...]:
        """As ``inputs``."""
        return tuple(map(Declared.copy, self.session.get_outputs()))

    @contextmanager
    def prepare(self, sizes: Mapping[str, int], most: int) -> Iterator[Run]:
        """Gives a function that computes the outputs named in ``sizes``, which take so many bytes: at once where these
        are ``most`` at most, else, with the model's own session closed, in parts that have a quarter of that, a
        sixteenth of all, or a single output."""
        total = sum(sizes.values())
        if total <= most:
            yield lambda feed, number: iter([infer(self.session, tuple(sizes), feed, number)])
            return
        self.close()
        with tempfile.TemporaryDirectory() as folder:
            apart = onnx_outline.write_weights_apart(self.file, Path(folder))
            parts = self._open(apart, sizes, max(most // 4, 2 * total // MOST_PARTS))
            yield functools.partial(_run, parts)

    def _open(self, file: Path, sizes: Mapping[str, int], most: int) -> list[tuple[Part, Any]]:
        """The parts of a model whose weights lie beside it, each with its session."""
        import onnx

        graph = Graph(onnx.load(str(file), load_external_data=False))
        keep_asked(graph, tuple(sizes))
        parts = []
        constants = list_constants(graph)
        for part in cut(graph, sizes, most, constants):
            options = self._options()
            options.add_session_config_entry(_WEIGHTS_FOLDER, str(file.parent))
            content = extract(graph, part, constants).model.SerializeToString()
            parts.append((part, onnxruntime_session.open_session(content, options=options)))
        return parts

    def _options(self) -> Any:
        return onnxruntime_session.spare_memory(onnxruntime_session.session_options(self._threads))


@dataclass(frozen=True, kw_only=True)
class Part:
    """The nodes of a graph from ``start`` up to ``end`` that do not compute constants: what they read that they do not
    make, what is ``asked`` of them, and what of all that is there behind them is read ``later``."""

    start: int
    end: int
    reads: tuple[str, ...]
    asked: tuple[str, ...]
    makes: frozenset[str]
    later: frozenset[str]

    @property
    def gives(self) -> tuple[str, ...]:
        """The outputs of its session."""
        return (*self.asked, *sorted((self.makes & self.later).difference(self.asked)))


def keep_asked(graph: Graph, names: Sequence[str]) -> None:
    """Leaves the named outputs and what they need, in place."""
    outputs = {value.name: value for value in graph.model.graph.output}
    kept = [outputs[name] for name in names]
    del graph.model.graph.output[:]
    graph.model.graph.output.extend(kept)
    graph.drop_unused()


def list_constants(graph: Graph) -> set[str]:
    """The initializers, and what nodes compute of nothing else: weights that are stored in fewer bits. Each part has
    its own, which its session computes as it is opened."""
    constants = {*graph.constants, *(sparse.values.name for sparse in graph.model.graph.sparse_initializer)}
    for node in graph.nodes:
        reads = {*node.input, *captured(node)} - {""}
        if node.op_type == "Constant" or (reads and reads <= constants):
            constants.update(node.output)
    return constants


def cut(graph: Graph, sizes: Mapping[str, int], most: int, constants: set[str]) -> list[Part]:
    """A graph with the outputs ``sizes`` in parts, in order: whose outputs have ``most`` bytes together, or that have a
    single one, or more where values lie across that numpy does not hold. Outputs that are constants or inputs come with
    the first."""
    parts: list[Part] = []
    later: set[str] = set()
    starts = _find_starts(graph, sizes, most, constants)
    for start, end in reversed(list(zip(starts, [*starts[1:], len(graph.nodes)], strict=True))):
        nodes = graph.nodes[start:end]
        makes = frozenset(name for node in nodes for name in node.output if name and name not in constants)
        unmade = () if start else (name for name in sizes if name in constants or graph.maker(name) is None)
        asked = (*unmade, *(name for name in sizes if name in makes))
        reads = dict.fromkeys(name for node in nodes for name in (*node.input, *sorted(captured(node))) if name)
        own = tuple(name for name in reads | dict.fromkeys(asked) if name not in makes and name not in constants)
        parts.append(Part(start=start, end=end, reads=own, asked=asked, makes=makes, later=frozenset(later)))
        later = later.difference(makes).union(own)
    return parts[::-1]


def _find_starts(graph: Graph, sizes: Mapping[str, int], most: int, constants: set[str]) -> list[int]:
    """The first node of each part."""
    last_reads: dict[str, int] = {}
    for position, node in enumerate(graph.nodes):
        last_reads.update(dict.fromkeys((*node.input, *captured(node)), position))
    starts, total, bound = [0], 0, -1  # no part begins up to there
    for position, node in enumerate(graph.nodes):
        computed = [name for name in node.output if name not in constants]
        size = sum(sizes.get(name, 0) for name in computed)
        if total and total + size > most and position > bound:
            starts.append(position)
            total = 0
        total += size
        for name in computed:
            kind = graph.element_type(name)
            if kind is None or kind.kind not in _NUMBERS:
                bound = max(bound, last_reads.get(name, -1))
    return starts


def extract(graph: Graph, part: Part, constants: set[str]) -> Graph:
    """A part as a graph of its own: inputs and outputs of known types, and of any shape."""
    import onnx

    cut_out = graph.copy()
    own = cut_out.model.graph
    kept = {*part.reads, *graph.constants}
    fed = {value.name: value for value in own.input if value.name in kept}
    given = {value.name: value for value in own.output if value.name in part.asked}

    def describe(name: str) -> Any:
        kind = onnx.helper.np_dtype_to_tensor_dtype(graph.element_type(name))
        return onnx.helper.make_tensor_value_info(name, kind, None)

    inputs = [*fed.values(), *(describe(name) for name in part.reads if name not in fed)]
    outputs = [given.get(name) or describe(name) for name in part.gives]
    inside = [value for value in own.value_info if value.name in part.makes]
    ours = range(part.start, part.end)
    nodes = [node for i, node in enumerate(own.node) if i in ours or constants.issuperset(node.output)]
    for field, values in ((own.input, inputs), (own.output, outputs), (own.value_info, inside), (own.node, nodes)):
        copies = [copy_message(value) for value in values]
        del field[:]
        field.extend(copies)
    cut_out.reindex()
    cut_out.drop_unused()
    return cut_out


def _run(parts: Sequence[tuple[Part, Any]], feed: Feed, number: int) -> Iterator[Feed]:
    """What is asked of each part in turn; of the rest no more is held than later parts read."""
    there = dict(feed)
    for part, session in parts:
        values = infer(session, part.gives, {name: there[name] for name in part.reads}, number)
        there = {name: array for name, array in (there | values).items() if name in part.later}
        asked = {name: values[name] for name in part.asked}
        del values
        yield asked
        del asked
