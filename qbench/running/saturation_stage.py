"""A run's third stage, behind its scores: which layers lose sums on hosts that were limited, where answers differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from qbench.data import Data
from qbench.errors import CaseError, CaseSkipped
from qbench.evaluate.predictions import load_predictions
from qbench.evaluate.saturation_count import count_cached
from qbench.metrics.base import list_outputs
from qbench.modes import is_int8
from qbench.plan.planner import Case
from qbench.record.schema import NATIVE, HostFacts
from qbench.running.build_stage import BuiltVariant
from qbench.running.context import RunContext
from qbench.running.evaluate_stage import Evaluated, EvaluatedCase
from qbench.running.prepare_stage import Prepared

_RUNTIME_ERRORS = (CaseError, CaseSkipped)


def name_layers(
    context: RunContext, prepared: Prepared, built: Mapping[str, BuiltVariant], evaluated: Evaluated
) -> dict[str, EvaluatedCase]:
    """The cases, those of limited hosts whose kernels add in 16 bits with the layers that lose sums there. Counted is
    where the answers are not those of the native host, once for each artifact; no case fails by it."""
    cases = {planned.case.id: planned.case for planned in context.tracker.planned if planned.case.id in evaluated}
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in cases.values():
        if _loses_sums(case, evaluated[case.id], _find_native(case, cases, evaluated)):
            groups.setdefault((case.variant.id, case.host), []).append(case)
    if not groups:
        return dict(evaluated)
    context.progress.stage("saturation", len(groups))
    named = context.run_parallel(
        "saturation", list(groups.values()), lambda group: _name_each(context, prepared.data, built, group, evaluated)
    )
    return {**evaluated, **{case: evaluation for group in named for case, evaluation in group.items()}}


def _find_native(case: Case, cases: Mapping[str, Case], evaluated: Evaluated) -> EvaluatedCase | None:
    """The same artifact on the native host, whatever its threads and, but for dynamic ones, its batch."""
    for candidate in cases.values():
        same = candidate.variant.id == case.variant.id and candidate.host == NATIVE
        if same and (case.variant.mode != "dynamic" or candidate.batch_size == case.batch_size):
            return evaluated[candidate.id]
    return None


def _loses_sums(case: Case, evaluation: EvaluatedCase, native: EvaluatedCase | None) -> bool:
    """Whether a case's kernels add in 16 bits and it answers otherwise than on the native host, as far as is known."""
    host = evaluation.host
    if not is_int8(case.variant.mode) or host is None or (host.kind, host.int8_sums) != ("limited", "16 bits"):
        return False
    if native is None:
        return True
    there, here = (load_predictions(each.predictions) for each in (evaluation, native))
    shared = [name for name in list_outputs(there) if name in here]
    return not all(np.array_equal(there[name], here[name], equal_nan=there[name].dtype.kind == "f") for name in shared)


def _name_each(
    context: RunContext,
    data: Data,
    built: Mapping[str, BuiltVariant],
    cases: list[Case],
    evaluated: Evaluated,
) -> dict[str, EvaluatedCase]:
    """The cases of one artifact on one host with its layers, or with why they are not known."""
    first, facts = cases[0], dict[str, object]()
    try:
        count = count_cached(
            built[first.variant.id].artifact,
            data,
            first.host,
            root=context.cache,
            limits=context.limits,
            progress=context.report_under(f"{first.variant.id} on {first.host}"),
        )
        facts = {"saturating": count.layers, "counted_examples": count.examples, "uncounted": count.unknown}
    except _RUNTIME_ERRORS as error:
        facts = {"uncounted": str(error)}
    context.progress.advance(f"{first.variant.id} on {first.host}")
    return {case.id: replace(evaluated[case.id], host=_with_facts(evaluated[case.id].host, facts)) for case in cases}


def _with_facts(host: HostFacts | None, facts: Mapping[str, object]) -> HostFacts | None:
    return None if host is None else replace(host, **facts)  # type: ignore[arg-type]  # fields of HostFacts
