"""ONNX Runtime's own profile of a file: the graph that it made, and the events of its calls."""

from __future__ import annotations

import bisect
import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qbench.errors import BuildError, out_of_memory
from qbench.quant.artifacts import onnx_outline
from qbench.quant.onnx import onnxruntime_session
from qbench.quant.onnx.graph.layers import subgraphs

Event = dict[str, Any]
_KERNEL = "_kernel_time"
_GRAPH, _WEIGHTS = "optimized.onnx", "optimized.bin"  # weights apart: their shapes alone are read


@dataclass(frozen=True, kw_only=True)
class RuntimeProfile:
    """The ``graph`` that the runtime made of a file (without the values of large weights), and per call the ``events``
    of its nodes, by the name of the node; a node of a loop has several in one call."""

    graph: Any
    calls: tuple[tuple[tuple[str, Event], ...], ...]
    call_seconds: tuple[float, ...]


class ProfiledSession:
    """A session whose calls with these inputs are profiled; a context manager. ``optimized=False`` runs the graph as
    written; ``lean`` where nobody asks for the times, as ``onnxruntime_session.open_lean`` opens it."""

    def __init__(
        self,
        file: Path,
        inputs: tuple[onnxruntime_session.Array, ...],
        *,
        threads: int = 1,
        optimized: bool = True,
        lean: bool = False,
    ) -> None:
        import onnxruntime

        self._temporary = tempfile.TemporaryDirectory()
        self._folder = Path(self._temporary.name)
        options = onnxruntime_session.session_options(threads)
        options.enable_profiling = True
        options.profile_file_prefix = str(self._folder / "profile")
        options.optimized_model_filepath = str(self._folder / _GRAPH)
        options.add_session_config_entry("session.optimized_model_external_initializers_file_name", _WEIGHTS)
        if not optimized:
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        with contextlib.suppress(OSError, NotImplementedError):  # else they are written, and nobody reads them
            (self._folder / _WEIGHTS).symlink_to(os.devnull)
        try:
            named = _with_names(file, self._folder / "named.onnx")
            open_named = onnxruntime_session.open_lean if lean else onnxruntime_session.open_session
            self._session = open_named(named, options=options)
        except BaseException:
            self._temporary.cleanup()
            raise
        names = [value.name for value in self._session.get_inputs()]
        self._feed = dict(zip(names, inputs, strict=True))

    def __enter__(self) -> ProfiledSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._temporary.cleanup()

    def run(self) -> None:
        """One call; raises ``BuildError`` with the runtime's own words."""
        try:
            self._session.run(None, self._feed)
        except onnxruntime_session.runtime_errors() as error:
            if out_of_memory(error):
                raise
            raise BuildError(f"ONNX Runtime cannot run the model: {onnxruntime_session.plain(error)}") from error

    def finish(self) -> RuntimeProfile:
        """What the profiler tells of all calls; the last thing to ask."""
        events: list[Event] = json.loads(Path(self._session.end_profiling()).read_text())
        graph = onnx_outline.read_outline(self._folder / _GRAPH).graph
        return RuntimeProfile(graph=graph, **_split_calls(events))


def profile_calls(
    file: Path,
    inputs: tuple[onnxruntime_session.Array, ...],
    *,
    calls: int = 1,
    threads: int = 1,
    optimized: bool = True,
    lean: bool = False,
) -> RuntimeProfile:
    """What the profiler of a session tells of that many calls with these inputs; the rest as of ``ProfiledSession``."""
    with ProfiledSession(file, inputs, threads=threads, optimized=optimized, lean=lean) as session:
        for _ in range(calls):
            session.run()
        return session.finish()


def _split_calls(events: list[Event]) -> dict[str, Any]:
    """The events of nodes, call by call, and the seconds of each call: a node starts after its call and before the
    next one."""
    runs = sorted((event["ts"], event["dur"]) for event in events if event.get("name") == "model_run")
    starts = [start for start, _ in runs]
    calls: list[list[tuple[str, Event]]] = [[] for _ in runs]
    for event in sorted((event for event in events if _is_kernel(event)), key=lambda event: event["ts"]):
        if (number := bisect.bisect_right(starts, event["ts"]) - 1) < 0:
            continue  # while the session was made
        calls[number].append((event["name"].removesuffix(_KERNEL), event))
    return {"calls": tuple(map(tuple, calls)), "call_seconds": tuple(duration / 1e6 for _, duration in runs)}


def _is_kernel(event: Event) -> bool:
    return event.get("cat") == "Node" and event["name"].endswith(_KERNEL)


def list_nodes(graph: Any) -> Iterator[Any]:
    """The nodes of a graph and of the subgraphs in it (If, Loop, Scan)."""
    for node in graph.node:
        yield node
        for _, inner in subgraphs(node):
            yield from list_nodes(inner)


def _list_all(model: Any) -> list[Any]:
    """The nodes of a model, those of its functions at the end."""
    return [node for graph in (model.graph, *model.functions) for node in list_nodes(graph)]


def _with_names(file: Path, target: Path) -> Path:
    """The file itself where every node has a name of its own, else a copy where it has: the profile knows no other
    link from an event to its node."""
    import onnx

    outline = onnx_outline.read_outline(file)
    names = [node.name for node in _list_all(outline)]
    if all(names) and len(set(names)) == len(names):
        return file
    model = onnx.load(str(file), load_external_data=False)
    nodes = _list_all(model)
    used: set[str] = set()
    for i, node in enumerate(nodes):
        if not node.name or node.name in used:
            node.name = f"{node.op_type}_{i}"
            while node.name in used or node.name in names:
                node.name += "_"
        used.add(node.name)
    # They would be looked for beside the copy.
    onnx.external_data_helper.load_external_data_for_model(model, str(file.parent))
    onnx.save(model, str(target))
    return target
