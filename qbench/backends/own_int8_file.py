"""An int8 file that the user brings, held against the float network it is compared with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from qbench.backends.base import Array, BuildJob, Inputs
from qbench.errors import BuildError, ModelError, out_of_memory
from qbench.quant.flow import Conversion

Open = Callable[[Path], Callable[[Inputs], "Array"]]


def take_own_file(job: BuildJob, source: Path, file: Path) -> Conversion:
    """Copies the user's int8 file of a job to ``file``, external data taken in.

    ``source`` is the float network as an ONNX file. Raises ``BuildError`` for a file that is not whole, not quantized,
    or of another mode than the suite says, and where its inputs or its output are not those of the float network.
    """
    from qbench.quant.artifacts import onnx_check, onnx_file

    int8_file = job.int8_file
    assert int8_file is not None
    try:
        onnx_check.load(int8_file, weights=False)
    except ModelError as error:
        raise BuildError(str(error)) from error
    onnx_file.copy(int8_file, file)
    require_int8_file(job, int8_file)
    _require_inputs(source, file, int8_file)
    return Conversion(notes=(note_own(job),))


def note_own(job: BuildJob) -> str:
    """What a record says of such a file."""
    return f"the user's own file, {job.recipe.file}: qbench quantized nothing"


def require_int8_file(job: BuildJob, int8_file: Path) -> None:
    """Raises ``BuildError`` for a file that is not whole, not quantized, or of another mode than the suite says."""
    from qbench.models.own_int8 import why_not_int8

    try:
        reason = why_not_int8(int8_file, job.recipe.file or int8_file.name, job.mode)
    except ModelError as error:
        raise BuildError(str(error)) from error
    if reason is not None:
        raise BuildError(f"{int8_file}: {reason}")


def _require_inputs(source: Path, file: Path, int8_file: Path) -> None:
    """Inputs are fed in the order in which a file has them, so they are compared in that order."""
    from qbench.quant.artifacts import onnx_file

    float_types, own_types = onnx_file.input_types(source), onnx_file.input_types(file)
    difference = f"{int8_file} takes {_listed(own_types)}, the float model {_listed(float_types)}"
    if set(own_types) == set(float_types) and list(own_types) != list(float_types):
        raise BuildError(
            f"{difference}: the same inputs in another order; save it with its inputs in the float model's order"
        )
    if list(own_types.values()) != list(float_types.values()):
        raise BuildError(f"{difference}: give an int8 file that was made from this very model")


def _listed(types: dict[str, str | None]) -> str:
    return ", ".join(f"{name} ({kind or 'no tensor'})" for name, kind in types.items()) or "nothing"


def require_outputs(job: BuildJob, source: Path, file: Path, open_file: Open) -> None:
    """Raises ``BuildError`` where the first output of the user's file for a few examples, opened by ``open_file``, does
    not have the shape of the float network's, or is NaN where that is a number."""
    from qbench.quant.artifacts import onnx_file
    from qbench.quant.onnx import onnxruntime_session

    probes = job.probes if onnx_file.fixed_batch(file) is None else onnx_file.tile_batch(file, job.example)
    try:
        outputs = open_file(file)(probes)
    except Exception as error:  # ONNX Runtime and OpenVINO raise all kinds for inputs that do not fit
        if isinstance(error, BuildError) or out_of_memory(error):
            raise
        shapes = ", ".join(f"{array.dtype}{list(array.shape)}" for array in probes)
        raise BuildError(
            f"{job.int8_file} does not take this data ({shapes}): {onnxruntime_session.plain(error)}"
        ) from error
    fixed = onnx_file.fixed_batch(source)
    if fixed not in (None, len(probes[0])):
        probes = onnx_file.tile_batch(source, job.example)
    expected = onnxruntime_session.run(source, probes)
    assert job.int8_file is not None
    require_alike(job.int8_file, outputs, expected)


def require_alike(int8_file: Path, outputs: Array, expected: Array) -> None:
    """Raises ``BuildError`` where the first output of the user's file does not have the shape of the float network's,
    or is NaN where that is a number."""
    import numpy as np

    if (outputs.ndim, *outputs.shape[1:]) != (expected.ndim, *expected.shape[1:]):
        raise BuildError(
            f"the first output of {int8_file} has the shape {list(outputs.shape)}, that of the float model "
            f"{list(expected.shape)}: give an int8 file that was made from this very model, with outputs in its order"
        )
    if np.isfinite(expected).all() and not np.isfinite(outputs).all():
        raise BuildError(f"{int8_file} gives NaN or infinity where the float model gives numbers")
