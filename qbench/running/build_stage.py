"""A run's second stage: every variant that open cases need, and static ones with further calibration subsets, too."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path

from qbench import registry
from qbench.backends.base import Backend
from qbench.build import Artifact, build, build_here
from qbench.data import CalibrationSubset, Data
from qbench.errors import CaseError, CaseSkipped, ModeImpossible
from qbench.plan.planner import Case, Variant
from qbench.record.schema import NATIVE
from qbench.running.context import RunContext
from qbench.running.prepare_stage import Prepared


@dataclass(frozen=True, kw_only=True)
class RecalibratedVariant:
    """A variant that was built again with another calibration subset; ``reason`` says why ``artifact`` is None."""

    subset: CalibrationSubset
    artifact: Artifact | None
    reason: str | None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class BuiltVariant:
    """A variant's artifact, the seconds that it took, and what the other calibration subsets gave."""

    artifact: Artifact
    seconds: float
    recalibrated: tuple[RecalibratedVariant, ...] = ()


def build_variants(context: RunContext, prepared: Prepared) -> dict[str, BuiltVariant]:
    """The variants of the open cases by id. One that fails breaks its cases; one that fails with a further calibration
    subset breaks nothing: its reason is kept.

    The baselines begin first: without its own a variant has nothing to be compared with, so it waits for that.
    """
    variants = {planned.case.variant.id: planned.case.variant for planned in context.tracker.open_cases()}
    recalibrations = [
        (variant, subset)
        for variant in variants.values()
        if context.kept is None
        for subset in _list_subsets(prepared.data, variant)
    ]
    context.progress.stage("build", len(variants) + len(recalibrations))
    built = _build_each(context, prepared, list(variants.values()))
    rebuilt = context.run_parallel(
        "build",
        recalibrations,
        lambda pair: _recalibrate(context, prepared, built, *pair),
        kind=lambda pair: (*_name_shared(pair[0]), pair[1].seed),
    )
    for (variant, _), recalibrated in zip(recalibrations, rebuilt, strict=True):
        if recalibrated is not None:
            shipped = built[variant.id]
            built[variant.id] = replace(shipped, recalibrated=(*shipped.recalibrated, recalibrated))
    return built


def _is_baseline(variant: Variant) -> bool:
    """Whether others are compared with it: an fp32 that is no twin."""
    return variant.mode == "fp32" and not variant.recipe.trains


def _list_subsets(data: Data, variant: Variant) -> tuple[CalibrationSubset, ...]:
    """The further calibration subsets of a variant; a file of the user's is calibrated already."""
    return data.other_subsets if variant.mode == "static" and variant.recipe.file is None else ()


def _build_each(context: RunContext, prepared: Prepared, variants: Sequence[Variant]) -> dict[str, BuiltVariant]:
    """Those of the variants that could be built, by id."""
    # After the baselines the long ones.
    ordered = sorted(variants, key=lambda variant: (not _is_baseline(variant), not variant.recipe.trains))
    baselines = {variant.id: Future[bool]() for variant in ordered if _is_baseline(variant)}

    def build_one(variant: Variant) -> BuiltVariant | None:
        built = None
        try:
            built = _build_variant(context, prepared, variant, baselines)
        finally:
            if variant.id in baselines:
                baselines[variant.id].set_result(built is not None)
        return built

    built = context.run_parallel("build", ordered, build_one, kind=_name_shared)
    return {variant.id: result for variant, result in zip(ordered, built, strict=True) if result is not None}


def _name_shared(variant: Variant) -> tuple[str, str, str]:
    """What builds share work by: the network, the mode and the runtime, but all runtimes share a twin's training."""
    backend: Backend = registry.load("backend", variant.backend)
    twin = variant.mode == "fp32" and variant.recipe.trains
    return variant.model.name, variant.mode, "" if twin else backend.runtime


def _build_variant(
    context: RunContext, prepared: Prepared, variant: Variant, baselines: Mapping[str, Future[bool]]
) -> BuiltVariant | None:
    """A variant of the plan; None where it cannot be built, which breaks its cases."""
    cases = context.tracker.list_cases(variant.id)
    started, artifact = time.monotonic(), None
    try:
        _require_baseline(variant, baselines)
        started = time.monotonic()  # it has waited
        artifact = _build(context, prepared, variant, prepared.data, variant.id)
    except ModeImpossible as error:
        context.tracker.break_cases(cases, "build", CaseSkipped(str(error)))
    except (CaseError, CaseSkipped) as error:
        context.tracker.break_cases(cases, "build", error)
    if artifact is not None:
        if artifact.repair is not None:
            context.progress.note(f"{variant.id}: {artifact.repair}")
        _skip_other_batches(context, variant, artifact, cases)
    context.progress.advance(variant.id)
    return None if artifact is None else BuiltVariant(artifact=artifact, seconds=time.monotonic() - started)


def _require_baseline(variant: Variant, baselines: Mapping[str, Future[bool]]) -> None:
    """Waits until the variant's fp32 is built, which somebody has begun before (``WorkQueue`` takes kinds in order);
    raises ``CaseError`` where it cannot be."""
    backend: Backend = registry.load("backend", variant.backend)
    baseline = f"{variant.model.name}/fp32/{backend.runtime}"
    if not _is_baseline(variant) and not (baseline in baselines and baselines[baseline].result()):
        raise CaseError(f"its baseline {baseline} could not be built")


def _recalibrate(
    context: RunContext,
    prepared: Prepared,
    built: dict[str, BuiltVariant],
    variant: Variant,
    subset: CalibrationSubset,
) -> RecalibratedVariant | None:
    """A variant built with another calibration subset; None where it could not be built with its own."""
    name = f"{variant.id} (calibration seed {subset.seed})"
    started, artifact, reason = time.monotonic(), None, None
    if variant.id in built:
        try:
            artifact = _build(context, prepared, variant, prepared.data.with_calibration(subset), name)
        except (CaseError, CaseSkipped) as error:
            reason = str(error)
            context.note_missing(name, f"not built: {reason}")
    context.progress.advance(name)
    if variant.id not in built:
        return None
    seconds = time.monotonic() - started
    return RecalibratedVariant(subset=subset, artifact=artifact, reason=reason, seconds=seconds)


def _build(context: RunContext, prepared: Prepared, variant: Variant, data: Data, name: str) -> Artifact:
    shared = ":".join((variant.model.name, *_name_shared(variant)[2:]))

    def act() -> Artifact:
        return build(
            variant,
            model=prepared.models[variant.model.name],
            data=data,
            root=context.cache,
            limits=context.limits,
            progress=context.report_under(name),
            train_qat=context.train_qat,
            kept=_find_kept(context, variant),
            run_child=context.find_place(NATIVE).run_child_near(shared),
        )

    return context.memory.call(build_here, act)


def _find_kept(context: RunContext, variant: Variant) -> Path | None:
    """The file of an earlier run that is taken in place of a build; None where all is built. Raises ``CaseError`` where
    the earlier run has none of this variant, or it is gone."""
    if context.kept is None:
        return None
    if (file := context.kept.get(variant.id)) is None:
        raise CaseError("the run whose artifacts are taken has none of it that is still in the cache")
    return file


def _skip_other_batches(context: RunContext, variant: Variant, artifact: Artifact, cases: Sequence[Case]) -> None:
    """Skips the cases of a model that takes batches of one size only, and not of theirs."""
    if artifact.built.fixed_batch is None:
        return
    of_other_sizes = [case for case in cases if case.batch_size != artifact.built.fixed_batch]
    reason = f"the model takes batches of {artifact.built.fixed_batch} only; export it with a dynamic batch axis"
    context.tracker.break_cases(of_other_sizes, "build", CaseSkipped(reason), {variant.id: artifact})
