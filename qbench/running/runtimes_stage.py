"""A run's third stage, at its end: variants that are one network on two runtimes, held against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from qbench.decide.cases import group_by_setting
from qbench.errors import CaseError
from qbench.evaluate.runtime_difference import Difference, RuntimeVariant, difference, list_differing, pairs
from qbench.plan.planner import PlannedCase
from qbench.record.schema import NATIVE, OtherRuntime
from qbench.running.build_stage import BuiltVariant
from qbench.running.context import RunContext
from qbench.running.evaluate_stage import Evaluated, EvaluatedCase
from qbench.running.prepare_stage import Prepared


def compare_runtimes(
    context: RunContext, prepared: Prepared, built: Mapping[str, BuiltVariant], evaluated: Evaluated
) -> dict[str, EvaluatedCase]:
    """The evaluated cases; the accuracy of two that differ by more than rounding explains names the other. Where that
    cannot be looked at, it is noted; no case fails."""
    result = dict(evaluated)
    pairs_of_cases = _list_pairs(context, built, evaluated)
    if not pairs_of_cases:
        return result
    context.progress.stage("runtimes", len(pairs_of_cases))
    differing = _list_differing(context, built, evaluated, pairs_of_cases)
    differences: dict[tuple[str, str], Difference | None] = {}
    for first, second in pairs_of_cases:
        files = _name_files(evaluated, first, second)
        if files in differing and files not in differences:
            differences[files] = _compare(context, prepared, built, evaluated, first, second)
        if (between := differences.get(files)) is not None:
            result[first.case.id] = _with_difference(result[first.case.id], second, between)
            result[second.case.id] = _with_difference(result[second.case.id], first, between)
        context.progress.advance(f"{first.case.id} and {second.case.variant.backend}")
    return result


def _name_files(evaluated: Evaluated, first: PlannedCase, second: PlannedCase) -> tuple[str, str]:
    """The files of predictions of two cases."""
    return evaluated[first.case.id].predictions.name, evaluated[second.case.id].predictions.name


def _list_differing(
    context: RunContext,
    built: Mapping[str, BuiltVariant],
    evaluated: Evaluated,
    pairs_of_cases: Sequence[tuple[PlannedCase, PlannedCase]],
) -> set[tuple[str, str]]:
    """The files of those that differ by more than rounding explains; all where the process that looks fails."""
    named = {_name_files(evaluated, *pair): pair for pair in pairs_of_cases}
    variants = [
        (_describe_variant(built, evaluated, first), _describe_variant(built, evaluated, second))
        for first, second in named.values()
    ]
    try:
        positions = list_differing(variants, limits=context.limits, progress=context.report_under("all"))
    except CaseError:
        return set(named)
    return {list(named)[position] for position in positions}


def _list_pairs(
    context: RunContext, built: Mapping[str, BuiltVariant], evaluated: Evaluated
) -> list[tuple[PlannedCase, PlannedCase]]:
    """The pairs of open cases that are one network in one setting on the native host (elsewhere engines differ by how
    they add, which `qbench portability` says), at least one of them scored now."""
    cases = [
        planned
        for planned in context.tracker.open_cases()
        if planned.case.id in evaluated and planned.case.host == NATIVE
    ]
    return [
        (group[first], group[second])
        for members in group_by_setting(cases).values()
        for group in [{planned.case.id: planned for planned in members}]
        for first, second in pairs([(name, built[p.case.variant.id].artifact) for name, p in group.items()])
        if evaluated[first].accuracy is not None or evaluated[second].accuracy is not None
    ]


def _compare(
    context: RunContext,
    prepared: Prepared,
    built: Mapping[str, BuiltVariant],
    evaluated: Evaluated,
    first: PlannedCase,
    second: PlannedCase,
) -> Difference | None:
    """What the two differ by; None where rounding explains it, and where it cannot be looked at."""
    report = context.report_under(first.case.id)
    ours, theirs = (_describe_variant(built, evaluated, planned) for planned in (first, second))
    try:
        between: Difference | None = difference(ours, theirs, prepared.data, limits=context.limits, progress=report)
    except CaseError as error:
        context.note_missing(first.case.id, f"not compared with {second.case.variant.backend}: {error}")
        return None
    return between


def _describe_variant(built: Mapping[str, BuiltVariant], evaluated: Evaluated, planned: PlannedCase) -> RuntimeVariant:
    artifact = built[planned.case.variant.id].artifact
    fp32 = None if planned.reference is None else evaluated.get(planned.reference.id)
    return RuntimeVariant(
        backend=artifact.backend,
        file=artifact.file,
        format=artifact.built.format,
        predictions=evaluated[planned.case.id].predictions,
        fp32=None if fp32 is None else fp32.predictions,
    )


def _with_difference(case: EvaluatedCase, partner: PlannedCase, between: Difference) -> EvaluatedCase:
    """The case whose accuracy names what it differs from; one without a score stays as it is."""
    if case.accuracy is None:
        return case
    runtime = OtherRuntime(
        case=partner.case.id, between_db=between.between_db, better_db=between.better_db, layer=between.layer
    )
    return replace(case, accuracy=replace(case.accuracy, other_runtime=runtime))
