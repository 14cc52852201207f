"""Causes of ``explain`` that can be tried on a file alone: layers in float, larger batches, denormals as zero.

The registered causes are asked as for a case of a run; of what they propose, that is tried which needs no source and no
calibration data, in the same race as the file and its fp32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from qbench import registry
from qbench.backends.base import Inputs
from qbench.check import partly_float, runtimes
from qbench.check.budget import Budget
from qbench.check.finding import CauseTrial, RuntimeCheck
from qbench.check.race import Arm
from qbench.errors import BuildError, CaseError, QbenchError
from qbench.explain.causes.base import Cause, Counterfactual, Situation
from qbench.explain.probes import time_flushing_here
from qbench.explain.where_time_goes import compare_profiles, name_layers
from qbench.machine import bandwidth, fingerprint
from qbench.models.base import ModelReference
from qbench.plan.cases import Case, Variant
from qbench.process.child_process import call
from qbench.quant.artifacts.node_profile import CallProfile
from qbench.quant.artifacts.onnx_file import DeclaredInput
from qbench.quant.recipe import Recipe

MOST = 3  # that are tried
_KEYS = {"skip_layers", "min_coverage"}  # of a recipe: layers in float
_FLOAT_SHARE = 0.05  # of a call in float from which on denormals are looked for
_DYNAMIC = ("DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A cause to try: the ``arm`` without it, or the ``reason`` why there is none."""

    counterfactual: Counterfactual
    title: str
    arm: Arm | None = None
    reason: str | None = None

    def conclude(self, **facts: Any) -> CauseTrial:
        """What came of it."""
        told = self.counterfactual
        return CauseTrial(cause=told.cause, title=self.title, text=told.text, **facts)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A file whose causes are looked for: the ``model`` with its weights, the ``inputs`` that it ``declared`` and is
    run on, and what the runtime that is raced made of it and of its ``fp32``."""

    file: Path
    model: Any
    declared: Sequence[DeclaredInput]
    inputs: Inputs
    threads: int
    check: RuntimeCheck
    fp32: Path

    @property
    def arm(self) -> Arm:
        """The file as it is."""
        return Arm(file=self.file, inputs=self.inputs, threads=self.threads)

    @property
    def batch(self) -> int:
        """Examples of a call."""
        return len(self.inputs[0]) if self.inputs[0].ndim else 1


def find_candidates(subject: Subject, folder: Path, budget: Budget) -> tuple[Candidate, ...]:
    """The causes that the profiles of a file and of its fp32 speak for, ``MOST`` at most to be tried; files that this
    takes are written into ``folder``."""
    candidates: list[Candidate] = []
    proposals = _propose(_describe(subject, budget))
    for cause, counterfactual in sorted(proposals, key=lambda entry: entry[1].change.batch_size is not None):
        if sum(candidate.arm is not None for candidate in candidates) == MOST:
            break
        file = folder / f"without-{len(candidates)}.onnx"
        candidate = _make_candidate(subject, cause, counterfactual, file)
        candidates += [candidate] if candidate is not None else []
    return tuple(candidates)


def _propose(situation: Situation) -> Iterator[tuple[Cause, Counterfactual]]:
    for name in registry.names("cause"):
        cause: Cause = registry.load("cause", name)
        if "time" in cause.concerns:
            yield from ((cause, counterfactual) for counterfactual in cause.propose(situation))


def _describe(subject: Subject, budget: Budget) -> Situation:
    """What causes are judged from, as far as a file tells it."""
    check, times = subject.check, None
    assert check.profile is not None  # of a file that runs
    dynamic = any(node.op_type in _DYNAMIC for node in subject.model.graph.node)
    try:
        fp32 = _watch_fp32(subject, budget)
        case = name_layers(check.profile, check.layers)
        times = compare_profiles(case, fp32, check.layers, subject.batch, None, subject.threads)
    except (CaseError, QbenchError):
        pass  # what needs no profile of it is tried all the same
    variant = Variant(
        model=ModelReference(name="file", source="onnx", path=subject.file),
        mode="dynamic" if dynamic else "static",
        backend=check.runtime,
        recipe=Recipe(flow="onnx"),
    )
    return Situation(
        case=Case(variant=variant, threads=subject.threads, batch_size=subject.batch),
        layers=check.layers,
        times=times,
        hiding_variables=fingerprint.switches() if check.runtime == "openvino" else (),
        call_seconds=check.call_seconds,
        reading_seconds=_read_weights(subject, budget),
        flushing_gain=_find_flushing_gain(subject, budget),
    )


def _watch_fp32(subject: Subject, budget: Budget) -> CallProfile:
    arguments = (subject.check.runtime, subject.fp32, subject.inputs, subject.threads)
    _, profile = call(runtimes.watch_here, *arguments, limits=budget.limits)
    # A runtime names a node of fp32 in its own layout by its output: by their order they are those of the file.
    return name_layers(profile, subject.check.layers)


def _read_weights(subject: Subject, budget: Budget) -> float | None:
    """What the core takes to read the file once; None where no other batch size can be tried, or it fails."""
    if not _takes_any_batch(subject):
        return None
    try:
        return bandwidth.measure_reading(subject.model.ByteSize(), limits=budget.limits)
    except CaseError:
        return None


def _find_flushing_gain(subject: Subject, budget: Budget) -> float | None:
    """As ``explain`` finds it, of a file that computes floats; None for others, and where it cannot be set here."""
    seconds = subject.check.seconds
    floats = seconds.get("float product", 0.0) + seconds.get("other", 0.0)
    if floats < _FLOAT_SHARE * sum(seconds.values()):
        return None
    try:
        arguments = (subject.check.runtime, subject.file, subject.inputs, subject.threads)
        gain: float = call(time_flushing_here, *arguments, limits=budget.limits)
    except (CaseError, QbenchError):
        return None
    return gain


def _takes_any_batch(subject: Subject) -> bool:
    return all(entry.sizes and not isinstance(entry.sizes[0], int) for entry in subject.declared)


def _make_candidate(subject: Subject, cause: Cause, counterfactual: Counterfactual, file: Path) -> Candidate | None:
    """How a counterfactual is tried on the file; None for one that only a suite can have."""
    change, title = counterfactual.change, cause.title
    if change.mode is not None:
        reason = "it takes calibration data: `qbench init` writes a suite that tries it"
        return Candidate(counterfactual=counterfactual, title=title, reason=reason)
    if change.backend or change.own_recipe or change.calibrate or set(change.recipe) - _KEYS:
        return None
    if change.environment:
        reason = "a variable is set as a process begins: check the file again without it"
        return Candidate(counterfactual=counterfactual, title=title, reason=reason)
    path, inputs = subject.file, subject.inputs
    if change.batch_size is not None:
        if not _takes_any_batch(subject):
            return None
        times = change.batch_size // subject.batch
        inputs = tuple(np.concatenate([array] * times) for array in inputs)
    if change.recipe:
        try:
            partly_float.write_partly_float(subject.model, file, change.recipe["skip_layers"])
        except (BuildError, ValueError, KeyError, IndexError) as error:
            return Candidate(counterfactual=counterfactual, title=title, reason=str(error))
        path = file
    threads = change.threads or subject.threads
    arm = Arm(file=path, inputs=inputs, threads=threads, flushed=change.flush_denormals)
    return Candidate(counterfactual=counterfactual, title=title, arm=arm)
