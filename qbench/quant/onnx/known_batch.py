"""Whether OpenVINO answers for a known number of examples what it answers for any number.

OpenVINO 2026.4 joins small matrix products into one kernel where it knows how many examples come. With AVX512 that of
two layers by NNCF's own quantization gave zeros, by ONNX Runtime's -1 dB against fp32 in place of 35
(tests/backends/test_own_int8_file.py): what is measured and shipped must not do that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qbench.quant.artifacts import onnx_file, openvino_model
from qbench.quant.onnx import onnxruntime_session
from qbench.quant.onnx.simulation_gap import GAP, LEAST
from qbench.quant.sqnr import measure_sqnr

Array = NDArray[Any]
# Of the inputs, for as many examples of small networks as there are: a batch of 16 pictures took more memory than all
# else of a build.
_BYTES, _FEWEST = 2**17, 2


def check(file: Path, source: Path, probes: tuple[Array, ...]) -> str | None:
    """Has a file compiled for any number of examples from now on where its answers for a known number lie further from
    those of the float network ``source`` than roundings explain; says so, None where all is well. Of the probes the
    first are asked, two at least and no more than have ``_BYTES``."""
    each = sum(array.nbytes for array in probes) // max(1, len(probes[0]))
    probes = tuple(array[: max(_FEWEST, _BYTES // max(1, each))] for array in probes)
    answers = _answer_both_ways(file, probes)
    if answers is None or answers[0].tobytes() == answers[1].tobytes():
        return None
    run = onnxruntime_session.bind_run(onnxruntime_session.open_lean(source))
    expected = np.concatenate([run(tuple(batch.values())) for batch in onnx_file.Batches(source, probes)])
    known_db, any_db = (measure_sqnr(expected[: len(probes[0])], outputs) for outputs in answers)
    if known_db >= min(any_db - GAP, LEAST):
        return None
    openvino_model.require_any_batch(file)
    return (
        f"compiled for any number of examples: told how many come, OpenVINO answers with {known_db:.1f} dB against "
        f"fp32 in place of {any_db:.1f}; so will this file wherever its batch size is fixed"
    )


def compare(file: Path, inputs: tuple[Array, ...]) -> float | None:
    """SQNR in dB of the answers for a known number of examples against those for any; None where the file is compiled
    in one way alone."""
    answers = _answer_both_ways(file, inputs)
    return None if answers is None else measure_sqnr(answers[1], answers[0])


def _answer_both_ways(file: Path, inputs: tuple[Array, ...]) -> tuple[Array, Array] | None:
    """The first output by a model for as many examples as the inputs have, and by one for any number."""
    read = openvino_model.read_file(file)
    if not read.is_compiled_for_each():
        return None
    known, any_number = (
        openvino_model.run(read.compile(shapes), inputs) for shapes in ([array.shape for array in inputs], ())
    )
    return known, any_number
