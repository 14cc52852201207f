"""Fake-quant model against deploy model: how far what is executed is what was simulated."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.errors import BuildError
from qbench.quant import forward, onnx_model
from qbench.quant.uniform.graph import equal
from qbench.quant.uniform.graph.graph import Graph
from qbench.quant.uniform.outputs import ascend_ops

Array = NDArray[Any]
# How many random examples are compared where none are given; the interpreter of ascend models takes seconds for one.
EXAMPLES, ASCEND_EXAMPLES = 16, 2


@dataclass(frozen=True, kw_only=True)
class Parity:
    """``examples``: how many were compared (the length of the first output). ``agreement``: the share of equal
    predictions (the largest along axis 1 of each float output, an integer output as it is), None for a model without
    such outputs. ``largest_difference``: of float outputs; ``relative_difference``: the same as a share of the largest
    absolute output."""

    examples: int
    agreement: float | None
    largest_difference: float
    relative_difference: float


def compared(fake_quant: Graph, deploy: Graph, example: Sequence[Array] | None = None) -> Parity | None:
    """How far a deploy model (QDQ: by ONNX Runtime's integer kernels; ascend: by their definitions) agrees with its
    fake-quant model.

    ``example``: a batch of examples, an array an input in order; without it random ones, the same each time. None where
    the model takes no random ones. Raises ``ModelError`` or ``BuildError`` for a model that does not run.
    """
    ascend = ascend_ops.is_ascend(deploy)
    count = ASCEND_EXAMPLES if ascend else EXAMPLES
    with tempfile.TemporaryDirectory() as folder:
        simulate = _session(fake_quant, Path(folder) / "fake_quant.onnx")
        execute = _interpreter(deploy) if ascend else _session(deploy, Path(folder) / "deploy.onnx")
        pairs = [(simulate(feed), execute(feed)) for feed in _feeds(fake_quant, simulate, example, count)]
    return of([one for one, _ in pairs], [other for _, other in pairs]) if pairs else None


def of(simulated: Sequence[Sequence[Array]], executed: Sequence[Sequence[Array]]) -> Parity:
    """The parity of outputs: for each batch its outputs in order, examples along their first axis."""
    equals: list[Array] = []
    largest, difference, examples = 0.0, 0.0, 0
    for ours, theirs in zip(simulated, executed, strict=True):
        examples += len(ours[0]) if ours[0].ndim else 1
        for one, other in zip(ours, theirs, strict=True):
            if one.shape != other.shape:
                raise BuildError(f"the deploy model gives {other.shape} where the fake-quant model gives {one.shape}")
            if (said := _predictions(one)) is not None:
                equals.append((said == _predictions(other)).reshape(-1))
            if one.dtype.kind == "f" and one.size:
                difference = max(difference, float(np.abs(one.astype(np.float64) - other).max()))
                largest = max(largest, float(np.abs(one).max()))
    return Parity(
        examples=examples,
        agreement=float(np.concatenate(equals).mean()) if equals else None,
        largest_difference=difference,
        relative_difference=difference / largest if largest else 0.0,
    )


def _predictions(output: Array) -> Array | None:
    if output.dtype.kind in "iub":
        return output if output.size else None
    if output.dtype.kind != "f" or output.ndim < 2 or output.shape[1] < 2 or not output.size:
        return None
    made: Array = output.argmax(axis=1)
    return made


Run = Callable[[Mapping[str, Array]], list[Array]]


def _session(graph: Graph, file: Path) -> Run:
    graph.save(file)
    session = onnx_model.open_session(file, threads=0)
    return lambda feed: list(session.run(None, dict(feed)))


def _interpreter(graph: Graph) -> Run:
    return lambda feed: list(ascend_ops.run(graph, feed))


def _feeds(graph: Graph, run: Run, example: Sequence[Array] | None, count: int) -> Iterator[Mapping[str, Array]]:
    """One batch of examples, or random ones of the first sizes that the model takes."""
    if example is not None:
        yield dict(zip(graph.inputs, example, strict=True))
        return
    first = next((feed for feed in equal.random_inputs(graph) if _takes(run, feed)), None)
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
    except Exception as error:  # ONNX Runtime's binding raises classes that it does not export
        if forward.out_of_memory(error):
            raise
        return False
    return True
