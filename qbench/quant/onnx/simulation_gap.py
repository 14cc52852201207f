"""An int8 file as its runtime executes it, held against a float simulation of the same scales.

Both differ from fp32 by what rounding to 8 bits costs. Where the file differs by far more, its runtime computes
something else than the file says: no other variant need be built to see that.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from qbench.quant.artifacts import onnx_file, openvino_model
from qbench.quant.onnx import graph_process, onnxruntime_session
from qbench.quant.onnx.export import left_out_ranges
from qbench.quant.onnx.export.fake_quant import fake_quant
from qbench.quant.onnx.graph.graph import Graph
from qbench.quant.onnx.sites import Record, Sites
from qbench.quant.sqnr import measure_sqnr_of

Array = NDArray[Any]
EXAMPLES = 8  # of the calibration data, one by one: a batch of them can take more memory than the model
# A file is told apart where it lies below the simulation by more than this, and below what anybody ships. What other
# kinds of ranges and of weights cost is up to 8.6 dB (tests/architectures/run.py); a wrong kernel has 0 to 9 dB.
GAP, LEAST = 10.0, 20.0
_NAMES = {"onnxruntime": "ONNX Runtime", "openvino": "OpenVINO"}


def note(
    graph: Graph, sites: Sites, record: Record, file: Path, calibration: tuple[Array, ...], runtime: str, learned: bool
) -> str | None:
    """What to know of a file whose outputs lie far below those of its simulation; None where rounding explains them.

    ``learned``: the ranges were trained, so that fp32 is the network clipped to them.
    """
    if not len(calibration[0]):
        return None
    batches = [tuple(batch.values()) for batch in onnx_file.Batches(file, tuple(x[:EXAMPLES] for x in calibration))]
    float_sites = replace(sites, activations=())
    expected = list(
        _run(lambda: left_out_ranges.clip(graph, sites, float_sites, record) if learned else graph, batches)
    )
    if expected[0].dtype.kind != "f":
        return None
    simulation = _run(lambda: fake_quant(graph, sites, record), batches)
    simulated = measure_sqnr_of(zip(expected, simulation, strict=True))
    executed = measure_sqnr_of(zip(expected, _execute(file, batches, runtime), strict=True))
    if executed >= min(simulated - GAP, LEAST):
        return None
    return (
        f"{_NAMES[runtime]} computes something else than this file says: {executed:.1f} dB against fp32 on "
        f"{min(len(calibration[0]), EXAMPLES)} calibration examples, where a float simulation of the same scales has "
        f"{simulated:.1f} dB; use another backend, or keep the layers float where they part (skip_layers)"
    )


def _run(make: Callable[[], Graph], batches: Sequence[tuple[Array, ...]]) -> Iterator[Array]:
    """The first output of each batch, in floats, of a graph that is made for it and gone before it runs."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        make().save(file)
        graph_process.release_memory(file)
        yield from map(onnxruntime_session.bind_run(onnxruntime_session.open_lean(file)), batches)
    graph_process.release_memory(file)


def _execute(file: Path, batches: Sequence[tuple[Array, ...]], runtime: str) -> Iterator[Array]:
    """The first output of each batch, of the file as it will be measured."""
    if runtime == "openvino":
        return map(functools.partial(openvino_model.run, openvino_model.compile_file(file)), batches)
    return map(onnxruntime_session.bind_run(onnxruntime_session.open_session(file)), batches)
