"""A run's last stage: the latency of every open case, one group after the other, and the record of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

from qbench import registry
from qbench.decide import qualify
from qbench.decide.cases import group_by_setting, setting_name
from qbench.errors import QbenchError
from qbench.machine import fingerprint
from qbench.measure.measure import measure_setting, remove_checkpoint
from qbench.measure.protocol import Keep
from qbench.measure.race_rules import Arm, Role
from qbench.measure.roofline import roofline
from qbench.measure.setting import CaseLatency, MeasuredSetting, Setting
from qbench.measure.timed_cores import TimedCores
from qbench.plan.planner import Case, PlannedCase
from qbench.progress.callback import Progress
from qbench.record.schema import NATIVE, HostFacts, Record, Roofline
from qbench.record.stored_run import read_run
from qbench.running.build_stage import BuiltVariant
from qbench.running.case_tracker import describe_recipe
from qbench.running.context import RunContext
from qbench.running.evaluate_stage import Evaluated
from qbench.running.measure_nodes import Settings, measure_on_nodes
from qbench.running.prepare_stage import Prepared
from qbench.running.so_far import follow_race
from qbench.suite import Suite


def measure(
    context: RunContext, suite: Suite, prepared: Prepared, built: Mapping[str, BuiltVariant], evaluated: Evaluated
) -> Iterator[Record]:
    """The record of each open case as soon as its setting is measured, nothing beside it; those whose answers are
    predicted or emulated first, as they are. What a setting keeps for a resumed run is removed once its records were
    taken."""
    cases = context.tracker.open_cases()
    for planned in cases:
        if _is_unmeasured(evaluated, planned):
            answered = MeasuredSetting(latencies={planned.case.id: CaseLatency(reason=None)})
            yield make_record(context, built, evaluated, planned, answered)
    settings = group_by_setting(planned for planned in cases if not _is_unmeasured(evaluated, planned))
    context.progress.stage("measure", len(settings))
    groups = [(setting_name(of_setting), planned) for of_setting, planned in settings.items()]
    for of_setting, measured in _measure_settings(context, suite, prepared, built, evaluated, groups):
        shared = replace(measured, seconds=measured.seconds / len(of_setting))
        for planned in of_setting:
            if planned.case.id in measured.latencies:
                yield make_record(context, built, evaluated, planned, shared)


def _measure_settings(
    context: RunContext,
    suite: Suite,
    prepared: Prepared,
    built: Mapping[str, BuiltVariant],
    evaluated: Evaluated,
    settings: Settings,
) -> Iterator[tuple[Sequence[PlannedCase], MeasuredSetting]]:
    """Each setting as it is measured: those of hosts that are nodes of a cluster there, the others on this machine."""

    def enter(planned: Sequence[PlannedCase]) -> Setting:
        described = [describe_case(context, built, evaluated, each) for each in planned]
        return Setting(
            suite=suite,
            data=prepared.data,
            arms=tuple(enter_race(planned, described, suite, context.directory.path)),
            cases={each.case.id: each.case for each in planned},
            artifacts={each.case.id: built[each.case.variant.id].artifact for each in planned},
            limits=context.limits,
            done=frozenset(context.tracker.done),
            timed={
                each.case.id: postprocess
                for each in planned
                if (postprocess := prepared.models[each.case.variant.model.name].postprocess) and postprocess.timed
            },
        )

    def follow(planned: Sequence[PlannedCase]) -> Keep:
        described = [describe_case(context, built, evaluated, each) for each in planned]
        return follow_race(described, suite, context.directory.path, context.progress.note)

    fleet = context.fleet
    here: Settings = settings
    if fleet is not None:
        elsewhere = [each for each in settings if fleet.find_class(each[1][0].case.host)]
        here = [each for each in settings if not fleet.find_class(each[1][0].case.host)]
        yield from measure_on_nodes(context, fleet, elsewhere, enter)
    if here:
        yield from _measure_here(context, here, enter, follow)


def _measure_here(
    context: RunContext,
    settings: Settings,
    enter: Callable[[Sequence[PlannedCase]], Setting],
    follow: Callable[[Sequence[PlannedCase]], Keep],
) -> Iterator[tuple[Sequence[PlannedCase], MeasuredSetting]]:
    folder = context.directory.path
    cores = TimedCores.look_at(context.cores, context.cache, context.limits, context.progress.advance)
    if cores.unknown is not None:
        context.progress.note(f"the peak of this core is not known: {cores.unknown}")
    done, total = 0, sum(len(planned) for _, planned in settings)
    for name, planned in settings:
        setting = enter(planned)
        tell = _tell_both(context, done / total, len(planned) / total)
        measured = measure_setting(setting, folder, cores, tell=tell, hear=follow(planned))
        done += len(planned)
        context.progress.advance(name)
        yield planned, measured
        remove_checkpoint(setting, folder)


def _is_unmeasured(evaluated: Evaluated, planned: PlannedCase) -> bool:
    host = evaluated[planned.case.id].host
    return host is not None and host.kind in ("predicted", "emulated")


def _tell_both(context: RunContext, done: float, of_stage: float) -> Progress:
    """Tells how far the race in hand is, and with it the stage, of which so much is ``done`` and the race is that
    share: few settings take long, and one of 17 cases longer than one of 7, so that their count alone says little."""

    def tell(text: str, share: float) -> None:
        context.progress.reach(done + share * of_stage)
        context.progress.advance(text, share)

    return tell


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
        started=context.tracker.started,
    )


def make_record(
    context: RunContext,
    built: Mapping[str, BuiltVariant],
    evaluated: Evaluated,
    planned: PlannedCase,
    measured: MeasuredSetting,
) -> Record:
    """All that the stages know of a measured case; ``measured``: its setting, with the case's share of the seconds."""
    latency = measured.latencies[planned.case.id]
    failed = latency.reason is not None
    described = describe_case(context, built, evaluated, planned)
    timed = replace(described, **{field.name: getattr(latency, field.name) for field in fields(latency)})
    return replace(
        timed,
        host=_place_host(described.host, measured),
        status="failed" if failed else "ok",
        stage="measure" if failed else None,
        reason=_name_host(latency.reason, planned.case.host),
        roofline=_rate_latency(built, planned, measured),
        elapsed_seconds=_list_seconds(built, evaluated, planned.case, measured),
    )


def _rate_latency(built: Mapping[str, BuiltVariant], planned: PlannedCase, measured: MeasuredSetting) -> Roofline:
    """What share of the core's peak a case reached."""
    latency = measured.latencies[planned.case.id]
    calm = latency.interference.calm_seconds if latency.interference else None
    # The peak is that of this core with all its instructions.
    limit = measured.peak if registry.load("host", planned.case.host).kind != "limited" else None
    return roofline(planned.case, built[planned.case.variant.id].artifact, latency.latency, limit, calm)


def _name_host(reason: str | None, host: str) -> str | None:
    """The reason, which on another host than ``native`` is what shipping the artifact there would give."""
    return reason if reason is None or host == NATIVE else f"does not run on {host}: {reason}"


def _place_host(host: HostFacts | None, measured: MeasuredSetting) -> HostFacts | None:
    """The host with the node that measured the case; as it is where this machine did."""
    if measured.node is None:
        return host
    host = host or HostFacts(kind="native", cpu=fingerprint.cpu_model())
    return replace(host, node=measured.node, cluster_load=measured.cluster_load)


def _list_seconds(
    built: Mapping[str, BuiltVariant], evaluated: Evaluated, case: Case, measured: MeasuredSetting
) -> dict[str, float]:
    """Seconds by stage of one case."""
    seconds = {"build": built[case.variant.id].seconds, "evaluate": evaluated[case.id].seconds}
    if (calibrations := evaluated[case.id].calibration_seconds) is not None:
        seconds["calibrations"] = calibrations
    seconds["measure"] = measured.seconds
    return {stage: round(value, 3) for stage, value in seconds.items()}


def enter_race(planned: Sequence[PlannedCase], records: Sequence[Record], suite: Suite, folder: Path) -> list[Arm]:
    """An arm for each case. ``records``: what is known of them, built and evaluated; ``folder``: the run's, with their
    predictions. An int8 case that FAILs a limit already is screened and no more."""
    failed = _list_failed(records, suite, folder)
    return [
        Arm(
            case=each.case.id,
            role=_find_role(each, failed),
            baseline=None if each.reference is None else each.reference.id,
        )
        for each in sorted(planned, key=lambda each: each.reference is not None)
    ]


def _find_role(planned: PlannedCase, failed: set[str]) -> Role:
    if planned.reference is None:
        return "fp32"
    # An fp32 with a reference is the twin of a QAT case: for its accuracy, not to be shipped.
    is_twin = planned.case.variant.mode == "fp32"
    return "screened_only" if is_twin or planned.case.id in failed else "candidate"


def _list_failed(records: Sequence[Record], suite: Suite, folder: Path) -> set[str]:
    """The int8 cases that cannot be shipped, whatever their latency; none where what is stored cannot be read, which
    the report will say."""
    try:
        run = replace(read_run(folder), records=tuple(records))
        gate = suite.gate.settle_metric(None if run.info.metric is None else run.info.metric.name)
        checks = qualify.qualify(records, metric=run.info.metric, gate=gate, decide=suite.decide, pairs=run.pairs)
    except QbenchError:
        return set()
    return {case for case, of_case in checks.items() if not qualify.may_be_shipped(of_case)}
