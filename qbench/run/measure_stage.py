"""A run's last stage: the latency of every open case, one group after the other, and the record of each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from qbench.errors import CaseError
from qbench.machine import peak
from qbench.machine.peak import Peak
from qbench.measure.measure import CaseLatency, GroupMeasurer
from qbench.measure.race_rules import Arm, Role
from qbench.measure.roofline import roofline
from qbench.plan.planner import PlannedCase
from qbench.record.schema import Record, Roofline
from qbench.run.build_stage import BuiltVariant
from qbench.run.case_tracker import describe_recipe
from qbench.run.context import RunContext
from qbench.run.evaluate_stage import Evaluated
from qbench.run.prepare_stage import Prepared


@dataclass(frozen=True, kw_only=True)
class MeasuredCase:
    """A case with its latency, its share of this core's peak, and the seconds that measuring it took."""

    planned: PlannedCase
    latency: CaseLatency
    roofline: Roofline
    seconds: float


def measure(context: RunContext, prepared: Prepared, built: Mapping[str, BuiltVariant]) -> Iterator[MeasuredCase]:
    """Each open case as soon as it is measured, nothing beside it. What a group keeps for a resumed run is removed once
    its cases were taken."""
    open_cases = context.tracker.open_cases()
    compared = {planned.case.id for planned in open_cases if planned.baseline is not None}
    context.progress.stage("measure", len(compared))
    core_peak = measure_peak(context)
    measurer = GroupMeasurer(
        suite=context.suite,
        data=prepared.data,
        cores=context.cores,
        folder=context.directory.path,
        limits=context.limits,
        calm_ns=core_peak.canary_seconds * 1e9 if core_peak and core_peak.canary_seconds else None,
    )
    for setting in _group_by_setting(open_cases):
        started = time.monotonic()
        latencies = measurer.measure(
            [_enter(planned) for planned in setting],
            {planned.case.id: planned.case for planned in setting},
            {planned.case.id: built[planned.case.variant.id].artifact for planned in setting},
            lambda case: context.progress.advance(case) if case in compared else None,
            tell=context.progress.advance,
            done=context.tracker.done,
        )
        seconds = (time.monotonic() - started) / len(setting)
        for planned in setting:
            if (latency := latencies.get(planned.case.id)) is not None:
                artifact = built[planned.case.variant.id].artifact
                calm = latency.interference.calm_seconds if latency.interference else None
                share = roofline(planned.case, artifact, latency.latency, core_peak, calm)
                yield MeasuredCase(planned=planned, latency=latency, roofline=share, seconds=seconds)
        measurer.remove_checkpoints()


def measure_peak(context: RunContext) -> Peak | None:
    """What this core can do at most: from the cache, or measured now in a few seconds."""
    try:
        return peak.measure_peak(
            context.cache, limits=context.limits, cores=context.cores, progress=context.progress.advance
        )
    except CaseError as error:
        context.progress.note(f"the peak of this core is not known: {error}")
        return None


def _group_by_setting(cases: Sequence[PlannedCase]) -> list[list[PlannedCase]]:
    """The cases of each model, threads and batch over all runtimes, the fp32 first: they race each other."""
    groups: dict[tuple[str, int, int], list[PlannedCase]] = {}
    for planned in cases:
        case = planned.case
        groups.setdefault((case.variant.model.name, case.threads, case.batch_size), []).append(planned)
    return [sorted(group, key=lambda planned: planned.baseline is not None) for group in groups.values()]


def _enter(planned: PlannedCase) -> Arm:
    """A case as it enters the race."""
    role: Role = "fp32" if planned.baseline is None else "candidate"
    return Arm(case=planned.case.id, role=role, baseline=planned.baseline)


def make_record(
    context: RunContext, built: Mapping[str, BuiltVariant], evaluated: Evaluated, measured: MeasuredCase
) -> Record:
    """All that the stages know of a measured case."""
    case, latency = measured.planned.case, measured.latency
    artifact, evaluation = built[case.variant.id].artifact, evaluated[case.id]
    failed = latency.reason is not None
    return Record(
        case=case.key,
        status="failed" if failed else "ok",
        stage="measure" if failed else None,
        reason=latency.reason,
        reference=measured.planned.reference,
        recipe=describe_recipe(artifact.recipe),
        artifact=artifact.facts(),
        observed=latency.observed,
        latency=latency.latency,
        speedup=latency.speedup,
        speedup_fastest=latency.speedup_fastest,
        sequential=latency.sequential,
        interference=latency.interference,
        throughput_per_second=latency.throughput_per_second,
        cold_start=latency.cold_start,
        memory=latency.memory,
        accuracy=evaluation.accuracy,
        roofline=measured.roofline,
        samples=latency.samples,
        predictions=f"predictions/{evaluation.predictions.name}",
        layers=context.directory.layers(case.variant.id),
        started=context.started,
        elapsed_seconds=_list_seconds(built, evaluated, measured),
    )


def _list_seconds(built: Mapping[str, BuiltVariant], evaluated: Evaluated, measured: MeasuredCase) -> dict[str, float]:
    """Seconds by stage of one case."""
    case = measured.planned.case
    seconds = {"build": built[case.variant.id].seconds, "evaluate": evaluated[case.id].seconds}
    if (calibrations := evaluated[case.id].calibration_seconds) is not None:
        seconds["calibrations"] = calibrations
    seconds["measure"] = measured.seconds
    return {stage: round(value, 3) for stage, value in seconds.items()}
