"""An int8 model in OpenVINO's own form that the user brings; held against the float network it is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from qbench.backends import own_int8_file
from qbench.backends.base import BuildJob, Built, Inputs
from qbench.backends.own_int8_file import Open
from qbench.errors import BuildError, out_of_memory
from qbench.quant.artifacts import coverage, onnx_file, openvino_ir, openvino_model
from qbench.quant.flow import Conversion
from qbench.quant.onnx import known_batch, onnxruntime_layers, onnxruntime_session, openvino_layers

PACKED = "its .xml and .bin are stored in one zip file"


def build(job: BuildJob, source: Path, file: Path, open_file: Open) -> Built:
    """The user's .xml and .bin as ``file``, one artifact; its layers read from the graph that OpenVINO executes.

    ``source`` is the float network as an ONNX file. Raises ``BuildError`` where the file is not int8, or does not take
    what that takes, or gives something else.
    """
    int8_file = job.int8_file
    assert int8_file is not None
    own_int8_file.require_int8_file(job, int8_file)
    openvino_model.pack(int8_file, openvino_ir.find_weights(int8_file), file)
    compiled = openvino_model.compile_file(file)
    _require_inputs(int8_file, compiled, source)
    fixed = openvino_model.find_fixed_batch(compiled)
    inputs: Inputs = tuple(np.repeat(array, fixed or 1, axis=0) for array in job.example)
    try:
        outputs = openvino_model.run(compiled, inputs)
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        shapes = ", ".join(f"{array.dtype}{list(array.shape)}" for array in inputs)
        raise BuildError(f"{int8_file} does not take this data ({shapes}): {openvino_model.shorten(error)}") from error
    own_int8_file.require_alike(
        int8_file, outputs, onnxruntime_session.run(source, onnx_file.tile_batch(source, job.example))
    )
    suspect = known_batch.check(file, source, job.probes)
    onnx_file.require_repeatable(open_file, file, inputs, "openvino")
    reference = onnxruntime_layers.executed(source, job.example, optimized=False)
    executed = openvino_layers.executed(file, inputs)
    return Built(
        format="openvino",
        file=file.name,
        layers=coverage.name_layers(onnxruntime_layers.match(reference, executed), [each.layer for each in executed]),
        fixed_batch=fixed,
        conversion=Conversion().with_notes(own_int8_file.note_own(job), PACKED, suspect),
    )


def _require_inputs(int8_file: Path, compiled: Any, source: Path) -> None:
    """Inputs are fed in the order in which a file has them, so they are compared in that order."""
    float_types = onnx_file.input_types(source)
    own_types = [str(np.dtype(port.get_element_type().to_dtype())) for port in compiled.inputs]
    if own_types != list(float_types.values()):
        raise BuildError(
            f"{int8_file} takes {', '.join(own_types) or 'nothing'}, the float model "
            f"{', '.join(map(str, float_types.values()))}: give an int8 file that was made from this very model"
        )
    names = [next(iter(sorted(set(port.get_names()) & set(float_types))), None) for port in compiled.inputs]
    if None not in names and names != list(float_types):
        raise BuildError(
            f"{int8_file} takes {', '.join(map(str, names))}, the float model {', '.join(float_types)}: the same "
            "inputs in another order; save it with its inputs in the float model's order"
        )
    if len(compiled.outputs) > len(onnx_file.output_names(source)):
        raise BuildError(
            f"{int8_file} returns {len(compiled.outputs)} outputs, the float model "
            f"{len(onnx_file.output_names(source))}: save an int8 file that returns the same"
        )
