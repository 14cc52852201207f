"""An int8 TorchScript file that the user brings, on an engine of torch; held against the float network.

Such a file names no engine: weights are packed for whichever is set when it is loaded. So the engine is that of the
case, and what the file tells of its making (bits of activations, weights per channel) says whose default it follows.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterable
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
# (bits of activations, weights per channel) of torch's default qconfigs: fbgemm and x86 leave room for sums of 16 bits.
_DEFAULTS = {(7, True): "fbgemm and x86", (8, True): "onednn", (8, False): "qnnpack"}
# Between the levels that 7 bits reach (127) and those that 8 bits do (255), at the most active value of a layer.
_SEVEN_BITS = 180


def build(job: BuildJob, engine: str, example: tuple[Any, ...], note: str | None = None) -> Built:
    """The user's file as the artifact of a job on an engine, its layers read from what ran.

    Raises ``BuildError`` for a file that is not int8, or does not fit the float network; ``ModeImpossible`` where
    another engine runs it and the suite names none for it.
    """
    from qbench.quant.analysis import quantized_range
    from qbench.quant.artifacts import coverage, torchscript

    int8_file = job.int8_file
    assert int8_file is not None
    own_int8_file.require_int8_file(job, int8_file)
    file = job.folder / FILE
    shutil.copyfile(int8_file, file)
    loaded = _open(job, file, engine, example)
    _require_outputs(job, loaded, int8_file)
    model_call.require_repeatable(loaded, example=example, tolerance=SAME)
    reference, unseen = torchscript.count_layers(job.network.module, example)
    layers, uncounted = torchscript.count_layers(loaded, example)
    named = f"run on {engine}, which the suite names" if job.int8_engine else f"run on {engine}: the file names none"
    scheme = None if job.mode == "dynamic" else _describe_scheme(loaded, _singles(job))
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
    able_engine = None if job.int8_engine else _find_engine(file, engine, example)
    torch_ao.set_engine(engine)
    if able_engine is not None:
        raise ModeImpossible(
            f"the engine {engine} does not run {job.recipe.file} ({reason}); {able_engine} does"
        ) from cause
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


def _require_outputs(job: BuildJob, loaded: Any, int8_file: Path) -> None:
    import torch

    with torch.inference_mode():
        for example in _singles(job):
            results = [part(*example) for part in (loaded, job.network.module)]
            counts = [len(result) if isinstance(result, tuple | list) else 1 for result in results]
            if counts[1] == 1 and counts[0] > 1:
                raise BuildError(
                    f"{int8_file} returns {counts[0]} outputs, the float model as the suite calls it one: save an int8 "
                    "file that returns that one"
                )
            outputs, expected = map(model_call.first, results)
            if not isinstance(outputs, torch.Tensor):
                raise BuildError(
                    f"{int8_file} returns {type(outputs).__name__}, the float model a tensor: give an int8 file that "
                    "was made from this very model"
                )
            if outputs.is_quantized:
                raise BuildError(f"{int8_file} returns quantized values; let it end with a DeQuantStub")
            own_int8_file.require_alike(int8_file, outputs.numpy(), expected.numpy())


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


def _describe_scheme(module: Any, examples: Iterable[tuple[Any, ...]]) -> str | None:
    """Whose default quantization a network follows (``activations in 7 bits, weights per channel, as in the default
    qconfig of fbgemm and x86``), from what the examples reach in each layer; None where nothing shows it."""
    import torch

    from qbench.quant.artifacts import torchscript
    from qbench.quant.artifacts.tracing import known_warnings
    from qbench.quant.operator_mode import OperatorMode

    levels: dict[int, int] = {}
    per_channel: set[bool] = set()

    class Watching(OperatorMode):
        """Sees the levels of quantized tensors, in the order in which they come, and the weights."""

        def __init__(self) -> None:
            super().__init__()
            self.position = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.dtype == torch.quint8:
                levels[self.position] = max(levels.get(self.position, 0), int(result.int_repr().max()))
                self.position += 1
            if function.namespace == "quantized" and len(args) > 1:
                weight = torchscript.unpack_weight(str(function.overloadpacket).partition(".")[2], args[1])
                if weight is not None:
                    per_channel.add(weight.qscheme() not in (torch.per_tensor_affine, torch.per_tensor_symmetric))
            return result

    with torch.inference_mode(), known_warnings():
        for example in examples:
            with Watching():
                module(*example)
    if not levels or not per_channel:
        return None
    bits = 7 if statistics.median(levels.values()) < _SEVEN_BITS else 8
    whose = _DEFAULTS.get((bits, True in per_channel))
    text = f"activations in {bits} bits, weights per {'channel' if True in per_channel else 'tensor'}"
    return f"{text}, as in the default qconfig of {whose}" if whose else f"{text}, as in no engine's default qconfig"
