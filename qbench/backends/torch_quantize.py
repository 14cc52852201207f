"""From a torch network to an int8 module by any flow; shared by the backends of torch."""

from __future__ import annotations

import fnmatch
import importlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from qbench.backends.base import BuildJob
from qbench.backends.torch_runner import tensors, training_tensors
from qbench.errors import BuildError, ModeImpossible
from qbench.quant.analysis import quantized_range
from qbench.quant.flow import Batches, Conversion, Converted, QuantizeJob
from qbench.quant.recipe import AUTO_FLOWS, Recipe
from qbench.record.schema import TargetFacts

_BATCH = 16  # calibration examples of one call: a 224 x 224 network holds its activations for as many
_LOOKED_AT = 8  # calibration examples on which is decided what a network joins
_COMPARED = 8  # calibration examples on which each layer is held against fp32


def read_calibration_batches(job: BuildJob, size: int = _BATCH, most: int | None = None) -> Batches:
    """Fresh passes over the calibration examples (the first ``most``) as tensors, one batch in memory at a time."""

    def batches() -> Iterator[tuple[Any, ...]]:
        count = len(job.calibration[0]) if most is None else min(most, len(job.calibration[0]))
        for start in range(0, count, size):
            yield tensors(tuple(array[start : min(start + size, count)] for array in job.calibration))

    return batches


def quantize_network(job: BuildJob, engine: str, example: tuple[Any, ...]) -> Converted:
    """The job's network as its mode and recipe say; raises ``BuildError``."""
    from qbench.quant.pytorch import own_qconfig

    bare, qconfigs = own_qconfig.take(job.network.module)
    if job.recipe.qconfig is not None:
        qconfigs = own_qconfig.read(bare, qconfigs, job.mode, engine)
        job = replace(job, recipe=replace(job.recipe, reduce_range=own_qconfig.seven_bits(qconfigs)))
    job = replace(job, network=replace(job.network, module=bare))
    rewritten = _rewrite(job, example, training=job.mode == "qat")
    job = replace(job, recipe=_without_folded(job, rewritten.module))
    quantize_job = QuantizeJob(
        rewritten.module,
        engine,
        job.recipe,
        example,
        job.progress,
        job.shared,
        own=None if job.recipe.qconfig is None else qconfigs,
        base=job.base,
        more=tuple(read_calibration_batches(job, size=1, most=_LOOKED_AT)()),
    )
    converted = _convert_by_first(job, quantize_job)
    job.progress("compare layers", 0.9)
    numbers, unknown = _layer_numbers(job, converted.module)
    before, after = rewritten.conversion, converted.conversion
    conversion = replace(
        after.with_notes(*before.notes, *after.notes, *unknown),
        rewrites=before.rewrites,
        rewrite_difference=before.rewrite_difference,
        layer_numbers=numbers,
        input_ranges=() if job.mode == "dynamic" else quantized_range.range_of_module(converted.module, example),
        target=after.target or _target(job.recipe),
    )
    return replace(converted, conversion=conversion)


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


def prepare_fp32(job: BuildJob, example: tuple[Any, ...]) -> Converted:
    """The fp32 network, rewritten as before quantization: int8 is compared with the best fp32 of the same runtime."""
    return _rewrite(job, example, training=False)


def _rewrite(job: BuildJob, example: tuple[Any, ...], *, training: bool) -> Converted:
    """The network in fp32, rewritten where the recipe says so; its notes tell what could not be."""
    from qbench.quant import canonical

    if not job.recipe.canonicalize:
        return Converted(module=job.network.module)
    job.progress("canonicalize", 0.05)
    # X86InductorQuantizer matches each module once; torch.ao's layers can be called twice.
    form = canonical.canonicalize(
        job.network.module, example, training=training, separate_weights=job.recipe.flow == "pt2e"
    )
    conversion = Conversion(notes=form.kept, rewrites=form.rewrites, rewrite_difference=form.largest_difference)
    return Converted(module=form.module, conversion=conversion)


def _convert_by_first(job: BuildJob, quantize_job: QuantizeJob) -> Converted:
    """By the first flow of the recipe that takes the network; notes say why those before it do not.

    Raises what the first one says where none does, with what the others say. A training that went wrong is no reason
    to try another flow."""
    refusals: dict[str, BuildError] = {}
    for name in job.recipe.flows:
        flow = importlib.import_module(f"qbench.quant.pytorch.{name}")
        try:
            converted = _convert(job, flow, quantize_job)
        except BuildError as refusal:
            if job.mode == "qat" and not isinstance(refusal, ModeImpossible):
                raise
            refusals[name] = refusal
            continue
        passed = [f"not by the flow {other}: {refusal}" for other, refusal in refusals.items()]
        conversion = converted.conversion.with_notes(*passed, *converted.conversion.notes)
        return replace(converted, conversion=replace(conversion, flow=name))
    raise _join_refusals(refusals, job)


def _join_refusals(refusals: Mapping[str, BuildError], job: BuildJob) -> BuildError:
    """What each flow that was tried says, once; as an error of the first one's kind."""
    first, said = next(iter(refusals.values())), {str(refusal): name for name, refusal in refusals.items()}
    if len(said) > 1:
        whole = "; ".join(f"by the flow {name}: {text}" for text, name in said.items())
        return type(first)(f"{whole}; onnxruntime and openvino need neither" if job.mode == "static" else whole)
    untried = job.mode != "dynamic" and len(refusals) == 1 and not job.recipe.framework_default
    other = next((name for name in AUTO_FLOWS if name not in refusals), None)
    if untried and other is not None and set(refusals) <= set(AUTO_FLOWS):
        return type(first)(f"{first}; leave `flow` out, and {other} is tried, too")
    return first


def _convert(job: BuildJob, flow: Any, quantize_job: QuantizeJob) -> Converted:
    converted: Converted
    if job.mode == "qat":
        from qbench.quant.pytorch import qat

        inputs, labels = training_tensors(job)
        quantize_job = replace(quantize_job, example=tuple(tensor[:1] for tensor in inputs))
        converted = qat.train(flow, quantize_job, inputs, labels, checkpoints=job.checkpoints)
    elif job.mode == "dynamic":
        job.progress("quantize", 0.3)
        converted = flow.dynamic(quantize_job)
    else:
        converted = flow.static(quantize_job, read_calibration_batches(job))
    return converted
