"""Quick looks at a case that tell which causes are worth a trial; each in a process of its own."""

from __future__ import annotations

import contextlib
import statistics
import time
from pathlib import Path

from qbench import registry
from qbench.backends.base import Backend, Inputs
from qbench.errors import CaseError
from qbench.explain.open_case import OpenCase
from qbench.machine import bandwidth, denormals
from qbench.models.base import ModelReference
from qbench.network import load_network

_JOINED_EXAMPLES = 8  # of which the ranges are looked at, as where a network is quantized
_TURNS, _WARMUP_CALLS = 15, 5
_MOST_SECONDS = 3.0
_FIXING_FLOWS = ("fx", "eager")  # those of torch's engines


def find_reading_seconds(opened: OpenCase) -> float | None:
    """What a core takes to read as many bytes as the case's artifact has; None where that cannot be measured."""
    with contextlib.suppress(CaseError):
        size = opened.artifact.size_bytes
        return bandwidth.measure_reading(size, limits=opened.limits, cores=opened.cores[-1:])
    return None


def find_flushing_gain(opened: OpenCase) -> float | None:
    """How many times as fast calls are with denormals taken as zero; None where that cannot be set here."""
    with contextlib.suppress(CaseError):
        gain: float = opened.call_child(
            time_flushing_here,
            opened.case.variant.backend,
            opened.artifact.file,
            opened.data.evaluation(0, min(opened.case.batch_size, opened.data.evaluation_count)),
            opened.case.threads,
            cores=opened.case.threads,
        )
        return gain
    return None


def time_flushing_here(backend: str, file: Path, inputs: Inputs, threads: int, *, progress: object) -> float:
    """The same in this process, which is a child: calls with and without, in turns."""
    plugin: Backend = registry.load("backend", backend)
    runner = plugin.load(file, threads=threads)
    prepared = runner.prepare(inputs)
    seconds: dict[bool, list[float]] = {False: [], True: []}
    with runner.context():
        for _ in range(_WARMUP_CALLS):
            runner(prepared)
        begun = time.perf_counter()
        while len(seconds[True]) < _TURNS and time.perf_counter() - begun < _MOST_SECONDS:
            for flushed in (False, True):
                denormals.flush(flushed)
                before = time.perf_counter()
                runner(prepared)
                seconds[flushed].append(time.perf_counter() - before)
    denormals.flush(False)
    return statistics.median(seconds[False]) / statistics.median(seconds[True])


def find_fixed_ranges(opened: OpenCase) -> tuple[str, ...]:
    """The names of a case's sigmoid, tanh and softmax modules, whose int8 output range torch's engines fix; none where
    its flow calibrates their ranges. Calls count where the network is rewritten first, which makes modules of them."""
    recipe = opened.case.variant.recipe
    if not set(recipe.flows) <= set(_FIXING_FLOWS) or not recipe.flows:
        return ()
    examples = opened.data.evaluation(0, 2) if recipe.canonicalize else None
    names: tuple[str, ...] = opened.call_child(
        list_fixed_ranges, opened.model.reference, opened.model.weights, examples
    )
    return names


def list_fixed_ranges(
    reference: ModelReference, weights: Path | None, examples: Inputs | None, *, progress: object
) -> tuple[str, ...]:
    """The names of a network's modules of these kinds, in this process, which is a child; of the network rewritten for
    quantizers where there are ``examples`` to prove that on."""
    from torch import nn

    from qbench.backends.torch_runner import tensors
    from qbench.quant import canonical
    from qbench.quant.pytorch.eager import operator_support

    module = load_network(reference, weights).module
    if examples is not None:
        module = canonical.canonicalize(module, tensors(examples)).module
    kinds = (*operator_support.fixed(), nn.Softmax)
    return tuple(name for name, part in module.named_modules() if name and isinstance(part, kinds))


def find_joins(opened: OpenCase) -> tuple[str, ...]:
    """The names of the network's calls, or of its ONNX file's nodes, that one scale cannot hold; none where the case
    has them in float, or its framework cannot be told to."""
    variant = opened.case.variant
    recipe = variant.recipe
    if variant.mode != "static" or recipe.joins_in_float or recipe.file is not None:
        return ()
    if not opened.backends[variant.backend].float_joins:
        return ()
    examples = tuple(array[:_JOINED_EXAMPLES] for array in opened.data.calibration())
    if "onnx" in recipe.flows:
        nodes: tuple[str, ...] = opened.call_child(list_joined_nodes, opened.fp32.file, examples)
        return nodes
    names: tuple[str, ...] = opened.call_child(list_joins, opened.model.reference, opened.model.weights, examples)
    return names


def list_joins(
    reference: ModelReference, weights: Path | None, examples: Inputs, *, progress: object
) -> tuple[str, ...]:
    """``find_joins`` in this process, which is a child; nothing of a network that FX cannot trace."""
    from qbench.backends.torch_runner import tensors
    from qbench.quant.canonical.graph import Untraceable, trace
    from qbench.quant.pytorch import float_calls

    network = load_network(reference, weights)
    if network.kind != "torch":
        return ()
    batches = [tensors(tuple(array[[place]] for array in examples)) for place in range(len(examples[0]))]
    try:
        traced = trace(network.module.eval(), batches[0])
    except Untraceable:
        return ()
    return float_calls.name_joins(traced, batches)


def list_joined_nodes(file: Path, examples: Inputs, *, progress: object) -> tuple[str, ...]:
    """``find_joins`` of an ONNX file in this process, which is a child."""
    from qbench.quant.onnx import float_nodes

    return float_nodes.name_joins(file, examples)
