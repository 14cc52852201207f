"""A run's third stage, at its end: variants that are one network on two runtimes, held against each other."""

from __future__ import annotations

from dataclasses import replace

from qbench.errors import CaseError
from qbench.plan import PlannedCase
from qbench.record import OtherRuntime
from qbench.run_state import RunState
from qbench.runtime_difference import Arm, Difference, difference, pairs


def compare_runtimes(state: RunState) -> None:
    """Keeps with the accuracy of both cases where they differ by more than rounding explains. Where that cannot be
    looked at, it is noted; no case fails."""
    cases = [one for one in state.ledger.open_cases() if one.case.id in state.predicted]
    wanted = [
        (mine[first], mine[second])
        for mine in _by_setting(cases)
        for first, second in pairs([(name, state.ledger.artifacts[one.case.variant.id]) for name, one in mine.items()])
        if first in state.accuracy or second in state.accuracy
    ]
    if not wanted:
        return
    state.progress.stage("runtimes", len(wanted))
    known: dict[tuple[str, str], Difference | None] = {}
    for one, other in wanted:
        files = (state.predicted[one.case.id].name, state.predicted[other.case.id].name)
        if files not in known:
            known[files] = _difference(state, one, other)
        if (found := known[files]) is not None:
            _keep(state, one, other, found)
            _keep(state, other, one, found)
        state.progress.advance(f"{one.case.id} and {other.case.variant.backend}")


def _by_setting(cases: list[PlannedCase]) -> list[dict[str, PlannedCase]]:
    """The cases of each network, number of threads and batch size, by id."""
    found: dict[tuple[str, int, int], dict[str, PlannedCase]] = {}
    for one in cases:
        key = (one.case.variant.model.name, one.case.threads, one.case.batch_size)
        found.setdefault(key, {})[one.case.id] = one
    return list(found.values())


def _difference(state: RunState, one: PlannedCase, other: PlannedCase) -> Difference | None:
    telling = state.telling(one.case.id)
    try:
        found: Difference | None = difference(
            _arm(state, one), _arm(state, other), state.examples, limits=state.limits, progress=telling
        )
    except CaseError as error:
        state.lacks(one.case.id, f"not compared with {other.case.variant.backend}: {error}")
        return None
    return found


def _arm(state: RunState, one: PlannedCase) -> Arm:
    artifact = state.ledger.artifacts[one.case.variant.id]
    return Arm(
        backend=artifact.backend,
        file=artifact.file,
        format=artifact.format,
        predictions=state.predicted[one.case.id],
        fp32=None if one.baseline is None else state.predicted.get(one.baseline),
    )


def _keep(state: RunState, one: PlannedCase, other: PlannedCase, found: Difference) -> None:
    accuracy = state.accuracy.get(one.case.id)
    if accuracy is not None:
        told = OtherRuntime(
            case=other.case.id, between_db=found.between_db, better_db=found.better_db, layer=found.layer
        )
        state.accuracy[one.case.id] = replace(accuracy, other_runtime=told)
