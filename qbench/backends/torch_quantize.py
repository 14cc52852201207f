"""From a torch network to an int8 module by any flow; shared by the backends of torch."""

from __future__ import annotations

import fnmatch
import importlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from qbench.backends.base import BuildJob
from qbench.backends.torch_runner import tensors, training_tensors
from qbench.errors import BuildError
from qbench.quant.analysis import quantized_range
from qbench.quant.analysis.quantized_range import Ranges
from qbench.quant.flow import Batches, Converted, QuantizeJob
from qbench.quant.recipe import Recipe
from qbench.record.schema import TargetFacts

_BATCH = 16  # calibration examples of one call: a 224 x 224 network holds its activations for as many
_COMPARED = 8  # calibration examples on which each layer is held against fp32


@dataclass(frozen=True, kw_only=True)
class Quantized:
    """An int8 module; what the network was rewritten into before, with the largest difference of outputs; of each layer
    SQNR and cosine against fp32; of each input the values that the module can represent."""

    converted: Converted
    rewrites: tuple[str, ...] = ()
    rewrite_difference: float | None = None
    layer_numbers: tuple[Mapping[str, Any], ...] = ()
    input_ranges: Ranges = ()


def read_calibration_batches(job: BuildJob, size: int = _BATCH, most: int | None = None) -> Batches:
    """Fresh passes over the calibration examples (the first ``most``) as tensors, one batch in memory at a time."""

    def batches() -> Iterator[tuple[Any, ...]]:
        count = len(job.calibration[0]) if most is None else min(most, len(job.calibration[0]))
        for start in range(0, count, size):
            yield tensors(tuple(array[start : min(start + size, count)] for array in job.calibration))

    return batches


def quantize_network(job: BuildJob, engine: str, example: tuple[Any, ...]) -> Quantized:
    """The job's network as its mode and recipe say; raises ``BuildError``."""
    from qbench.quant.pytorch import own_qconfig

    flow: Any = importlib.import_module(f"qbench.quant.pytorch.{job.recipe.flow}")
    bare, own = own_qconfig.take(job.network.module)
    if job.recipe.qconfig is not None:
        own = own_qconfig.read(bare, own, job.mode, engine)
        job = replace(job, recipe=replace(job.recipe, reduce_range=own_qconfig.seven_bits(own)))
    job = replace(job, network=replace(job.network, module=bare))
    canonical_form = _canonical(job, example, training=job.mode == "qat")
    job = replace(job, recipe=_without_folded(job, canonical_form.converted.module))
    quantize_job = QuantizeJob(
        canonical_form.converted.module,
        engine,
        job.recipe,
        example,
        job.progress,
        job.shared,
        own=None if job.recipe.qconfig is None else own,
        base=job.base,
    )
    converted = _converted(job, flow, quantize_job)
    job.progress("compare layers", 0.9)
    numbers, unknown = _layer_numbers(job, converted.module)
    notes = (*canonical_form.converted.notes, *converted.notes, *unknown)
    return replace(
        canonical_form,
        converted=replace(converted, notes=notes, target=converted.target or _target(job.recipe)),
        layer_numbers=numbers,
        input_ranges=() if job.mode == "dynamic" else quantized_range.range_of_module(converted.module, example),
    )


def _target(recipe: Recipe) -> TargetFacts | None:
    """What is said of a network whose kernels need nothing for other CPUs."""
    return TargetFacts(cpus=recipe.cpus) if recipe.cpus else None


def _without_folded(job: BuildJob, module: Any) -> Recipe:
    """The recipe without names in ``skip_layers`` that only the network as written has: those layers were folded into
    others, and stay float with them or not at all."""
    written, prepared = ([name for name, _ in network.named_modules()] for network in (job.network.module, module))
    skipped = tuple(
        pattern
        for pattern in job.recipe.skip_layers
        if fnmatch.filter(prepared, pattern) or not fnmatch.filter(written, pattern)
    )
    return replace(job.recipe, skip_layers=skipped)


def _layer_numbers(job: BuildJob, int8: Any) -> tuple[tuple[Mapping[str, Any], ...], tuple[str, ...]]:
    """Of each layer its numbers, and a note where they cannot be had: that is no reason to lose a good variant."""
    from qbench.quant.analysis import layer_error

    few = read_calibration_batches(job, size=_COMPARED, most=_COMPARED)
    try:
        numbers = layer_error.measure_layers(job.network.module, int8, few)
    except BuildError as error:
        return (), (f"its layers are not held against fp32: {error}",)
    return tuple(_as_data(layer) for layer in numbers), ()


def _as_data(layer: Any) -> dict[str, Any]:
    """A layer's numbers as JSON has them: no infinity, which equal outputs give."""
    if layer.sqnr_db == math.inf:
        return {**asdict(layer), "sqnr_db": None, "reason": "equal to fp32"}
    return asdict(layer)


def prepare_fp32(job: BuildJob, example: tuple[Any, ...]) -> Quantized:
    """The fp32 network, rewritten as before quantization: int8 is compared with the best fp32 of the same runtime."""
    return _canonical(job, example, training=False)


def _canonical(job: BuildJob, example: tuple[Any, ...], *, training: bool) -> Quantized:
    """The network in fp32, rewritten where the recipe says so; its notes tell what could not be."""
    from qbench.quant import canonical

    if not job.recipe.canonicalize:
        return Quantized(converted=Converted(module=job.network.module))
    job.progress("canonicalize", 0.05)
    # X86InductorQuantizer matches each module once; torch.ao's layers can be called twice.
    form = canonical.canonicalize(
        job.network.module, example, training=training, separate_weights=job.recipe.flow == "pt2e"
    )
    return Quantized(
        converted=Converted(module=form.module, notes=form.kept),
        rewrites=form.rewrites,
        rewrite_difference=form.largest_difference,
    )


def _converted(job: BuildJob, flow: Any, quantize_job: QuantizeJob) -> Converted:
    if job.mode == "qat":
        return _trained(job, flow, quantize_job)
    converted: Converted
    if job.mode == "dynamic":
        job.progress("quantize", 0.3)
        converted = flow.dynamic(quantize_job)
    else:
        converted = flow.static(quantize_job, read_calibration_batches(job))
    return converted


def _trained(job: BuildJob, flow: Any, quantize_job: QuantizeJob) -> Converted:
    from qbench.quant.pytorch import qat

    inputs, labels = training_tensors(job)
    quantize_job = replace(quantize_job, example=tuple(tensor[:1] for tensor in inputs))
    trained = qat.train(flow, quantize_job, inputs, labels, checkpoints=job.checkpoints)
    return replace(trained.converted, notes=(f"trained on {trained.loss}", *trained.converted.notes, *trained.notes))
