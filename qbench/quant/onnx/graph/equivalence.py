"""Whether a rewritten graph still computes the same: both run in ONNX Runtime, on random inputs or on an example."""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import ModelError, out_of_memory, reraise
from qbench.quant.artifacts import onnx_outline
from qbench.quant.onnx import onnxruntime_session
from qbench.quant.onnx.graph import fp16
from qbench.quant.onnx.graph.graph import Graph

Array = NDArray[Any]
# A wider difference, as a share of the largest output, than fp32 rounding in another order gives over a deep network.
TOLERANCE = 1e-3
# float16 has 11 bits.
HALF_TOLERANCE = 2e-2
# One inference, on one thread, of a network that somebody means to deploy takes less.
SECONDS = 120.0
LARGEST_MESSAGE = 4 * 2**20  # bytes of a graph that is given to a session in memory, where it is held once more
LARGEST_INPUTS = 2**30  # bytes of the random inputs of one inference
# Sizes to try, one after the other, for a dimension without one (the first dimension: 1).
SIZES = (64, 224, 16, 512, 2, 1, 256, 32)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """What a graph gave for some inputs. ``inputs``: by name; ``outputs``: in order."""

    inputs: dict[str, Array]
    outputs: tuple[Any, ...]
    tolerance: float = TOLERANCE

    def difference(self, graph: Graph) -> str | None:
        """What a graph with the same inputs and outputs does otherwise, in words; None where it does the same."""
        try:
            changed_outputs = run(graph, self.inputs)
        except ModelError as error:
            return str(error)
        for name, ours, theirs in zip(graph.outputs, self.outputs, changed_outputs, strict=True):
            wrong = _difference(ours, theirs, self.tolerance)
            if wrong:
                return f"output {name}: {wrong}"
        return None


def reference(graph: Graph, example: Sequence[Array] | None = None) -> Reference | None:
    """What the graph gives for ``example`` (one array an input, in order), else for the first random inputs that it
    takes; None where it takes none of them (strings, sizes that depend on each other).

    Raises ``ModelError`` where ONNX Runtime cannot load the graph, where it does not take the example, or where its
    outputs differ from call to call.
    """
    if example is not None and len(example) != len(graph.inputs):
        raise ModelError(
            f"the example has {len(example)} arrays, the model {len(graph.inputs)} inputs: {', '.join(graph.inputs)}"
        )
    session = open_graph(graph)
    candidates = [dict(zip(graph.inputs, example, strict=True))] if example is not None else random_inputs(graph)
    for inputs in candidates:
        try:
            first, second = (onnxruntime_session.call(session, None, inputs, seconds=SECONDS) for _ in range(2))
        except ModelError:
            raise
        except Exception as error:  # for arrays that do not fit the binding also raises what pybind11 and numpy do
            if out_of_memory(error):
                raise
            if example is not None:
                raise ModelError(f"the model does not take the example: {onnxruntime_session.plain(error)}") from error
            continue
        if any(_difference(our, other, 0.0) for our, other in zip(first, second, strict=True)):
            raise ModelError(
                "the model's outputs differ from call to call: is randomness left in its graph (Dropout in training "
                "mode, RandomNormal)? Export it from a network in eval mode"
            )
        tolerance = HALF_TOLERANCE if fp16.is_half(graph) else TOLERANCE
        return Reference(inputs=inputs, outputs=tuple(first), tolerance=tolerance)
    return None


def run(graph: Graph, inputs: dict[str, Array]) -> tuple[Any, ...]:
    """All outputs of one inference; raises ``ModelError`` with ONNX Runtime's words."""
    session = open_graph(graph)
    # For arrays that do not fit the binding also raises what pybind11 and numpy do.
    with reraise(ModelError, lambda error: f"ONNX Runtime cannot run the model: {onnxruntime_session.plain(error)}"):
        return tuple(onnxruntime_session.call(session, None, inputs, seconds=SECONDS))


def open_graph(graph: Graph, *, threads: int = 1, optimized: bool = False) -> Any:
    """A session for a graph, as it stands or with ONNX Runtime's optimizations; ``threads`` 0: as many as there are
    cores. Raises ``ModelError``."""
    import onnxruntime

    options = onnxruntime_session.session_options(threads)
    if not optimized:  # called once or twice, for which an arena would take more than it needs
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.enable_cpu_mem_arena = False
    options.log_severity_level = 4  # what is wrong is in the exception
    if graph.byte_size() <= LARGEST_MESSAGE:  # without a folder: a preparation opens one small graph for each fusion
        return _opened(graph.model.SerializeToString(), options)
    with tempfile.TemporaryDirectory() as folder:
        whole, apart = Path(folder) / "whole.onnx", Path(folder) / "apart"
        apart.mkdir()
        graph.save(whole)
        return _opened(str(onnx_outline.write_weights_apart(whole, apart)), options, folder)


def _opened(source: str | bytes, options: Any, *temporary: str) -> Any:
    import onnxruntime

    with reraise(
        ModelError,
        lambda error: f"ONNX Runtime cannot load the model: {onnxruntime_session.plain(error, *temporary)}",
        onnxruntime_session.runtime_errors(),
    ):
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def random_inputs(graph: Graph) -> Iterator[dict[str, Array]]:
    """Inputs to try: normal values, 0 and 1 for integers; the same each time. None for a graph with an input whose type
    or number of dimensions is not known, or of strings."""
    shapes = {name: graph.shape(name) for name in graph.inputs}
    kinds = {name: graph.element_type(name) for name in graph.inputs}
    complete = all(shape is not None and kinds[name] is not None for name, shape in shapes.items())
    if not complete or any(kind.kind not in "fiub" for kind in kinds.values()):
        return
    batch = {shape[0] for shape in shapes.values() if shape and isinstance(shape[0], str)}
    rng = np.random.default_rng(0)
    positions = set()
    for size, second in itertools.product(SIZES, (False, True)):
        sized = {name: _sized(shape or (), size, batch, second) for name, shape in shapes.items()}
        size_bytes = sum(math.prod(shape) * kinds[name].itemsize for name, shape in sized.items())
        if tuple(sized.values()) not in positions and size_bytes <= LARGEST_INPUTS:
            positions.add(tuple(sized.values()))
            yield {name: _random(rng, kinds[name], shape) for name, shape in sized.items()}


def _sized(
    shape: tuple[int | str | None, ...], size: int, batch: Collection[int | str | None], second: bool
) -> tuple[int, ...]:
    """1 for the first dimension, and for one of the same symbol elsewhere; ``second``: also for the second where the
    first is fixed, as in the states of a recurrent network."""
    open_first = bool(shape) and not isinstance(shape[0], int)
    ones = {0} | {i for i, dim in enumerate(shape) if dim in batch} | ({1} if second and not open_first else set())
    return tuple(dim if isinstance(dim, int) else 1 if i in ones else size for i, dim in enumerate(shape))


def _random(rng: np.random.Generator, kind: Any, shape: tuple[int, ...]) -> Array:
    values = rng.standard_normal(shape) if kind.kind == "f" else rng.integers(0, 2, shape)
    return np.asarray(values, kind)


def _difference(ours: Any, theirs: Any, tolerance: float) -> str | None:
    """How two outputs differ, in words. Floats may by ``tolerance`` as a share of the largest finite value."""
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = itertools.starmap(lambda our, other: _difference(our, other, tolerance), zip(ours, theirs, strict=True))
        return next(filter(None, pairs), None)
    if not isinstance(ours, np.ndarray) or not isinstance(theirs, np.ndarray):
        return None if ours == theirs else f"{theirs!r} instead of {ours!r}"
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{theirs.dtype} of shape {theirs.shape} instead of {ours.dtype} of shape {ours.shape}"
    if ours.dtype.kind != "f" or not ours.size:
        unequal = int(np.count_nonzero(ours != theirs))
        return f"{unequal} of {ours.size} values differ" if unequal else None
    finite = np.isfinite(ours)
    if not np.array_equal(np.where(finite, 0, ours), np.where(np.isfinite(theirs), 0, theirs), equal_nan=True):
        return "NaN or inf in other places"
    our, other = ours[finite].astype(np.float64), theirs[finite].astype(np.float64)
    if not our.size:
        return None
    worst, largest = float(np.abs(our - other).max()), float(np.abs(our).max())
    return None if worst <= tolerance * largest + 1e-9 else f"largest difference {worst:g} (largest value {largest:g})"
