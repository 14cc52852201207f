"""An int8 TorchScript file that the user brings, on an engine of torch; held against the float network.

Such a file names no engine: weights are packed for whichever is set when it is loaded. So the engine is that of the
case, and what the file tells of its making (bits of activations, weights per channel) says whose default it follows.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from qbench.backends import own_int8_file
from qbench.backends.base import BuildJob, Built
from qbench.backends.torch_runner import SAME, tensors
from qbench.errors import BuildError, ModeImpossible, out_of_memory
from qbench.quant import model_call
from qbench.quant.flow import Conversion
from qbench.quant.pytorch import torch_ao

FILE = "model.pt"


def build(job: BuildJob, engine: str, example: tuple[Any, ...], note: str | None = None) -> Built:
    """The user's file as the artifact of a job on an engine, its layers read from what ran.

    Raises ``BuildError`` for a file that is not int8, or does not fit the float network; ``ModeImpossible`` where
    another engine runs it and the suite names none for it.
    """
    from qbench.quant.analysis import quantized_range
    from qbench.quant.artifacts import coverage, torchscript
    from qbench.quant.pytorch import made_for

    own = job.int8_file
    assert own is not None
    own_int8_file.require_int8_file(job, own)
    file = job.folder / FILE
    shutil.copyfile(own, file)
    loaded = _open(job, file, engine, example)
    _require_outputs(job, loaded, own)
    model_call.require_repeatable(loaded, example=example, tolerance=SAME)
    reference, unseen = torchscript.count_layers(job.network.module, example)
    layers, uncounted = torchscript.count_layers(loaded, example)
    named = f"run on {engine}, which the suite names" if job.int8_engine else f"run on {engine}: the file names none"
    scheme = None if job.mode == "dynamic" else made_for.describe_scheme(loaded, _singles(job))
    ranges = () if job.mode == "dynamic" else quantized_range.range_of_module(loaded, example)
    return Built(
        format="torchscript",
        file=FILE,
        layers=coverage.name_layers(coverage.align_layers(reference, layers), layers),
        uncounted=unseen or uncounted,
        fixed_batch=_find_fixed_batch(job, loaded),
        conversion=Conversion(input_ranges=ranges).with_notes(own_int8_file.note_own(job), named, scheme, note),
    )


def _open(job: BuildJob, file: Path, engine: str, example: tuple[Any, ...]) -> Any:
    """The loaded file, which has run on the engine; raises where it does not."""
    try:
        return _run_on(engine, file, example)
    except Exception as error:  # torch raises all kinds for what an engine, or the file, does not take
        if out_of_memory(error):
            raise
        reason, cause = model_call.reason(error), error
    other = None if job.int8_engine else _find_engine(file, engine, example)
    torch_ao.set_engine(engine)
    if other is not None:
        raise ModeImpossible(f"the engine {engine} does not run {job.recipe.file} ({reason}); {other} does") from cause
    shapes = ", ".join(f"{array.dtype}{list(array.shape)}" for array in job.example)
    raise BuildError(f"{job.int8_file} does not take this data ({shapes}) on {engine}: {reason}") from cause


def _run_on(engine: str, file: Path, example: tuple[Any, ...]) -> Any:
    import torch

    from qbench.quant.artifacts import torchscript, tracing

    torch_ao.set_engine(engine)
    loaded = torchscript.load(file)
    with torch.inference_mode(), tracing.known_warnings():
        loaded(*example)
    return loaded


def _find_engine(file: Path, engine: str, example: tuple[Any, ...]) -> str | None:
    """Another engine of this machine that runs a file."""
    import torch

    for other in torch_ao.ENGINES:
        if other != engine and other in torch.backends.quantized.supported_engines:
            try:
                _run_on(other, file, example)
            except Exception as error:  # as above
                if out_of_memory(error):
                    raise
            else:
                return other
    return None


def _singles(job: BuildJob) -> tuple[tuple[Any, ...], ...]:
    count = len(job.probes[0])
    return tuple(tensors(tuple(array[i : i + 1] for array in job.probes)) for i in range(count))


def _require_outputs(job: BuildJob, loaded: Any, own: Path) -> None:
    import torch

    with torch.inference_mode():
        for example in _singles(job):
            results = [part(*example) for part in (loaded, job.network.module)]
            counts = [len(result) if isinstance(result, tuple | list) else 1 for result in results]
            if counts[1] == 1 and counts[0] > 1:
                raise BuildError(
                    f"{own} returns {counts[0]} outputs, the float model as the suite calls it one: save an int8 file "
                    "that returns that one"
                )
            outputs, expected = map(model_call.first, results)
            if not isinstance(outputs, torch.Tensor):
                raise BuildError(
                    f"{own} returns {type(outputs).__name__}, the float model a tensor: give an int8 file that was "
                    "made from this very model"
                )
            if outputs.is_quantized:
                raise BuildError(f"{own} returns quantized values; let it end with a DeQuantStub")
            own_int8_file.require_alike(own, outputs.numpy(), expected.numpy())


def _find_fixed_batch(job: BuildJob, loaded: Any) -> int | None:
    """1 where a trace took the batch of its example for a number, so that several examples do not go through it."""
    import torch

    count = len(job.probes[0])
    try:
        with torch.inference_mode():
            outputs = model_call.first(loaded(*tensors(job.probes)))
    except RuntimeError as error:
        if out_of_memory(error):
            raise
        return 1
    return None if tuple(outputs.shape[:1]) == (count,) else 1
