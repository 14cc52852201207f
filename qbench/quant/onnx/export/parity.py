"""Fake-quant model against deploy model: how far what is executed is what was simulated."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import BuildError, ModelError, out_of_memory, reraise
from qbench.quant.onnx import onnxruntime_session
from qbench.quant.onnx.export import ascend_ops
from qbench.quant.onnx.graph import equivalence
from qbench.quant.onnx.graph.class_axis import class_axis, usual_axis
from qbench.quant.onnx.graph.graph import Graph

Array = NDArray[Any]
Feed = Mapping[str, Array]
# How many examples are compared, given or random; the interpreter of ascend models takes seconds for one.
EXAMPLES, ASCEND_EXAMPLES = 32, 2


@dataclass(frozen=True, kw_only=True)
class Parity:
    """``examples``: how many were compared (the length of the first output). ``agreement``: the share of equal
    predictions (the largest of each float output along the axis of its classes, an integer output as it is), None for a
    model without such outputs. ``largest_difference``: of float outputs; ``relative_difference``: the same as a share
    of the largest absolute output. ``silent``: every float output that was simulated is zero."""

    examples: int
    agreement: float | None
    largest_difference: float
    relative_difference: float
    silent: bool = False


def compared(fake_quant: Graph, deploy: Graph, feeds: Sequence[Feed] | None = None) -> Parity | None:
    """How far a deploy model (QDQ: by ONNX Runtime's integer kernels; ascend: by their definitions) agrees with its
    fake-quant model.

    ``feeds``: batches of examples, arrays by input name, all of which are compared (of an ascend model the first
    examples); without them random ones, the same each time. None where the model takes no random ones. Raises
    ``ModelError`` or ``BuildError`` for a model that does not run.
    """
    ascend = ascend_ops.is_ascend(deploy)
    count = ASCEND_EXAMPLES if ascend else EXAMPLES
    with tempfile.TemporaryDirectory() as folder:
        simulate = _session(fake_quant, Path(folder) / "fake_quant.onnx")
        execute = _interpreter(deploy) if ascend else _session(deploy, Path(folder) / "deploy.onnx")
        if feeds is None:
            shown: Iterable[Feed] = _random(fake_quant, simulate, count)
        else:
            shown = _few(fake_quant, feeds, count) if ascend else feeds
        pairs = [(simulate(feed), execute(feed)) for feed in shown]
    if not pairs:
        return None
    ranks = zip(fake_quant.outputs, (np.ndim(output) for output in pairs[0][0]), strict=True)
    axes = [class_axis(fake_quant, name, rank) if rank > 1 else 1 for name, rank in ranks]
    return of([our for our, _ in pairs], [other for _, other in pairs], axes)


def of(
    simulated: Sequence[Sequence[Array]], executed: Sequence[Sequence[Array]], axes: Sequence[int] | None = None
) -> Parity:
    """The parity of outputs: for each batch its outputs in order, examples along their first axis, classes along the
    axis that ``axes`` has for each output (None: where they usually lie)."""
    equals: list[Array] = []
    largest, difference, examples, floats = 0.0, 0.0, 0, False
    for ours, theirs in zip(simulated, executed, strict=True):
        examples += len(ours[0]) if ours[0].ndim else 1
        for i, (our, other) in enumerate(zip(ours, theirs, strict=True)):
            axis = usual_axis(our.ndim) if axes is None else axes[i]
            if our.shape != other.shape:
                raise BuildError(f"the deploy model gives {other.shape} where the fake-quant model gives {our.shape}")
            if (text := _predictions(our, axis)) is not None:
                equals.append((text == _predictions(other, axis)).reshape(-1))
            if our.dtype.kind == "f" and our.size:
                floats = True
                difference = max(difference, float(np.abs(our.astype(np.float64) - other).max()))
                largest = max(largest, float(np.abs(our).max()))
    return Parity(
        examples=examples,
        agreement=float(np.concatenate(equals).mean()) if equals else None,
        largest_difference=difference,
        relative_difference=difference / largest if largest else 0.0,
        silent=floats and not largest,
    )


def _predictions(output: Array, axis: int) -> Array | None:
    if output.dtype.kind in "iub":
        return output if output.size else None
    if output.dtype.kind != "f" or output.ndim < 2 or output.shape[axis] < 2 or not output.size:
        return None
    predicted: Array = output.argmax(axis=axis)
    return predicted


Run = Callable[[Feed], list[Array]]


def _session(graph: Graph, file: Path) -> Run:
    graph.save(file)
    session = onnxruntime_session.open_session(file, threads=0)

    def run(feed: Feed) -> list[Array]:
        with reraise(
            ModelError,
            lambda error: f"{file.stem}: ONNX Runtime cannot run it: {onnxruntime_session.plain(error)}",
            onnxruntime_session.runtime_errors(),
        ):
            return list(onnxruntime_session.call(session, None, feed))

    return run


def _interpreter(graph: Graph) -> Run:
    return lambda feed: list(ascend_ops.run(graph, feed))


def _few(graph: Graph, feeds: Sequence[Feed], count: int) -> Iterator[Feed]:
    """The first ``count`` examples; a batch is cut where all its arrays are as long and the model takes any number."""
    free = all(not (shape := graph.shape(name)) or not isinstance(shape[0], int) for name in graph.inputs)
    for feed in feeds:
        lengths = {len(array) if array.ndim else 0 for array in feed.values()}
        length = max(lengths)
        yield {name: array[:count] for name, array in feed.items()} if free and lengths == {length} else feed
        count -= length
        if count <= 0:
            return


def _random(graph: Graph, run: Run, count: int) -> Iterator[Feed]:
    """Random examples of the first sizes that the model takes."""
    first = next((feed for feed in equivalence.random_inputs(graph) if _takes(run, feed)), None)
    if first is None:
        return
    yield first
    rng = np.random.default_rng(1)
    for _ in itertools.repeat(None, count - 1):
        yield {name: _another(rng, value) for name, value in first.items()}


def _another(rng: np.random.Generator, value: Array) -> Array:
    values = rng.standard_normal(value.shape) if value.dtype.kind == "f" else rng.permutation(value.reshape(-1))
    return np.asarray(values.reshape(value.shape), value.dtype)


def _takes(run: Run, feed: Mapping[str, Array]) -> bool:
    try:
        run(feed)
    except Exception as error:  # two runtimes and onnx's interpreter refuse random inputs, each in its own way
        if out_of_memory(error):
            raise
        return False
    return True
