"""A run's last stage: the latency of every open case, one group after the other, and the record of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from qbench import registry
from qbench.decide.cases import group_by_setting, setting_name
from qbench.errors import CaseError
from qbench.machine import fingerprint, peak
from qbench.machine.peak import Peak
from qbench.measure.measure import CaseLatency, GroupMeasurer
from qbench.measure.protocol import Tell
from qbench.measure.race_rules import Arm
from qbench.measure.roofline import roofline
from qbench.plan.planner import PlannedCase
from qbench.record.schema import NATIVE, HostFacts, Record, Roofline
from qbench.run.build_stage import BuiltVariant
from qbench.run.case_tracker import describe_recipe
from qbench.run.context import RunContext
from qbench.run.evaluate_stage import Evaluated
from qbench.run.measure_nodes import MeasuredSetting, Settings, measure_on_nodes
from qbench.run.prepare_stage import Prepared
from qbench.run.race_entry import enter_race


@dataclass(frozen=True, kw_only=True)
class MeasuredCase:
    """A case with its latency, its share of the core's peak, and the seconds that measuring it took; ``node`` and
    ``cluster_load`` as in its record's ``host``."""

    planned: PlannedCase
    latency: CaseLatency
    roofline: Roofline
    seconds: float
    node: str | None = None
    cluster_load: float | None = None


def measure(
    context: RunContext, prepared: Prepared, built: Mapping[str, BuiltVariant], evaluated: Evaluated
) -> Iterator[MeasuredCase]:
    """Each open case as soon as its setting is measured, nothing beside it; those whose answers are predicted or
    emulated first, as they are. What a setting keeps for a resumed run is removed once its cases were taken."""
    cases = context.tracker.open_cases()
    yield from (_leave_unmeasured(built, planned) for planned in cases if _is_unmeasured(evaluated, planned))
    settings = group_by_setting(planned for planned in cases if not _is_unmeasured(evaluated, planned))
    context.progress.stage("measure", len(settings))
    groups = [(setting_name(of_setting), planned) for of_setting, planned in settings.items()]
    for measured in _measure_settings(context, prepared, built, evaluated, groups):
        for planned in measured.planned:
            if (latency := measured.latencies.get(planned.case.id)) is not None:
                artifact = built[planned.case.variant.id].artifact
                calm = latency.interference.calm_seconds if latency.interference else None
                # The peak is that of this core with all its instructions.
                limit = measured.peak if registry.load("host", planned.case.host).kind != "limited" else None
                share = roofline(planned.case, artifact, latency.latency, limit, calm)
                yield MeasuredCase(
                    planned=planned,
                    latency=latency,
                    roofline=share,
                    seconds=measured.seconds / len(measured.planned),
                    node=measured.node,
                    cluster_load=measured.cluster_load,
                )


def _measure_settings(
    context: RunContext,
    prepared: Prepared,
    built: Mapping[str, BuiltVariant],
    evaluated: Evaluated,
    settings: Settings,
) -> Iterator[MeasuredSetting]:
    """Each setting as it is measured: those of hosts that are nodes of a cluster there, the others on this machine."""

    def enter(planned: Sequence[PlannedCase]) -> list[Arm]:
        known = [describe_case(context, built, evaluated, each) for each in planned]
        return enter_race(planned, known, context.suite, context.directory.path)

    fleet = context.fleet
    here: Settings = settings
    if fleet is not None:
        elsewhere = [each for each in settings if fleet.find_class(each[1][0].case.host)]
        here = [each for each in settings if not fleet.find_class(each[1][0].case.host)]
        artifacts = {variant: known.artifact for variant, known in built.items()}
        yield from measure_on_nodes(context, fleet, prepared.data, elsewhere, artifacts, enter)
    if here:
        yield from _measure_here(context, prepared, built, here, enter)


def _measure_here(
    context: RunContext,
    prepared: Prepared,
    built: Mapping[str, BuiltVariant],
    settings: Settings,
    enter: Callable[[Sequence[PlannedCase]], list[Arm]],
) -> Iterator[MeasuredSetting]:
    core_peak = measure_peak(context)
    measurer = GroupMeasurer(
        suite=context.suite,
        data=prepared.data,
        cores=context.cores,
        folder=context.directory.path,
        limits=context.limits,
        calm_ns=core_peak.canary_seconds * 1e9 if core_peak and core_peak.canary_seconds else None,
    )
    for number, (name, planned) in enumerate(settings):
        started = time.monotonic()
        latencies = measurer.measure(
            enter(planned),
            {each.case.id: each.case for each in planned},
            {each.case.id: built[each.case.variant.id].artifact for each in planned},
            tell=_tell_both(context, number, len(settings)),
            done=context.tracker.done,
        )
        context.progress.advance(name)
        if core_peak is not None and core_peak.is_shared(measurer.calm_seconds):
            core_peak = measure_peak(context, measurer.calm_seconds) or core_peak
        seconds = time.monotonic() - started
        yield MeasuredSetting(planned=planned, latencies=latencies, peak=core_peak, seconds=seconds)
        measurer.remove_checkpoints()


def _is_unmeasured(evaluated: Evaluated, planned: PlannedCase) -> bool:
    host = evaluated[planned.case.id].host
    return host is not None and host.kind in ("predicted", "emulated")


def _leave_unmeasured(built: Mapping[str, BuiltVariant], planned: PlannedCase) -> MeasuredCase:
    """A case that has answers and no latency."""
    share = roofline(planned.case, built[planned.case.variant.id].artifact, None, None)
    return MeasuredCase(planned=planned, latency=CaseLatency(reason=None), roofline=share, seconds=0.0)


def _tell_both(context: RunContext, done: int, settings: int) -> Tell:
    """Tells how far the race in hand is, and with it the stage: few settings take long, so that their count alone says
    little."""

    def tell(text: str, share: float) -> None:
        context.progress.reach((done + share) / settings)
        context.progress.advance(text, share)

    return tell


def measure_peak(context: RunContext, calm_seconds: float | None = None) -> Peak | None:
    """What this core can do at most: from the cache, or measured now in a few seconds; measured again where the canary,
    which takes ``calm_seconds`` on this core alone, shows that it was shared then and is not now."""
    try:
        return peak.measure_peak(
            context.cache,
            limits=context.limits,
            cores=context.cores,
            calm_seconds=calm_seconds,
            progress=context.progress.advance,
        )
    except CaseError as error:
        context.progress.note(f"the peak of this core is not known: {error}")
        return None


def describe_case(
    context: RunContext, built: Mapping[str, BuiltVariant], evaluated: Evaluated, planned: PlannedCase
) -> Record:
    """What is known of a case before it is measured."""
    case = planned.case
    artifact, evaluation = built[case.variant.id].artifact, evaluated[case.id]
    return Record(
        case=case.key,
        status="ok",
        reference=planned.added,
        recipe=describe_recipe(artifact.recipe),
        artifact=artifact.facts(),
        accuracy=evaluation.accuracy,
        predictions=f"predictions/{evaluation.predictions.name}",
        layers=context.directory.layers(case.variant.id),
        host=evaluation.host,
        started=context.started,
    )


def make_record(
    context: RunContext, built: Mapping[str, BuiltVariant], evaluated: Evaluated, measured: MeasuredCase
) -> Record:
    """All that the stages know of a measured case."""
    latency = measured.latency
    failed = latency.reason is not None
    described = describe_case(context, built, evaluated, measured.planned)
    return replace(
        described,
        host=_place_host(described.host, measured),
        status="failed" if failed else "ok",
        stage="measure" if failed else None,
        reason=_name_host(latency.reason, measured.planned.case.host),
        observed=latency.observed,
        latency=latency.latency,
        speedup=latency.speedup,
        speedup_fastest=latency.speedup_fastest,
        sequential=latency.sequential,
        interference=latency.interference,
        throughput_per_second=latency.throughput_per_second,
        cold_start=latency.cold_start,
        memory=latency.memory,
        roofline=measured.roofline,
        samples=latency.samples,
        elapsed_seconds=_list_seconds(built, evaluated, measured),
    )


def _name_host(reason: str | None, host: str) -> str | None:
    """The reason, which on another host than ``native`` is what shipping the artifact there would give."""
    return reason if reason is None or host == NATIVE else f"does not run on {host}: {reason}"


def _place_host(host: HostFacts | None, measured: MeasuredCase) -> HostFacts | None:
    """The host with the node that measured the case; as it is where this machine did."""
    if measured.node is None:
        return host
    host = host or HostFacts(kind="native", cpu=fingerprint.cpu_model())
    return replace(host, node=measured.node, cluster_load=measured.cluster_load)


def _list_seconds(built: Mapping[str, BuiltVariant], evaluated: Evaluated, measured: MeasuredCase) -> dict[str, float]:
    """Seconds by stage of one case."""
    case = measured.planned.case
    seconds = {"build": built[case.variant.id].seconds, "evaluate": evaluated[case.id].seconds}
    if (calibrations := evaluated[case.id].calibration_seconds) is not None:
        seconds["calibrations"] = calibrations
    seconds["measure"] = measured.seconds
    return {stage: round(value, 3) for stage, value in seconds.items()}
